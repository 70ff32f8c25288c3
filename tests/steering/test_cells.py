"""The points of a sweep: each once, the baseline first."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sally_anne.hooks.vector import SteeringVector
from sally_anne.steering.fit import CONTROLS
from sally_anne.steering.points import (
    BASELINE,
    default_alphas,
    default_ks,
    grid_of,
    vectors_of,
)

ks = st.lists(st.integers(1, 50), min_size=1, max_size=4)
alphas = st.lists(st.integers(-20, 20).map(lambda n: n / 2), min_size=1, max_size=5)
directions = st.lists(
    st.sampled_from(["logistic", "pca", "random", "random_heads"]), min_size=1, max_size=4
)


@given(
    ks,
    alphas,
    directions,
    st.sampled_from([("probe_accuracy",), ("patching",), ("probe_accuracy", "patching")]),
)
def test_each_cell_once(ks, alphas, directions, heads) -> None:
    found = grid_of(ks, alphas, directions, seed=1, rank_by=heads)
    assert found[0] == BASELINE
    strong = {alpha for alpha in alphas if alpha}
    assert len(found) == 1 + len(set(ks)) * len(strong) * len(set(directions)) * len(heads)
    assert len(set(found)) == len({point.name for point in found}) == len(found)
    assert all(point.k and point.alpha for point in found[1:])
    assert all(point.seed == (point.direction in CONTROLS) for point in found[1:])


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
    # No more points for a large model than for a small one: 109 with both controls.
    directions = ("logistic", *CONTROLS)
    assert len(grid_of(ks, alphas, directions)) == 1 + 36 * len(ks)


def test_vectors_are_fitted_once_and_given_each_strength() -> None:
    asked: list[tuple[str, int, int, str]] = []

    def fit(direction: str, k: int, seed: int, by: str) -> SteeringVector:
        asked.append((direction, k, seed, by))
        heads = tuple((0, head) for head in range(k))
        return SteeringVector(heads, torch.eye(4)[:k], torch.ones(k), 3, 4, direction=direction)

    wanted = grid_of(
        (1, 3), (-5, 0, 5), ("logistic", "random"), seed=2, rank_by=("probe_accuracy", "patching")
    )
    found = vectors_of(wanted, fit)
    assert list(found) == wanted
    assert found[BASELINE] is None
    each = [("logistic", 1, 0), ("logistic", 3, 0), ("random", 1, 2), ("random", 3, 2)]
    assert asked == [(*key, by) for by in ("probe_accuracy", "patching") for key in each]
    for point in wanted[1:]:
        vector = found[point]
        assert vector is not None
        assert (vector.direction, vector.k, vector.alpha) == (point.direction, point.k, point.alpha)
