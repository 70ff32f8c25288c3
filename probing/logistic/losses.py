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
        if weights is None:
            # One number takes no memory to read.
            return cls(targets, targets.new_full((1, 1), c).expand_as(targets), outputs)
        return cls(targets, (c * weights.double()).repeat(1, outputs), outputs)

    def to(self, dtype: torch.dtype) -> Losses:
        """The same in another precision."""
        one = self.weights.stride() == (0, 0)
        weights = (self.weights[:1, :1] if one else self.weights).to(dtype)
        return Losses(self.targets.to(dtype), weights.expand_as(self.weights), self.outputs)

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
        return torch.cat([self.mass[:, None] - each, each], -1) if self.outputs == 1 else each

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
        """Change of the residuals when the logits move along ``along``, to first order."""
        moved = probabilities * along
        if self.outputs == 1:
            return torch.addcmul(moved, probabilities, moved, value=-1).mul_(self.weights)
        mean = self.by_class(moved).sum(-2, keepdim=True)
        return (moved - (self.by_class(probabilities) * mean).flatten(-2)).mul_(self.weights)
