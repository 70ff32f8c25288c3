"""Steering: how vectors are made of a probing run, swept over K and alpha, baked, and measured."""
