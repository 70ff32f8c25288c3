"""The models behind LIMP: one judges how likely steps are, one writes lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from hooks.batch_size import in_batches
from sally_anne.benchmarks.muma_tom.wording import People
from sally_anne.harness.limp import prompts
from sally_anne.harness.limp.episode import Episode, Hypothesis, steps
from sally_anne.harness.limp.posterior import Judged
from sally_anne.harness.model import Prompt, SteeredModel


class LikelihoodModel(Protocol):
    """Gives the log-probabilities of two answers."""

    def log_probs(self, prompts: Sequence[str], answers: tuple[str, str]) -> list[Judged]:
        """Log-probabilities of both answers as the beginning of each reply, in nats."""


class Writer(Protocol):
    """Writes replies."""

    def write(self, text: str, clip: np.ndarray | None = None) -> str:
        """The reply to a text and frames ``uint8 [F, height, width, 3]``."""


class ModelLikelihood:
    """A model of the harness as a judge, steered or not.

    Args:
        model: who judges.
        batch_size: prompts that go through the model together.
    """

    def __init__(self, model: SteeredModel, batch_size: int = 16) -> None:
        self.model = model
        self.batch_size = batch_size

    def log_probs(self, prompts: Sequence[str], answers: tuple[str, str]) -> list[Judged]:
        """As :class:`LikelihoodModel`."""
        found: list[Judged] = []
        for texts in in_batches(prompts, self.batch_size):
            batch = [Prompt(text) for text in texts]
            scores = self.model.option_log_probs(batch, [answers] * len(batch))
            found += [(likely, unlikely) for likely, unlikely in scores]
        return found


class ModelWriter:
    """A model of the harness as a writer.

    Args:
        model: who writes.
        max_new_tokens: length of a reply.
    """

    def __init__(self, model: SteeredModel, max_new_tokens: int = 256) -> None:
        self.model = model
        self.max_new_tokens = max_new_tokens

    def write(self, text: str, clip: np.ndarray | None = None) -> str:
        """As :class:`Writer`."""
        return self.model.generate([Prompt(text, clip)], self.max_new_tokens)[0]


def judge(
    model: LikelihoodModel, episode: Episode, who: People, options: Mapping[str, Hypothesis]
) -> dict[str, list[Judged]]:
    """How likely each step of the person asked about is under each hypothesis.

    Returns:
        By label, the answers to the steps in their order.

    Raises:
        HarnessError: the episode lacks one of the persons.
    """
    todo = steps(episode.person(who.subject))
    asked = {
        label: [prompts.judge(step, hypothesis, who, episode) for step in todo]
        for label, hypothesis in options.items()
    }
    # Once each: in different batches the same prompt may differ in its last digits, and would
    # settle what nothing in the question does.
    distinct = list(dict.fromkeys(text for texts in asked.values() for text in texts))
    answers = model.log_probs(distinct, prompts.ANSWERS) if distinct else []
    found = dict(zip(distinct, answers, strict=True))
    return {label: [found[text] for text in texts] for label, texts in asked.items()}
