"""The batched solver against scikit-learn run to the end, and its own certificate."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from sally_anne.core.errors import ProbingError
from sally_anne.probing.logistic import SKLEARN_TOLERANCE, Fits, Problems, Settings, solve
from sally_anne.probing.logistic.certificate import error_bound
from sally_anne.probing.logistic.losses import Losses
from sally_anne.probing.logistic.solver import inverse_bound


def certify(
    x: torch.Tensor, losses: Losses, coef: torch.Tensor, intercept: torch.Tensor
) -> torch.Tensor:
    """Bound on the distance of given weights from the best ones, from scratch in float64.

    Args:
        x: samples ``[B, N, D]`` as they are.
        losses: of the P problems.
        coef: ``[B, P, K, D]``.
        intercept: ``[B, P, K]``.

    Returns:
        ``[B, P]``.
    """
    x, coef, losses = x.double(), coef.double(), losses.to(torch.float64)
    centre = x.mean(1, keepdim=True)
    x = x - centre
    shift = intercept.double() + (coef * centre[:, None]).sum(-1)
    logits = torch.einsum("bpkd,bnd->bpkn", coef, x) + shift[..., None]
    probabilities = losses.probabilities(logits.flatten(-2))
    residuals = losses.by_class(losses.residuals(probabilities))
    gradient = torch.einsum("bpkn,bnd->bpkd", residuals, x) + coef
    radius = torch.linalg.vector_norm(x, dim=-1).amax(-1)
    return error_bound(gradient, residuals.sum(-1), probabilities, losses, radius)


def made(
    seed: int, n: int = 60, heads: int = 3, width: int = 7, scale: float = 1.0, n_classes: int = 2
) -> tuple[torch.Tensor, torch.Tensor]:
    """Correlated features far from zero, with a signal that grows from head to head."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % n_classes)
    x = rng.normal(size=(n, heads, width)) @ rng.normal(size=(width, width)) + 5
    x += np.linspace(0, 2, heads)[:, None] * rng.normal(size=(n_classes, 1, width))[y]
    return torch.from_numpy(scale * x), torch.from_numpy(y)


def reference(
    x: torch.Tensor, y: torch.Tensor, c: float, weights: torch.Tensor | None = None
) -> LogisticRegression:
    model = LogisticRegression(C=c, tol=1e-10, max_iter=1000, solver="newton-cholesky")
    sample_weight = None if weights is None else weights.double().numpy()
    return model.fit(x.double().numpy(), y.numpy(), sample_weight=sample_weight)


def assert_optimal(
    fits: Fits,
    x: torch.Tensor,
    labels: torch.Tensor,
    c: float,
    weights: torch.Tensor | None = None,
    tolerance: float = 1e-6,
) -> None:
    """Every head and label vector as scikit-learn has it, within the bound that is stated."""
    assert fits.converged.all()
    if fits.intercept.shape[-1] > 1:
        assert fits.intercept.sum(-1).abs().max() < 1e-9
    for p, y in enumerate(labels):
        for head in range(x.shape[1]):
            own = reference(x[:, head], y, c, None if weights is None else weights[p])
            size = np.linalg.norm(own.coef_)
            apart = np.linalg.norm(fits.coef[head, p].numpy() - own.coef_)
            assert apart <= 2 * tolerance * size + 1e-12
            reach = float(x[:, head].double().norm(dim=-1).max())
            np.testing.assert_allclose(
                fits.intercept[head, p].numpy(),
                own.intercept_,
                rtol=1e-4,
                atol=1e-5 + 10 * tolerance * size * reach,
            )


@pytest.mark.parametrize("n_classes", [2, 3, 4])
@pytest.mark.parametrize("c", [0.015, 1.0, 300.0])
def test_the_optimum_is_scikit_learns(n_classes: int, c: float) -> None:
    x, y = made(0, n_classes=n_classes)
    assert_optimal(solve(Problems(x, y[None], n_classes, c)), x, y[None], c)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_with_fewer_samples_than_dimensions(n_classes: int) -> None:
    x, y = made(1, n=14, width=40, n_classes=n_classes)
    fits = solve(Problems(x, y[None], n_classes, 0.1))
    assert fits.coef.shape[-1] == 40
    assert_optimal(fits, x, y[None], 0.1)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_weights_are_those_of_scikit_learn(n_classes: int) -> None:
    x, y = made(2, n_classes=n_classes)
    draw = np.random.default_rng(2)
    folds = (np.arange(60) % 5 != np.arange(3)[:, None]).astype(float)
    drawn = draw.poisson(1.0, size=(2, 60)) + 0.0
    weights = torch.from_numpy(np.concatenate([folds, drawn, 7.5 * folds[:1]]))
    labels = y.expand(len(weights), -1)
    fits = solve(Problems(x, labels, n_classes, 0.2, weights))
    assert_optimal(fits, x, labels, 0.2, weights)


