"""Names -> weights, processor and chat layout.

Holds: the catalogue of model names, loading, and how prompts and frames become a model's inputs.
Must not know: benchmarks, probes or steering.
"""
