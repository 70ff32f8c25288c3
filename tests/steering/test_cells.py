"""The cells of a sweep: each once, the baseline first."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sally_anne.core.errors import SallyAnneError
from sally_anne.hooks.vector import SteeringVector
from sally_anne.steering.cells import BASELINE, Cell, cells, default_alphas, default_ks, vectors_of
from sally_anne.steering.fit import CONTROLS
from sally_anne.steering.prepare import check
from sally_anne.steering.sweep import SweepConfig

ks = st.lists(st.integers(1, 50), min_size=1, max_size=4)
alphas = st.lists(st.integers(-20, 20).map(lambda n: n / 2), min_size=1, max_size=5)
directions = st.lists(
    st.sampled_from(["logistic", "pca", "random", "random_heads"]), min_size=1, max_size=4
)


def test_all_combinations_and_the_baseline() -> None:
    assert cells((4, 8), (-5, 0, 5), ("logistic", "random"), seed=3) == [
        BASELINE,
        Cell("logistic", 4, -5.0),
        Cell("logistic", 4, 5.0),
        Cell("logistic", 8, -5.0),
        Cell("logistic", 8, 5.0),
        Cell("random", 4, -5.0, 3),
        Cell("random", 4, 5.0, 3),
        Cell("random", 8, -5.0, 3),
        Cell("random", 8, 5.0, 3),
    ]


@given(ks, alphas, directions, st.sampled_from([("probe",), ("cause",), ("probe", "cause")]))
def test_each_cell_once(ks, alphas, directions, heads) -> None:
    found = cells(ks, alphas, directions, seed=1, heads=heads)
    assert found[0] == BASELINE
    strong = {alpha for alpha in alphas if alpha}
    assert len(found) == 1 + len(set(ks)) * len(strong) * len(set(directions)) * len(heads)
    assert len(set(found)) == len({cell.name for cell in found}) == len(found)
    assert all(cell.k and cell.alpha for cell in found[1:])
    assert all(cell.seed == (cell.direction in CONTROLS) for cell in found[1:])


@pytest.mark.parametrize(
    ("layers", "heads", "ks", "fine", "wide"),
    [
        (28, 28, (14, 28, 56), 1.0, 50.0),  # Qwen2-VL-7B, as in the paper
        (32, 32, (16, 32, 64), 1.0, 50.0),  # LLaVA-NeXT-Video-7B, as in the paper
        (28, 12, (7, 14, 28), 1.0, 50.0),  # Qwen2-VL-2B, where 56 are a sixth
        (8, 8, (2, 4, 8), 0.5, 10.0),  # the shipped models
        (1, 1, (1,), 0.5, 10.0),
        (4, 4, (1, 2), 0.5, 10.0),
    ],
)
def test_the_default_grid_follows_from_layers_and_heads(
    layers: int, heads: int, ks: tuple[int, ...], fine: float, wide: float
) -> None:
    assert default_ks(layers, heads) == ks
    alphas = default_alphas(layers, heads)
    assert min(alphas) == -wide and max(alphas) == wide
    assert min(abs(alpha) for alpha in alphas if alpha) == fine
    assert {-10.0, 10.0} <= set(alphas) and alphas == tuple(sorted(alphas))
    # No more cells for a large model than for a small one: 109 with both controls.
    directions = ("logistic", *CONTROLS)
    assert len(cells(ks, alphas, directions)) == 1 + 36 * len(ks)


@pytest.mark.parametrize("alphas", [(0,), (0.0, -0.0), (0, 0, 0.0)])
def test_without_a_strength_there_is_the_baseline_alone(alphas) -> None:
    assert cells((4, 8), alphas, ("logistic", "random")) == [BASELINE]


def test_duplicates_are_removed() -> None:
    found = cells((4, 4), (5, 5.0, 0, 5), ("logistic", "logistic"))
    assert found == [BASELINE, Cell("logistic", 4, 5.0)]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"k": ()}, "--K holds nothing but 0: there is nothing to sweep"),
        ({"alpha": ()}, "--alpha holds nothing but 0"),
        ({"alpha": (0.0, -0.0)}, "--alpha holds nothing but 0"),
        ({"heads": ()}, "--heads is empty: give probe, cause, or both"),
        ({"k": (4, 0)}, "--K must be at least 1, got 0"),
        ({"k": (-2,)}, "--K must be at least 1, got -2"),
        ({"alpha": (1.0, float("nan"))}, "--alpha must be finite, got nan"),
        ({"alpha": (float("-inf"),)}, "--alpha must be finite, got -inf"),
        ({"decode_batch_size": 0}, "--decode-batch-size must be at least 1, got 0"),
        ({"max_initial_drop": float("inf")}, "--max-initial-drop must be finite, got inf"),
    ],
)
def test_options_are_checked(options: dict[str, Any], match: str) -> None:
    with pytest.raises(SallyAnneError, match=match):
        check(SweepConfig(**options))


def test_names() -> None:
    assert BASELINE.name == "baseline"
    assert Cell("logistic", 14, 10.0, 5).name == "logistic/K14/alpha10"
    assert Cell("random", 4, -0.5, 5).name == "random/seed5/K4/alpha-0.5"
    # The names of heads by probe are those of answers that were kept before there was another way.
    assert Cell("logistic", 14, 10.0, 0, "cause").name == "logistic/cause/K14/alpha10"
    assert Cell("random", 4, -0.5, 5, "cause").name == "random/cause/seed5/K4/alpha-0.5"
    assert Cell("multinomial:o0p1", 4, 5.0).name == "multinomial:o0p1/K4/alpha5"


def test_vectors_are_fitted_once_and_given_each_strength() -> None:
    asked: list[tuple[str, int, int, str]] = []

    def fit(direction: str, k: int, seed: int, by: str) -> SteeringVector:
        asked.append((direction, k, seed, by))
        heads = tuple((0, head) for head in range(k))
        return SteeringVector(heads, torch.eye(4)[:k], torch.ones(k), 3, 4, direction=direction)

    wanted = cells((1, 3), (-5, 0, 5), ("logistic", "random"), seed=2, heads=("probe", "cause"))
    found = vectors_of(wanted, fit)
    assert list(found) == wanted
    assert found[BASELINE] is None
    each = [("logistic", 1, 0), ("logistic", 3, 0), ("random", 1, 2), ("random", 3, 2)]
    assert asked == [(*key, by) for by in ("probe", "cause") for key in each]
    for cell in wanted[1:]:
        vector = found[cell]
        assert vector is not None
        assert (vector.direction, vector.k, vector.alpha) == (cell.direction, cell.k, cell.alpha)
