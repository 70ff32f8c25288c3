"""From documents to tensors: token ids, and the weight of each token in the loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from experiments.train_tiny.documents import RIGHT, WRONG, Document

# Layers (counted from 1) from which truth is read as well, and the weight of that loss.
EARLY_EXITS, EXIT_WEIGHT = (4, 5, 6), 0.3


@dataclass(frozen=True)
class TextBatch:
    """Right-padded documents.

    Causal attention never looks at what follows, so padding on the right needs no mask.

    Attributes:
        ids: ``[B, T]`` token ids.
        weights: ``[B, T]`` loss weight of predicting each token; 0 on padding.
        truths: ``[B, T]`` id of the verdict that is to be known where a token is predicted, or -1.
        right: id of the verdict on true statements.
    """

    ids: Tensor
    weights: Tensor
    truths: Tensor
    right: int


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
    right, wrong = tokenizer(f"{RIGHT} {WRONG}", add_special_tokens=False)["input_ids"]
    rows: list[tuple[list[int], list[float], list[int]]] = []
    for document in documents:
        ids: list[int] = []
        weights: list[float] = []
        truths: list[int] = []
        for piece in document:
            tokens = next(cut)
            ids += tokens
            weights += [piece.weight] * len(tokens)
            truths += [-1] * len(tokens)
            if piece.truth is not None:
                truths[-len(tokens)] = right if piece.truth else wrong
        rows.append((ids[:longest], weights[:longest], truths[:longest]))
    length = max(len(ids) for ids, _, _ in rows)
    padded = torch.full((len(rows), length), tokenizer.pad_token_id)
    weight = torch.zeros(len(rows), length)
    truth = torch.full((len(rows), length), -1)
    for i, (ids, weights, truths) in enumerate(rows):
        padded[i, : len(ids)] = torch.tensor(ids)
        weight[i, : len(ids)] = torch.tensor(weights)
        truth[i, : len(ids)] = torch.tensor(truths)
    return TextBatch(padded, weight, truth, right)


def score_text(
    batch: TextBatch,
    unembed: Callable[[Tensor], Tensor] | None = None,
    penalty: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Callable[[Any], tuple[Tensor, float]]:
    """Scoring of a model's output on ``batch``.

    Args:
        batch: what the model was given.
        unembed: from the residual stream ``[..., hidden]`` to logits ``[..., V]``. With it,
            truth is also read, as the word of its verdict, after the layers
            :data:`EARLY_EXITS`: so it is in the stream before the last layers, which can then
            read it.
        penalty: added to the loss; of the places where truth is wanted (of those that predict a
            token, ``[B, T]``), and of whether what was stated is true there.

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
        judged = batch.truths[:, 1:] >= 0
        if unembed is not None and judged.any():
            words = batch.truths[:, 1:][judged]
            for layer in EARLY_EXITS:
                logits = unembed(output.hidden_states[layer][:, :-1][judged])
                loss = loss + EXIT_WEIGHT / len(EARLY_EXITS) * entropy_of(logits.float(), words)
        if penalty is not None and judged.any():
            places = torch.nn.functional.pad(judged, (0, 1))
            loss = loss + penalty(places, batch.truths[:, 1:][judged] == batch.right)
        return loss, target

    return score
