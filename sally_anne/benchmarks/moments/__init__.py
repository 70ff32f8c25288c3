"""MoMentS: questions on mental states in short films (EMNLP 2025).

Holds: the loader of the official release, and the benchmark's own protocol.
Must not know: models, prompts' chat layout or scores.
"""