def test_unbalanced_labels() -> None:
    x, _ = made(3)
    y = (torch.arange(60) < 4).long()
    assert_optimal(solve(Problems(x, y[None], 2, 0.5)), x, y[None], 0.5)


def test_many_label_vectors_share_their_heads() -> None:
    x, y = made(4)
    labels = torch.stack([y[torch.randperm(60)] for _ in range(12)])
    fits = solve(Problems(x.float(), labels, 2, 0.05))
    assert_optimal(fits, x.float(), labels, 0.05)
    apart = (fits.coef[:, 0] - fits.coef[:, 1]).norm()
    assert apart > 0.1 * fits.coef[:, 0].norm()


@pytest.mark.parametrize("c", [1.0, 1e4])
def test_labels_that_a_head_tells_apart(c: float) -> None:
    x, y = made(5)
    x[..., 0] = (2.0 * y - 1)[:, None] * torch.linspace(1, 3, 60)[:, None]
    fits = solve(Problems(x, y[None], 2, c))
    assert_optimal(fits, x, y[None], c)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_constant_features_and_heads_weigh_nothing() -> None:
    x, y = made(6)
    x[:, 0], x[:, 1, 3] = 2.5, -1.0
    fits = solve(Problems(x, y[None], 2, 0.3))
    assert_optimal(fits, x, y[None], 0.3)
    assert not fits.coef[0].any()
    assert fits.coef[1, 0, 0, 3].abs() < 1e-12
    assert fits.coef[1].abs().max() > 1e-2


def test_doubled_features_share_their_weight() -> None:
    x, y = made(7)
    x[..., 1] = x[..., 0]
    fits = solve(Problems(x, y[None], 2, 0.3))
    np.testing.assert_allclose(fits.coef[..., 0], fits.coef[..., 1], rtol=1e-4, atol=1e-9)
    assert_optimal(fits, x, y[None], 0.3)


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e3])
def test_scales_far_from_one(scale: float) -> None:
    x, y = made(8, scale=scale)
    fits = solve(Problems(x.float(), y[None], 2, 0.1))
    assert_optimal(fits, x.float(), y[None], 0.1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int32])
def test_samples_as_they_are_stored(dtype: torch.dtype) -> None:
    x, y = made(9)
    x = (4 * x).to(dtype)
    assert_optimal(solve(Problems(x, y[None], 2, 0.1)), x, y[None], 0.1)


def test_activations_beyond_float32_are_refused() -> None:
    x, y = made(10)
    x[:, 1] *= 1e25
    with pytest.raises(ProbingError, match=r"head 1: activations up to .*e\+2\d are too large"):
        solve(Problems(x, y[None], 2, 0.1))
    x[:, 1] *= 1e-13
    assert solve(Problems(x, y[None], 2, 0.1)).coef.isfinite().all()


def test_blocks_do_not_show() -> None:
    x, y = made(11, heads=7)
    labels = torch.stack([y, y.flip(0), y.roll(1)])
    whole = solve(Problems(x, labels, 2, 0.1))
    for room in (1.0, 5e4, 1e9):
        fits = solve(Problems(x, labels, 2, 0.1), Settings(block_bytes=room))
        assert fits.converged.all()
        apart = (fits.coef - whole.coef).norm(dim=(-2, -1))
        assert (apart <= fits.bound + whole.bound).all()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_heads_that_are_left_out_do_not_show(n_classes: int) -> None:
    """Easy and hard heads together: the easy ones are done first."""
    x, y = made(13, heads=12, n_classes=n_classes)
    x *= torch.logspace(-1, 1, 12)[:, None]
    labels = torch.stack([y, y.flip(0)])
    together = solve(Problems(x.float(), labels, n_classes, 0.1))
    assert_optimal(together, x.float(), labels, 0.1)
    for head in range(12):
        alone = solve(Problems(x[:, [head]].float(), labels, n_classes, 0.1))
        apart = (together.coef[[head]] - alone.coef).norm(dim=(-2, -1))
        assert (apart <= together.bound[[head]] + alone.bound).all()


def test_tighter_than_float32_can_tell() -> None:
    x, y = made(12)
    rough = solve(Problems(x, y[None], 2, 0.1), Settings(tolerance=1e-10))
    assert_optimal(rough, x, y[None], 0.1, tolerance=1e-10)


