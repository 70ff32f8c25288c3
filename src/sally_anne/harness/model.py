"""A model under evaluation, steered or not: replies and probabilities for batches of prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sally_anne.harness.replies import Listener, Reply
from sally_anne.hooks.positions import ALL
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.decoding import (
    State,
    end_tokens,
    extend,
    greedy,
    prefill,
    split_common_prefix,
    step,
)
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prompts import continuations, encode, pieces_of, reply_prompt


@dataclass(frozen=True)
class Prompt:
    """A user's turn: its text, and frames ``uint8 [F, height, width, 3]`` or None.

    ``sound`` is ``float [S]``, 16,000 samples a second, for a model that hears, or None.
    A ``whole`` one is laid out already: it holds the marks of the chat layout and the place of the
    frames.
    """

    text: str
    clip: np.ndarray | None = None
    whole: bool = False
    sound: np.ndarray | None = None
    system: str = ""  # the system message before it; empty for none

    @property
    def turns(self) -> list[dict[str, str]]:
        """The chat: a system message if there is one, and the user's turn."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": self.text}]

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Of the clip; prompts of one batch have one shape."""
        return None if self.clip is None else self.clip.shape


@dataclass(frozen=True, eq=False)
class SteeredModel:
    """A model, and a vector that steers it or none; ``alpha`` is the vector's own by default.

    Decoding is greedy (temperature 0, as in the paper).
    """

    loaded: LoadedModel
    steering: SteeringVector | None = None
    alpha: float | None = None

    @property
    def about(self) -> dict[str, Any]:
        """What its answers depend on, for a run's record."""
        steering = self.steering and self.steering.describe()
        return {**self.loaded.about, "steering": steering, "alpha": self.alpha}

    def generate(self, prompts: Sequence[Prompt], max_new_tokens: int = 16) -> list[str]:
        """Replies, without special tokens; a reply ends at the model's end token."""
        return [reply.text for reply in self.replies(prompts, max_new_tokens)]

    def replies(
        self,
        prompts: Sequence[Prompt],
        max_new_tokens: int = 16,
        stops: Sequence[str] = (),
        top: int | None = None,
    ) -> list[Reply]:
        """As :meth:`generate`, with all there is to know about each reply.

        It stops at the strings ``stops``, too, none of them empty. With ``top`` the log-probability
        of each token is kept, and those of so many of the likeliest at its place.
        """
        tokenizer, ends = self.loaded.processor.tokenizer, end_tokens(self.loaded)
        with self.prefilled(prompts) as (begun, endings):
            state = extend(self.loaded, begun, range(len(endings)), endings)
            listener = Listener(tokenizer, ends, state.mask.sum(1).tolist(), stops, top)
            greedy(self.loaded, state, max_new_tokens, listener)
        return listener.replies()

    def log_probs_along(
        self, prompts: Sequence[Prompt], replies: Sequence[Sequence[int]]
    ) -> list[Tensor]:
        """Log-probabilities of all tokens at each place of given replies (token ids), in nats.

        ``float32 [n, V]`` a prompt, on the CPU: row i is what the model expects after the prompt
        and the reply's first i tokens.
        """
        found: list[list[Tensor]] = [[] for _ in prompts]
        longest = max(len(reply) for reply in replies)
        with self.prefilled(prompts) as (begun, ends):
            state = extend(self.loaded, begun, range(len(ends)), ends)
            for column in range(longest):
                log_probs = state.logits.float().log_softmax(-1).cpu()
                for rows, row, reply in zip(found, log_probs, replies, strict=True):
                    if column < len(reply):
                        rows.append(row.clone())
                if column + 1 < longest:
                    tokens = [reply[min(column, len(reply) - 1)] for reply in replies]
                    fed = torch.tensor(tokens, device=state.logits.device)
                    state = step(self.loaded, state, fed)
        return [torch.stack(rows) for rows in found]

    def option_log_probs(
        self, prompts: Sequence[Prompt], options: Sequence[Sequence[str]]
    ) -> list[list[float]]:
        """Log-probability of each option of each prompt as the beginning of the reply, in nats."""
        if len(options) != len(prompts) or not all(options):
            raise ValueError("every prompt needs its options")
        said = [self.continuations(p, o) for p, o in zip(prompts, options, strict=True)]
        rows = [i for i, choices in enumerate(said) for _ in choices]
        flat = [choice for choices in said for choice in choices]
        with self.prefilled(prompts) as (begun, ends):
            state = extend(self.loaded, begun, rows, [ends[i] for i in rows])
            total = _walk(self.loaded, state, flat)
        scores = iter(total.tolist())
        return [[next(scores) for _ in choices] for choices in said]

    @contextmanager
    def prefilled(self, prompts: Sequence[Prompt]) -> Iterator[tuple[State, list[tuple[int, ...]]]]:
        """What :func:`prefill_prompts` gives; what runs in the block is steered as it should be."""
        everywhere = self.steering is not None and self.steering.positions == ALL
        with torch.inference_mode(), self.applied(everywhere):
            begun, ends = prefill_prompts(self.loaded, prompts)
            with self.applied(not everywhere):
                yield begun, ends

    def applied(self, where: bool = True) -> AbstractContextManager[Any]:
        """Steering, if there is a vector and ``where`` holds."""
        if self.steering is None or not where:
            return nullcontext()
        return self.steering.apply(self.loaded.model, self.alpha)

    def continuations(self, prompt: Prompt, options: Sequence[str]) -> list[list[int]]:
        """Token ids of each option as they follow the prompt, ``[len(options)][n]``."""
        return continuations(self.loaded, laid_out(self.loaded, prompt), options)


