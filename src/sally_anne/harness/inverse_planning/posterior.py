"""How much each hypothesis is believed after all steps, and the option that follows from that."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from scipy.special import log_expit, log_softmax

from sally_anne.core.errors import HarnessError
from sally_anne.data.items import Polarity
from sally_anne.harness.inverse_planning import Mode

Asked = TypeVar("Asked", bound=Hashable)
Answer = TypeVar("Answer")
# Log-probabilities of the answers "likely" and "unlikely", in nats.
Judged = tuple[float, float]
# Log-probability of a step as a reply, in nats, and the number of its tokens.
Said = tuple[float, int]


class HeldBack(HarnessError):
    """A step that cannot be judged, which leaves its question without an answer."""


def judge(
    model: Callable[[list[Asked]], list[Answer]], asked: Mapping[str, Sequence[Asked]]
) -> dict[str, list[Answer]]:
    """The model's answers to all steps of each hypothesis, by its label, each asked once.

    In different batches the same prompt may differ in its last digits, and would settle what
    nothing in the question does.
    """
    distinct = list(dict.fromkeys(step for steps in asked.values() for step in steps))
    found = dict(zip(distinct, model(distinct) if distinct else [], strict=True))
    return {label: [found[step] for step in steps] for label, steps in asked.items()}


@dataclass(frozen=True)
class Posterior:
    """How much each option's hypothesis is believed after all steps, by label, with equal priors.

    ``log`` holds logarithms; ``official`` what the released code takes for probabilities. How steps
    are weighed in them is said by :func:`of_judged` and :func:`of_said`.
    """

    log: dict[str, float]
    official: dict[str, float]

    def choose(self, polarity: Polarity, mode: Mode = "log") -> str | None:
        """The option asked for; None if the best ones are equal, which chooses none of them."""
        scores = self.log if mode == "log" else self.official
        wanted = (max if polarity == "most" else min)(scores.values(), default=math.nan)
        labels = [label for label, score in scores.items() if score == wanted]
        return labels[0] if len(labels) == 1 else None


def of_judged(judged: Mapping[str, Sequence[Judged]]) -> Posterior:
    """Weigh hypotheses by the answers "likely" and "unlikely" to all steps, for each label.

    ``log``: logarithms, of the part of "likely" among the two answers, p / (p + q), summed over the
    steps. It neither underflows nor depends on what else the model might reply.

    ``official``: as in LIMP's released code, the probability p of "likely" as it is, multiplied
    over the steps, and a softmax over these products. As they are at most 1, it is nearly flat, and
    products below about 1e-16 cannot be told from each other in it.
    """
    _check(judged, lambda pair: pair)
    sums = {label: math.fsum(map(log_preference, pairs)) for label, pairs in judged.items()}
    products = {label: math.prod(math.exp(p) for p, _ in pairs) for label, pairs in judged.items()}
    return Posterior(_log_softmax(sums), _softmax(products))


def of_said(said: Mapping[str, Sequence[Said]]) -> Posterior:
    """Weigh hypotheses by how probable all steps are as replies, for each label.

    ``log``: log-probabilities of the steps, summed. ``official``: as in BIP-ALM's released code,
    those of a step's tokens in the mean, summed over the steps, which makes all steps as long.
    """
    _check(said, lambda step: step[:1])
    sums = {label: math.fsum(p for p, _ in steps) for label, steps in said.items()}
    means = {label: math.fsum(p / n for p, n in steps) for label, steps in said.items()}
    return Posterior(_log_softmax(sums), _softmax(means))


def log_preference(pair: Judged) -> float:
    """log(p / (p + q)) from log p and log q; two impossible answers tell nothing: log(1/2)."""
    likely, unlikely = pair
    return float(log_expit(0.0 if likely == unlikely else likely - unlikely))


def _check(
    steps: Mapping[str, Sequence[Answer]], logs: Callable[[Answer], tuple[float, ...]]
) -> None:
    if len({len(answers) for answers in steps.values()}) > 1:
        counts = ", ".join(f"{label}: {len(answers)}" for label, answers in steps.items())
        raise HarnessError(f"every option needs the same steps, got {counts}")
    for label, answers in steps.items():
        for number, answer in enumerate(answers):
            # A little above 0 is rounding.
            if not all(value <= 1e-3 for value in logs(answer)):
                raise HarnessError(
                    f"option {label}, step {number}: {answer} are no log-probabilities"
                )


def _softmax(scores: Mapping[str, float]) -> dict[str, float]:
    return {label: math.exp(value) for label, value in _log_softmax(scores).items()}


def _log_softmax(scores: Mapping[str, float]) -> dict[str, float]:
    if max(scores.values(), default=-math.inf) == -math.inf:
        return dict.fromkeys(scores, -math.log(max(1, len(scores))))
    return dict(zip(scores, log_softmax(list(scores.values())).tolist(), strict=True))