@pytest.mark.parametrize("c", [1e-3, 0.015, 1.0, 30.0])
def test_weights_agree_with_scikit_learn_for_weak_and_strong_penalties(c: float) -> None:
    """On heads as wide as a model's, some of which tell the labels apart."""
    x, y = made(20, n=200, heads=4, width=32)
    fits = solve(Problems(x.float(), y[None], 2, c))
    for head in range(4):
        own = LogisticRegression(C=c, tol=1e-8, max_iter=10_000).fit(x[:, head], y).coef_
        apart = np.linalg.norm(fits.coef[head, 0].numpy() - own)
        assert apart <= 1e-3 * np.linalg.norm(own)


@pytest.mark.parametrize("even", [True, False])
def test_the_bound_is_above_every_hessian(even: bool) -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.cat([torch.randn(2, 50, 6, generator=draw), torch.ones(2, 50, 1)], dim=-1).double()
    weights = torch.full((50,), 0.7) if even else torch.rand(50, generator=draw) + 0.1
    penalty = torch.diag(torch.tensor([1.0] * 6 + [0.0])).double()
    above = torch.linalg.inv(inverse_bound(x, weights.double() / 4))
    for _ in range(5):
        p = torch.rand(50, generator=draw).double()
        hessian = x.mT @ (x * (weights * p * (1 - p))[:, None]) + penalty
        assert torch.linalg.eigvalsh(above - hessian).min() > -1e-9
    half = x.mT @ (x * (weights / 4)[:, None]) + penalty
    assert (above - half).abs().max() < 1e-7


def test_a_bound_too_coarse_for_its_precision_still_preconditions() -> None:
    x = torch.zeros(1, 40, 3, dtype=torch.float64)
    # Powers of two, so that nothing at all is left of the second column.
    x[:, :16, :2] = 2.0**40
    x[..., -1] = 1
    found = inverse_bound(x, torch.ones(40, dtype=torch.float64))
    assert found.isfinite().all() and (torch.linalg.eigvalsh(found) > 0).all()


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(6, 30),
    width=st.integers(1, 12),
    n_classes=st.integers(2, 3),
    c=st.floats(1e-3, 30.0),
    scale=st.sampled_from([0.01, 1.0, 30.0]),
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@example(seed=132, n=6, width=1, n_classes=2, c=0.001, scale=0.01)
@settings(max_examples=12, deadline=None)
def test_the_bound_holds(
    seed: int, n: int, width: int, n_classes: int, c: float, scale: float
) -> None:
    x, y = made(seed, n, 2, width, scale, n_classes)
    exact = solve(Problems(x, y[None], n_classes, c))
    loose = solve(Problems(x, y[None], n_classes, c), Settings(tolerance=1e-2))
    assert exact.converged.all() and loose.converged.all()
    assert (loose.bound <= 1e-2 * loose.coef.norm(dim=(-2, -1)) + 1e-9).all()
    apart = (exact.coef - loose.coef).norm(dim=(-2, -1))
    assert (apart <= loose.bound + exact.bound).all()
    losses = Losses.of(y[None], n_classes, c, None)
    for head in range(2):
        own = reference(x[:, head], y, c)
        coef, intercept = (torch.from_numpy(a)[None, None] for a in (own.coef_, own.intercept_))
        off = certify(x[:, head][None], losses, coef, intercept)[0, 0]
        assert (coef[0, 0] - exact.coef[head, 0]).norm() <= off + exact.bound[head, 0]


@given(seed=st.integers(0, 10**6), weighted=st.booleans())
@settings(max_examples=6, deadline=None)
def test_the_order_of_samples_does_not_matter(seed: int, weighted: bool) -> None:
    x, y = made(seed, n=20, heads=2, width=4)
    draw = torch.Generator().manual_seed(seed)
    order = torch.randperm(20, generator=draw)
    weights = torch.rand(1, 20, generator=draw) + 0.1 if weighted else None
    moved = None if weights is None else weights[:, order]
    one = solve(Problems(x, y[None], 2, 0.5, weights))
    other = solve(Problems(x[order], y[order][None], 2, 0.5, moved))
    assert ((one.coef - other.coef).norm(dim=(-2, -1)) <= one.bound + other.bound).all()


