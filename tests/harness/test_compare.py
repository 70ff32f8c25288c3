"""Comparisons of evaluations: planted differences, and runs that are not of the same questions."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sally_anne.core.console import Console
from sally_anne.core.errors import HarnessError
from sally_anne.core.files import read_object
from sally_anne.harness.compare import Finished, compare, compare_runs, differences, shared_answers
from sally_anne.harness.config import CompareConfig, EvalConfig
from sally_anne.harness.report import print_published
from sally_anne.harness.score import mcnemar
from tests.made_evaluations import answers, beliefs, evaluation
from tests.made_replies import printed

RIGHT = [1, 0] * 6
# Of twelve, the second mends four of the first six and breaks one of the last.
BEFORE = [0, 0, 0, 0, 1, 1] + [1, 1, 1, 0, 0, None]
AFTER = [1, 1, 1, 1, 1, 1] + [0, 1, 1, 0, 0, 0]


def shared(*folders: Path) -> tuple[list[pd.DataFrame], list[str]]:
    return shared_answers([Finished.open(folder) for folder in folders])


def compared(*folders: Path) -> pd.DataFrame:
    return compare([Finished.open(folder) for folder in folders], shared(*folders)[0])


def row(table: pd.DataFrame, measure: str, kind: str = "", value: str = "", **more: str) -> Any:
    key = {"measure": measure, "kind": kind, "value": value} | more
    rows = table
    for name, one in key.items():
        rows = rows[rows[name] == one]
    assert len(rows) == 1
    return rows.iloc[0]


def test_planted_differences(tmp_path: Path) -> None:
    table = compared(
        evaluation(tmp_path / "a", answers(BEFORE), view="text"),
        evaluation(tmp_path / "b", answers(AFTER), view="video"),
    )
    whole = row(table, "overall")
    assert (whole["run"], whole["against"], whole["n"]) == ("b", "a", 12)
    assert (whole["first"], whole["second"]) == (5 / 12, 8 / 12)
    assert whole["difference"] == pytest.approx(3 / 12)
    assert (whole["only_first"], whole["only_second"]) == (1, 4)
    # One of five coins: 2 (C(5, 0) + C(5, 1)) / 2 ** 5.
    assert whole["p"] == pytest.approx(12 / 32)
    assert row(table, "overall", "ability", "beliefs")["difference"] == pytest.approx(4 / 6)
    assert row(table, "overall", "ability", "emotions")["difference"] == pytest.approx(-1 / 6)
    gaze = row(table, "overall", "cue", "gaze")  # 0, 3, 6 and 9
    assert (gaze["n"], gaze["only_first"], gaze["only_second"]) == (4, 1, 2)
    invalid = row(table, "invalid")
    assert (invalid["first"], invalid["second"]) == (1 / 12, 0)
    assert (invalid["only_first"], invalid["only_second"]) == (1, 0)
    assert len(table) == 5


def test_planted_beliefs(tmp_path: Path) -> None:
    how = {"task": "gridtom", "order": "1", "about": {"stories": "d"}}
    before = [(0, 1)] * 8 + [(1, 1)] * 4
    after = [(1, 1)] * 6 + [(1, 0)] * 2 + [(1, 1)] * 3 + [(0, 0)]
    table = compared(
        evaluation(tmp_path / "a", beliefs(before), **how),
        evaluation(tmp_path / "b", beliefs(after), **how, steer="v/my-vector"),
    )
    assert list(table["measure"]) == ["TB", "FB", "Both", "invalid"]
    found = {
        r["measure"]: (r["difference"], r["only_first"], r["only_second"], r["n"])
        for _, r in table.iterrows()
    }
    assert found == {
        "TB": (pytest.approx(7 / 12), 1, 8, 12),
        "FB": (pytest.approx(-3 / 12), 3, 0, 12),
        "Both": (pytest.approx(5 / 12), 1, 6, 12),
        "invalid": (0, 0, 0, 24),
    }


def test_cells_are_compared_as_they_are_reported(tmp_path: Path) -> None:
    """BigToM: TB, FB and both of each cell, beside the runs' own tags."""

    def table(right: Callable[[int, str, str], bool]) -> pd.DataFrame:
        rows = []
        for story in range(6):
            for variable in ("action", "belief"):
                for condition in ("TB", "FB"):
                    one = answers([int(right(story, variable, condition))]).iloc[0].to_dict()
                    one |= {"item_id": f"{variable}/{condition}/{story}", "story": f"s{story}"}
                    one |= {"condition": condition, "tag_condition": condition}
                    one |= {"tag_variable": variable, "tag_initial_belief": "told"}
                    del one["tag_ability"], one["tag_cue"]
                    rows.append(one)
        return pd.DataFrame(rows)

    how = {"task": "bigtom", "cells": ("initial_belief", "variable")}
    first = evaluation(tmp_path / "a", table(lambda s, v, c: c == "FB"), **how)
    second = evaluation(tmp_path / "b", table(lambda s, v, c: c == "FB" or s < 3), **how)
    found = compared(first, second)
    for value in ("told, action", "told, belief"):
        assert row(found, "TB", "cells", value)["difference"] == 0.5
        assert row(found, "FB", "cells", value)["difference"] == 0
        both = row(found, "Both", "cells", value)
        assert (both["n"], both["only_second"]) == (6, 3)
    assert row(found, "TB")["n"] == 12 and row(found, "TB")["only_second"] == 6
    assert row(found, "overall", "condition", "TB")["difference"] == 0.5
    # Each run's own numbers are those of its own results.
    own = read_object(second / "results.json", ValueError, "x")["results"]
    (cell,) = (r for r in own if (r["part"], r["measure"]) == ("told, action", "Both"))
    both = row(found, "Both", "cells", "told, action")
    assert [both["second"], both["second_low"], both["second_high"]] == [
        cell[e] for e in ("value", "low", "high")
    ]


