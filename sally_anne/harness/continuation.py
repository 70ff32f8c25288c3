"""Prompts that are laid out already: what follows them, and how probable a given continuation is.

`sally_anne.harness.model` asks questions in the model's chat layout. Other harnesses bring prompts
that they have laid out themselves, or plain text without any layout; these go through here, steered
in the same way: ``last_prompt`` is the last token of the context, ``generated`` are the tokens of
the continuation, whether the model chose them or they are given.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from hooks.positions import ALL, LAST_PROMPT
from sally_anne.core.errors import HarnessError
from sally_anne.harness.model import SteeredModel
from sally_anne.harness.replies import Listener
from sally_anne.models.decoding import State, end_tokens, greedy, prefill, select
from sally_anne.models.loading import LoadedModel

# Tokens of given continuations that go through the model at once: the logits of all of them are
# kept until they are read, for a vocabulary of 150,000 words 0.6 MB a token.
_COLUMNS = 256


def token_inputs(loaded: LoadedModel, contexts: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    """Inputs of contexts (token ids) without frames.

    Those with frames are made by `sally_anne.models.prompts`.

    Returns:
        ``input_ids`` and ``attention_mask``, ``[R, T]``, padded on the left, on the model's device.

    Raises:
        HarnessError: a context without tokens.
    """
    if not all(len(context) for context in contexts):
        raise HarnessError("a context has no tokens; begin it with the model's first token")
    ids, mask = _padded(loaded, contexts, left=True)
    device = loaded.model.device
    return {"input_ids": ids.to(device), "attention_mask": mask.to(device)}


def complete(
    model: SteeredModel,
    inputs: dict[str, Any],
    max_new_tokens: int,
    stops: Sequence[str] = (),
) -> list[str]:
    """What the model writes after contexts, greedily and without special tokens.

    The same as ``with vector.apply(model): model.generate(**inputs)``.

    Args:
        model: the model, steered or not.
        inputs: of ``R`` contexts, from :func:`token_inputs` or
            :func:`sally_anne.models.prompts.encode`.
        max_new_tokens: at most so many.
        stops: strings before which a reply is cut, too; none of them empty. A special token's
            name ends a reply as the model's own end token does.
    """
    loaded = model.loaded
    tokenizer = loaded.processor.tokenizer
    special = set(tokenizer.all_special_tokens)
    ends = end_tokens(loaded)
    ends += [tokenizer.convert_tokens_to_ids(stop) for stop in stops if stop in special]
    lengths = inputs["attention_mask"].sum(1).tolist()
    listener = Listener(tokenizer, ends, lengths, stops)
    with torch.inference_mode(), model.applied():
        greedy(loaded, prefill(loaded, inputs), max_new_tokens, listener)
    return [reply.text for reply in listener.replies()]


def continuation_log_probs(
    model: SteeredModel,
    inputs: dict[str, Any],
    rows: Sequence[int],
    endings: Sequence[Sequence[int]],
    batch_size: int | None = None,
) -> list[tuple[float, bool]]:
    """How probable given continuations of contexts are.

    The contexts are read once; each continuation goes on from there in one piece. Which passes
    there are does not depend on the vector, so that alpha = 0 gives the bits of no vector.

    Args:
        model: the model, steered or not.
        inputs: of ``G`` contexts, from :func:`token_inputs` or
            :func:`sally_anne.models.prompts.encode`.
        rows: for each of ``R`` continuations, which context it follows.
        endings: token ids of each continuation, at least one.
        batch_size: so many continuations at once; all of them by default.

    Returns:
        A pair a continuation: the sum of its tokens' log-probabilities in nats, and whether each
        of its tokens is the most probable one, so that greedy decoding would write it.

    Raises:
        HarnessError: a continuation without tokens.
    """
    if not all(len(ending) for ending in endings):
        raise HarnessError("a continuation has no tokens, so it has no probability")
    size = batch_size or max(len(rows), 1)
    found: list[tuple[float, bool]] = []
    with torch.inference_mode():
        with model.applied():
            state = prefill(model.loaded, inputs)
        with _steered_along(model):
            for start in range(0, len(rows), size):
                chosen = slice(start, start + size)
                found += _forced(model.loaded, state, rows[chosen], endings[chosen])
    return found


def _steered_along(model: SteeredModel) -> AbstractContextManager[Any]:
    """For a pass that holds tokens of the continuation alone.

    Several tokens on top of a cache look like the rest of a prompt, so the vector is told to act
    on all of them: just what ``generated`` means here.
    """
    steering = model.steering
    if steering is None or steering.positions == LAST_PROMPT:
        return nullcontext()
    if steering.positions != ALL:
        steering = replace(steering, positions=ALL)
    return steering.apply(model.loaded.model, model.alpha)


def _forced(
    loaded: LoadedModel, state: State, rows: Sequence[int], endings: Sequence[Sequence[int]]
) -> list[tuple[float, bool]]:
    """Sums and greedy flags of continuations ``[R]`` of contexts ``[G]``, which stay as they are.

    Padding stands on the right: no real token sees it.
    """
    device = state.mask.device
    index = torch.tensor(list(rows), device=device)
    total, is_greedy = _gained(state.logits[index.to(state.logits.device)][:, None], endings, 0)
    fed, mask = (t.to(device) for t in _padded(loaded, [e[:-1] for e in endings], left=False))
    if not fed.shape[1]:
        return list(zip(total.tolist(), is_greedy.tolist(), strict=True))
    cache, whole = select(state.cache, index), state.mask[index]
    following = state.following[index]
    for start in range(0, fed.shape[1], _COLUMNS):
        part = slice(start, start + _COLUMNS)
        whole = torch.cat([whole, mask[:, part]], dim=1)
        positions = following[:, None] + (mask.cumsum(1)[:, part] - 1).clamp(min=0)
        output = loaded.model(
            input_ids=fed[:, part],
            attention_mask=whole,
            # Qwen2-VL counts words in three dimensions alike.
            position_ids=(
                positions.expand(3, -1, -1)
                if hasattr(loaded.model.model, "get_rope_index")
                else positions
            ),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=0,  # all
        )
        cache = output.past_key_values
        gained, agrees = _gained(output.logits, endings, start + 1)
        total, is_greedy = total + gained, is_greedy & agrees
    return list(zip(total.tolist(), is_greedy.tolist(), strict=True))


def _gained(logits: Tensor, endings: Sequence[Sequence[int]], first: int) -> tuple[Tensor, Tensor]:
    """What tokens ``first`` to ``first + T`` of each ending gain, and whether they are likeliest.

    Args:
        logits: ``[R, T, V]``; column t is what the model expects as token ``first + t``.
        endings: R rows of token ids; what lies beyond a row's end counts for nothing.
        first: number of the token that column 0 is about.

    Returns:
        Sums of log-probabilities ``float64 [R]`` and flags ``bool [R]``, on the CPU.
    """
    width = logits.shape[1]
    parts = [list(ending[first : first + width]) for ending in endings]
    tokens = torch.tensor([[*part, *[0] * (width - len(part))] for part in parts])
    real = torch.arange(width) < torch.tensor([[len(part)] for part in parts])
    chosen = tokens.to(logits.device)[..., None]
    log_probs = logits.float().log_softmax(-1).gather(2, chosen)[..., 0].double().cpu()
    agrees = (logits.argmax(-1).cpu() == tokens) | ~real
    return torch.where(real, log_probs, 0.0).sum(1), agrees.all(1)


def _padded(
    loaded: LoadedModel, rows: Sequence[Sequence[int]], left: bool
) -> tuple[Tensor, Tensor]:
    """Token ids and mask ``[R, T]``, int64, on the CPU."""
    side = "left" if left else "right"
    ids = [torch.tensor(row, dtype=torch.long) for row in rows]
    pad = loaded.processor.tokenizer.pad_token_id
    padded = pad_sequence(ids, True, pad, side)
    return padded, pad_sequence([torch.ones_like(row) for row in ids], True, 0, side)
