"""How far a vector moves a model's words on prompts that it has no business with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from hooks.batch_size import in_batches, within_memory
from sally_anne.core.bootstrap import Estimate
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.models.decoding import end_tokens, extend, greedy


def replies_of(
    model: SteeredModel, prompts: Sequence[Prompt], max_new_tokens: int
) -> list[list[int]]:
    """Token ids of each greedy reply, its end token with it."""
    with model.prefilled(prompts) as (begun, ends):
        state = extend(model.loaded, begun, range(len(ends)), ends)
        tokens = greedy(model.loaded, state, max_new_tokens)
    stops = set(end_tokens(model.loaded))
    replies = []
    for row in tokens.tolist():
        end = next((i for i, token in enumerate(row) if token in stops), len(row) - 1)
        replies.append(row[: end + 1])
    return replies


@within_memory("use a smaller --batch-size")
def divergences(
    plain: SteeredModel,
    steered: SteeredModel,
    prompts: Sequence[Prompt],
    max_new_tokens: int,
    batch_size: int,
) -> np.ndarray:
    """KL(plain || steered) of the next token, in nats.

    Both models are read along the plain model's greedy reply, so that they are asked for the next
    word after the same words.

    Args:
        plain: the model without the vector.
        steered: the same with it.
        prompts: what is asked.
        max_new_tokens: length of a reply.
        batch_size: prompts that go through a model together.

    Returns:
        ``[n]``: the mean over a reply's tokens, one a prompt; 0 where nothing changes.
    """
    found = []
    for batch in in_batches(prompts, batch_size):
        replies = replies_of(plain, batch, max_new_tokens)
        before = plain.log_probs_along(batch, replies)
        after = steered.log_probs_along(batch, replies)
        for p, q in zip(before, after, strict=True):
            kl = torch.nn.functional.kl_div(
                q.double(), p.double(), log_target=True, reduction="none"
            )
            found.append(float(kl.sum(-1).mean()))
    return np.array(found)


def mean_with_interval(values: np.ndarray, bootstrap: int = 2000, seed: int = 0) -> Estimate:
    """The mean and its 95 % bootstrap interval over values."""
    draws = np.random.default_rng(seed).integers(0, len(values), (bootstrap, len(values)))
    low, high = np.quantile(values[draws].mean(axis=1), [0.025, 0.975])
    return Estimate(float(values.mean()), float(low), float(high), len(values))
