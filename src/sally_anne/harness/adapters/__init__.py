"""Steered models for other evaluation harnesses, one package for each; all of them optional."""
