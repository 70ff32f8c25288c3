"""Algorithm 1 by scorers made by hand."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from sally_anne.core.errors import HarnessError
from sally_anne.data.items import Option
from sally_anne.harness.distractors_run import Verdict, assess, orders_of, reordered

TEXTS = ("hope", "fear", "joy", "spite")
OPTIONS = tuple(Option(label, text) for label, text in zip("ABCD", TEXTS, strict=True))


def verdict(scorer, **options) -> Verdict:
    offered, seed = options.pop("options", OPTIONS), options.pop("seed", 0)
    orders = orders_of(len(offered), options.get("trials", 6), seed, options.get("exact", False))
    said = ((order, scorer("Why?", reordered(offered, order))) for order in orders)
    return assess(offered, "C", said, **options)


def by_text(*texts: str):
    """Chooses the first of these texts that is offered."""

    def scorer(question: str, options: Sequence[Option]) -> str:
        return next(o.label for text in texts for o in options if o.text == text)

    return scorer


def test_always_right_is_biased() -> None:
    assert verdict(by_text("joy")) == Verdict(6, 6, 0, True)
    assert verdict(by_text("joy"), exact=True) == Verdict(24, 24, 0, True, 1.0)


def test_always_wrong_is_not() -> None:
    assert verdict(by_text("fear")) == Verdict(6, 0, 0, False)
    assert verdict(by_text("fear"), exact=True) == Verdict(24, 0, 0, False, 0.0)


def test_no_choice_is_no_right_answer() -> None:
    assert verdict(lambda question, options: None) == Verdict(6, 0, 6, False)


@pytest.mark.parametrize("label", "ABCD")
def test_a_place_is_right_in_a_quarter_of_the_orders(label: str) -> None:
    found = verdict(lambda question, options: label, exact=True)
    assert (found.orders, found.right, found.biased) == (24, 6, False)
    assert found.flag_probability == pytest.approx(6 * 0.25**5 * 0.75 + 0.25**6)


def test_chance_is_flagged_as_often_as_the_binomial_says() -> None:
    rng = random.Random(0)
    flags = [verdict(lambda q, o: rng.choice("ABCD"), seed=number).biased for number in range(5000)]
    expected = 6 * 0.25**5 * 0.75 + 0.25**6
    spread = math.sqrt(expected * (1 - expected) / len(flags))
    assert abs(sum(flags) / len(flags) - expected) < 4 * spread


@pytest.mark.parametrize(("right", "biased"), [(4, False), (5, True), (6, True)])
def test_the_threshold_is_five_of_six(right: int, biased: bool) -> None:
    asked = itertools.count()
    scorer, other = by_text("joy"), by_text("hope")
    found = verdict(lambda q, o: scorer(q, o) if next(asked) < right else other(q, o))
    assert found == Verdict(6, right, 0, biased)


@pytest.mark.parametrize(("right", "biased"), [(19, False), (20, True)])
def test_the_threshold_over_all_orders_is_the_same_share(right: int, biased: bool) -> None:
    asked = itertools.count()
    scorer = by_text("joy")
    found = verdict(lambda q, o: scorer(q, o) if next(asked) < right else None, exact=True)
    share = right / 24
    assert found.right == right and found.invalid == 24 - right and found.biased == biased
    assert found.flag_probability == pytest.approx(6 * share**5 * (1 - share) + share**6)


def test_all_orders_are_asked_once_and_labels_stay_in_place() -> None:
    seen: list[tuple[str, ...]] = []

    def scorer(question: str, options: Sequence[Option]) -> None:
        assert question == "Why?" and [o.label for o in options] == list("ABCD")
        seen.append(tuple(o.text for o in options))

    verdict(scorer, exact=True)
    assert sorted(seen) == sorted(itertools.permutations(TEXTS))


def test_an_option_that_says_the_same_is_right_too() -> None:
    pairs = (Option("A", "joy"), *OPTIONS[1:])
    assert verdict(by_text("joy"), options=pairs, exact=True).right == 24
    first = verdict(lambda q, o: "A", options=pairs, exact=True)
    assert first.right == 12


def test_draws_depend_on_the_seed_alone_and_are_fair() -> None:
    assert orders_of(4, 6, "0 x", False) == orders_of(4, 6, "0 x", False)
    assert orders_of(4, 6, "0 x", False)[:3] == orders_of(4, 3, "0 x", False)
    drawn = Counter(order for n in range(4000) for order in orders_of(4, 6, n, False))
    assert len(drawn) == 24
    # 24,000 draws: 1,000 expected of each, standard deviation 31.
    assert all(abs(count - 1000) < 150 for count in drawn.values())
    assert any(len(set(orders_of(4, 6, n, False))) < 6 for n in range(50))


def test_reordered() -> None:
    assert reordered(OPTIONS, (2, 0, 3, 1)) == (
        Option("A", "joy"),
        Option("B", "hope"),
        Option("C", "spite"),
        Option("D", "fear"),
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trials": 4}, "--threshold must be between 1 and --trials, got 5 and 4"),
        ({"threshold": 0}, "--threshold"),
        ({"options": OPTIONS[:2]}, "the right answer 'C' must be one of"),
        ({"options": (*OPTIONS, Option("C", "x"))}, "must be one of"),
        ({"scorer": lambda q, o: "E"}, "chose 'E', which is none of"),
        (
            {"options": tuple(Option(c, c) for c in "ABCDEFGH"), "exact": True},
            "8 options have too many orders",
        ),
    ],
)
def test_bad_input(change: dict, message: str) -> None:
    change = dict(change)
    with pytest.raises(HarnessError, match=message):
        verdict(change.pop("scorer", by_text("joy")), **change)
