"""Accuracy against alpha: which rows become which curves, bands and marks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from sally_anne.figures import style, sweep
from sally_anne.figures.config import FiguresConfig
from sally_anne.figures.draw import draw

pytestmark = pytest.mark.integration

GREEN, ORANGE, BLUE, PINK, RED, GREY = (
    *("#009e73", "#e69f00", "#0072b2", "#cc79a7", "#d55e00", "#7f7f7f"),
)
ALPHAS = (-5.0, 5.0)
# Value, low and high in hundredths, by direction, K, alpha and measure.
SWEPT = {
    ("none", 0, 0.0): "TB 90 81 96  FB 40 32 51  Both 35 28 44  invalid 2 0 7",
    ("logistic", 4, -5.0): "TB 70 59 78  FB 30 23 42  Both 22 15 33  invalid 9 4 16",
    ("logistic", 4, 5.0): "TB 85 74 91  FB 62 50 69  Both 57 45 66  invalid 5 1 12",
    ("logistic", 8, -5.0): "TB 55 43 64  FB 20 12 31  Both 11 6 20  invalid 14 8 22",
    ("logistic", 8, 5.0): "TB 80 69 88  FB 77 68 83  Both 71 60 79  invalid 8 3 15",
    ("random", 4, -5.0): "TB 88 80 94  FB 38 30 47  Both 33 25 41  invalid 3 1 8",
    ("random", 4, 5.0): "TB 87 79 93  FB 41 34 52  Both 34 26 43  invalid 4 2 9",
    ("random", 8, -5.0): "TB 83 73 90  FB 36 27 45  Both 30 21 39  invalid 6 2 11",
    ("random", 8, 5.0): "TB 84 75 92  FB 43 35 54  Both 31 24 40  invalid 7 3 13",
    ("random_heads", 8, -5.0): "TB 78 68 86  FB 33 24 43  Both 27 18 37  invalid 10 5 17",
    ("random_heads", 8, 5.0): "TB 79 70 87  FB 46 37 55  Both 37 29 46  invalid 11 6 18",
}


def measured(direction: str, k: int, alpha: float) -> dict[str, tuple[float, float, float]]:
    words = SWEPT[direction, k, alpha].split()
    return {
        words[i]: (int(words[i + 1]) / 100, int(words[i + 2]) / 100, int(words[i + 3]) / 100)
        for i in range(0, len(words), 4)
    }


def test_a_sweep_shows_its_planted_curves_and_bands(tmp_path: Path, saved) -> None:
    rows = [
        {
            "split": split,
            "direction": d,
            "rank_by": "probe_accuracy",
            "k": k,
            "alpha": a,
            "measure": measure,
            "n": 60,
        }
        | dict(zip(("value", "low", "high"), np.array(numbers) * share, strict=True))
        # The test stories' figures are others; they are not drawn.
        for split, share in (("validation", 1.0), ("test", 0.5))
        for d, k, a in SWEPT
        for measure, numbers in measured(d, k, a).items()
    ]
    pd.DataFrame(rows).to_parquet(tmp_path / "sweep.parquet")
    draw(FiguresConfig(tmp_path))
    (figure,) = saved
    colours = {"TB": GREEN, "FB": ORANGE, "Both": BLUE, "invalid": GREY}
    controls = {"random": PINK, "random_heads": RED}
    assert [axis.get_title() for axis in figure.axes] == ["K = 4", "K = 8"]
    for axis, k in zip(figure.axes, (4, 8), strict=True):
        points = [("logistic", k, -5.0), ("none", 0, 0.0), ("logistic", k, 5.0)]
        curves = {to_hex(line.get_color()): line for line in axis.lines}
        bands = {
            to_hex(band.get_facecolor()[0], keep_alpha=False): band for band in axis.collections
        }
        assert set(bands) == set(colours.values())
        for measure, colour in colours.items():
            found = [measured(*point)[measure] for point in points]
            x, y = curves.pop(colour).get_data()
            assert list(x) == [0, 1, 2] and list(y) == [value for value, _, _ in found]
            # The whole of each interval, and nothing beside it.
            corners = {tuple(corner) for corner in bands[colour].get_paths()[0].vertices}
            assert corners == {
                (place, end) for place, (_, low, high) in enumerate(found) for end in (low, high)
            }
        for control, colour in controls.items():
            if (control, k, 5.0) in SWEPT:
                x, y = curves.pop(colour).get_data()
                ends = [measured(control, k, alpha)["Both"][0] for alpha in ALPHAS]
                assert list(x) == [0, 1, 2] and list(y) == [ends[0], 0.35, ends[1]]
        assert {c: set(line.get_ydata()) for c, line in curves.items()} == {"#000000": {0.35}}
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    handles = dict(zip(words, figure.legends[0].legend_handles, strict=True))
    for word, colour in (colours | controls).items():
        assert to_hex(handles[sweep.TEXTS.get(word, word)].get_color()) == colour


def rows_of(direction: str, k: int, alpha: float, values: dict[str, float], **more) -> list[dict]:
    """Rows of one setting, with intervals of .1 to either side."""
    setting = {
        "split": "validation",
        "direction": direction,
        "rank_by": "probe_accuracy",
        "k": k,
        "n": 60,
    }
    return [
        setting
        | {"alpha": alpha, "measure": measure, "value": value, "low": value - 0.1}
        | {"high": value + 0.1, **more}
        for measure, value in values.items()
    ]


def both(value: float, **more: float) -> dict[str, float]:
    return {"TB": 0.9, "FB": value, "Both": value, "invalid": 0.1, **more}


def figure_of(table: pd.DataFrame, results: dict | None = None):
    with style.look():
        figure = sweep.sweep_figure(sweep.curves(table), ["m"], results or {})
        figure.draw_without_rendering()
    return figure


def test_what_was_chosen_is_marked_and_what_it_costs_is_said() -> None:
    table = pd.DataFrame(
        rows_of("none", 0, 0.0, both(0.3, initial=0.8))
        + rows_of("logistic", 4, 5.0, both(0.5))
        + rows_of("logistic", 8, 5.0, both(0.7, initial=0.79))
    )
    chosen = {"direction": "logistic", "rank_by": "probe_accuracy", "k": 8, "alpha": 5.0}
    results = {"config": {"max_initial_drop": 0.02}, "chosen": chosen}
    results["initial"] = {"validation": {"value": -0.01}}
    stars = {
        axis.get_title(): [
            (line.get_marker(), *line.get_xydata()[0])
            for line in axis.lines
            if len(line.get_xdata()) == 1
        ]
        for axis in figure_of(table, results).axes
    }
    assert stars == {"K = 4": [], "K = 8": [("*", 1, 0.7)]}
    said = "cost of initial belief: 1.0 points ({})"
    # Beyond its limit it is no good choice, and a rank stands next to it.
    assert [
        sweep.cautions({**results, "config": {"max_initial_drop": m}}) != [] for m in (0.01, 0.009)
    ] == [False, True]
    ranked = results | {"control_rank": {"rank": 2, "of": 41, "pairs": 9}}
    assert sweep.chosen_words(ranked)[1] == "rank 2 of 41 on test pairs"
    assert sweep.chosen_words(results) == ["chosen: K = 8, α = 5", said.format("at most 2")]
    # What the model can but guess decided nothing.
    guessed = results | {"guessed": {"initial": {"value": 0.25}}}
    assert sweep.chosen_words(guessed)[1] == said.format("guessed, no condition")


def test_directions_and_rankings_have_panels_of_their_own() -> None:
    rows = rows_of("none", 0, 0.0, both(0.3))
    for direction, k, value in (("logistic", 2, 0.4), ("logistic", 4, 0.5), ("mass_mean", 4, 0.6)):
        rows += rows_of(direction, k, 1.0, both(value))
    rows += rows_of("random", 4, 1.0, both(0.2))
    table = sweep.curves(pd.DataFrame(rows))
    at = table[(table["measure"] == "Both") & (table["alpha"] == 1.0)]
    places = at.groupby(["panel", "k"], sort=False)["value"].apply(list).to_dict()
    assert places == {
        ("logistic", 2): [0.4],
        ("logistic", 4): [0.5, 0.2],
        ("mass_mean", 4): [0.6, 0.2],
    }
    titles = [axis.get_title() for axis in figure_of(pd.DataFrame(rows)).axes]
    assert titles == ["K = 2, logistic", "K = 4, logistic", "K = 4, mass_mean", ""]
    ranked = pd.DataFrame(rows[:12] + [row | {"rank_by": "patching"} for row in rows[4:12]])
    titles = [axis.get_title() for axis in figure_of(ranked).axes]
    assert titles == [f"K = {k}, {name}" for name in ("probe_accuracy", "patching") for k in (2, 4)]