def test_a_sample_twice_is_a_sample_of_weight_two() -> None:
    x, y = made(13)
    weights = torch.ones(1, 60)
    weights[0, :5] = 2
    one = solve(Problems(x, y[None], 2, 0.5, weights))
    other = solve(Problems(torch.cat([x, x[:5]]), torch.cat([y, y[:5]])[None], 2, 0.5))
    np.testing.assert_allclose(one.coef, other.coef, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_certificate_flags_what_is_off(n_classes: int) -> None:
    x, y = made(14, n_classes=n_classes)
    fits = solve(Problems(x, y[None], n_classes, 0.2))
    losses = Losses.of(y[None], n_classes, 0.2, None)
    heads = x.transpose(0, 1)
    right = certify(heads, losses, fits.coef, fits.intercept)
    np.testing.assert_allclose(right, fits.bound, rtol=0.05, atol=1e-10)
    assert (right <= 1e-6 * fits.coef.norm(dim=(-2, -1))).all()
    for off in (1e-4, 1e-2, 1.0):
        move = off * torch.randn(fits.coef.shape, dtype=torch.float64)
        found = certify(heads, losses, fits.coef + move, fits.intercept)
        assert (found >= 0.999 * move.norm(dim=(-2, -1)) - fits.bound).all()
        lifted = fits.intercept.clone()
        lifted[..., 0] += off
        assert (certify(heads, losses, fits.coef, lifted) > 100 * right).all()


def test_too_few_iterations_are_told() -> None:
    x, y = made(15)
    fits = solve(Problems(x, y[None], 2, 100.0), Settings(max_iter=1))
    assert not fits.converged.any()
    exact = solve(Problems(x, y[None], 2, 100.0))
    assert ((fits.coef - exact.coef).norm(dim=(-2, -1)) <= fits.bound + exact.bound).all()


def test_heads_without_a_slope_keep_zero_weights() -> None:
    x, y = made(16)
    x[:, 0] = 3 + 1e-6 * x[:, 0]
    fits = solve(Problems(x, y[None], 2, 0.5), Settings(zero_weight_tol=SKLEARN_TOLERANCE))
    assert fits.zeroed[:, 0].tolist() == [True, False, False]
    assert not fits.coef[0].any()
    assert not LogisticRegression(C=0.5).fit(x[:, 0].numpy(), y.numpy()).coef_.any()
    exact = solve(Problems(x, y[None], 2, 0.5))
    assert exact.coef[0].any() and not exact.zeroed.any()
    assert exact.coef[0].norm() <= fits.bound[0, 0] + exact.bound[0, 0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_head_that_is_not_finite_is_named(bad: float) -> None:
    x, y = made(17)
    x[5, 2, 1] = bad
    with pytest.raises(ProbingError, match="head 2: the activations of sample 5 hold NaN"):
        solve(Problems(x, y[None], 2, 0.5))
    with pytest.raises(ProbingError, match="L1H0: .* NaN or infinity"):
        solve(Problems(x, y[None], 2, 0.5, name=lambda g: f"L{g // 2}H{g % 2}"))


def test_a_missing_class_is_named() -> None:
    x, y = made(18)
    labels = torch.stack([y, torch.ones_like(y)])
    with pytest.raises(ProbingError, match="label vector 1: no sample with weight has class 0"):
        Problems(x, labels, 2, 0.5)
    weights = torch.stack([torch.ones(60), (y == 0).float()])
    with pytest.raises(ProbingError, match="label vector 1: no sample with weight has class 1"):
        Problems(x, y.expand(2, -1), 2, 0.5, weights)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.zeros(60, 3)}, r"need x \[N, G, D\] and labels"),
        ({"labels": torch.zeros(1, 9, dtype=torch.int64)}, r"need x \[N, G, D\] and labels"),
        ({"x": torch.zeros(60, 0, 7)}, "nothing to fit"),
        ({"labels": torch.zeros(1, 60)}, "integer codes"),
        ({"labels": torch.full((1, 60), 2)}, "labels must be 0 to 1, got 2 to 2"),
        ({"n_classes": 1}, "at least 2 classes"),
        ({"c": 0.0}, "c must be positive"),
        ({"c": math.nan}, "c must be positive"),
        ({"c": math.inf}, "c must be positive"),
        ({"weights": torch.ones(60)}, r"need weights \[1, 60\]"),
        ({"weights": torch.full((1, 60), -1.0)}, "not negative"),
        ({"weights": torch.full((1, 60), math.nan)}, "finite"),
    ],
)
def test_bad_problems_are_refused(change: dict, message: str) -> None:
    x, y = made(19)
    with pytest.raises(ProbingError, match=message):
        Problems(**({"x": x, "labels": y[None], "n_classes": 2, "c": 0.5} | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tolerance": 0.0}, "tolerance must be between"),
        ({"tolerance": math.nan}, "tolerance must be between"),
        ({"max_iter": 0}, "max_iter must be at least 1"),
        ({"zero_weight_tol": -1.0}, "zero_weight_tol must not be negative"),
    ],
)
def test_bad_settings_are_refused(change: dict, message: str) -> None:
    with pytest.raises(ProbingError, match=message):
        Settings(**change)
