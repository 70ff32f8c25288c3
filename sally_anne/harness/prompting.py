"""How a question is put to a model: the words that stand around it, the same for all benchmarks.

``direct`` asks for the answer alone. ``cot`` asks for thoughts first (zero-shot chain of thought,
Kojima et al. 2022); the answer is read from the end of the reply. ``few-shot`` shows other
questions with their answers first (harness/examples.py). In AxBench (Wu et al. 2025) prompts steer
better than any vector, so that a steered model's figures need these beside them.
"""

from __future__ import annotations

from typing import Literal

Prompting = Literal["direct", "cot", "few-shot"]
# Tokens of a reply that thinks before it answers.
THOUGHTS = 512

# Fields in braces are the benchmarks'; {form} is what an answer is, such as "A or B".
THINK = (
    "Think step by step first: what happens, and what of it can each person see or hear? Then "
    'write a last line: "Answer:" and {form}.'
)
