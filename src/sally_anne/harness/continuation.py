"""Prompts that are laid out already: what follows them, and how probable a continuation is.

They are steered as questions are: ``last_prompt`` is the last token of the context, ``generated``
are the tokens of the continuation, whether the model chose them or they are given.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from sally_anne.core.errors import HarnessError
from sally_anne.harness.model import SteeredModel, gained
from sally_anne.harness.replies import Listener
from sally_anne.hooks.positions import ALL, LAST_PROMPT
from sally_anne.models.decoding import CACHE, State, end_tokens, greedy, prefill, select
from sally_anne.models.loading import LoadedModel

# Tokens of given continuations that go through the model at once: the logits of all of them are
# kept until they are read, for a vocabulary of 150,000 words 0.6 MB a token.
_COLUMNS = 256


def token_inputs(loaded: LoadedModel, contexts: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    """Inputs of contexts (token ids) without frames, ``[R, T]``, padded on the left."""
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

    The same as ``with vector.apply(model): model.generate(**inputs)``, with inputs from
    :func:`token_inputs` or :func:`sally_anne.models.prompts.encode`. A reply is cut before the
    first of ``stops``, none of them empty; a special token's name ends it as the model's own end
    token does.
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

    Of ``inputs`` of G contexts, as of :func:`complete`, ``rows`` says for each of R continuations
    which it follows, and ``endings`` its token ids; ``batch_size`` go through the model at once.
    Each has the sum of its log-probabilities in nats, and whether greedy decoding would write it.
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
    return replace(steering, positions=ALL).apply(model.loaded.model, model.alpha)


def _forced(
    loaded: LoadedModel, state: State, rows: Sequence[int], endings: Sequence[Sequence[int]]
) -> list[tuple[float, bool]]:
    """Sums and greedy flags of continuations ``[R]`` of contexts ``[G]``, which stay as they are.

    Padding stands on the right: no real token sees it.
    """
    device = state.mask.device
    index = torch.tensor(list(rows), device=device)
    total, is_greedy = gained(state.logits[index.to(state.logits.device)][:, None], endings, 0)
    fed, mask = (t.to(device) for t in _padded(loaded, [e[:-1] for e in endings], left=False))
    if not fed.shape[1]:
        return list(zip(total.tolist(), is_greedy.tolist(), strict=True))
    cache, whole = select(state.cache, index), state.mask[index]
    following = state.following[index]
    # Qwen2-VL counts words in three dimensions alike.
    threefold = hasattr(loaded.model.model, "get_rope_index")
    for start in range(0, fed.shape[1], _COLUMNS):
        part = slice(start, start + _COLUMNS)
        whole = torch.cat([whole, mask[:, part]], dim=1)
        positions = following[:, None] + (mask.cumsum(1)[:, part] - 1).clamp(min=0)
        output = loaded.model(
            input_ids=fed[:, part],
            attention_mask=whole,
            position_ids=positions.expand(3, -1, -1) if threefold else positions,
            **{CACHE: cache},
            use_cache=True,
            logits_to_keep=0,  # all
        )
        cache = output[CACHE]
        sums, agrees = gained(output.logits, endings, start + 1)
        total, is_greedy = total + sums, is_greedy & agrees
    return list(zip(total.tolist(), is_greedy.tolist(), strict=True))


def _padded(
    loaded: LoadedModel, rows: Sequence[Sequence[int]], left: bool
) -> tuple[Tensor, Tensor]:
    """Token ids and mask ``[R, T]``, int64, on the CPU."""
    side = "left" if left else "right"
    ids = [torch.tensor(row, dtype=torch.long) for row in rows]
    pad = loaded.processor.tokenizer.pad_token_id
    padded = pad_sequence(ids, True, pad, side)
    return padded, pad_sequence([torch.ones_like(row) for row in ids], True, 0, side)
