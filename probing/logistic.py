"""Logistic losses of many label vectors at once: residuals, curvatures, starting intercepts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class Losses:
    """C times the weighted log-loss of P problems that share their samples.

    Two classes have one logit (K = 1), more have one a class. Logits, probabilities and residuals
    of B heads are ``[B, P, K * N]``, class after class. Derivatives are those of scikit-learn's
    objective ``0.5 ||w||^2 + C sum_i s_i loss_i``; the penalty is added by who calls.

    Attributes:
        targets: ``[P, K * N]`` zeros and ones.
        weights: ``[P, K * N]``, C times the samples' weights, the same for all classes.
        outputs: K.
    """

    targets: Tensor
    weights: Tensor
    outputs: int

    @classmethod
    def of(cls, labels: Tensor, n_classes: int, c: float, weights: Tensor | None) -> Losses:
        """From codes ``[P, N]`` in ``0 .. n_classes - 1`` and weights ``[P, N]``, in float64."""
        outputs = 1 if n_classes == 2 else n_classes
        codes = torch.arange(n_classes, device=labels.device)[-outputs:]
        targets = (labels[:, None] == codes[:, None]).double().flatten(1)
        scale = torch.ones_like(labels) if weights is None else weights
        return cls(targets, (c * scale.double()).repeat(1, outputs), outputs)

    @property
    def flatness(self) -> float:
        """Curvature of one sample's loss where nothing is known: 1/4, or 1/K for K classes."""
        return 0.25 if self.outputs == 1 else 1.0 / self.outputs

    def to(self, dtype: torch.dtype) -> Losses:
        """The same in another precision."""
        return Losses(self.targets.to(dtype), self.weights.to(dtype), self.outputs)

    def take(self, problems: slice | Tensor) -> Losses:
        """Some of the problems."""
        return Losses(self.targets[problems], self.weights[problems], self.outputs)

    def by_class(self, values: Tensor) -> Tensor:
        """``[..., K * N]`` as ``[..., K, N]``."""
        return values.unflatten(-1, (self.outputs, -1))

    @cached_property
    def sample_weights(self) -> Tensor:
        """``[P, N]``, C times the weights."""
        return self.by_class(self.weights)[:, 0]

    @cached_property
    def mass(self) -> Tensor:
        """``[P]`` sum of a problem's weights, times C."""
        return self.sample_weights.sum(-1)

    @cached_property
    def class_masses(self) -> Tensor:
        """``[P, n_classes]`` sums over each class."""
        each = self.by_class(self.targets * self.weights).sum(-1)
        if self.outputs == 1:
            return torch.cat([self.mass[:, None] - each, each], dim=-1)
        return each

    @cached_property
    def rarest(self) -> Tensor:
        """``[P]`` the smallest of them."""
        return self.class_masses.amin(-1)

    @cached_property
    def start(self) -> Tensor:
        """``[P, K]`` the best intercepts when all weights are zero."""
        logits = self.class_masses.log()
        if self.outputs == 1:
            return logits[:, 1:] - logits[:, :1]
        return logits - logits.mean(-1, keepdim=True)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Of the second class, or of each."""
        if self.outputs == 1:
            return torch.sigmoid(logits)
        return torch.softmax(self.by_class(logits), dim=-2).flatten(-2)

    def residuals(self, probabilities: Tensor) -> Tensor:
        """Derivative by the logits."""
        return (probabilities - self.targets).mul_(self.weights)

    def curvature(self, probabilities: Tensor, along: Tensor) -> Tensor:
        """Second derivative ``[B, P]`` when the logits move along ``along [B, P, K * N]``."""
        moved = probabilities * along
        if self.outputs == 1:
            spread = along - moved
        else:
            mean = self.by_class(moved).sum(-2, keepdim=True)
            spread = (self.by_class(along) - mean).flatten(-2)
        return torch.linalg.vecdot(moved.mul_(spread), self.weights)

    def bend(self, probabilities: Tensor, along: Tensor) -> Tensor:
        """Change of the residuals when the logits move along ``along``, to first order."""
        moved = probabilities * along
        if self.outputs == 1:
            return torch.addcmul(moved, probabilities, moved, value=-1).mul_(self.weights)
        mean = self.by_class(moved).sum(-2, keepdim=True)
        return (moved - (self.by_class(probabilities) * mean).flatten(-2)).mul_(self.weights)
