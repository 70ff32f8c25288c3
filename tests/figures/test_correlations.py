"""Correlations between kinds of questions over films, on hand-made sheets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import pearsonr

from sally_anne.core.errors import FigureError
from sally_anne.figures import style
from sally_anne.figures.comparison import category_correlations, correlations_figure, group_accuracy
from sally_anne.figures.config import FiguresConfig
from sally_anne.figures.draw import draw

GROUNDING, TEMPORAL, MEMORY = "Grounding the imagined", "Temporal", "Working memory"
# For each film right and all questions in a category.
SHARES = {
    GROUNDING: {"a": (1, 2), "b": (0, 1), "c": (2, 2), "d": (1, 3)},
    TEMPORAL: {"a": (1, 1), "b": (0, 2), "c": (1, 1), "e": (1, 2)},
    MEMORY: {"a": (0, 1), "b": (1, 1), "c": (0, 1), "d": (1, 1)},
}


def sheet(shares=SHARES, **more: object) -> pd.DataFrame:
    rows = [
        {"story": film, "tag_category": category, "judge_correct": number < right}
        for category, films in shares.items()
        for film, (right, count) in films.items()
        for number in range(count)
    ]
    ids = [f"i{n}" for n in range(len(rows))]
    return pd.DataFrame(rows).assign(item_id=ids, judge_invalid=False, **more)


def test_accuracy_of_each_film_in_each_category() -> None:
    wide = group_accuracy(sheet(), "judge")
    assert list(wide.columns) == [GROUNDING, TEMPORAL, MEMORY]
    assert list(wide.index) == list("abcde")
    assert wide[GROUNDING].tolist()[:4] == [0.5, 0, 1, pytest.approx(1 / 3)]
    assert wide.isna().to_numpy().tolist() == [
        *[[False] * 3] * 3,
        [False, True, False],
        [True, False, True],
    ]


def test_pearson_over_films_that_have_both() -> None:
    pairs = category_correlations(sheet(), "judge")
    assert list(zip(pairs["first"], pairs["second"], pairs["n"], strict=True)) == [
        (GROUNDING, TEMPORAL, 3),
        (GROUNDING, MEMORY, 4),
        (TEMPORAL, MEMORY, 3),
    ]
    expected = [
        pearsonr([0.5, 0, 1], [1, 0, 1])[0],
        pearsonr([0.5, 0, 1, 1 / 3], [0, 1, 0, 1])[0],
        -1.0,
    ]
    assert pairs["correlation"].tolist() == pytest.approx(expected)
    assert (pairs["low"] <= pairs["correlation"]).all()
    assert (pairs["high"] >= pairs["correlation"]).all()


@pytest.mark.parametrize("right", [True, False], ids=["all right", "all wrong"])
def test_no_correlation_where_nothing_varies(right: bool) -> None:
    pairs = category_correlations(sheet(judge_correct=right), "judge")
    assert pairs[["correlation", "low", "high"]].isna().all(axis=None)
    assert pairs["n"].tolist() == [3, 4, 3]


def test_an_item_counts_in_each_of_its_categories() -> None:
    table = sheet(SHARES)
    table.loc[0, "tag_category"] = f"{GROUNDING}|mime"
    wide = group_accuracy(table, "judge")
    assert list(wide.columns) == [GROUNDING, TEMPORAL, MEMORY, "mime"]
    assert wide["mime"].dropna().to_dict() == {"a": 1.0}
    assert wide.loc["a", GROUNDING] == 0.5


def test_intervals_against_scipy_and_noise() -> None:
    rng = np.random.default_rng(1)
    skill = rng.random(80)
    shares = {
        name: {str(n): (int(rng.binomial(8, p)), 8) for n, p in enumerate(chances)}
        for name, chances in {"x": skill, "y": skill, "z": np.full(80, 0.5)}.items()
    }
    pairs = category_correlations(sheet(shares), "judge").set_index(["first", "second"])
    related, noise = pairs.loc[("x", "y")], pairs.loc[("x", "z")]
    assert related["low"] > 0.3 and noise["low"] < 0 < noise["high"]
    x, y = ([right for right, _ in shares[name].values()] for name in "xy")
    fisher = pearsonr(x, y).confidence_interval()
    assert related["low"] == pytest.approx(fisher.low, abs=0.08)
    assert related["high"] == pytest.approx(fisher.high, abs=0.08)


def test_cells_stand_where_their_pairs_are_and_clear_ones_have_a_star() -> None:
    rows = [("a", "b", 0.8, 0.5, 0.9, 7), ("a", "c", -0.2, -0.6, 0.3, 6)]
    rows.append(("b", "c", np.nan, np.nan, np.nan, 2))
    names = ["first", "second", "correlation", "low", "high", "n"]
    table = pd.DataFrame(rows, columns=names)
    with style.look():
        figure = correlations_figure(table, ["m"])
        figure.draw_without_rendering()
    axis = figure.axes[0]
    texts = {text.get_position(): text.get_text() for text in axis.texts}
    assert texts == {(0.5, 0.5): "0.80*\nn = 7", (0.5, 1.5): "-0.20\nn = 6"}
    assert axis.collections[0].get_clim() == (-1.0, 1.0)


def test_drawn_from_a_run_with_categories(tmp_path: Path) -> None:
    sheet().to_parquet(tmp_path / "answers.parquet")
    (numbers,) = [p for p in draw(FiguresConfig(tmp_path)) if p.suffix == ".parquet"]
    pd.testing.assert_frame_equal(pd.read_parquet(numbers), category_correlations(sheet(), "judge"))
    sheet().drop(columns="tag_category").to_parquet(tmp_path / "answers.parquet")
    with pytest.raises(FigureError):
        draw(FiguresConfig(tmp_path))
