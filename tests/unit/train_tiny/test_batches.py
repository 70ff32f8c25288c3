"""Token weights line up with tokens, and the loss is the weighted cross-entropy."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from experiments.train_tiny.batches import encode, score_text
from experiments.train_tiny.documents import Piece
from experiments.train_tiny.vocabulary import build_tokenizer

TOKENIZER = build_tokenizer()
DOCUMENTS = [
    [Piece("Really: red is", 0.5), Piece("blue", 1.0), Piece(".", 0.0)],
    [Piece("green", 0.0), Piece("white, yellow", 1.0)],
]


def test_weights_follow_their_pieces() -> None:
    batch = encode(TOKENIZER, DOCUMENTS)
    assert batch.ids.shape == (2, 6)
    assert batch.weights.tolist() == [[0.5, 0.5, 0.5, 0.5, 1, 0], [0, 1, 1, 1, 0, 0]]
    assert TOKENIZER.decode(batch.ids[0]) == "really : red is blue ."
    assert batch.ids[1, 4:].tolist() == [TOKENIZER.pad_token_id] * 2


def test_cut_after_the_longest_allowed() -> None:
    assert encode(TOKENIZER, DOCUMENTS, longest=3).ids.shape == (2, 3)


def test_loss_is_the_weighted_mean_of_the_next_tokens() -> None:
    batch = encode(TOKENIZER, DOCUMENTS)
    logits = torch.randn(2, 6, 320, generator=torch.Generator().manual_seed(0))
    loss, target = score_text(batch)(SimpleNamespace(logits=logits))
    total = weight_sum = marked = count = 0.0
    for row in range(2):
        for t in range(1, 6):
            weight = float(batch.weights[row, t])
            entropy = -float(logits[row, t - 1].log_softmax(-1)[batch.ids[row, t]])
            total, weight_sum = total + weight * entropy, weight_sum + weight
            if weight == 1:
                marked, count = marked + entropy, count + 1
    assert float(loss) == pytest.approx(total / weight_sum, rel=1e-5)
    assert target == pytest.approx(marked / count, rel=1e-5)
