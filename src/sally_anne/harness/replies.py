"""Replies token by token: what was said, how probable it was, where it stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Reply:
    text: str  # without special tokens, cut before the first stop string
    tokens: tuple[int, ...]  # the end token and those of a stop string among them
    log_probs: tuple[float, ...]  # of each token, in nats; empty if not asked for
    # At each place the most probable tokens with their log-probabilities, best first.
    likeliest: tuple[tuple[tuple[int, float], ...], ...]
    prompt_tokens: int  # with those that frames take
    ended: bool  # whether it came to an end token or stop string; if not, it was cut


class Listener:
    """Keeps what :func:`sally_anne.models.decoding.greedy` says, and stops rows at stop strings.

    ``prompt_tokens`` are the lengths of the rows' prompts; none of ``stops`` is empty; ``top`` is
    how many of the likeliest tokens to keep, None keeps no log-probabilities at all.
    """

    def __init__(
        self,
        tokenizer: Any,
        ends: Sequence[int],
        prompt_tokens: Sequence[int],
        stops: Sequence[str] = (),
        top: int | None = None,
    ) -> None:
        self.tokenizer, self.ends = tokenizer, frozenset(ends)
        self.prompt_tokens, self.stops, self.top = prompt_tokens, stops, top
        self.tokens: list[list[int]] = [[] for _ in prompt_tokens]
        self.log_probs: list[list[float]] = [[] for _ in prompt_tokens]
        self.likeliest: list[list[tuple[tuple[int, float], ...]]] = [[] for _ in prompt_tokens]
        self.ended = [False for _ in prompt_tokens]

    def __call__(self, logits: Tensor, tokens: Tensor) -> Tensor:
        """Hear tokens ``[R]`` chosen from logits ``[R, V]``; bool ``[R]``: who says no more."""
        if self.top is not None:
            log_probs = logits.float().log_softmax(-1)
            chosen = log_probs.gather(1, tokens[:, None])[:, 0].tolist()
            values, ids = (pairs.tolist() for pairs in log_probs.topk(self.top))
        for row, token in enumerate(tokens.tolist()):
            if self.ended[row]:
                continue
            self.tokens[row].append(token)
            if self.top is not None:
                self.log_probs[row].append(chosen[row])
                self.likeliest[row].append(tuple(zip(ids[row], values[row], strict=True)))
            self.ended[row] = token in self.ends or (
                bool(self.stops) and self._stop(self._text(row)) is not None
            )
        return torch.tensor(self.ended, device=tokens.device)

    def replies(self) -> list[Reply]:
        texts = [self._text(row) for row in range(len(self.tokens))]
        return [
            Reply(
                text=text[: self._stop(text)],
                tokens=tuple(self.tokens[row]),
                log_probs=tuple(self.log_probs[row]),
                likeliest=tuple(self.likeliest[row]),
                prompt_tokens=self.prompt_tokens[row],
                ended=self.ended[row],
            )
            for row, text in enumerate(texts)
        ]

    def _text(self, row: int) -> str:
        tokens = self.tokens[row]
        whole = tokens[:-1] if tokens and tokens[-1] in self.ends else tokens
        return self.tokenizer.decode(whole, skip_special_tokens=True)

    def _stop(self, text: str) -> int | None:
        """Where the first stop string begins; None without one."""
        places = [text.find(stop) for stop in self.stops]
        return min((place for place in places if place >= 0), default=None)
