"""Models whose replies are known, and hand-made questions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from sally_anne.data.items import Context, Media, Option, Polarity, Question
from sally_anne.data.muma_tom import People
from sally_anne.harness.planning import LikelyUnlikely

WHO = People("Dee", "Cy")


def logs(*pairs: tuple[float, float]) -> list[LikelyUnlikely]:
    """Probabilities of "likely" and "unlikely" as log-probabilities."""
    return [(math.log(p), math.log(q)) for p, q in pairs]


@dataclass
class ScriptedLikelihood:
    """Judges by a rule.

    Attributes:
        rule: gives the probabilities of both answers to a prompt.
        asked: all prompts so far.
    """

    rule: Callable[[str], tuple[float, float]]
    asked: list[str] = field(default_factory=list)

    def __call__(self, prompts: Sequence[str]) -> list[LikelyUnlikely]:
        self.asked += prompts
        return logs(*(self.rule(prompt) for prompt in prompts))


@dataclass
class ScriptedWriter:
    """Writes the first reply whose cue is in the prompt.

    Attributes:
        replies: by cue.
        asked: all prompts so far, and whether there were frames.
    """

    replies: dict[str, str]
    asked: list[tuple[str, bool]] = field(default_factory=list)

    def __call__(self, text: str, clip: np.ndarray | None = None) -> str:
        self.asked.append((text, clip is not None))
        return next(reply for cue, reply in self.replies.items() if cue in text)


def question(
    text: str,
    options: Sequence[str],
    answer: str = "A",
    polarity: Polarity = "most",
    context: Context = Context(),  # noqa: B008
    kind: str = "social_goal",
    number: str = "1",
    group: str = "7",
) -> Question:
    choices = tuple(Option(*pair) for pair in zip("ABC", options, strict=True))
    about = {"tags": {"type": (kind,), "polarity": (polarity,)}, "polarity": polarity}
    about |= {"context": context, "media": (Media(),)}
    return Question(f"{group}/{number}", "muma_tom", "test", group, text, choices, answer, **about)


def social(polarity: Polarity = "most", answer: str = "B", number: str = "1") -> Question:
    """Does Dee help (A) or hinder (B) Cy, or neither (C)?"""
    return question(
        f"Given this talk, assuming that Dee knows what is on the bed, which of the "
        f"following statements is {polarity.upper()} likely?",
        (
            "When giving information, Dee has been trying to help Cy locate the hat",
            "When giving information, Dee has been trying to prevent Cy from finding the hat",
            "When giving information, Dee was indifferent towards Cy's goals",
        ),
        answer,
        polarity,
        Context(dialogue="Cy: Have you seen a hat?\nDee: It lies on the bed."),
        number=number,
    )


def goal(polarity: Polarity = "most", answer: str = "A", number: str = "1") -> Question:
    """What does Dee think that Cy wants with the pear?"""
    return question(
        f"Which of the following statements is {polarity.upper()} likely?",
        (
            "Dee believed that Cy wants to place the pear inside the oven: she moved the pear to "
            "help Cy.",
            "Dee believed that Cy placed the pear at his desired location: she intentionally moved "
            "the pear to the oven to hinder Cy.",
            "Dee doesn't know Cy's goal and moves the pear without thinking about what he wants.",
        ),
        answer,
        polarity,
        Context(actions="Dee took the pear that Cy had left and put it inside the oven."),
        kind="belief_of_goal",
        number=number,
        group="9",
    )
