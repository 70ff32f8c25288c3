"""Worlds and questions as plain data.

Holds: each benchmark's stories, media, questions, options and answers, built or read from disk.
Must not know: models, prompts' chat layout, heads, probes or scores.
"""
