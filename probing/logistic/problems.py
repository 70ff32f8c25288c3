"""What is fitted, how exactly, and what comes out; checked when it is put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sally_anne.core.errors import ProbingError
from sally_anne.probing.config import DEFAULT_MAX_ITER


@dataclass(frozen=True)
class Problems:
    """What is fitted: samples, label vectors and the penalty.

    Attributes:
        x: ``[N, G, D]`` samples of G heads, as they are stored.
        labels: ``[P, N]`` codes ``0 .. n_classes - 1``, the same for all heads.
        n_classes: at least 2.
        c: inverse strength of the penalty.
        weights: ``[P, N]`` weights of the samples, or None for ones.
        name: what to call a head in messages.
    """

    x: Tensor
    labels: Tensor
    n_classes: int
    c: float
    weights: Tensor | None = None
    name: Callable[[int], str] = "head {}".format

    def __post_init__(self) -> None:
        """Check sizes, labels and weights; a ProbingError says what does not agree."""
        x, labels, weights = list(self.x.shape), self.labels, self.weights
        shape = list(labels.shape)
        if len(x) != 3 or len(shape) != 2 or x[0] != shape[1]:
            raise ProbingError(f"need x [N, G, D] and labels [P, N], got {x} and {shape}")
        if 0 in x + shape:
            raise ProbingError(f"nothing to fit: x is {x}, labels {shape}")
        if not 0 < self.c < np.inf:
            raise ProbingError(f"c must be positive and finite, got {self.c}")
        if labels.dtype.is_floating_point:
            raise ProbingError(f"labels must be integer codes, got {labels.dtype}")
        if self.n_classes < 2:
            raise ProbingError(f"a probe needs at least 2 classes, got {self.n_classes}")
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= self.n_classes:
            raise ProbingError(f"labels must be 0 to {self.n_classes - 1}, got {low} to {high}")
        if weights is not None and list(weights.shape) != shape:
            raise ProbingError(f"need weights {shape} as the labels, got {list(weights.shape)}")
        if weights is not None and not bool((weights.isfinite() & (weights >= 0)).all()):
            raise ProbingError("weights must be finite and not negative")
        for code in range(self.n_classes):
            present = labels == code if weights is None else (labels == code) & (weights > 0)
            if len(missing := (~present.any(1)).nonzero()):
                raise ProbingError(
                    f"label vector {int(missing[0])}: no sample with weight has class {code}; "
                    "a probe needs samples of every class"
                )


@dataclass(frozen=True)
class Settings:
    """How exact fits have to be.

    Attributes:
        tolerance: ``||w - w*|| <= tolerance ||w||`` is guaranteed where ``converged``, down to what
            float64 can tell; derivatives are within scikit-learn's default tolerance as well.
        max_iter: limit of the steps of a problem, in float32 and again in float64.
        zero_weight_tol: a head keeps zero weights if no derivative of its mean loss there is
            larger. With ``SKLEARN_TOLERANCE`` scikit-learn's solver does the same; with 0 every
            head is fitted.
        device: where to compute; the samples' own by default. They are moved block by block.
        block_bytes: memory that a block of heads may fill; by default as a cache, or part of a GPU.
    """

    tolerance: float = 1e-6
    max_iter: int = DEFAULT_MAX_ITER
    zero_weight_tol: float = 0.0
    device: str | torch.device | None = None
    block_bytes: float | None = None

    def __post_init__(self) -> None:
        """Check the numbers; a ProbingError says which is out of range."""
        for name, good, words in (
            ("tolerance", 0 < self.tolerance < 1, "be between 0 and 1"),
            ("max_iter", self.max_iter >= 1, "be at least 1"),
            ("zero_weight_tol", self.zero_weight_tol >= 0, "not be negative"),
        ):
            if not good:
                raise ProbingError(f"{name} must {words}, got {getattr(self, name)}")


@dataclass(frozen=True)
class Fits:
    """Weights of G heads for P label vectors, in float64.

    Attributes:
        coef: ``[G, P, K, D]``; K = 1 for two classes, else the number of classes.
        intercept: ``[G, P, K]``; of more than two classes they sum to zero.
        bound: ``[G, P]``, an upper bound on the Euclidean distance of ``coef`` from the optimum.
        converged: ``[G, P]``, the bound is within the tolerance asked for, or the head is zeroed.
        zeroed: ``[G, P]``, heads that were left at zero weights.
    """

    coef: Tensor
    intercept: Tensor
    bound: Tensor
    converged: Tensor
    zeroed: Tensor
