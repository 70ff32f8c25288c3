"""MimeQA (Li et al., 2025): open questions about films of mime, which is acted without words.

Holds: the reading of its CSV, and what the benchmark is to the harness.
Must not know: how replies to open questions are judged.
"""