@pytest.mark.parametrize(
    ("lost", "won", "p"),
    [(0, 0, 1.0), (1, 9, 2 * 11 / 1024), (12, 5, 2 * sum(comb(17, k) for k in range(6)) / 2**17)],
)
def test_mcnemar_by_hand(lost: int, won: int, p: float) -> None:
    gains = np.array([-1.0] * lost + [1.0] * won + [0.0] * 7)
    assert mcnemar(gains) == (lost, won, pytest.approx(p))


def test_means_over_models_of_two_ways_to_ask(tmp_path: Path) -> None:
    """Of twelve items text has 5 and 6 right, with the film 8 and 9: in the mean 5.5 and 8.5."""
    right = {"text a": BEFORE, "text b": RIGHT, "film a": AFTER, "film b": [1] * 9 + [0] * 3}
    runs = []
    for name, values in right.items():
        view, model = name.split()
        runs.append(evaluation(tmp_path / name, answers(values), view=view, model=model))
    how = {"out": tmp_path / "out", "means": True}
    table, text = printed(compare_runs, CompareConfig(tuple(runs), **how), width=160)
    whole = row(table, "overall")
    assert (whole["against"], whole["run"], whole["n"]) == ("text", "film", 12)
    assert [whole["first"], whole["second"]] == pytest.approx([5.5 / 12, 8.5 / 12])
    assert whole["difference"] == pytest.approx(3 / 12)
    assert whole["difference_low"] < whole["difference"] < whole["difference_high"]
    # The same model twice is that model.
    twice = [Finished.open(runs[at]) for at in (0, 0, 2, 2)]
    same = compare(twice, shared_answers(twice)[0], means=True).drop(columns=["run", "against"])
    assert same.equals(compared(runs[0], runs[2]).drop(columns=["run", "against"]))
    with pytest.raises(HarnessError, match="same models"):
        compare_runs(CompareConfig(tuple(runs[:3]), **how), Console(quiet=True))


def test_the_other_way_round_is_the_same_with_the_other_sign(tmp_path: Path) -> None:
    one, two = (evaluation(tmp_path / n, answers(r)) for n, r in (("a", BEFORE), ("b", AFTER)))
    there, back = compared(one, two), compared(two, one)
    for name, other in (("", ""), ("_low", "_high"), ("_high", "_low")):
        gains = there[f"difference{name}"].to_numpy()
        assert gains == pytest.approx(-back[f"difference{other}"].to_numpy())
    assert (there["p"] == back["p"]).all()
    assert (there["only_first"] == back["only_second"]).all()
    same = compared(one, one)
    assert (same[["difference", "difference_low", "difference_high"]] == 0).all(axis=None)
    assert (same["p"] == 1).all()


