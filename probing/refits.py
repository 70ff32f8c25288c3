"""Probes fitted again and again on other labels or weights, scored on held-out samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from probing.config import DEFAULT_C
from probing.logistic import SKLEARN_TOLERANCE, Fits, Problems, Settings, solve_blocks
from sally_anne.core.errors import ProbingError

# Accuracies do not depend on more digits; heads at zero weights stay there, as in a run.
REFIT = Settings(tolerance=1e-4, zero_weight_tol=SKLEARN_TOLERANCE)


@dataclass(frozen=True)
class Split:
    """Activations with their groups, and which of them train and which are held out.

    Attributes:
        x: activations ``[N, L, H, D]``.
        groups: ``[N]`` story of each sample.
        train: ``[N]`` mask.
        held: ``[N]`` mask.
    """

    x: np.ndarray
    groups: np.ndarray
    train: np.ndarray
    held: np.ndarray

    def __post_init__(self) -> None:
        """Check sizes, and that no group is cut.

        Raises:
            ProbingError: something does not agree.
        """
        if self.x.ndim != 4:
            raise ProbingError(f"need x [N, L, H, D], got {list(self.x.shape)}")
        for name in ("groups", "train", "held"):
            if getattr(self, name).shape != (len(self.x),):
                raise ProbingError(
                    f"need {name} [{len(self.x)}], got {list(getattr(self, name).shape)}"
                )
        for name in ("train", "held"):
            mask = getattr(self, name)
            if mask.dtype != bool or not mask.any():
                raise ProbingError(f"{name} must be a mask with at least one sample")
        cut = np.intersect1d(self.groups[self.train], self.groups[self.held])
        if len(cut):
            raise ProbingError(
                f"{len(cut)} groups train and are held out ({cut[0]} is one): a split must not cut "
                "a group"
            )

    @property
    def heads(self) -> tuple[int, int]:
        """L, H."""
        return self.x.shape[1], self.x.shape[2]

    def rows(self, mask: np.ndarray) -> Tensor:
        """Samples of a mask, ``[n, L * H, D]``."""
        return torch.from_numpy(np.require(self.x[mask], requirements=["C", "W"])).flatten(1, 2)

    def name(self, index: int) -> str:
        """A head by its place."""
        layer, head = divmod(index, self.heads[1])
        return f"layer {layer} head {head}"


def refit(
    split: Split,
    labels: np.ndarray,
    n_classes: int,
    c: float = DEFAULT_C,
    weights: np.ndarray | None = None,
    settings: Settings = REFIT,
) -> Iterator[tuple[tuple[slice, slice], Fits, Tensor]]:
    """Fit P label vectors on the training samples of all heads, block by block.

    Args:
        split: the activations.
        labels: ``[P, N]`` codes ``0 .. n_classes - 1`` of all samples.
        n_classes: at least 2.
        c: inverse penalty.
        weights: ``[P, N]`` of all samples; only those of training samples are used here.
        settings: how exact.

    Yields:
        Heads (layer by layer) and label vectors, their fits, and which held-out samples are right:
        ``[B, P, M]``.

    Raises:
        ProbingError: as of ``solve``.
    """
    train, held = split.rows(split.train), split.rows(split.held)
    truth = torch.from_numpy(labels[:, split.held])
    problems = Problems(
        train,
        torch.from_numpy(labels[:, split.train]),
        n_classes,
        c,
        None if weights is None else torch.from_numpy(weights[:, split.train]),
        split.name,
    )
    for at, fits in solve_blocks(problems, settings):
        heads, vectors = at
        place = fits.coef.device
        x = held[:, heads].to(place).transpose(0, 1).float()
        coef, shift = fits.coef.float(), fits.intercept.float()
        flat = torch.bmm(coef.flatten(1, 2), x.mT)
        logits = flat.unflatten(1, coef.shape[1:3]) + shift[..., None]
        predicted = (logits[:, :, 0] > 0).long() if n_classes == 2 else logits.argmax(2)
        yield at, fits, predicted == truth[vectors].to(place)
