"""What makes the heads' problems easy: few dimensions, and a bound on the curvature."""

from __future__ import annotations

import torch
from torch import Tensor

# Below this side a block is inverted by LAPACK, above it by its Schur complement.
LEAF = 64
# A factor in float32 keeps digits enough up to this condition number.
FLOAT32_CONDITION = 1e5


def rotate(x: Tensor) -> tuple[Tensor, Tensor | None]:
    """Samples ``[B, N, D]`` in at most N dimensions.

    The best weights are a combination of the samples (the gradient of the penalty is w, that of the
    loss lies in their span), so with fewer samples than dimensions nothing is lost by rotating them
    into their span; lengths stay.

    Returns:
        ``[B, N, min(N, D)]`` and the rotation ``[B, D, N]`` back, None if D <= N.
    """
    if x.shape[-1] <= x.shape[-2]:
        return x, None
    back, triangle = torch.linalg.qr(x.mT)
    return triangle.mT.contiguous(), back


def bound(x: Tensor, strength: Tensor) -> Tensor:
    """``X' diag(strength) X`` plus one on the diagonal but for the last column of ones.

    With a quarter of the samples' weights as strength this bounds the binary Hessian from above
    for all labels and weights w (Boehning and Lindsay 1988, section 3), and is the Hessian itself
    at w = 0 if both classes are equally likely. So it serves all label vectors of a head.

    Args:
        x: ``[B, N, E]`` centred samples and a last column of ones.
        strength: ``[N]``, non-negative.

    Returns:
        ``[B, E, E]``.
    """
    strength = strength.to(x.dtype)
    if bool((strength == strength[0]).all()):
        out = (x.mT @ x).mul_(strength[0])
    else:
        out = x.mT @ (x * strength[:, None])
    out.diagonal(dim1=-2, dim2=-1)[:, :-1] += 1.0
    return out


def inverse_bound(x: Tensor, strength: Tensor) -> Tensor:
    """Inverse of :func:`bound`, ``[B, E, E]``; found in float64 where float32 is too coarse.

    Where float64 is too coarse as well, that of the diagonal: any inverse like it will do.
    """
    matrix = bound(x, strength)
    # The trace bounds the condition number, as no eigenvalue of the penalised part is below 1.
    trace = matrix.diagonal(dim1=-2, dim2=-1).sum(-1)
    if x.dtype == torch.float32 and not bool((trace < FLOAT32_CONDITION).all()):
        return inverse_bound(x.double(), strength).to(x.dtype)
    try:
        return invert(matrix)
    except torch.linalg.LinAlgError:
        return matrix.diagonal(dim1=-2, dim2=-1).clamp(min=1.0).reciprocal().diag_embed()


def invert(matrices: Tensor) -> Tensor:
    """Inverses of symmetric positive-definite ``[B, D, D]``, mostly by matrix products.

    Raises:
        LinAlgError: one is singular, as far as its precision tells.
    """
    size = matrices.shape[-1]
    if size <= LEAF:
        return torch.cholesky_inverse(torch.linalg.cholesky_ex(matrices).L)
    half = size // 2
    head, cross, tail = (
        matrices[:, :half, :half],
        matrices[:, :half, half:],
        matrices[:, half:, half:],
    )
    head_inverse = invert(head)
    carried = head_inverse @ cross
    rest = invert(torch.baddbmm(tail, cross.mT, carried, alpha=-1))
    corner = carried @ rest
    out = torch.empty_like(matrices)
    out[:, :half, :half] = torch.baddbmm(head_inverse, corner, carried.mT)
    out[:, :half, half:] = -corner
    out[:, half:, :half] = -corner.mT
    out[:, half:, half:] = rest
    return out
