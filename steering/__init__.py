"""Steering: vectors on the heads that tell belief from fact, added while a model answers.

Holds the vector and its file, how vectors are made from a probing run, baking into weights, and
sweeps over K and alpha. Must not know figures or experiments.
"""
