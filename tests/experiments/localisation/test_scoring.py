"""Scores of scores, against values worked out by hand and scikit-learn's."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from sally_anne.experiments.localisation.bench import TABLE, means
from sally_anne.experiments.localisation.localisers import recall_at, score
from sally_anne.experiments.localisation.plant import (
    RANDOM_PAIRS,
    choose_heads,
    named_first,
    sample_donors,
)
from sally_anne.experiments.localisation.planted import held_out_pairs

TRUTH = np.array([[True, False, False], [False, True, False]])


def test_recall_counts_planted_heads_among_the_best() -> None:
    assert recall_at(np.array([[3.0, 0, 0], [0, 2, 1]]), TRUTH) == 1
    assert recall_at(np.array([[3.0, 0, 0], [0, 1, 2]]), TRUTH) == 0.5
    # One head is above; three tie for the second place, of which one is planted.
    assert recall_at(np.array([[1.0, 3, 1], [0, 1, 0]]), TRUTH) == pytest.approx(1 / 3)
    # All alike: what drawing gives.
    assert recall_at(np.zeros((2, 3)), TRUTH) == pytest.approx(1 / 3)


def test_a_claim_is_above_the_best_head_of_all_draws_but_one_in_twenty() -> None:
    def claims(scores: np.ndarray, null: np.ndarray) -> tuple[float, float]:
        found = score(scores, null, np.array([[True, False, False], [False, False, False]]))
        return found["hits"], found["false"]

    null = np.zeros((19, 2, 3))
    null[:, 1, 2] = np.arange(19)
    scores = np.array([[18.5, 18, 0], [0, 30, 17]])
    assert claims(scores, null) == (1, 1)
    # With 39 draws one may reach as much.
    assert claims(scores, np.concatenate([null, np.zeros((20, 2, 3))])) == (1, 2)


def test_a_failed_model_does_not_count() -> None:
    rows = [
        {"model": m, "kind": "causal", "failed": m == "c", "localiser": name, "recall": recall}
        for m, recalls in {"a": (1.0, 0.0), "b": (0.5, 0.0), "c": (0.0, 1.0)}.items()
        for name, recall in zip(("one", "two"), recalls, strict=True)
    ]
    table = pd.DataFrame(rows).assign(auroc=1.0, average_precision=1.0, hits=1, false=0)
    found = means(table, TABLE)
    assert [row["localiser"] for row in found] == ["one", "two"]
    assert [row["recall"]["value"] for row in found] == [0.75, 0.0]
    assert (found[0]["recall"]["low"], found[0]["recall"]["high"]) == (0.5, 1.0)
    assert {row["models"] for row in found} == {2}


@pytest.mark.parametrize("k", [1, 2, 4])
def test_planted_heads_have_keys_of_their_own_and_decoys_beside_them(k: int) -> None:
    for seed in range(5):
        heads, decoys = choose_heads(8, 2, k, seed)
        assert len(heads) == k == len({head // 2 for _, head in heads})
        assert len({layer for layer, _ in heads}) == 1
        slots = [slot for slot, _ in decoys]
        assert not set(slots) & set(heads)
        assert len(slots) == {1: 3, 2: 4, 4: 4}[k]
        for (layer, slot), (other, head) in decoys:
            assert layer == other
            assert slot // 2 == head // 2 or {(layer, slot), (layer, slot ^ 1)} <= set(slots)


@pytest.mark.parametrize("hidden", [False, True])
def test_heads_of_another_storys_other_version_move_the_answer(hidden: bool) -> None:
    """Twelve rows, the last four of side questions, which nothing moves.

    What is hidden is turned by a sign: the true version of the first story says what the false one
    of the second does.
    """
    signs = torch.tensor([0, 1, 1, 0, 0, 0]) if hidden else None
    drawn = [sample_donors(12, 8, torch.Generator().manual_seed(i), signs) for i in range(200)]
    taken, moved = (torch.stack(both) for both in zip(*drawn, strict=True))
    own = torch.arange(12).expand_as(taken)
    swapped = taken == own ^ 1
    assert (taken[:, :8] < 8).all() and (taken[:, 8:] < 8).any() and not moved[:, 8:].any()
    assert moved[swapped & (own < 8)].all()
    # Half are of any story, of which every eighth is the pair by chance, and half say the same.
    share = swapped[:, :8].float().mean()
    assert share == pytest.approx(RANDOM_PAIRS + (1 - RANDOM_PAIRS) / 8, abs=0.05)
    said = torch.tensor([0, 1, 1, 0, 1, 0, 0, 1] if hidden else [0, 1] * 4)
    assert (said[taken[:, :8]] ^ said == moved[:, :8]).all()


def test_the_sign_is_the_order_in_which_the_question_names_the_rooms() -> None:
    contrast_pairs = held_out_pairs("test", 40)
    signs = named_first(contrast_pairs)
    assert 5 <= int(signs.sum()) <= 35
    for pair, sign in zip(contrast_pairs, signs.tolist(), strict=True):
        asked = pair.samples[1].text.rpartition("Choose one: ")[2]
        right, other = pair.answers if sign else pair.answers[::-1]
        assert asked.startswith(f"{right} or {other}")
