"""How likely steps are under each hypothesis, and the option that follows from that."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from scipy.special import log_expit, log_softmax

from sally_anne.benchmarks.items import Polarity
from sally_anne.benchmarks.muma_tom import People
from sally_anne.core.errors import HarnessError
from sally_anne.harness.limp import prompts
from sally_anne.harness.limp.command import Mode
from sally_anne.harness.limp.episode import Episode, Hypothesis, steps

MODES: tuple[Mode, ...] = get_args(Mode)
# Log-probabilities of the answers "likely" and "unlikely", in nats.
Judged = tuple[float, float]
# Prompts and both answers to the log-probabilities of these as the beginning of each reply.
LikelihoodModel = Callable[[Sequence[str], tuple[str, str]], list[Judged]]


class HeldBack(HarnessError):
    """A step that cannot be judged, which leaves its question without an answer."""


def judge(
    model: LikelihoodModel, episode: Episode, who: People, options: Mapping[str, Hypothesis]
) -> dict[str, list[Judged]]:
    """How likely each step of the person asked about is under each hypothesis, by its label."""
    todo = steps(episode.person(who.subject))
    asked = {
        label: [prompts.judge(step, hypothesis, who, episode) for step in todo]
        for label, hypothesis in options.items()
    }
    # Once each: in different batches the same prompt may differ in its last digits, and would
    # settle what nothing in the question does.
    distinct = list(dict.fromkeys(text for texts in asked.values() for text in texts))
    answers = model(distinct, prompts.ANSWERS) if distinct else []
    found = dict(zip(distinct, answers, strict=True))
    return {label: [found[text] for text in texts] for label, texts in asked.items()}


@dataclass(frozen=True)
class Posterior:
    """How much each option's hypothesis is believed after all steps, by label, with equal priors.

    ``log``: logarithms, of the part of "likely" among the two answers, p / (p + q), summed over the
    steps. It neither underflows nor depends on what else the model might reply.

    ``official``: as in the released code, the probability p of "likely" as it is, multiplied over
    the steps, and a softmax over these products. As they are at most 1, it is nearly flat, and
    products below about 1e-16 cannot be told from each other in it.
    """

    log: dict[str, float]
    official: dict[str, float]

    def choose(self, polarity: Polarity, mode: Mode = "log") -> str | None:
        """The option asked for; None if the best ones are equal, which chooses none of them."""
        scores = self.log if mode == "log" else self.official
        wanted = (max if polarity == "most" else min)(scores.values(), default=math.nan)
        labels = [label for label, score in scores.items() if score == wanted]
        return labels[0] if len(labels) == 1 else None


def posterior(judged: Mapping[str, Sequence[Judged]]) -> Posterior:
    """Weigh hypotheses by the answers to all steps, in their order, for each label."""
    if len({len(pairs) for pairs in judged.values()}) > 1:
        counts = ", ".join(f"{label}: {len(pairs)}" for label, pairs in judged.items())
        raise HarnessError(f"every option needs the same steps, got {counts}")
    for label, pairs in judged.items():
        for number, pair in enumerate(pairs):
            # A little above 0 is rounding.
            if not all(value <= 1e-3 for value in pair):
                raise HarnessError(
                    f"option {label}, step {number}: {pair} are no log-probabilities"
                )
    sums = {label: math.fsum(map(log_preference, pairs)) for label, pairs in judged.items()}
    products = {label: math.prod(math.exp(p) for p, _ in pairs) for label, pairs in judged.items()}
    logs = _log_softmax(products)
    return Posterior(_log_softmax(sums), {label: math.exp(value) for label, value in logs.items()})


def log_preference(pair: Judged) -> float:
    """log(p / (p + q)) from log p and log q; two impossible answers tell nothing: log(1/2)."""
    likely, unlikely = pair
    return float(log_expit(0.0 if likely == unlikely else likely - unlikely))


def _log_softmax(scores: Mapping[str, float]) -> dict[str, float]:
    if max(scores.values(), default=-math.inf) == -math.inf:
        return dict.fromkeys(scores, -math.log(max(1, len(scores))))
    return dict(zip(scores, log_softmax(list(scores.values())).tolist(), strict=True))
