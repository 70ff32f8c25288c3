"""A model under evaluation, steered or not: completions and probabilities for batches of prompts.

Decoding is greedy (temperature 0, as in the GridToM paper).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sally_anne.hooks.positions import ALL
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models import decoding
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prefix import State, extend, prefill, split_common_prefix, step
from sally_anne.models.prompts import continuations, encode, pieces_of, reply_prompt


@dataclass
class Completion:
    """A reply token by token."""

    prompt_tokens: int  # with those that frames take
    text: str = ""  # without special tokens, cut before the first stop string
    tokens: tuple[int, ...] = ()  # with the end token and those of a stop string
    ended: bool = False  # by an end token or stop string; if not, it was cut


@dataclass(frozen=True)
class Prompt:
    """A user's turn: its text, and what is shown and played with it."""

    text: str
    clip: np.ndarray | None = None  # frames, uint8 [F, height, width, 3]
    whole: bool = False  # the text is laid out already, with marks of the chat and the frames
    sound: np.ndarray | None = None  # float [S], 16,000 samples a second
    system: str = ""  # the system message before it; empty for none

    @property
    def turns(self) -> list[dict[str, str]]:
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": self.text}]

    @property
    def shape(self) -> tuple[int, ...] | None:
        return None if self.clip is None else self.clip.shape


@dataclass(frozen=True, eq=False)
class SteeredModel:
    """A model, and a vector that steers it or none; ``alpha`` is the vector's own by default."""

    loaded: LoadedModel
    steering: SteeringVector | None = None
    alpha: float | None = None

    def keeping(self, folder: Path, role: str = "") -> AbstractContextManager[None]:
        return nullcontext()

    @property
    def about(self) -> dict[str, Any]:
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
        after_text: bool = False,
    ) -> list[Completion]:
        """As :meth:`generate`, with all there is to know about each reply.

        It ends before the first of ``stops``, too, none of them empty; with ``after_text`` they
        count from the first letter on, so that no reply is blank by them.
        """
        ends, tokenizer = decoding.end_tokens(self.loaded), self.loaded.processor.tokenizer

        def read(reply: Completion) -> bool:
            text = tokenizer.decode(
                reply.tokens[: -1 if reply.tokens[-1] in ends else None], skip_special_tokens=True
            )
            first = len(text) - len(text.lstrip()) if after_text else 0
            places = [place for stop in stops if (place := text.find(stop, first)) >= 0]
            reply.text = text[: min(places, default=None)]
            return bool(places)

        def ended(logits: Tensor, tokens: Tensor) -> Tensor:
            for reply, token in zip(found, tokens.tolist(), strict=True):
                if not reply.ended:
                    reply.tokens += (token,)
                    reply.ended = token in ends or (bool(stops) and read(reply))
            return torch.tensor([reply.ended for reply in found], device=tokens.device)

        with self.prefilled(prompts) as (begun, endings):
            state = extend(self.loaded, begun, range(len(endings)), endings)
            found = [Completion(tokens) for tokens in state.mask.sum(1).tolist()]
            decoding.greedy(self.loaded, state, max_new_tokens, ended)
        for reply in found:
            read(reply)
        return found

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
        said = [self.continuations(p, o) for p, o in zip(prompts, options, strict=True)]
        rows = [i for i, choices in enumerate(said) for _ in choices]
        flat = [choice for choices in said for choice in choices]
        with self.prefilled(prompts) as (begun, ends):
            state = extend(self.loaded, begun, rows, [ends[i] for i in rows])
            total = decoding.log_probs_of(self.loaded, state, flat)
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
        if self.steering is None or not where:
            return nullcontext()
        return self.steering.apply(self.loaded.model, self.alpha)

    def continuations(self, prompt: Prompt, options: Sequence[str]) -> list[list[int]]:
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
    """The state after all but the last tokens of each prompt, and the token ids that are left."""
    inputs, endings = cut_prompts(loaded, prompts)
    return prefill(loaded, inputs, logits=False), endings


def cut_prompts(
    loaded: LoadedModel, prompts: Sequence[Prompt]
) -> tuple[dict[str, Any], list[tuple[int, ...]]]:
    """Tensors of all but the last tokens of each prompt, and the token ids that are left."""
    clips = [p.clip for p in prompts if p.clip is not None]
    sounds = [pieces_of(loaded, p.sound) for p in prompts if p.sound is not None]
    shared = [split_common_prefix(loaded, [laid_out(loaded, p)]) for p in prompts]
    inputs = encode(loaded, [s.beginning for s in shared], clips or None, sounds or None)
    return inputs, [s.endings[0] for s in shared]
