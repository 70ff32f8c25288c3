"""From documents to tensors: token ids, and the weight of each token in the loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from experiments.train_tiny.documents import RIGHT, WRONG, Document

# Layers (counted from 1) from which verdicts are read as well, and the weight of that loss.
EARLY_EXITS, EXIT_WEIGHT = (4, 5, 6), 0.3


@dataclass(frozen=True)
class TextBatch:
    """Right-padded documents.

    Causal attention never looks at what follows, so padding on the right needs no mask.

    Attributes:
        ids: ``[B, T]`` token ids.
        weights: ``[B, T]`` loss weight of predicting each token; 0 on padding.
        verdicts: ``[B, T]`` whether a token is a verdict that is a target.
    """

    ids: Tensor
    weights: Tensor
    verdicts: Tensor


def encode(
    tokenizer: PreTrainedTokenizerFast, documents: Sequence[Document], longest: int | None = None
) -> TextBatch:
    """Tokenise documents piece by piece; words never cross pieces.

    Args:
        tokenizer: the tiny models' word-level tokenizer.
        documents: pieces with weights.
        longest: documents are cut after so many tokens.
    """
    texts = [piece.text for document in documents for piece in document]
    cut = iter(tokenizer(texts, add_special_tokens=False)["input_ids"])
    rows: list[tuple[list[int], list[float]]] = []
    for document in documents:
        ids: list[int] = []
        weights: list[float] = []
        for piece in document:
            tokens = next(cut)
            ids += tokens
            weights += [piece.weight] * len(tokens)
        rows.append((ids, weights))
    if longest is not None:
        rows = [(ids[:longest], weights[:longest]) for ids, weights in rows]
    length = max(len(ids) for ids, _ in rows)
    padded = torch.full((len(rows), length), tokenizer.pad_token_id)
    weight = torch.zeros(len(rows), length)
    for i, (ids, weights) in enumerate(rows):
        padded[i, : len(ids)] = torch.tensor(ids)
        weight[i, : len(ids)] = torch.tensor(weights)
    words = torch.tensor(tokenizer.convert_tokens_to_ids([RIGHT, WRONG]))
    return TextBatch(padded, weight, torch.isin(padded, words) & (weight == 1))


def score_text(
    batch: TextBatch, unembed: Callable[[Tensor], Tensor] | None = None
) -> Callable[[Any], tuple[Tensor, float]]:
    """Scoring of a model's output on ``batch``.

    Args:
        batch: what the model was given.
        unembed: from the residual stream ``[..., hidden]`` to logits ``[..., V]``. With it,
            verdicts are also read after the layers :data:`EARLY_EXITS`: so a statement's truth
            is in the stream before the last layers, which can then read it.

    Returns:
        A function from an output with ``logits [B, T, V]`` (and ``hidden_states``) to the loss,
        and the mean over targets (weight 1) alone, in nats.
    """
    entropy_of = torch.nn.functional.cross_entropy

    def score(output: Any) -> tuple[Tensor, float]:
        entropy = entropy_of(
            output.logits[:, :-1].float().transpose(1, 2), batch.ids[:, 1:], reduction="none"
        )
        weights = batch.weights[:, 1:]
        marked = weights == 1
        target = entropy.detach()[marked].mean().item() if marked.any() else float("nan")
        loss = (entropy * weights).sum() / weights.sum()
        judged = batch.verdicts[:, 1:]
        if unembed is not None and judged.any():
            words = batch.ids[:, 1:][judged]
            for layer in EARLY_EXITS:
                logits = unembed(output.hidden_states[layer][:, :-1][judged])
                loss = loss + EXIT_WEIGHT / len(EARLY_EXITS) * entropy_of(logits.float(), words)
        return loss, target

    return score