def laid_out(loaded: LoadedModel, prompt: Prompt) -> str:
    """A prompt in the model's own chat layout, with the assistant's turn opened."""
    if prompt.whole:
        return prompt.text
    sounds = 0 if prompt.sound is None else len(pieces_of(loaded, prompt.sound))
    return reply_prompt(loaded, prompt.turns, prompt.clip is not None, sounds)


def prefill_prompts(
    loaded: LoadedModel, prompts: Sequence[Prompt]
) -> tuple[State, list[tuple[int, ...]]]:
    """The state after all but the last tokens of each prompt, and the token ids that are left.

    No vector at the end of a prompt touches it.
    """
    inputs, endings = cut_prompts(loaded, prompts)
    return prefill(loaded, inputs), endings


def cut_prompts(
    loaded: LoadedModel, prompts: Sequence[Prompt]
) -> tuple[dict[str, Any], list[tuple[int, ...]]]:
    """Tensors of all but the last tokens of each prompt, and the token ids that are left."""
    clips = [p.clip for p in prompts if p.clip is not None]
    if clips and len(clips) != len(prompts):
        raise ValueError("a batch holds prompts with frames or without, not both")
    heard = [p.sound for p in prompts if p.sound is not None]
    if heard and len(heard) != len(prompts):
        raise ValueError("a batch holds prompts with sounds or without, not both")
    shared = [split_common_prefix(loaded, [laid_out(loaded, p)]) for p in prompts]
    sounds = [pieces_of(loaded, sound) for sound in heard]
    inputs = encode(loaded, [s.beginning for s in shared], clips or None, sounds or None)
    return inputs, [s.endings[0] for s in shared]


def _walk(loaded: LoadedModel, state: State, endings: Sequence[Sequence[int]]) -> Tensor:
    """Sum of log-probabilities of each row's ending ``[R]``, fed token by token."""
    longest = max(len(e) for e in endings)
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

    Column t of logits ``[R, T, V]`` is what the model expects as token ``first + t``; what lies
    beyond a row's end counts for nothing. Sums are ``float64 [R]``, flags ``bool [R]``.
    """
    width = logits.shape[1]
    parts = [list(ending[first : first + width]) for ending in endings]
    tokens = torch.tensor([[*part, *[0] * (width - len(part))] for part in parts])
    real = torch.arange(width) < torch.tensor([[len(part)] for part in parts])
    chosen = tokens.to(logits.device)[..., None]
    log_probs = logits.float().log_softmax(-1).gather(2, chosen)[..., 0].cpu().double()
    agrees = (logits.argmax(-1).cpu() == tokens) | ~real
    return torch.where(real, log_probs, 0.0).sum(1), agrees.all(1)
