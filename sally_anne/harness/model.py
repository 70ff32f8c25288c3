"""A model under evaluation, steered or not: replies and probabilities for batches of prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hooks.positions import ALL
from hooks.vector import SteeringVector
from sally_anne.harness.replies import Listener, Reply
from sally_anne.models.decoding import (
    State,
    decode,
    end_tokens,
    extend,
    greedy,
    prefill,
    split_common_prefix,
    step,
)
from sally_anne.models.loading import LoadedModel
from sally_anne.models.processor import plain
from sally_anne.models.prompts import encode, reply_prompt


@dataclass(frozen=True)
class Prompt:
    """A user's turn: its text, and frames ``uint8 [F, height, width, 3]`` or None.

    Attributes:
        text: what the user says.
        clip: what the user shows.
        whole: whether the text is a whole prompt already, with the marks of the chat layout and
            the place of the frames.
    """

    text: str
    clip: np.ndarray | None = None
    whole: bool = False


class SteeredModel:
    """A model, and a vector that steers it or none.

    Decoding is greedy (temperature 0, as in the paper).

    Args:
        loaded: the model.
        steering: a vector; None leaves the model as it is.
        alpha: its strength; the vector's own by default.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        steering: SteeringVector | None = None,
        alpha: float | None = None,
    ) -> None:
        self.loaded = loaded
        self.steering = steering
        self.alpha = alpha

    def generate(self, prompts: Sequence[Prompt], max_new_tokens: int = 16) -> list[str]:
        """Replies, without special tokens; a reply ends at the model's end token."""
        with self.prefilled(prompts) as (begun, ends):
            state = extend(self.loaded, begun, range(len(ends)), ends)
            tokens = greedy(self.loaded, state, max_new_tokens)
        return decode(self.loaded, tokens)

    def replies(
        self,
        prompts: Sequence[Prompt],
        max_new_tokens: int = 16,
        stops: Sequence[str] = (),
        top: int | None = None,
    ) -> list[Reply]:
        """As :meth:`generate`, with all there is to know about each reply.

        Args:
            prompts: what is asked.
            max_new_tokens: length of a reply.
            stops: strings at which a reply stops, too; none of them empty.
            top: keep the log-probability of each token, and so many of the likeliest at its place.
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

        Returns:
            ``float32 [n, V]`` a prompt, on the CPU: row i is what the model expects after the
            prompt and the reply's first i tokens.
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
        """Log-probability of each option of each prompt as the beginning of the reply, in nats.

        Raises:
            ValueError: a prompt without options.
        """
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
        tokenizer = self.loaded.processor.tokenizer
        text = laid_out(self.loaded, prompt)
        before = tokenizer(text, add_special_tokens=False)["input_ids"]
        gap = "" if text[-1].isspace() else " "
        found = []
        for option in (plain(self.loaded, option) for option in options):
            whole = tokenizer(f"{text}{gap}{option}", add_special_tokens=False)["input_ids"]
            joined = whole[: len(before)] == before and len(whole) > len(before)
            own = tokenizer(option, add_special_tokens=False)["input_ids"]
            found.append(whole[len(before) :] if joined else own)
        return found


def laid_out(loaded: LoadedModel, prompt: Prompt) -> str:
    """A prompt in the model's own chat layout, with the assistant's turn opened."""
    if prompt.whole:
        return prompt.text
    return reply_prompt(loaded, prompt.text, prompt.clip is not None)


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
    """Tensors of all but the last tokens of each prompt, and the token ids that are left of each.

    Raises:
        ValueError: some prompts have frames, some have none.
        ModelError: the processor dropped frames.
    """
    clips = [p.clip for p in prompts if p.clip is not None]
    if clips and len(clips) != len(prompts):
        raise ValueError("a batch holds prompts with frames or without, not both")
    shared = [split_common_prefix(loaded, [laid_out(loaded, p)]) for p in prompts]
    inputs = encode(loaded, [s.beginning for s in shared], clips or None)
    return inputs, [s.endings[0] for s in shared]


def _walk(loaded: LoadedModel, state: State, endings: Sequence[Sequence[int]]) -> Tensor:
    """Sum of log-probabilities of each row's ending ``[R]``, fed token by token."""
    longest = max(len(e) for e in endings)
    pad = loaded.processor.tokenizer.pad_token_id
    tokens = torch.tensor([[*e, *[pad] * (longest - len(e))] for e in endings])
    real = torch.arange(longest) < torch.tensor([[len(e)] for e in endings])
    total = torch.zeros(len(endings), dtype=torch.float64)
    for column in range(longest):
        chosen = tokens[:, column].to(state.logits.device)
        log_probs = state.logits.float().log_softmax(-1)
        gained = log_probs.gather(1, chosen[:, None])[:, 0].double().cpu()
        total += torch.where(real[:, column], gained, 0.0)
        if column + 1 < longest:
            state = step(loaded, state, chosen)
    return total
