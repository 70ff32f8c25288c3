"""The inverse that all label vectors of a head share, and the rotation of few samples."""

from __future__ import annotations

import pytest
import torch

from probing.conditioning import bound, inverse_bound, invert, rotate


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("size", [1, 3, 64, 65, 129, 200])
def test_inverses_are_inverses(size: int) -> None:
    root = torch.randn(2, size, size, dtype=torch.float64)
    matrix = root @ root.mT + torch.eye(size)
    inverse = invert(matrix)
    assert (inverse @ matrix - torch.eye(size)).abs().max() < 1e-8
    assert torch.equal(inverse, inverse.mT) or (inverse - inverse.mT).abs().max() < 1e-12


@pytest.mark.parametrize("even", [True, False])
def test_the_bound_is_above_every_hessian(even: bool) -> None:
    x = torch.cat([torch.randn(2, 50, 6), torch.ones(2, 50, 1)], dim=-1).double()
    weights = torch.full((50,), 0.7) if even else torch.rand(50) + 0.1
    penalty = torch.diag(torch.tensor([1.0] * 6 + [0.0])).double()
    above = bound(x, weights / 4)
    for _ in range(5):
        p = torch.rand(50).double()
        hessian = x.mT @ (x * (weights * p * (1 - p))[:, None]) + penalty
        assert torch.linalg.eigvalsh(above - hessian).min() > -1e-9
    half = x.mT @ (x * (weights / 4)[:, None]) + penalty
    assert (above - half).abs().max() < 1e-9


def test_float32_too_coarse_is_not_used() -> None:
    x = torch.randn(1, 40, 5)
    x[..., 0] *= 1e4
    x[..., 1] = x[..., 0] + 1e-3 * x[..., 1]
    x[..., -1] = 1
    exact = torch.linalg.inv(bound(x.double(), torch.ones(40)))
    found = inverse_bound(x, torch.ones(40))
    assert found.dtype == torch.float32
    assert (found - exact).abs().max() < 1e-6
    try:
        rough = invert(bound(x, torch.ones(40)))
    except torch.linalg.LinAlgError:
        return
    assert not (rough - exact).abs().max() < 1e-4


def test_a_singular_bound_has_an_inverse_of_its_diagonal() -> None:
    x = torch.zeros(1, 40, 3, dtype=torch.float64)
    # Powers of two, so that nothing at all is left of the second column.
    x[:, :16, :2] = 2.0**40
    x[..., -1] = 1
    found = inverse_bound(x, torch.ones(40))
    diagonal = found.diagonal(dim1=-2, dim2=-1)
    assert torch.equal(found, diagonal.diag_embed())
    assert found.isfinite().all() and (diagonal > 0).all()


def test_few_samples_keep_their_products() -> None:
    x = torch.randn(3, 5, 12, dtype=torch.float64)
    rotated, back = rotate(x)
    assert back is not None and rotated.shape == (3, 5, 5)
    assert (rotated @ back.mT - x).abs().max() < 1e-12
    assert (back.mT @ back - torch.eye(5)).abs().max() < 1e-12
    same, none = rotate(x.mT)
    assert none is None and torch.equal(same, x.mT)
