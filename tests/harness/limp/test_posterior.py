"""Judged steps make the posterior that one computes by hand, in both forms."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sally_anne.core.errors import HarnessError
from sally_anne.harness.inverse_planning.posterior import log_preference, of_judged
from tests.harness.limp.scripted import logs

# Shares of "likely": A .8 * .6 = .48, B .5 * .5 = .25, C .1 * .7 = .07; together .8.
BY_HAND = {
    "A": logs((0.8, 0.2), (0.3, 0.2)),
    "B": logs((0.3, 0.3), (0.1, 0.1)),
    "C": logs((0.1, 0.9), (0.7, 0.3)),
}


def test_logarithms_give_the_posterior() -> None:
    found = of_judged(BY_HAND)
    expected = {"A": 0.6, "B": 0.3125, "C": 0.0875}
    assert {k: math.exp(v) for k, v in found.log.items()} == pytest.approx(expected)
    assert found.choose("most") == "A" and found.choose("least") == "C"


def test_official_form_is_a_softmax_over_raw_products() -> None:
    found = of_judged(BY_HAND)
    # Products of "likely" as it is: A .8 * .3 = .24, B .3 * .1 = .03, C .1 * .7 = .07.
    weights = {"A": math.exp(0.24), "B": math.exp(0.03), "C": math.exp(0.07)}
    expected = {k: v / sum(weights.values()) for k, v in weights.items()}
    assert found.official == pytest.approx(expected)
    assert found.choose("most", "official") == "A"
    # The two forms part where the model would rather say something else than either answer.
    assert found.choose("least", "official") == "B" and found.choose("least", "log") == "C"


def test_products_that_underflow_are_told_apart_in_logarithms_alone() -> None:
    n = 400
    found = of_judged(
        {"A": logs((0.1, 0.3)) * n, "B": logs((0.1, 0.2)) * n, "C": logs((0.1, 0.4)) * n}
    )
    assert math.prod([0.1] * n) == 0.0
    assert found.official == pytest.approx(dict.fromkeys("ABC", 1 / 3))
    assert found.choose("most", "official") is None and found.choose("least", "official") is None
    assert found.choose("most") == "B" and found.choose("least") == "C"
    # log (1/4)^n - log (1/3)^n, and B has all of the mass.
    assert found.log["A"] == pytest.approx(n * math.log(3 / 4))
    assert found.log["B"] == pytest.approx(0.0, abs=1e-12)


def test_small_products_are_equal_in_the_official_softmax_before_they_underflow() -> None:
    found = of_judged({"A": logs((1e-17, 0.5)), "B": logs((2e-17, 0.5)), "C": logs((3e-17, 0.5))})
    assert found.choose("most", "official") is None
    assert found.choose("most") == "C" and found.choose("least") == "A"


def test_nothing_known_chooses_nothing() -> None:
    for judged in ({"A": [], "B": [], "C": []}, {}):
        found = of_judged(judged)
        assert found.choose("most") is None and found.choose("least", "official") is None


def test_one_option_that_stands_out_is_chosen_beside_equal_ones() -> None:
    found = of_judged({"A": logs((0.5, 0.5)), "B": logs((0.5, 0.5)), "C": logs((0.2, 0.8))})
    assert found.choose("most") is None and found.choose("least") == "C"


def test_impossible_answers() -> None:
    inf = math.inf
    assert log_preference((-inf, -inf)) == pytest.approx(math.log(0.5))
    assert log_preference((-inf, -1.0)) == -inf and log_preference((-1.0, -inf)) == 0.0
    found = of_judged({"A": [(-inf, -1.0)], "B": [(-1.0, -inf)], "C": [(-inf, -2.0)]})
    assert found.log == {"A": -inf, "B": 0.0, "C": -inf}
    assert found.choose("most") == "B" and found.choose("least") is None
    found = of_judged({"A": [(-inf, -1.0)], "B": [(-inf, -1.0)]})
    assert found.log["A"] == found.log["B"] == pytest.approx(math.log(0.5))


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.5])
def test_what_is_no_log_probability_is_named(value: float) -> None:
    with pytest.raises(HarnessError, match="option B, step 1: .* are no log-probabilities"):
        of_judged({"A": logs((0.5, 0.5)) * 2, "B": [(-1.0, -1.0), (-1.0, value)]})


def test_options_need_the_same_steps() -> None:
    with pytest.raises(HarnessError, match="the same steps, got A: 1, B: 2"):
        of_judged({"A": logs((0.5, 0.5)), "B": logs((0.5, 0.5)) * 2})


share = st.floats(0.01, 0.99)


@given(st.lists(st.tuples(share, share, share), min_size=1, max_size=8))
def test_posterior_is_bayes_rule(steps: list[tuple[float, float, float]]) -> None:
    judged = {
        k: logs(*((row[i] / 2, (1 - row[i]) / 2) for row in steps)) for i, k in enumerate("ABC")
    }
    products = {k: math.prod(row[i] for row in steps) for i, k in enumerate("ABC")}
    expected = {k: p / sum(products.values()) for k, p in products.items()}
    found = {k: math.exp(v) for k, v in of_judged(judged).log.items()}
    assert found == pytest.approx(expected, rel=1e-9)
