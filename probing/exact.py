"""Samples in float64, a few heads at a time: all of them together would not stay in the cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from probing.goal import Block
from probing.logistic import Losses


@dataclass(frozen=True)
class Exact:
    """A block of heads in float64, made again whenever it is needed.

    Attributes:
        x: ``[N, B, D]`` samples as they are.
        centre: ``[B, D]`` what is taken off them.
        rotated: ``[B, N, N]`` centred samples in fewer dimensions, instead of these; or None.
        inverse: ``[B, E, E]`` preconditioner in float32, None for none.
        radius: ``[B]`` norm of the longest centred sample.
        memory: ``[M, N, E]`` where M heads at a time are made, its last column ones.
    """

    x: Tensor
    centre: Tensor
    rotated: Tensor | None
    inverse: Tensor | None
    radius: Tensor
    memory: Tensor

    def gradient(self, rows: Tensor, losses: Losses) -> tuple[Tensor, Tensor]:
        """Probabilities ``[B, P, K * N]`` at rows ``[B, P, K * E]``, and the losses' gradient."""
        probabilities = rows.new_empty(*rows.shape[:2], losses.targets.shape[-1])
        gradient = torch.empty_like(rows)
        for first in range(0, len(rows), len(self.memory)):
            part = slice(first, min(first + len(self.memory), len(rows)))
            block = Block(self._made(part), None, self.radius[part])
            probabilities[part] = losses.probabilities(block.logits(rows[part]))
            gradient[part] = block.gather(losses.residuals(probabilities[part]))
        return probabilities, gradient

    def blocks(self, heads: Tensor) -> Iterator[tuple[Tensor, Block]]:
        """Some heads ``[M]``, a few at a time; the samples are overwritten by the next ones."""
        for part in heads.split(len(self.memory)):
            inverse = None if self.inverse is None else self.inverse[part].double()
            yield part, Block(self._made(part), inverse, self.radius[part])

    def _made(self, heads: slice | Tensor) -> Tensor:
        if self.rotated is not None:
            rotated = self.rotated[heads]
            fine = self.memory[: len(rotated)]
            fine[..., :-1] = rotated
            return fine
        x = self.x[:, heads].transpose(0, 1)
        fine = self.memory[: len(x)]
        fine[..., :-1].copy_(x).sub_(self.centre[heads, None])
        return fine
