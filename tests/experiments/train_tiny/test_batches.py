"""Token weights line up with tokens, and the loss is the weighted cross-entropy."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from sally_anne.experiments.train_tiny.documents import (
    EARLY_EXITS,
    EXIT_WEIGHT,
    Piece,
    encode,
    score_text,
    verdict,
)
from sally_anne.models.tiny import build_tokenizer

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


def test_truth_is_read_from_layers_in_the_middle_where_its_piece_begins() -> None:
    document = [Piece("red is blue .", 0.0), verdict(False), Piece("white, green", 1.0, True)]
    batch = encode(TOKENIZER, [document, DOCUMENTS[0]])
    right, wrong = TOKENIZER.convert_tokens_to_ids(["right", "wrong"])
    assert batch.truths[0].tolist() == [-1, -1, -1, -1, wrong, right, -1, -1]
    assert (batch.truths[1] == -1).all()

    rng = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 8, 320, generator=rng)
    streams = [torch.randn(2, 8, 4, generator=rng) for _ in range(9)]
    output = SimpleNamespace(logits=logits, hidden_states=streams)
    weight = torch.randn(320, 4, generator=rng)
    plain, _ = score_text(batch)(output)
    loss, _ = score_text(batch, lambda stream: stream @ weight.T)(output)
    early = 0.0
    for layer in EARLY_EXITS:
        for token, word in ((4, wrong), (5, right)):
            read = (streams[layer][0, token - 1] @ weight.T).log_softmax(-1)
            early -= float(read[word]) / 2
    assert float(loss - plain) == pytest.approx(EXIT_WEIGHT * early / len(EARLY_EXITS), rel=1e-4)