def test_items_of_one_run_alone_and_hidden_keys_are_left_out(tmp_path: Path) -> None:
    few = evaluation(tmp_path / "few", answers(RIGHT).iloc[:9])
    many = evaluation(tmp_path / "many", answers(RIGHT).iloc[::-1][:10])
    tables, notes = shared(few, many)
    assert len(notes) == 2
    ids = [list(table["item_id"]) for table in tables]
    assert ids[0] == ids[1] == [f"q{n:03}" for n in range(2, 9)]
    assert (tables[0]["robust_correct"] == tables[1]["robust_correct"]).all()
    table = answers(RIGHT).assign(hidden=[False] * 8 + [True] * 4)
    one, two = (evaluation(tmp_path / name, table) for name in "ab")
    assert len(shared(one, two)[0][0]) == 8


@pytest.mark.parametrize(
    ("options", "different"),
    [
        (({"view": "video"}, {"view": "text"}), {"view": ["video", "text"]}),
        (
            ({}, {"endpoint": "https://host/v1", "model": "big"}),
            {"model": ["tiny-qwen2-vl", "big"]},
        ),
        (({"out": "x", "batch_size": 2, "limit": 3}, {"device": "cpu"}), {}),
    ],
)
def test_how_runs_differ(tmp_path: Path, options, different) -> None:
    folders = [
        evaluation(tmp_path / name, answers(RIGHT), **one)
        for name, one in zip("ab", options, strict=True)
    ]
    assert differences([Finished.open(folder) for folder in folders]) == different


def test_other_questions_are_refused(tmp_path: Path) -> None:
    table = answers(RIGHT)
    one = evaluation(tmp_path / "one", table)
    moved = table.assign(answer=["B", *table["answer"][1:]])
    with pytest.raises(HarnessError, match="'q000' has another key"):
        shared(one, evaluation(tmp_path / "moved", moved))
    with pytest.raises(HarnessError, match="no item in common"):
        shared(one, evaluation(tmp_path / "other", table, task="mimeqa"))
    official = evaluation(tmp_path / "official", moved, protocol="official")
    assert "not compared" in shared(one, official)[1][0]


def test_published_figures_of_what_a_run_shows(tmp_path: Path) -> None:
    config = EvalConfig(frames=7, out=tmp_path)
    about = {"order": "1", "setting": "multimodal"}
    _, text = printed(print_published, config, about, 10)
    assert text.count("steered") == 2 and "this project's words" in text and "made" in text


def test_printed_saved_and_drawn_agree(tmp_path: Path) -> None:
    full = {"view": "multimodal", "window": "full"}
    runs = (
        evaluation(tmp_path / "a", answers(BEFORE), full),
        evaluation(tmp_path / "b", answers(AFTER), full | {"window": "focused"}),
    )
    out = tmp_path / "out"
    table, text = printed(compare_runs, CompareConfig(runs, out=out), width=120)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    for _, one in table.iterrows():
        first, second, gain = (
            f"{100 * one[n]:{sign}.1f} [{100 * one[n + '_low']:.1f}, {100 * one[n + '_high']:.1f}]"
            for n, sign in (("first", ""), ("second", ""), ("difference", "+"))
        )
        alone = f"{one['only_first']}, {one['only_second']}"
        line = f"{one['items']} {one['n']} {first} {second} {gain} {alone} {one['p']:.3f}"
        assert line in lines
    pd.testing.assert_frame_equal(pd.read_parquet(out / "comparison.parquet"), table)
    saved = json.loads((out / "results.json").read_text())
    assert saved["labels"] == ["a", "b"]
    assert pd.DataFrame(saved["results"]).equals(table)
    drawn = pd.read_parquet(out / "figures" / "comparison.parquet")
    second = drawn[drawn["run"] == "b"].reset_index(drop=True)
    kept = table[table["measure"] != "invalid"].reset_index(drop=True)
    assert (second["value"] == kept["second"]).all()
    # The same command again writes the same.
    files = [out / name for name in ("comparison.parquet", "results.json")]
    before = [file.read_bytes() for file in files]
    compare_runs(CompareConfig(runs, out=out), Console(quiet=True))
    assert [file.read_bytes() for file in files] == before


def test_a_parser_that_understood_nothing_is_saved_and_not_printed(tmp_path: Path) -> None:
    runs = []
    for name, right in (("a", BEFORE), ("b", AFTER)):
        both = answers(right, parsers=("robust", "official"))
        both[["official_correct", "official_invalid"]] = [False, True]
        runs.append(evaluation(tmp_path / name, both))
    table, text = printed(compare_runs, CompareConfig(tuple(runs), out=tmp_path / "out"))
    assert set(table["parser"]) == {"robust", "official"} and "parsed by official" not in text
