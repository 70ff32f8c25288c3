"""The solver of all heads against scikit-learn run to the end."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from sally_anne.core.errors import ProbingError
from sally_anne.probing import solver
from sally_anne.probing.solver import REFIT, Fit, fit_heads, scale_of


def made(
    seed: int, n: int = 60, heads: int = 3, width: int = 7, scale: float = 1.0, n_classes: int = 2
) -> tuple[torch.Tensor, torch.Tensor]:
    """Correlated features far from zero, with a signal that grows from head to head."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % n_classes)
    x = rng.normal(size=(n, heads, width)) @ rng.normal(size=(width, width)) + 5
    x += np.linspace(0, 2, heads)[:, None] * rng.normal(size=(n_classes, 1, width))[y]
    return torch.from_numpy(scale * x)[:, None], torch.from_numpy(y)


def assert_optimal(
    fits: list[Fit],
    x: torch.Tensor,
    labels: torch.Tensor,
    c: float,
    weights: torch.Tensor | None = None,
    tolerance: float = 1e-5,
    normalise: bool = True,
) -> None:
    """Every head and label vector as scikit-learn has it, of activations in the head's unit."""
    for head, fit in enumerate(fits):
        assert fit.converged.all()
        values = x[:, 0, head].double()
        unit = scale_of(values) if normalise else 1.0
        for p, y in enumerate(labels):
            own = LogisticRegression(C=c, tol=1e-10, max_iter=1000, solver="newton-cholesky")
            own.fit(values / unit, y, None if weights is None else weights[p])
            size = np.linalg.norm(own.coef_)
            off = np.linalg.norm(unit * fit.coef[p].numpy() - own.coef_)
            assert off <= tolerance * size + 1e-10
            reach = float((values / unit).norm(dim=-1).max())
            np.testing.assert_allclose(
                fit.intercept[p], own.intercept_, rtol=1e-4, atol=1e-5 + tolerance * size * reach
            )


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("c", [0.015, 1.0, 300.0])
@pytest.mark.parametrize("normalise", [True, False])
def test_the_optimum_is_scikit_learns(n_classes: int, c: float, normalise: bool) -> None:
    x, y = made(0, n_classes=n_classes)
    fits = list(fit_heads(x, y[None], n_classes, c, normalise=normalise))
    assert_optimal(fits, x, y[None], c, normalise=normalise)


@pytest.mark.parametrize("c", [1e-3, 0.015, 1.0, 30.0])
@pytest.mark.parametrize("tolerance", [1e-6, REFIT])
def test_many_label_vectors_as_scikit_learn(c: float, tolerance: float) -> None:
    """On heads as wide as a model's, some of which tell the labels apart."""
    x, y = made(4, n=120, width=32)
    draw = torch.Generator().manual_seed(0)
    labels = torch.stack([y, *(y[torch.randperm(120, generator=draw)] for _ in range(11))])
    fits = list(fit_heads(x.float(), labels, 2, c, tolerance=tolerance))
    # Of large C, float32 leaves more than the tolerance.
    allowed = 1e-5 if tolerance < REFIT else 2e-4 if c < 0.1 else 2e-3
    assert_optimal(fits, x.float(), labels, c, tolerance=allowed)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_weights_are_those_of_scikit_learn(n_classes: int) -> None:
    x, y = made(2, n_classes=n_classes)
    folds = (np.arange(60) % 5 != np.arange(3)[:, None]).astype(float)
    drawn = np.random.default_rng(2).poisson(1.0, size=(2, 60)) + 0.0
    weights = torch.from_numpy(np.concatenate([folds, drawn, 7.5 * folds[:1]]))
    labels = y.expand(len(weights), -1)
    fits = list(fit_heads(x, labels, n_classes, 0.2, weights))
    assert_optimal(fits, x, labels, 0.2, weights)


