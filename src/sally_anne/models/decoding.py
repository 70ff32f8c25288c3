"""Writing replies token by token, and what given ones gain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sally_anne.models.prefix import State, step

if TYPE_CHECKING:
    from sally_anne.models.loading import LoadedModel


def log_probs_of(loaded: LoadedModel, state: State, endings: Sequence[Sequence[int]]) -> Tensor:
    """Sum of log-probabilities of each row's ending ``[R]``, in nats; ``state`` is used up."""
    longest = max(map(len, endings))
    pad = loaded.processor.tokenizer.pad_token_id
    total = torch.zeros(len(endings), dtype=torch.float64)
    for column in range(longest):
        total += gained(state.logits[:, None], endings, column)[0]
        if column + 1 < longest:
            chosen = [e[column] if column < len(e) else pad for e in endings]
            state = step(loaded, state, torch.tensor(chosen, device=state.logits.device))
    return total


def gained(logits: Tensor, endings: Sequence[Sequence[int]], first: int) -> tuple[Tensor, Tensor]:
    """What tokens ``first`` to ``first + T`` of each ending gain, and whether they are likeliest.

    Column t of logits ``[R, T, V]`` is of token ``first + t``; what lies beyond a row's end counts
    for nothing. Sums are ``float64 [R]``, flags ``bool [R]``.
    """
    width = logits.shape[1]
    parts = [list(ending[first : first + width]) for ending in endings]
    tokens = torch.tensor([[*part, *[0] * (width - len(part))] for part in parts])
    real = torch.arange(width) < torch.tensor([[len(part)] for part in parts])
    chosen = tokens.to(logits.device)[..., None]
    log_probs = logits.float().log_softmax(-1).gather(2, chosen)[..., 0].cpu().double()
    agrees = (logits.argmax(-1).cpu() == tokens) | ~real
    return torch.where(real, log_probs, 0.0).sum(1), agrees.all(1)


def greedy(
    loaded: LoadedModel,
    state: State,
    max_new_tokens: int,
    on_step: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Tensor:
    """Most probable tokens one by one, ``[R, n]``; rows are filled up with padding after their end.

    ``state`` is used up. ``on_step`` gets logits ``[R, V]`` and tokens ``[R]`` of each step and
    says which rows ``[R]`` end there, besides those that come to an end token.
    """
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens must be at least 1, got {max_new_tokens}")
    ends = torch.tensor(end_tokens(loaded), device=state.logits.device)
    pad = loaded.processor.tokenizer.pad_token_id
    done = torch.zeros(len(state.logits), dtype=torch.bool, device=state.logits.device)
    said: list[Tensor] = []
    while True:
        tokens = torch.where(done, pad, state.logits.argmax(-1))
        said.append(tokens)
        done = done | torch.isin(tokens, ends)
        if on_step is not None:
            done = done | on_step(state.logits, tokens)
        if len(said) == max_new_tokens or bool(done.all()):
            return torch.stack(said, dim=1)
        state = step(loaded, state, tokens)


def end_tokens(loaded: LoadedModel) -> list[int]:
    """The tokens that end a reply: the model's own, or else the tokenizer's."""
    ends = loaded.model.generation_config.eos_token_id
    ends = loaded.processor.tokenizer.eos_token_id if ends is None else ends
    return list(ends) if isinstance(ends, list | tuple) else [ends] * (ends is not None)


def decode(loaded: LoadedModel, tokens: Tensor) -> list[str]:
    """Texts of token rows, without what follows the first end token, and without special tokens."""
    ends = set(end_tokens(loaded))
    rows = [[*takewhile(lambda token: token not in ends, row)] for row in tokens.tolist()]
    return loaded.processor.tokenizer.batch_decode(rows, skip_special_tokens=True)
