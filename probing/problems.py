"""What is fitted, and how exactly; checked when it is put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from probing.config import DEFAULT_MAX_ITER
from sally_anne.core.errors import ProbingError

# Relative error of the weights that a fit guarantees.
DEFAULT_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Problems:
    """What is fitted: samples, label vectors and the penalty. Checked when made.

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
        """Check sizes, labels and weights.

        Raises:
            ProbingError: something does not agree; the message says what.
        """
        if self.x.ndim != 3 or self.labels.ndim != 2 or self.x.shape[0] != self.labels.shape[1]:
            raise ProbingError(
                f"need x [N, G, D] and labels [P, N], got {list(self.x.shape)} and "
                f"{list(self.labels.shape)}"
            )
        if 0 in self.x.shape or 0 in self.labels.shape:
            raise ProbingError(
                f"nothing to fit: x is {list(self.x.shape)}, labels {list(self.labels.shape)}"
            )
        if not (self.c > 0 and np.isfinite(self.c)):
            raise ProbingError(f"C must be positive and finite, got {self.c}")
        if self.labels.dtype.is_floating_point or self.labels.dtype.is_complex:
            raise ProbingError(f"labels must be integer codes, got {self.labels.dtype}")
        if self.n_classes < 2:
            raise ProbingError(f"a probe needs at least 2 classes, got {self.n_classes}")
        low, high = int(self.labels.min()), int(self.labels.max())
        if low < 0 or high >= self.n_classes:
            raise ProbingError(f"labels must be 0 to {self.n_classes - 1}, got {low} to {high}")
        weights = self.weights
        if weights is not None:
            if weights.shape != self.labels.shape:
                raise ProbingError(
                    f"need weights {list(self.labels.shape)} as the labels, got "
                    f"{list(weights.shape)}"
                )
            if not bool((weights.isfinite() & (weights >= 0)).all()):
                raise ProbingError("weights must be finite and not negative")
        for code in range(self.n_classes):
            present = self.labels == code
            if weights is not None:
                present = present & (weights > 0)
            if not bool((found := present.any(1)).all()):
                row = int((~found).nonzero()[0])
                raise ProbingError(
                    f"label vector {row}: no sample with weight has class {code}; "
                    "a probe needs samples of every class"
                )


@dataclass(frozen=True)
class Settings:
    """How exact fits have to be.

    Attributes:
        tolerance: relative error of the weights: ``||w - w*|| <= tolerance ||w||`` is guaranteed
            where ``converged``, down to what float64 can tell. Derivatives are within
            scikit-learn's default tolerance as well.
        max_iter: limit of the iterations of a problem in each precision.
        quiet: a head keeps zero weights if no derivative of its mean loss there is larger. With
            ``SKLEARN_TOLERANCE`` scikit-learn's solver does the same; with 0 every head is fitted.
        device: where to compute; the samples' own by default. They are moved block by block.
    """

    tolerance: float = DEFAULT_TOLERANCE
    max_iter: int = DEFAULT_MAX_ITER
    quiet: float = 0.0
    device: str | torch.device | None = None

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            ProbingError: one is out of range.
        """
        if not 0 < self.tolerance < 1:
            raise ProbingError(f"tolerance must be between 0 and 1, got {self.tolerance}")
        if self.max_iter < 1:
            raise ProbingError(f"max_iter must be at least 1, got {self.max_iter}")
        if not self.quiet >= 0:
            raise ProbingError(f"quiet must not be negative, got {self.quiet}")
