"""How a question is put to a model: the words that stand around it, the same for all benchmarks.

``direct`` asks for the answer alone. ``cot`` asks for thoughts first (zero-shot chain of thought,
Kojima et al. 2022); the answer is read from the end of the reply. ``few-shot`` shows other
questions with their answers first (harness/examples.py). ``simtom`` asks in two steps (Wilf et al.
2023): the model retells what the person asked about knows, and then has the question with that
alone, without the story and its frames. In AxBench (Wu et al. 2025) prompts steer better than any
vector, so that a steered model's figures need these beside them.
"""

from __future__ import annotations

from typing import Literal

Baseline = Literal["cot", "simtom", "few-shot"]
Prompting = Literal["direct", Baseline]
# Tokens of a reply that thinks before it answers, and of one that retells what a person knows.
THOUGHTS, RETOLD = 512, 256

# Where the second step has what was retold in the first.
KNOWN_MARK = "<what is known>"

# Fields in braces are the benchmarks'; {form} is what an answer is, such as "A or B".
THINK = (
    "Think step by step first: what happens, and what of it can each person see or hear? Then "
    'write a last line: "Answer:" and {form}.'
)
# Before these stands the story, and the question where it is not known whose perspective it takes.
_RETELL = (
    "Tell in order what {person} sees, hears, does or is told, and nothing else. Leave out all "
    "that happens where {person} cannot notice it."
)
_RETELL_ASKED = (
    "Do not answer this question yet. Whose mind is it about? Tell in order what that person sees, "
    "hears, does or is told, and nothing else. Leave out all that happens where that person cannot "
    "notice it."
)


def retell(person: str, question: str) -> str:
    """What the first step of SimToM asks for, after the story.

    ``question`` stands before it where no ``person`` is known, as then the question must tell.
    """
    asked = f"Question: {question}\n{_RETELL_ASKED}"
    return _RETELL.format(person=person) if person else asked


def known(person: str) -> str:
    """How the second step begins; the reply of the first stands for :data:`KNOWN_MARK`."""
    who = person or "the person asked about"
    return f"This is all that {who} knows:\n{KNOWN_MARK}"
