"""From heads and their directions to a steering vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from sally_anne.core.errors import ProbingError, SteeringError
from sally_anne.core.head import Head
from sally_anne.hooks.vector import SteeringVector


class NoDirectionError(ProbingError):
    """Fewer heads than are wanted have a probe with weights: nothing linear was found."""


def best_heads(ranked: Sequence[Head], coef: np.ndarray, k: int) -> list[Head]:
    """The first ``k`` of the ranked heads whose probe has weights ``[L, H, D]`` other than zero.

    Raises:
        ProbingError: the model has fewer heads.
        NoDirectionError: fewer have weights.
    """
    if not 1 <= k <= len(ranked):
        layers, heads = coef.shape[:2]
        raise ProbingError(f"K = {k}: the model has {layers} x {heads} = {len(ranked)} heads")
    usable = [head for head in ranked if coef[head].any()]
    if k > len(usable):
        raise NoDirectionError(
            f"K = {k}: only {len(usable)} of {len(ranked)} heads have a probe with weights, and "
            "thus a direction"
        )
    return usable[:k]


def towards_class(coef: np.ndarray, place: int) -> np.ndarray:
    """Weights ``[L, H, D]`` that point to one class of probes, by its place among them."""
    if coef.ndim == 4:
        return coef[:, :, place]
    return coef if place else -coef


def vector_on(
    heads: Sequence[Head],
    x: np.ndarray,
    directions: Sequence[np.ndarray],
    shape: tuple[int, ...],
    direction: str = "logistic",
    **facts: Any,
) -> SteeringVector:
    """A vector on K heads of a model with ``shape`` (L, H).

    Args:
        heads: best first.
        x: their training activations ``[N, K, D]`` in float64, whose standard deviation along the
            direction is sigma.
        directions: a vector ``[D]`` of any length for each.
        shape: layers and heads of the model.
        direction: how the directions were found.
        facts: of the vector.

    Raises:
        SteeringError: a direction is zero.
    """
    theta = np.empty((len(heads), x.shape[2]))
    for i, ((layer, head), found) in enumerate(zip(heads, directions, strict=True)):
        norm = np.linalg.norm(found)
        if not norm > 0:
            raise SteeringError(f"{direction} has no direction at {Head(layer, head)}; lower K")
        theta[i] = found / norm
    return SteeringVector(
        heads=tuple(heads),
        theta=torch.from_numpy(theta),
        sigma=torch.from_numpy(np.einsum("nkd,kd->nk", x, theta).std(axis=0)),
        n_layers=shape[0],
        n_heads=shape[1],
        direction=direction,
        **facts,
    )
