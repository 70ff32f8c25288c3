"""Can a question be answered from its options alone? Algorithm 1 of the MoMentS paper.

The algorithm shuffles the options N times, asks a model without any context, counts how often it
finds the right answer, and flags the set of distractors as biased if that is k times or more
(section 4.2: N = 6, k = 5). Where it leaves something open, this is how it is read:

- Each shuffle draws one of all orders, whichever were drawn before. Labels stay in place and texts
  move, so that A is always shown first.
- The threshold is tested after all trials. Tested inside the loop it would flag the same sets.
- Answers are compared as texts: an option that says the same as the right one is right, too.
- A reply that chooses nothing is a trial without the right answer.
- A set that is not flagged is not biased.

A model that decodes greedily answers one order always alike. Then all orders can be asked instead
of a sample: R right ones of n! orders make each trial right with probability R / n!, so that the
sample of N would be flagged with a probability known exactly; the set is called biased here if
R / n! >= k / N.

``python -m sally_anne.harness.distractors --data FOLDER`` does this for the questions of MoMentS.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sally_anne.benchmarks.items import Option
from sally_anne.core.commands import command
from sally_anne.core.errors import HarnessError
from sally_anne.harness.distractors_config import DistractorConfig

TRIALS, THRESHOLD = 6, 5
# 8 options have 40,320 orders.
MOST_OPTIONS = 6

Order = tuple[int, ...]
# Question and options as shown, without context, to the label that is chosen; None for none.
Scorer = Callable[[str, Sequence[Option]], str | None]


@dataclass(frozen=True)
class Verdict:
    """What a set of distractors is worth.

    Attributes:
        orders: number of orders that were asked: N, or all.
        right: how often the right answer was chosen.
        invalid: how often nothing was chosen.
        biased: whether the set is flagged.
        flag_probability: how probable the flag is with N drawn orders; None if only those were
            asked.
    """

    orders: int
    right: int
    invalid: int
    biased: bool
    flag_probability: float | None = None


def assess(
    question: str,
    options: Sequence[Option],
    answer: str,
    scorer: Scorer,
    *,
    trials: int = TRIALS,
    threshold: int = THRESHOLD,
    seed: str | int = 0,
    exact: bool = False,
) -> Verdict:
    """Algorithm 1 for one question.

    Args:
        question: without its options.
        options: in the published order.
        answer: label of the right one.
        scorer: who answers without context.
        trials: N.
        threshold: k.
        seed: draws the orders; another one for each question.
        exact: ask all orders.

    Raises:
        HarnessError: trials or threshold make no sense, the answer is no option, there are too
            many options for all orders, or the scorer chooses a label that is not offered.
    """
    check_trials(trials, threshold)
    texts = {option.label: option.text for option in options}
    if answer not in texts or len(texts) < len(options) or len(options) < 2:
        raise HarnessError(f"the right answer {answer!r} must be one of options {list(texts)}")
    orders = orders_of(len(options), trials, seed, exact)
    right = invalid = 0
    for order in orders:
        shown = reordered(options, order)
        label = scorer(question, shown)
        chosen = {option.label: option.text for option in shown}
        if label is None:
            invalid += 1
        elif label not in chosen:
            raise HarnessError(f"the scorer chose {label!r}, which is none of {list(chosen)}")
        elif chosen[label] == texts[answer]:
            right += 1
    return Verdict(
        orders=len(orders),
        right=right,
        invalid=invalid,
        # In whole numbers: right / orders >= threshold / trials.
        biased=right * trials >= threshold * len(orders),
        flag_probability=_flagged(right / len(orders), trials, threshold) if exact else None,
    )


def orders_of(count: int, trials: int, seed: str | int, exact: bool) -> list[Order]:
    """The orders that :func:`assess` asks: all of them, or ``trials`` drawn ones.

    Raises:
        HarnessError: all orders of too many options.
    """
    if exact:
        if count > MOST_OPTIONS:
            raise HarnessError(f"{count} options have too many orders to ask all of them")
        return list(itertools.permutations(range(count)))
    # A string seeds the same draw in every process.
    rng = random.Random(str(seed))
    return [tuple(rng.sample(range(count), count)) for _ in range(trials)]


def reordered(options: Sequence[Option], order: Order) -> tuple[Option, ...]:
    """The texts in another order, under the labels in theirs."""
    return tuple(
        Option(place.label, options[i].text) for place, i in zip(options, order, strict=True)
    )


def check_trials(trials: int, threshold: int) -> None:
    """Whether N and k make sense.

    Raises:
        HarnessError: they do not.
    """
    if not 1 <= threshold <= trials:
        raise HarnessError(
            f"--threshold must be between 1 and --trials, got {threshold} and {trials}"
        )


def _flagged(share: float, trials: int, threshold: int) -> float:
    """Probability of at least ``threshold`` of ``trials``, each of probability ``share``."""
    return math.fsum(
        math.comb(trials, n) * share**n * (1 - share) ** (trials - n)
        for n in range(threshold, trials + 1)
    )


def run(config: DistractorConfig) -> None:
    """Carry out a check, or show a finished one."""
    # Heavy libraries are imported here, so that --help answers at once.
    from sally_anne.harness.distractors_run import run as work

    work(config)


main = command("sally-anne distractors", DistractorConfig, run, resumes=True)


if __name__ == "__main__":
    main()
