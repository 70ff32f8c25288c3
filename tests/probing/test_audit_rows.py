"""Rows of the audit, on samples in which something is planted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from sally_anne.data.pairs import ContrastPair, PairSet
from sally_anne.data.samples import Sample, Split, sample_set
from sally_anne.models.loading import load_model
from sally_anne.probing import baselines
from sally_anne.probing.audit import ALL, lines_of
from sally_anne.probing.baselines import Baseline, ProbeRun, text_baselines
from sally_anne.probing.probes import Activations, HeadProbes, items_table

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
                    found.append(Sample(name, words, labels=labels, group=f"{split}{group}",
                                        split=split))  # fmt: skip
    return found


def probed(made: list[Sample], x: np.ndarray | None = None) -> ProbeRun:
    x = np.zeros((len(made), 1, 1, 1)) if x is None else x
    data = sample_set(made, "made up")
    return ProbeRun(data, Activations(x, items_table(made), ("y",)), HeadProbes(1.0, 100))


def table_of(
    run: ProbeRun, rows: list[Baseline], clusters: dict[str, str] | None = None
) -> pd.DataFrame:
    """Beside a best head that knows all, and of a part of the samples half of them."""
    names = {group: group for group in run.items["group"]} if clusters is None else clusters
    known = np.ones(len(run.items))
    half = np.arange(len(known)) % 4 < 3
    found = lines_of(rows, run, names, {("y", False): known, ("y", True): half.astype(float)})
    return pd.DataFrame(found).set_index("row")


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
    run = probed(samples(lengths))
    table = table_of(run, text_baselines(run, 0))
    assert set(table.index[table["reaches"]]) == reached
    # No word of the test samples is known, and single blanks are not marks.
    assert table.loc["bag of words", "accuracy"] == 0.5
    assert table.loc["marks and line breaks", "why"] == "training samples do not differ in it"
    assert table.loc["length in words", "accuracy"] == (1.0 if reached else 0.5)
    assert (table["chance"].dropna() == 0.5).all()


@pytest.mark.parametrize("text", ["Look", "Who is it?"])
def test_texts_that_are_all_alike_leave_rows_empty(text: str) -> None:
    run = probed(samples({True: (1,), False: (1,)}, text))
    rows = text_baselines(run, 0)
    assert {row.name for row in rows} == {
        "bag of words", "words in pairs", "length in words", "marks and line breaks"
    }  # fmt: skip
    assert {row.why for row in rows} == {"training samples do not differ in it"}
    table = table_of(run, rows)
    assert table["accuracy"].isna().all() and not table["reaches"].any()


def test_rows_of_a_part_are_compared_with_the_head_of_that_part() -> None:
    run = probed(samples({True: (1, 1), False: (1, 1)}))
    test = run.at("test")
    right = (np.arange(len(test)) % 4 < 3).astype(float)
    table = table_of(
        run, [Baseline("view", str(part), "y", test, right, part) for part in (True, False)]
    )
    assert table["accuracy"].tolist() == [0.75, 0.75]
    assert table["best"].tolist() == [0.75, 1.0]
    # Of every group three of four are told.
    assert (table[["low", "high"]] == 0.75).all(axis=None)
    assert table["reaches"].tolist() == [True, False]


def test_of_one_cluster_there_is_no_interval_and_values_are_compared() -> None:
    run = probed(samples({True: (1, 1), False: (1, 1)}))
    test = run.at("test")
    right = np.ones(len(test))
    rows = [
        Baseline("view", "all", "y", test, right),
        Baseline("view", "some", "y", test, right.copy()),
    ]
    rows[1].right[0] = 0
    table = table_of(run, rows, dict.fromkeys(run.items["group"], "one map"))
    ends = ["low", "high", "best_low", "best_high"]
    assert table[ends].isna().all(axis=None) and (table["clusters"] == 1).all()
    assert table["reaches"].tolist() == [True, False]
    assert table["condition"].tolist() == [ALL, ALL]


def test_a_head_at_chance_is_compared_with_nothing() -> None:
    run = probed(samples({True: (1,), False: (1,)}))
    test = run.at("test")
    blind = (np.arange(len(run.items)) % 2).astype(float)
    clusters = {group: group for group in run.items["group"]}
    (line,) = lines_of(
        [Baseline("view", "all", "y", test, np.ones(len(test)))],
        run,
        clusters,
        {("y", False): blind},
    )
    assert (line["best"], line["reaches"]) == (0.5, False)
    assert line["why"] == "the best head is not above chance on these samples"


def test_what_tells_nothing_explains_nothing_however_wide_its_interval() -> None:
    run = probed(samples({True: (1, 1), False: (1, 1)}))
    test = run.at("test")
    group = np.arange(len(test)) // 4
    # Of ten groups the head tells nine, and the rows six and nine.
    known = np.zeros(len(run.items))
    known[test] = group < 9
    clusters = {name: name for name in run.items["group"]}
    rows = [
        Baseline("view", "six", "y", test, (group < 6).astype(float)),
        Baseline("view", "nine", "y", test, (group < 9).astype(float)),
    ]
    six, nine = lines_of(rows, run, clusters, {("y", False): known})
    assert six["low"] < six["chance"] == 0.5 and six["high"] > six["best_low"] > 0.5
    assert (six["reaches"], nine["reaches"]) == (False, True)


@pytest.mark.parametrize("louder", [True, False])
def test_a_model_that_leans_to_one_word_may_tell_labels_apart(
    monkeypatch: pytest.MonkeyPatch, louder: bool
) -> None:
    made = samples({True: (3,), False: (3, 3)})
    run = probed(made)
    kept = [sample for sample in made if sample.split != "validation"]
    # It always says right, and says it louder of what is true, or of what is not.
    monkeypatch.setattr(
        baselines,
        "each_piece",
        lambda _, __, batches: (
            np.array([6.0 if kept[i].labels["y"] is louder else 4.0 for i in batch])
            for batch in batches
        ),
    )
    monkeypatch.setattr(baselines, "open_prompt", lambda *_: "")
    rows = baselines.answer_rows(None, run, np.arange(len(made)), (0, 1))  # type: ignore[arg-type]
    told = {row.name: row.right.mean() for row in rows}
    assert told == {"verdict token": 1.0, "verdict token, as it is said": pytest.approx(1 / 3)}
    assert all((row.rows == run.at("test")).all() and row.part for row in rows)
    # Halfway between the classes, however many samples each has; training samples decide.
    score = np.array([0.0, 0.0, 0.0, 4.0, 1.9, 2.1])
    train = np.arange(6) < 4
    assert baselines.side(score, score > 2, train).tolist() == [False] * 3 + [True, False, True]
    assert baselines.side(score, score < 2, train).tolist() == [True] * 3 + [False, True, False]


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
        baselines, "each_piece", lambda _, __, every: (heads[pair.name] for pair in every)
    )
    run = probed(samples({True: (1,), False: (1,)}))
    pairs = PairSet("question", pairs, True, "the last prompt token", "maps", ("TB", "FB"))
    told = baselines.content_rows(None, run, pairs, GROUPS, "y", (0, 1))  # type: ignore[arg-type]
    assert [(name, right.tolist()) for name, right, _ in told] == [
        ("y's head (L0H1)", [0.5] * 10),
        ("best head for it (L0H0)", [1.0] * 10),
    ]


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
    again = baselines.random_init_baseline(loaded, 0).model.state_dict()
    assert all(torch.equal(again[name], value) for name, value in other.items())

    asked = []
    monkeypatch.setattr(baselines, "dispatch_model", lambda _, places, **__: asked.append(places))
    model.hf_device_map = {"model": 0, "model.visual": 1, "lm_head": "disk"}
    baselines.random_init_baseline(loaded, 0)
    assert asked == [{"model": 0, "model.visual": 1, "lm_head": "cpu"}]
