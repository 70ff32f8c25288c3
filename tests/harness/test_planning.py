"""Judged steps make the posterior computed by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sally_anne.harness.planning import choose, from_top_tokens, posterior_of_judgements
from tests.harness.scripted import logs

BY_HAND = {
    "A": logs((0.8, 0.2), (0.3, 0.2)),
    "B": logs((0.3, 0.3), (0.1, 0.1)),
    "C": logs((0.1, 0.9), (0.7, 0.3)),
}


def test_official_form_is_a_softmax_over_raw_products() -> None:
    found = posterior_of_judgements(BY_HAND)
    # Products of "likely" as it is: A .8 * .3 = .24, B .3 * .1 = .03, C .1 * .7 = .07.
    weights = {"A": math.exp(0.24), "B": math.exp(0.03), "C": math.exp(0.07)}
    expected = {k: v / sum(weights.values()) for k, v in weights.items()}
    assert found["official"] == pytest.approx(expected)
    assert choose(found["official"], "most") == "A"
    # The two forms part where the model would rather say something else than either answer.
    assert choose(found["official"], "least") == "B" and choose(found["log"], "least") == "C"


def test_products_that_underflow_are_told_apart_in_logarithms_alone() -> None:
    n = 400
    found = posterior_of_judgements(
        {"A": logs((0.1, 0.3)) * n, "B": logs((0.1, 0.2)) * n, "C": logs((0.1, 0.4)) * n}
    )
    assert math.prod([0.1] * n) == 0.0
    assert found["official"] == pytest.approx(dict.fromkeys("ABC", 1 / 3))
    assert choose(found["official"], "most") is None and choose(found["official"], "least") is None
    assert choose(found["log"], "most") == "B" and choose(found["log"], "least") == "C"
    # log (1/4)^n - log (1/3)^n, and B has all of the mass.
    assert found["log"]["A"] == pytest.approx(n * math.log(3 / 4))
    assert found["log"]["B"] == pytest.approx(0.0, abs=1e-12)


share = st.floats(0.01, 0.99)


@given(st.lists(st.tuples(share, share, share), min_size=1, max_size=8))
def test_posterior_is_bayes_rule(steps: list[tuple[float, float, float]]) -> None:
    judged = {
        k: logs(*((row[i] / 2, (1 - row[i]) / 2) for row in steps)) for i, k in enumerate("ABC")
    }
    products = {k: math.prod(row[i] for row in steps) for i, k in enumerate("ABC")}
    expected = {k: p / sum(products.values()) for k, p in products.items()}
    found = {k: math.exp(v) for k, v in posterior_of_judgements(judged)["log"].items()}
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("first", "found"),
    [
        ({"A": 0.7, "B": 0.2, "The": 0.1}, (0.7, 0.2)),
        ({"A": 0.5, " A": 0.2, "B)": 0.2, "b": 0.1}, (0.7, 0.2)),
        # Not listed: as much as is left, or as the last one has.
        ({"A": 0.9, "The": 0.06}, (0.9, 0.04)),
        ({"A": 0.6, "The": 0.1, "It": 0.05}, (0.6, 0.05)),
        ({"The": 0.5, "It": 0.1}, (0.1, 0.1)),
        ({"A": 1.0}, (1.0, 1e-9)),
    ],
)
def test_answers_among_the_likeliest_tokens(
    first: dict[str, float], found: tuple[float, float]
) -> None:
    judged = from_top_tokens({token: math.log(p) for token, p in first.items()})
    assert [math.exp(value) for value in judged] == pytest.approx(found)
