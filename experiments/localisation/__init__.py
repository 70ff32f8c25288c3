"""Localisers on models whose heads are known: ``sally-anne localisation``.

Holds: the recipe by which a belief is planted in chosen heads, decoys, localisers and their scores.
Must not know: which heads anything else finds; the truth of a model lies with its weights.
"""