@pytest.mark.parametrize("count", [1, 3])
def test_hard_problems(count: int) -> None:
    """Fewer samples than dimensions, labels that a head tells apart, unbalanced ones, doubles."""
    x, y = made(1, n=14, width=40)
    labels = y.expand(count, -1)
    assert_optimal(list(fit_heads(x, labels, 2, 0.1)), x, labels, 0.1)
    x, y = made(5)
    x[..., 0] = ((2.0 * y - 1) * torch.linspace(1, 3, 60))[:, None, None]
    x[..., 1], rare = x[..., 2], (torch.arange(60) < 4).long()
    for c, labels in ((1e4, y.expand(count, -1)), (0.5, rare.expand(count, -1))):
        fits = list(fit_heads(x, labels, 2, c))
        assert_optimal(fits, x, labels, c, tolerance=1e-4)
        torch.testing.assert_close(fits[0].coef[..., 1], fits[0].coef[..., 2], rtol=1e-3, atol=1e-6)


@given(seed=st.integers(0, 10**6), power=st.integers(-30, 30), n_classes=st.sampled_from([2, 3]))
@settings(max_examples=200, deadline=None)
def test_the_unit_of_a_head_decides_nothing(seed: int, power: int, n_classes: int) -> None:
    """With heads in other units all logits are the same; of powers of two, to the bit."""
    x, y = made(seed, n=20, heads=2, width=4, n_classes=n_classes)
    unit = torch.tensor([2.0**power, 1.0])[:, None].double()
    for labels in (y[None], y.expand(3, -1)):
        plain, scaled = (list(fit_heads(v, labels, n_classes, 0.5)) for v in (x, x * unit))
        for head, (one, other) in enumerate(zip(plain, scaled, strict=True)):
            assert torch.equal(one.coef, other.coef * unit[head])
            assert torch.equal(one.intercept, other.intercept)


@pytest.mark.parametrize("scale", [1e-3, 1e3])
@pytest.mark.parametrize("normalise", [True, False])
def test_scales_far_from_one(scale: float, normalise: bool) -> None:
    x, y = made(8, scale=scale)
    x, how = x.float(), {"normalise": normalise}
    assert_optimal(list(fit_heads(x, y[None], 2, 0.1, **how)), x, y[None], 0.1, **how)


@given(seed=st.integers(0, 10**6), weighted=st.booleans())
@settings(max_examples=6, deadline=None)
def test_the_order_of_samples_does_not_matter(seed: int, weighted: bool) -> None:
    x, y = made(seed, n=20, heads=2, width=4)
    draw = torch.Generator().manual_seed(seed)
    order = torch.randperm(20, generator=draw)
    weights = torch.rand(1, 20, generator=draw) + 0.1 if weighted else None
    moved = None if weights is None else weights[:, order]
    one, other = (
        fit_heads(x, y[None], 2, 0.5, weights),
        fit_heads(x[order], y[order][None], 2, 0.5, moved),
    )
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a.coef, b.coef, rtol=1e-5, atol=1e-7)


def test_too_few_iterations_are_reported() -> None:
    x, y = made(15)
    for labels in (y[None], y.expand(2, -1)):
        assert not any(f.converged.any() for f in fit_heads(x, labels, 2, 100.0, max_iter=1))


@pytest.mark.parametrize("count", [1, 2])
def test_heads_without_a_slope_keep_zero_weights(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = made(16)
    x[:, 0, 0] = 3 + 1e-6 * x[:, 0, 0]
    labels = y.expand(count, -1)
    fits = list(fit_heads(x, labels, 2, 0.5))
    assert [bool(fit.coef.any()) for fit in fits] == [False, True, True]
    assert not LogisticRegression(C=0.5).fit(x[:, 0, 0].numpy(), y.numpy()).coef_.any()
    monkeypatch.setattr(solver, "SKLEARN_TOLERANCE", 0.0)
    assert next(fit_heads(x, labels, 2, 0.5)).coef.any()


def test_what_cannot_be_fitted_is_named() -> None:
    x, y = made(17)
    with pytest.raises(ProbingError, match="class"):
        list(fit_heads(x, torch.stack([y, torch.ones_like(y)]), 2, 0.5))
    x[5, 0, 2, 1] = float("nan")
    with pytest.raises(ProbingError, match="L0H2"):
        list(fit_heads(x, y[None], 2, 0.5))
