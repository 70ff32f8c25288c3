"""Steering models whose only carrier is made by hand: effects, prices, tables and the figure."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from sally_anne.data.gridtom.stories import generated
from sally_anne.experiments.localisation import planted as known
from sally_anne.experiments.localisation.localisers import PairStats, collect, train_part
from sally_anne.experiments.localisation.planted import control_questions, held_out_pairs
from sally_anne.harness.gridtom import Wording, items
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.prompts import encode, reply_prompt
from sally_anne.probing.interchange import read_pair
from tests.experiments.localisation.test_localising import CARRIER, DECOYS, carried_by_one

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def planted() -> LoadedModel:
    loaded = load_model("tiny-qwen2-vl-text")
    carried_by_one(loaded)
    known.attenuate(loaded.model, [slot for slot, _ in DECOYS], 0.0)
    known.add_decoys(loaded.model, DECOYS)
    return loaded


@pytest.fixture(scope="module")
def seen(planted: LoadedModel) -> PairStats:
    return collect(planted, held_out_pairs("test", 10), 1)


def test_side_questions_are_those_of_the_benchmark() -> None:
    stories = generated(stories=range(4))
    found = {
        sample.item_id: (sample.text, one.answers[0])
        for one in control_questions(stories, stories.indices)
        for sample in one.samples
    }
    assert len(found) == 16
    records = [stories.story(i) for i in range(4)]
    splits = dict.fromkeys(range(4), "test")
    real = {item.item_id: item for item in items(records, splits, "reality", Wording("text"))}
    for record, (i, condition) in product(records, enumerate(("TB", "FB"))):
        text, answer = found[f"{record.group}/reality/{i}"]
        item = real[f"{record.group}/reality/{condition}"]
        # But for which room stands first in the list.
        assert (answer,) == item.key and text.split("Choose")[0] == item.text.split("Choose")[0]
        text, answer = found[f"{record.group}/first/{i}"]
        assert (answer,) == record.initial[1].answer and record.initial[1].question in text


def test_strength_acts_as_a_steered_run_does(planted: LoadedModel, seen: PairStats) -> None:
    """One token read beside others after what stands before it, and the whole prompt steered."""
    vector = known.vectors_at([CARRIER], seen)["mass_mean"]
    pair = held_out_pairs("test", 1)[0]
    readings = read_pair(planted, pair, True)
    alphas = -3.0, 0.0, 2.0
    for reading, sample in zip(readings, pair.samples, strict=True):
        deltas = torch.stack([vector.delta(alpha) for alpha in alphas])
        found, _ = known._logits(reading, deltas)
        inputs = encode(planted, [reply_prompt(planted, sample.turns, False)], None)
        for row, alpha in zip(found, alphas, strict=True):
            with torch.no_grad(), vector.apply(planted.model, alpha):
                wanted = planted.model(**inputs).logits[0, -1].double()
            torch.testing.assert_close(row, wanted, rtol=0, atol=2e-3)
    assert (found[0] - found[1]).abs().max() > 0.1


def test_answers_move_at_the_carrier_alone(planted: LoadedModel, seen: PairStats) -> None:
    """Counted again by a loop, one steered run each."""
    contrast_pairs = held_out_pairs("test", 3)
    asked = control_questions(generated(), range(2))
    at = {head: known.vectors_at([head], seen)["mass_mean"] for head in (CARRIER, (5, 6))}
    found = known.steered(planted, contrast_pairs, asked, [*at.values()], (1.0, 8.0))
    right = moved = 0
    for pair in contrast_pairs:
        for reading, sign in zip(read_pair(planted, pair, True), (1, -1), strict=True):
            if sign * reading.logit_diff > 0:
                right += 1
                step = -sign * at[CARRIER].delta(8.0)
                ((logits,), _) = known._logits(reading, step[None])
                (first,), (second,) = reading.words
                moved += bool(sign * (logits[first] - logits[second]) < 0)
    assert right and found["moved"][0, 1] == pytest.approx(moved / right)
    assert found["kl"][0, 1] > found["kl"][0, 0] > 0
    # A decoy is read by nothing: every answer stays, and every logit.
    for name, stays in {"moved": 0, "kept": 1, "kl": 0}.items():
        np.testing.assert_allclose(found[name][1], stays, atol=1e-9)


def made_up(shift: np.ndarray) -> PairStats:
    """40 pairs with one layer of two heads, of width 3; versions differ by ``shift [2, 3]``."""
    noise = np.random.default_rng(0).normal(size=(40, 2, 1, 2, 3)) * 0.1
    noise[:, 0] += shift
    return PairStats(None, noise, np.full((40, 2), "x"))  # type: ignore[arg-type]


def test_directions_are_those_that_were_planted() -> None:
    shift = np.array([[0.0, 2.0, 0.0], [0.0, 0.0, -1.0]])
    made, late, heads = made_up(shift), made_up(shift), [(0, 1), (0, 0)]
    unit = [[0, 0, -1], [0, 1, 0]]
    np.testing.assert_allclose(known.true_directions(heads, made), unit, atol=0.1)
    # Only what probes are fitted on is looked at.
    late.outputs[train_part(40) :] = 1e6
    again = known.vectors_at(heads, late)
    for kind, vector in known.vectors_at(heads, made).items():
        np.testing.assert_allclose((vector.theta.numpy() * unit).sum(1), 1, atol=0.05, err_msg=kind)
        # Two clusters that lie 2 and 1 apart.
        np.testing.assert_allclose(vector.sigma, [0.5, 1.0], rtol=0.05)
        assert torch.equal(again[kind].theta, vector.theta)
    turned = known.turned_at_random(again["pca"], 3, 1)
    assert all(torch.equal(one.sigma, again["pca"].sigma) for one in turned)
    assert len({tuple(one.theta.flatten().tolist()) for one in turned}) == 3


def test_ranks_are_among_draws(planted: LoadedModel, seen: PairStats, monkeypatch: Any) -> None:
    """Among draws of its own lengths; ties count against it, and their mean stands beside it."""

    def made(loaded, contrast_pairs, questions, vectors, alphas=known.ALPHAS):
        rows = np.repeat(np.arange(len(vectors), dtype=float)[:, None], len(alphas), axis=1)
        # Three draws for each of four directions.
        rows[-12:] = np.array([0, 1, 5, 0, 1, 5, 0, 1, 1, 4, 4, 5.0])[:, None]
        steps = [vector.sigma.tolist() for vector in vectors]
        assert [steps[-3 * i] for i in (4, 3, 2, 1)] == steps[:4]
        return {"moved": rows, "kept": rows + 100, "kl": rows}

    monkeypatch.setattr(known, "steered", made)
    truth, best = known.GroundTruth("", (CARRIER,), DECOYS), {"mine": [(0, 0)]}
    rows = known.steering_rows(planted, truth, seen, best, [], [], 3)
    by = {(row["heads"], row["direction"], row["alpha"]): row for row in rows}
    ranks = [by["planted", kind, 1.0]["rank"] for kind in known.DIRECTIONS]
    assert ranks == [4, 3, 1, 4]  # moved 0, 1, 2 and 3
    assert by["planted", "logistic", 1.0]["of"] == 4
    drawn = [by["planted", f"random, as {kind}", 1.0]["moved"] for kind in ("logistic", "lda")]
    assert drawn == pytest.approx([2, 2 / 3])
    assert by["mine", "logistic", 1.0]["moved"] == 8 and "rank" not in by["mine", "logistic", 1.0]
    assert {row["heads"] for row in rows} == {"planted", "decoys", "mine"}


def test_a_head_without_a_difference_is_not_steered(seen: PairStats) -> None:
    for vector in known.vectors_at([(0, 0), CARRIER], seen).values():
        assert vector.sigma[0] < 1e-5 < 0.1 < vector.sigma[1]
