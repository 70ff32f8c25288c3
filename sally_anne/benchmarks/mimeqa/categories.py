"""The kinds of questions, by level (MimeQA paper, section 3.1), and how files spell them."""

from __future__ import annotations

import re

# In the order of the paper's figure 9.
LEVELS: dict[str, str] = {
    "Grounding the imagined": "grounding",
    "Intention": "scene",
    "Affect recognition": "scene",
    "Temporal": "scene",
    "Theory of mind": "global",
    "Social judgment": "global",
    "Working memory": "global",
}
CATEGORIES: tuple[str, ...] = tuple(LEVELS)

_SPELLINGS: dict[str, tuple[str, ...]] = {
    "Grounding the imagined": ("grounding", "groundingtheimagined", "gi"),
    "Intention": (
        "intention",
        "intentions",
        "intentionandbehavior",
        "intentionandbehaviour",
        "intentionandbehaviorunderstanding",
        "intentionandbehaviourunderstanding",
        "i",
    ),
    "Affect recognition": ("affectrecognition", "affect", "ar"),
    "Temporal": ("temporal", "temporalreasoning", "t"),
    # The official file calls it perspective taking, the paper theory of mind.
    "Theory of mind": (
        "theoryofmind",
        "perspectivetaking",
        "perspectivetakingtheoryofmind",
        "theoryofmindperspectivetaking",
        "tom",
    ),
    "Social judgment": ("socialjudgment", "socialjudgement", "sj"),
    "Working memory": ("workingmemory", "wm"),
}
_BY_SPELLING = {word: name for name, words in _SPELLINGS.items() for word in words}


def category_of(text: str) -> str | None:
    """The category that a file means; None for none of them.

    Case, spaces, punctuation and the level before it ("Scene-Level: Temporal") do not matter.
    """
    letters = re.sub(r"[^a-z]", "", text.lower())
    for level in ("scenelevel", "globallevel", "groundinglevel", "scene", "global"):
        if letters.startswith(level) and letters != level:
            letters = letters.removeprefix(level)
            break
    return _BY_SPELLING.get(letters)
