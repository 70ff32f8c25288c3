"""What a model answers, and how often it is right.

Holds: prompts, reading of answers, scoring, metrics, the run.
Must not know: probing, steering; imports `figures`, `data`, `models`, `hooks` and `core`.
"""
