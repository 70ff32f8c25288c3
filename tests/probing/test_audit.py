"""The audit: what else than a belief could explain a run's accuracy."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import sally_anne as sa
from sally_anne.core.errors import ProbingError
from sally_anne.data.gridtom.samples import sample_set as gridtom
from sally_anne.data.gridtom.stories import generated
from sally_anne.data.pairs import ContrastPair, PairSet
from sally_anne.data.samples import Sample, Split, sample_set
from sally_anne.models.loading import load_model
from sally_anne.probing import audit, baselines
from sally_anne.probing.activations import Activations, items_table
from sally_anne.probing.audit import ALL, choose_groups, conclusion, measure, run
from sally_anne.probing.baselines import (
    FILMS,
    OWN,
    Control,
    ProbeRun,
    by_side,
    film_changes,
    text_controls,
)
from sally_anne.probing.config import AuditConfig
from sally_anne.probing.probes import HeadProbes
from tests.made_replies import printed

ALIKE = "training samples do not differ in it"
GROUPS: dict[Split, int] = {"train": 20, "validation": 6, "test": 10}
# Neither a sum of words nor of pairs of them tells the middle two from the others.
LENGTHS = (10, 11, 12, 13)


def samples(lengths: dict[bool, tuple[int, ...]], text: str = "") -> list[Sample]:
    """Of each group true and false ones of these lengths; no word is said twice."""
    found = []
    for split, count in GROUPS.items():
        for group in range(count):
            for label, own in lengths.items():
                for place, length in enumerate(own):
                    name = f"{split}{group}{label}{place}"
                    words = text or " ".join(f"{name}x{i}" for i in range(length))
                    labels = {"y": label}
                    whole = f"{split}{group}"
                    found.append(Sample(name, words, labels=labels, group=whole, split=split))
    return found


def probed(made: list[Sample], wrong: int = 0) -> ProbeRun:
    """A run whose only head knows the label, but for the first groups of the test split."""
    items = items_table(made)
    x = np.where(items["y"], 9.0, -9.0)
    x[items["group"].isin([f"test{i}" for i in range(wrong)])] *= -1
    own = Activations(x[:, None, None, None], items, ("y",))
    return ProbeRun(sample_set(made, "made up"), own, HeadProbes(1.0, 100))


def table_of(
    own: ProbeRun, controls: list[Control], clusters: dict[str, str] | None = None
) -> pd.DataFrame:
    names = {group: group for group in own.x.items["group"]} if clusters is None else clusters
    return measure(own, controls, names)[0].set_index("row")


def right_in(own: ProbeRun, name: str, right: np.ndarray) -> Control:
    """A control that predicts these test samples rightly, ``[n]``."""
    values = own.x.values("y").copy()
    values[own.split == "test"] ^= ~right.astype(bool)
    return Control("view", name, values, lambda x, y, split: (x, ""))


def accuracies(contrast: str) -> dict[tuple[str, str, str], Any]:
    """Of words, form and tags: accuracy on false-belief and on all samples, or why it is empty."""
    data = gridtom(generated(), 1, contrast, "text", 120)  # type: ignore[arg-type]
    items = items_table(data.samples)
    x = Activations(np.zeros((len(items), 1, 1, 1)), items, ("y_p", "y_o"))
    own = ProbeRun(data, x, HeadProbes(1, 400))
    found: dict[tuple[str, str, str], Any] = {}
    test = own.split == "test"
    false = test & (items["condition"] == "FB").to_numpy()
    for control in text_controls(own, 0):
        name = "perspective" if control.name.startswith("perspective") else control.name
        for label in ("y_p", "y_o"):
            if control.why:
                found[control.kind, name, label] = control.why
                continue
            assert control.predict is not None and control.values is not None
            predicted, which = control.predict(control.values, x.values(label), own.split)
            right = predicted == x.values(label)
            key = control.kind, name.replace("{}", which), label
            found[key] = right[false].mean(), right[test].mean()
    return found


def test_form_gives_released_samples_away_and_matched_ones_not() -> None:
    released, matched = accuracies("released"), accuracies("matched")
    for label in ("y_p", "y_o"):
        assert matched["format", "length in words", label] == (0.5, 0.5)
        for name in ("marks and line breaks", "perspective"):
            assert matched["format", name, label] == ALIKE
            assert released["format", name, label][0] == 1.0
        assert released["format", "length in words", label][0] == 1.0
        assert released["words", "bag of words", label][0] == 1.0
    # Reality is tied to the last room; the belief takes the condition as well.
    room = "room named by the statement (first or last)"
    assert matched["design", room, "y_o"] == (1.0, 1.0)
    assert matched["design", room, "y_p"][1] == 0.5
    assert matched["design", "tags in pairs: condition x room", "y_p"] == (1.0, 1.0)
    assert matched["words", "bag of words", "y_p"][1] < 0.7


def test_films_are_changed_for_whole_contexts() -> None:
    samples = [
        Sample(
            f"{group}{end}",
            f"words {end}",
            video=np.full((6, 2, 2, 3), 10 * group + 1, dtype=np.uint8)
            + np.arange(6, dtype=np.uint8)[:, None, None, None],
            labels={"y": bool(end)},
            group=f"g{group}",
            split="train" if group < 3 else "test",
            context="one",
        )
        for group in range(6)
        for end in (0, 1)
    ]
    found = film_changes(samples, 0)
    assert tuple(found) == FILMS
    assert not any(s.shows for s in found["text alone"])
    for i, sample in enumerate(samples):
        own = sample.frames()
        assert not found["blank film"][i].frames().any()
        shuffled, other = (found[n][i] for n in ("shuffled film", "another story's film"))
        assert sorted(shuffled.frames()[:, 0, 0, 0]) == sorted(own[:, 0, 0, 0])
        assert shuffled.shape() == sample.shape()
        assert (shuffled.frames() != own).any() and (other.frames() != own).any()
        # Of the same split.
        assert (other.frames()[0, 0, 0, 0] > 30) == (sample.split == "test")
        assert (other.item_id, other.text, other.labels) == (
            sample.item_id, sample.text, sample.labels,
        )  # fmt: skip
    for name in ("shuffled film", "another story's film"):
        for one, two in zip(found[name][::2], found[name][1::2], strict=True):
            assert one.video is two.video


def test_groups_are_chosen_from_all_clusters_in_turn() -> None:
    splits = ["train"] * 12 + ["validation"] * 6 + ["test"] * 8
    items = pd.DataFrame({"group": [f"g{i}" for i in range(26)], "split": splits})
    clusters = {f"g{i}": f"map-{i % 4}" for i in range(26)}
    rows, counts = choose_groups(items, clusters, 12)
    assert counts == {"train": 6, "validation": 2, "test": 4}
    assert {clusters[g] for g in items["group"].iloc[rows[-4:]]} == set(clusters.values())
    assert len(rows) == 12 and (np.diff(rows) > 0).all()


@pytest.mark.parametrize(
    ("lengths", "reached"),
    [
        ({True: LENGTHS[1:3], False: LENGTHS[::3]}, {"length in words"}),
        ({True: LENGTHS, False: LENGTHS}, set()),
    ],
)
def test_length_alone_is_found_where_it_gives_the_label_away(
    lengths: dict[bool, tuple[int, ...]], reached: set[str]
) -> None:
    own = probed(samples(lengths))
    table = table_of(own, text_controls(own, 0))
    assert set(table.index[table["reaches"]]) == reached
    # No word of the test samples is known, and single blanks are not marks.
    assert table.loc["bag of words", "accuracy"] == 0.5
    assert table.loc["marks and line breaks", "why"] == ALIKE
    assert table.loc["length in words", "accuracy"] == (1.0 if reached else 0.5)
    assert (table["chance"].dropna() == 0.5).all()


def test_rows_of_a_part_are_compared_with_the_head_of_that_part() -> None:
    own = probed(samples({True: (1, 1), False: (1, 1)}))
    half = right_in(own, OWN, np.arange(40) % 4 < 3)
    every = np.arange(len(own.x))
    parts = [
        Control("view", name, half.values, half.predict, at)
        for name, at in ((OWN, every), ("part", every), ("whole", None))
    ]
    table = table_of(own, parts).loc[["part", "whole"]]
    assert table["accuracy"].tolist() == [0.75, 0.75]
    assert table["best"].tolist() == [0.75, 1.0]
    # Of every group three of four are told.
    assert (table[["low", "high"]] == 0.75).all(axis=None)
    assert table["reaches"].tolist() == [True, False]


def test_of_one_cluster_there_is_no_interval_and_values_are_compared() -> None:
    own = probed(samples({True: (1, 1), False: (1, 1)}))
    rows = [right_in(own, "all", np.ones(40)), right_in(own, "some", np.arange(40) > 0)]
    table = table_of(own, rows, dict.fromkeys(own.x.items["group"], "one map"))
    ends = ["low", "high", "best_low", "best_high"]
    assert table[ends].isna().all(axis=None) and (table["clusters"] == 1).all()
    assert table["reaches"].tolist() == [True, False]
    assert table["condition"].tolist() == [ALL, ALL]


def test_a_head_at_chance_is_compared_with_nothing() -> None:
    own = probed(samples({True: (1,), False: (1,)}), wrong=5)
    line = table_of(own, [right_in(own, "all", np.ones(20))]).loc["all"]
    assert (line["best"], line["reaches"]) == (0.5, False)
    assert line["why"] == "the best head is not above chance on these samples"


def test_what_tells_nothing_explains_nothing_however_wide_its_interval() -> None:
    """Of ten groups the head tells nine, and the rows six and nine."""
    own = probed(samples({True: (1, 1), False: (1, 1)}), wrong=1)
    group = np.arange(40) // 4
    table = table_of(own, [right_in(own, str(n), group < n) for n in (6, 9)])
    six = table.loc["6"]
    assert six["low"] < six["chance"] == 0.5 and six["high"] > six["best_low"] > 0.5
    assert table["reaches"].tolist() == [False, True]


@pytest.mark.parametrize("louder", [True, False])
def test_a_model_that_leans_to_one_word_may_tell_labels_apart(louder: bool) -> None:
    # Halfway between the classes, however many samples each has; training samples decide.
    score = np.array([0.0, 0.0, 0.0, 4.0, 1.9, 2.1])
    split = np.array(["train"] * 4 + ["test"] * 2)
    y = (score > 2) == louder
    assert by_side(score, y, split)[0].tolist() == y.tolist()
    both = np.stack([np.ones(6), score], 1)[:, None]
    held = np.array(["train"] * 4 + ["validation"] * 2)
    assert by_side(both, y, held)[1] == "L0H1"
    with pytest.raises(ProbingError, match="true or false"):
        by_side(score, score, split)


def test_who_always_names_the_last_room_tells_half_of_the_contents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    colours = ("red", "green", "blue")
    pairs, x = [], []
    for split, count in GROUPS.items():
        for i in range(count):
            last, first = colours[i % 3], colours[(i + 1) % 3]
            sides = (Sample(f"{split}{i}{c}", "Q", group=f"{split}{i}", split=split) for c in "ab")
            pairs.append(ContrastPair(tuple(sides), (last, first), f"map {i}"))  # type: ignore[arg-type]
            # Of the first head what is believed, of the second the last room of both.
            code = np.eye(3)[[colours.index(last), colours.index(first)]]
            x.append(np.stack([code, code[[0, 0]]], axis=1)[:, None])
    heads = {pair.name: own for pair, own in zip(pairs, x, strict=True)}
    monkeypatch.setattr(
        audit, "outputs_of", lambda _, asked, *how: (heads[pair.name] for pair in asked)
    )
    own = probed(samples({True: (1,), False: (1,)}))
    every = PairSet("question", pairs, True, "answer", clusters="maps", conditions=("TB", "FB"))
    told = audit.content(None, own, every, GROUPS, "L0H1")  # type: ignore[arg-type]
    assert told["row"].tolist() == ["y's head (L0H1)", "best head for it (L0H0)"]
    assert told["accuracy"].tolist() == [0.5, 1.0] and told["samples"].tolist() == [10, 10]


@pytest.mark.integration
def test_an_random_init_baseline_is_put_where_the_model_is(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_model(str(model_folder), device_map="cpu")
    model = loaded.model.to(torch.bfloat16)
    pair = baselines.random_init_baseline(loaded, 0).model
    assert pair.dtype == torch.bfloat16 and not pair.training
    own, other = (m.state_dict() for m in (model, pair))
    assert own.keys() == other.keys()
    assert not torch.equal(own["lm_head.weight"], other["lm_head.weight"])
    asked = []
    monkeypatch.setattr(baselines, "dispatch_model", lambda _, places, **__: asked.append(places))
    model.hf_device_map = {"model": 0, "model.visual": 1, "lm_head": "disk"}
    baselines.random_init_baseline(loaded, 0)
    assert asked == [{"model": 0, "model.visual": 1, "lm_head": "cpu"}]


FACTS = {"head": "L4H2", "accuracy": 0.98, "low": 0.96, "high": 1.0, "chance": 0.5}


def made(*lines: tuple[str, str, str, bool], why: str = "") -> pd.DataFrame:
    names = ["kind", "row", "condition", "reaches"]
    numbers = {"accuracy": 0.97, "low": 0.9, "high": 1.0}
    return pd.DataFrame(lines, columns=names).assign(label="y", why=why, **numbers)


def test_conclusions() -> None:
    lines = [
        ("view", OWN, ALL, True),
        ("format", "line breaks", "FB", False),
        ("answer", "verdict token", ALL, False),
    ]
    words = conclusion(made(*lines), "y", FACTS)
    assert "(L4H2) tells 0.980 [0.960, 1.000]" in words
    assert "Not confounded by format rows. No other row reaches it." in words
    words = conclusion(made(*lines, why="not here"), "y", FACTS)
    assert words.endswith("Not compared: line breaks in FB, verdict token (not here).")
    lines = [(kind, row, where, True) for kind, row, where, _ in lines]
    words = conclusion(made(*lines, ("design", "room", ALL, True)), "y", FACTS)
    assert "Confounded by format: line breaks 0.970 [0.900, 1.000] in FB." in words
    assert "The design decides it: room 0.970" in words and "as well: verdict token" in words
    assert conclusion(made(*lines), "y", FACTS | {"low": 0.49}).endswith("nothing to explain.")
    one = FACTS | {"low": np.nan, "high": np.nan}
    assert "0.980 (no interval)" in conclusion(made(*lines), "y", one)


def test_too_few_stories(tmp_path: Path) -> None:
    with pytest.raises(ProbingError, match="--stories 5"):
        run(AuditConfig(run=tmp_path, stories=5))


@pytest.mark.integration
def test_a_run_is_audited(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    table, words = printed(run, AuditConfig(run=folder, stories=12), width=250)
    pd.testing.assert_frame_equal(pd.read_parquet(folder / "audit.parquet"), table)
    saved = json.loads((folder / "audit.json").read_text())
    said = " ".join(words.split())
    assert said.endswith(f"sally-anne report {folder}")
    for label in ("y_p", "y_o"):
        own = table[table["label"] == label]
        assert {"verdict token", "random-init baseline", "bag of words"} <= set(own["row"])
        asked = own[own["samples"] > 0]
        assert asked["accuracy"].notna().all()
        # So few stories are tested on one map.
        assert (asked["clusters"] == 1).all() and asked[["low", "high"]].isna().all(axis=None)
        assert saved["conclusions"][label] in said
        films = own[own["why"] == "there is not such a film of each sample"]
        assert list(films["row"]) == list(FILMS) and (films["samples"] == 0).all()
    assert set(table.loc[table["kind"] == "format", "condition"]) == {ALL, "TB", "FB"}
    content = table[table["kind"] == "content"]
    assert len(content) == 2 and (content["chance"] == 0.5).all()
    # Again, in a notebook, where the untrained model does not fit: it costs its own rows alone.
    monkeypatch.setattr("sally_anne.probing.baselines.dispatch_model", full)
    again = sa.audit(folder, stories=12)
    random = again["kind"] == "untrained"
    assert random.sum() == 2 and again.loc[random, "why"].str.contains("out of memory").all()
    pd.testing.assert_frame_equal(again[~random], table[~random])
