"""A penalty that leaves the truth of statements to a few heads.

Truth that the stream carries shows in the outputs of nearly every later head, so that a fifth of
all heads know it and steering heads drawn at random moves answers, too. The penalty is the Fisher
ratio of each other head: how far its mean outputs for true and for false statements lie apart, in
units of their spread. Where the means agree, no linear probe tells the two apart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from hooks.geometry import find_geometry, o_projs

# Samples of each kind below which a batch says nothing of means.
_FEWEST = 4
# Added to the covariance, in units of its mean variance; small directions count, too.
_RIDGE = 0.03


class HeadReader:
    """Keeps the outputs of heads (the inputs of W_o) of the last forward pass, with gradients."""

    def __init__(self, model: nn.Module, layers: Sequence[int]) -> None:
        self.layers = tuple(layers)
        self.n_heads = find_geometry(model).n_heads
        self._seen: dict[int, Tensor] = {}
        projections = o_projs(model)
        for layer in self.layers:
            projections[layer].register_forward_pre_hook(partial(self._keep, layer))

    def _keep(self, layer: int, module: nn.Module, args: tuple[Tensor, ...]) -> None:
        self._seen[layer] = args[0]

    def heads(self, layer: int) -> Tensor:
        """``[B, T, H, D]`` of the last pass."""
        return self._seen[layer].unflatten(-1, (self.n_heads, -1))


def fisher_ratios(z: Tensor, truth: Tensor) -> Tensor:
    """``[H]``: how well a linear probe of ``z [M, H, D]`` could tell ``truth [M]``.

    It is the squared distance of the means in units of the covariance within both kinds.
    """
    difference = z[truth].mean(0) - z[~truth].mean(0)
    within = torch.where(truth[:, None, None], z - z[truth].mean(0), z - z[~truth].mean(0))
    covariance = torch.einsum("mhd,mhe->hde", within, within) / len(z)
    ridge = _RIDGE * covariance.diagonal(dim1=1, dim2=2).mean(1).detach() + 1e-6
    covariance = covariance + ridge[:, None, None] * torch.eye(z.shape[-1])
    return (difference * torch.linalg.solve(covariance, difference)).sum(-1)


def localiser(
    reader: HeadReader, kept: Collection[tuple[int, int]], weight: float
) -> Callable[[Tensor, Tensor], Tensor]:
    """The penalty as a function of where truth is wanted.

    ``weight`` is that of the mean of log(1 + Fisher ratio) over a layer's heads but those ``kept``
    (layer, head), summed over the reader's layers. The function is of ``judged [B, T]`` (places)
    and ``truth [M]`` (there).
    """

    def penalty(judged: Tensor, truth: Tensor) -> Tensor:
        total = torch.zeros(())
        if min(int(truth.sum()), int((~truth).sum())) < _FEWEST:
            return total
        for layer in reader.layers:
            free = torch.tensor([(layer, head) not in kept for head in range(reader.n_heads)])
            ratios = fisher_ratios(reader.heads(layer)[judged], truth)[free]
            total = total + weight * torch.log1p(ratios).mean()
        return total

    return penalty
