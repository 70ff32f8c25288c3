"""Finished evaluations of the same questions beside each other: ``sally-anne compare``."""
