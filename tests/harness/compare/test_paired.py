"""Differences of runs: planted ones, intervals and tests against readings of our own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sally_anne.core.files import read_object
from sally_anne.harness.compare.paired import compare, shared_readers
from sally_anne.harness.compare.runs import Shared, open_run, share
from sally_anne.harness.metrics import mcnemar
from tests.made_evaluations import answers, beliefs, evaluation

NUMBERS = ["first", "first_low", "first_high", "second", "second_low", "second_high"]
DIFFERENCE = ["difference", "difference_low", "difference_high"]


def compared(*folders: Path) -> pd.DataFrame:
    shared = share([open_run(folder) for folder in folders])
    return compare(shared, shared_readers(shared))


def row(table: pd.DataFrame, measure: str, kind: str = "", value: str = "", **more: str) -> Any:
    wanted = {"measure": measure, "kind": kind, "value": value} | more
    found = table
    for name, one in wanted.items():
        found = found[found[name] == one]
    assert len(found) == 1
    return found.iloc[0]


def test_planted_differences(tmp_path: Path) -> None:
    # Of twelve, the second mends four of the first six and breaks one of the last.
    before = [0, 0, 0, 0, 1, 1] + [1, 1, 1, 0, 0, None]
    after = [1, 1, 1, 1, 1, 1] + [0, 1, 1, 0, 0, 0]
    table = compared(
        evaluation(tmp_path / "a", answers(before), view="text"),
        evaluation(tmp_path / "b", answers(after), view="video"),
    )
    whole = row(table, "overall")
    assert (whole["run"], whole["against"], whole["n"]) == ("video", "text", 12)
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
    how = {"task": "gridtom", "order": "1", "about": {"data": "d"}}
    before = [(0, 1)] * 8 + [(1, 1)] * 4
    after = [(1, 1)] * 6 + [(1, 0)] * 2 + [(1, 1)] * 3 + [(0, 0)]
    table = compared(
        evaluation(tmp_path / "a", beliefs(before), **how),
        evaluation(tmp_path / "b", beliefs(after), **how, steer="v/my-vector"),
    )
    assert list(table["measure"]) == ["TB", "FB", "Both", "invalid"]
    assert set(table["run"]) == {"steered by my-vector"}
    assert set(table["against"]) == {"not steered"}
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
    own = read_object(second / "results.json", ValueError, "x")["results"]["robust"]
    cell = own["cells"]["told, action"]["Both"]
    both = row(found, "Both", "cells", "told, action")
    assert [both["second"], both["second_low"], both["second_high"]] == [
        cell[e] for e in ("value", "low", "high")
    ]


def test_intervals_are_those_of_a_plain_loop_over_films(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    outcomes = [[int(x) for x in random.integers(0, 2, 40)] for _ in range(2)]
    table = compared(
        *(evaluation(tmp_path / f"{n}", answers(one, films=7)) for n, one in enumerate(outcomes))
    )
    films = [number % 7 for number in range(40)]
    gains = [b - a for a, b in zip(*outcomes, strict=True)]
    draws = np.random.default_rng(0).integers(0, 7, (2000, 7))
    means = []
    for drawn in draws:
        values = [g for film in drawn for g, own in zip(gains, films, strict=True) if own == film]
        means.append(sum(values) / len(values))
    whole = row(table, "overall")
    assert [whole["difference_low"], whole["difference_high"]] == pytest.approx(
        list(np.quantile(means, [0.025, 0.975]))
    )
    assert whole["difference"] == pytest.approx(sum(gains) / 40)


def test_each_runs_own_intervals_stand_beside(tmp_path: Path) -> None:
    folders = [
        evaluation(tmp_path / name, answers(right))
        for name, right in (("a", [1, 0] * 15), ("b", [1, 1, 0] * 10))
    ]
    table = compared(*folders)
    for folder, which in zip(folders, ("first", "second"), strict=True):
        own = read_object(folder / "results.json", ValueError, "x")["results"]["robust"]
        for found, known in (
            (row(table, "overall"), own["overall"]),
            (row(table, "invalid"), own["invalid"]),
            (row(table, "overall", "cue", "gaze"), own["groups"]["cue"]["gaze"]),
        ):
            ends = [found[which], found[f"{which}_low"], found[f"{which}_high"], found["n"]]
            assert ends == [known[name] for name in ("value", "low", "high", "n")]


@pytest.mark.parametrize(
    ("lost", "won", "p"),
    [
        (0, 0, 1.0),
        (0, 1, 1.0),
        (3, 3, 1.0),
        (0, 6, 2 / 64),
        (1, 9, 2 * 11 / 1024),
        (12, 5, 2 * sum(comb(17, k) for k in range(6)) / 2**17),
        (40, 70, 2 * sum(comb(110, k) for k in range(41)) / 2**110),
    ],
)
def test_mcnemar_by_hand(lost: int, won: int, p: float) -> None:
    gains = np.array([-1.0] * lost + [1.0] * won + [0.0] * 7)
    assert mcnemar(gains) == (lost, won, pytest.approx(p))


OUTCOMES = st.lists(st.sampled_from([1, 0, None]), min_size=6, max_size=18)
QUICK = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def shared_of(*outcomes: Sequence[int | None]) -> Shared:
    """What runs of these outcomes have in common, without files."""
    tables = tuple(answers(one) for one in outcomes)
    from sally_anne.harness.compare.runs import Finished
    from sally_anne.harness.results import break_down

    runs = tuple(
        Finished(Path(str(n)), {"task": "moments"}, {}, break_down(t, ("ability", "cue")), t)
        for n, t in enumerate(tables)
    )
    return Shared(runs, tuple(map(str, range(len(runs)))), tables, ())


@QUICK
@given(OUTCOMES)
def test_a_run_against_itself_differs_in_nothing(outcomes: list[int | None]) -> None:
    table = compare(shared_of(outcomes, outcomes), ["robust"])
    assert (table[DIFFERENCE] == 0).all(axis=None)
    assert (table[["only_first", "only_second"]] == 0).all(axis=None)
    assert (table["p"] == 1).all()
    assert (table[NUMBERS[:3]].to_numpy() == table[NUMBERS[3:]].to_numpy()).all()


@QUICK
@given(OUTCOMES, st.randoms(use_true_random=False))
def test_the_other_way_round_is_the_same_with_the_other_sign(outcomes, random) -> None:
    other = random.sample(outcomes, len(outcomes))
    there = compare(shared_of(outcomes, other), ["robust"])
    back = compare(shared_of(other, outcomes), ["robust"])
    assert there["difference"].to_numpy() == pytest.approx(-back["difference"].to_numpy())
    assert there["difference_low"].to_numpy() == pytest.approx(-back["difference_high"].to_numpy())
    assert there["difference_high"].to_numpy() == pytest.approx(-back["difference_low"].to_numpy())
    assert (there["p"] == back["p"]).all()
    assert (there["only_first"] == back["only_second"]).all()
    assert (there[NUMBERS[:3]].to_numpy() == back[NUMBERS[3:]].to_numpy()).all()
    gains = there["second"] - there["first"]
    assert there["difference"].to_numpy() == pytest.approx(gains.to_numpy())


def test_three_runs_are_each_compared_with_the_first(tmp_path: Path) -> None:
    folders = [
        evaluation(tmp_path / f"{n}", answers([1] * n + [0] * (12 - n)), frames=n)
        for n in (4, 8, 12)
    ]
    table = compared(*folders)
    found = {
        r["run"]: (r["against"], r["difference"])
        for _, r in table.iterrows()
        if (r["measure"], r["kind"]) == ("overall", "")
    }
    assert found == {
        "frames 8": ("frames 4", pytest.approx(4 / 12)),
        "frames 12": ("frames 4", pytest.approx(8 / 12)),
    }


def test_all_shared_readers_are_compared(tmp_path: Path) -> None:
    one = evaluation(tmp_path / "a", answers([1, 0] * 6, readers=("robust", "options")))
    two = evaluation(tmp_path / "b", answers([1, 1] * 6, readers=("robust", "official")))
    table = compared(one, two)
    assert set(table["reader"]) == {"robust"}
    three = evaluation(tmp_path / "c", answers([1, 1] * 6, readers=("robust", "options")))
    assert set(compared(one, three)["reader"]) == {"robust", "options"}
