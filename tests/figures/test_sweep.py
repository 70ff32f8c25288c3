"""Accuracy against alpha: which rows become which curves, and what is refused."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sally_anne.core.errors import ChoiceError, FigureError, MissingRunFileError, RunFolderError
from sally_anne.figures import style, sweep

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2] / "src"
ALPHAS = (-10.0, -5.0, 5.0, 10.0)
KS = (4, 8, 14)


def setting(
    direction: str, k: int, alpha: float, split: str = "validation", heads: str = "probe"
) -> list[dict]:
    """Rows of one setting: Both rises with alpha, more with more heads; controls only fall."""
    strength = k / 14 * alpha / 10
    if direction in sweep.CONTROLS:
        strength = -abs(strength) * (1.0 if direction == "random" else 0.4)
    true_belief = 0.93 - 0.12 * abs(strength) - (0.5 * -strength if strength < 0 else 0)
    false_belief = np.clip(0.41 + 0.4 * strength, 0.03, 1)
    values = {
        "TB": true_belief,
        "FB": false_belief,
        "Both": min(true_belief, false_belief) - 0.04,
        "invalid": 0.02 + 0.18 * abs(strength) ** 3,
    }
    return [
        {
            "split": split,
            "cell": f"{direction}/K{k}/alpha{alpha:g}",
            "direction": direction,
            "heads": heads,
            "k": k,
            "alpha": alpha,
            "measure": measure,
            "value": float(np.clip(value, 0, 1)),
            "low": float(np.clip(value - 0.09, 0, 1)),
            "high": float(np.clip(value + 0.09, 0, 1)),
            "n": 120 if measure == "invalid" else 60,
        }
        for measure, value in values.items()
    ]


def full(
    directions: tuple[str, ...] = ("logistic", "random", "random_heads"),
    ks: tuple[int, ...] = KS,
    alphas: tuple[float, ...] = ALPHAS,
) -> pd.DataFrame:
    rows = setting("none", 0, 0.0)
    for direction in directions:
        for k in ks:
            for alpha in alphas:
                rows += setting(direction, k, alpha)
    return pd.DataFrame(
        rows + setting("none", 0, 0.0, "test") + setting("logistic", 8, 5.0, "test")
    )


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    def make(table: pd.DataFrame, config: dict | None = None) -> Path:
        made = tmp_path / "sweep"
        made.mkdir(exist_ok=True)
        table.to_parquet(made / "sweep.parquet", index=False)
        if config is not None:
            (made / "results.json").write_text(json.dumps({"config": config}))
        return made

    return make


def picture(table: pd.DataFrame, title: tuple[str, ...] = ()):
    with style.look():
        return sweep.sweep_figure(sweep.curves(table[table["split"] == "validation"]), title)


def line_of(axis, colour: str, thick: float | None = None):
    found = [
        line
        for line in axis.lines
        if line.get_color() == colour and (thick is None or line.get_linewidth() == thick)
    ]
    assert len(found) == 1
    return found[0]


def test_the_curves_hold_the_rows_of_the_file_and_the_baseline() -> None:
    table = full()
    shown = sweep.curves(table[table["split"] == "validation"])
    assert list(shown.columns) == [
        *("panel", "heads", "k", "direction", "measure", "alpha", "value", "low", "high", "n")
    ]
    # Four measures and two controls, at four alphas and the baseline, for each K.
    assert len(shown) == 3 * (4 + 2) * 5
    for _, curve in shown.groupby(["k", "direction", "measure"], sort=False):
        assert list(curve["alpha"]) == [-10, -5, 0, 5, 10]
    own = table[(table["split"] == "validation") & (table["k"] > 0)]
    merged = shown.merge(own, on=["k", "direction", "measure", "alpha"], suffixes=("", "_file"))
    assert len(merged) == 3 * 6 * 4
    for column in ("value", "low", "high", "n"):
        assert (merged[column] == merged[f"{column}_file"]).all()
    plain = table[(table["split"] == "validation") & (table["k"] == 0)].set_index("measure")
    at_zero = shown[shown["alpha"] == 0]
    assert (at_zero["value"].to_numpy() == plain["value"][at_zero["measure"]].to_numpy()).all()
    assert set(shown.loc[shown["direction"] != "logistic", "measure"]) == {"Both"}


def test_a_panel_for_each_k_with_every_line() -> None:
    figure = picture(full(), ("tiny-qwen2-vl", "order 1"))
    assert [axis.get_title() for axis in figure.axes] == ["K = 4", "K = 8", "K = 14"]
    table = full()
    for axis, k in zip(figure.axes, KS, strict=True):
        # Four measures, two controls, the baseline.
        assert len(axis.lines) == 7 and len(axis.collections) == 4
        for measure in sweep.MEASURES:
            colour = sweep.COLOURS[measure]
            rows = table[(table["direction"] == "logistic") & (table["k"] == k)]
            rows = rows[(rows["measure"] == measure) & (rows["split"] == "validation")]
            x, y = line_of(axis, colour).get_data()
            assert list(np.delete(y, 2)) == list(rows["value"])
            assert list(x) == [0, 1, 2, 3, 4]
        for control, colour in sweep.CONTROL_COLOURS.items():
            line = line_of(axis, colour)
            assert line.get_linestyle() == "--" and line.get_linewidth() < 1.3, control
        # TB and FB are drawn over Both, on which they often stand.
        order = [line_of(axis, sweep.COLOURS[name]).get_zorder() for name in ("Both", "TB", "FB")]
        assert order[0] < min(order[1:])
        assert line_of(axis, sweep.COLOURS["TB"]).get_linestyle() == "--"
        both = table[(table["k"] == 0) & (table["measure"] == "Both")]["value"].iloc[0]
        assert set(line_of(axis, "black").get_ydata()) == {both}
        assert axis.get_xlabel() == "α (standard deviations),\neach that was run"
    assert [axis.get_ylabel() for axis in figure.axes] == ["accuracy (%)", "", ""]
    assert len(figure.legends) == 1
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert words == [
        "TB",
        "FB",
        "Both",
        "invalid (share of answers)",
        "Both, random directions",
        "Both, random heads",
        "Both without steering",
        "bands: 95 % intervals",
    ]
    said = figure.get_suptitle()
    assert said.startswith("validation stories (N = 60 pairs of TB and FB)\n")
    assert "tiny-qwen2-vl  ·  order 1  ·  direction logistic" in said


def test_the_axis_is_written_in_percent() -> None:
    figure = picture(full())
    figure.canvas.draw()
    axis = figure.axes[0]
    assert [text.get_text() for text in axis.get_yticklabels()] == [
        "0",
        "20",
        "40",
        "60",
        "80",
        "100",
    ]
    assert [text.get_text() for text in axis.get_xticklabels()] == ["−10", "−5", "0", "5", "10"]


@pytest.mark.parametrize(
    "strengths",
    [
        (0.5, 0.6, 0.8, 1.0, 2.0, 5.0, 10.0),
        tuple(float(alpha) for alpha in range(5, 51, 5)),
        (0.01, 0.1, 1.0, 10.0, 100.0),
    ],
)
def test_every_strength_has_its_label_and_none_touch(strengths) -> None:
    alphas = sorted([*(-alpha for alpha in strengths), 0.0, *strengths])
    figure = picture(full(alphas=tuple(alpha for alpha in alphas if alpha)))
    figure.canvas.draw()
    for axis in figure.axes:
        labels = axis.get_xticklabels()
        assert [text.get_text() for text in labels] == [f"{a:g}".replace("-", "−") for a in alphas]
        boxes = [label.get_window_extent() for label in labels]
        assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


def test_of_very_many_strengths_some_are_written() -> None:
    figure = picture(full(alphas=tuple(float(a) for a in range(-50, 51, 2) if a), ks=(4,)))
    figure.canvas.draw()
    written = [t.get_text() for t in figure.axes[0].get_xticklabels() if t.get_text()]
    assert written[0] == "−50" and 12 < len(written) <= sweep.TICKS_UP_TO


def with_sides(table: pd.DataFrame) -> pd.DataFrame:
    """The side questions, asked of K 14 at 5 and of K 8 at 10, which was taken."""
    rows = []
    for direction, k, alpha, values in (
        ("none", 0, 0.0, (0.9, 0.8)),
        ("logistic", 14, 5.0, (0.5, 0.8)),
        ("logistic", 8, 10.0, (0.9, 0.79)),
        ("random", 8, 10.0, (0.2, 0.1)),
    ):
        row = setting(direction, k, alpha)[0]
        rows += [
            row | {"measure": side, "value": value}
            for side, value in zip(("initial", "reality"), values, strict=True)
        ]
    return pd.concat([table, pd.DataFrame(rows)], ignore_index=True)


def test_the_chosen_point_and_what_decided_it_are_marked(folder) -> None:
    config = {"model": "m", "max_initial_drop": 0.01, "max_reality_drop": None}
    run = folder(with_sides(full()), config)
    results = json.loads((run / "results.json").read_text())
    chosen = {"direction": "logistic", "heads": "probe", "k": 8, "alpha": 10.0}
    costs = {side: {"validation": {"value": -0.002}} for side in ("initial", "reality")}
    (run / "results.json").write_text(json.dumps(results | {"chosen": chosen} | costs))
    choice = sweep.read_choice(run)
    assert choice == sweep.Choice(
        sweep.Panel("logistic", "probe", 8), 10.0, {"initial": (-0.002, 0.01)}
    )
    table = sweep.curves(sweep.read_sweep(run))
    with style.look():
        figure = sweep.sweep_figure(table, ["m"], choice)
    own = table[(table["direction"] == "logistic") & (table["measure"] == "Both")]
    both = own.set_index(["k", "alpha"])["value"]
    marks = {
        axis.get_title(): [
            (line.get_marker(), *line.get_xydata()[0])
            for line in axis.lines
            if len(line.get_xdata()) == 1
        ]
        for axis in figure.axes
    }
    assert marks == {
        "K = 4": [],
        "K = 8": [("*", 4, both[8, 10.0])],
        "K = 14": [("o", 3, both[14, 5.0])],
    }
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert words[-2:] == ["chosen", "better, but costs too much"]
    said = figure.get_suptitle()
    assert "chosen: K = 8, α = 10, initial belief −0.2 points (may fall by 1)" in said
    assert "reality" not in said
    # What the model can but guess decided nothing.
    guessed = {"guessed": {"initial": {"value": 0.25}}}
    (run / "results.json").write_text(json.dumps(results | {"chosen": chosen} | costs | guessed))
    found = sweep.read_choice(run)
    assert found is not None
    assert found.said.endswith("initial belief −0.2 points (guessed, no condition)")
    # Without results nothing is marked.
    assert sweep.read_choice(run / "none") is None


def test_without_controls_the_legend_has_none() -> None:
    figure = picture(full(("logistic",)))
    assert all(len(axis.lines) == 5 for axis in figure.axes)
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert not any("random" in word for word in words)


def test_a_sweep_of_a_control_shows_it_as_the_direction() -> None:
    figure = picture(full(("random",), ks=(4,)))
    assert len(figure.axes) == 1 and len(figure.axes[0].lines) == 5
    assert "direction random" in figure.get_suptitle()


def test_several_directions_have_panels_of_their_own() -> None:
    figure = picture(full(("logistic", "mass_mean", "random"), ks=(4, 8)))
    assert [axis.get_title() for axis in figure.axes] == [
        *("K = 4, logistic", "K = 8, logistic", "K = 4, mass_mean", "K = 8, mass_mean")
    ]
    assert "direction" not in figure.get_suptitle()


def test_heads_by_probe_and_by_cause_stand_in_rows_of_their_own() -> None:
    table = full(ks=(4, 8))
    by_cause = table[(table["split"] == "validation") & (table["k"] > 0)].copy()
    by_cause["heads"], by_cause["value"] = "cause", by_cause["value"] / 2
    table = pd.concat([table, by_cause[by_cause["k"] == 4]])
    figure = picture(table)
    assert [axis.get_title() for axis in figure.axes] == [
        *("K = 4, heads by probe", "K = 8, heads by probe", "K = 4, heads by cause")
    ]
    for number, half in ((0, 1.0), (2, 0.5)):
        axis = figure.axes[number]
        assert len(axis.lines) == 7
        for direction, colour in (("logistic", "#0072B2"), ("random", "#CC79A7")):
            rows = table[(table["direction"] == direction) & (table["k"] == 4)]
            rows = rows[(rows["heads"] == "probe") & (rows["measure"] == "Both")]
            y = np.delete(line_of(axis, colour).get_ydata(), 2)
            assert list(y) == list(half * rows["value"])
    assert "heads by" not in figure.get_suptitle()
    alone = table[(table["heads"] == "cause") | (table["k"] == 0)]
    assert "heads by cause" in picture(alone).get_suptitle()


def test_a_sweep_of_an_earlier_version_is_read(folder) -> None:
    run = folder(full().drop(columns="heads"))
    assert set(sweep.curves(sweep.read_sweep(run))["heads"]) == {"probe"}


def test_directions_with_different_k_stay_in_their_rows() -> None:
    table = full(("logistic", "mass_mean"), ks=(1, 2, 4, 8, 14))
    table = table[~((table["direction"] == "logistic") & (table["k"] == 1))]
    figure = picture(table)
    figure.canvas.draw()
    places = {axis.get_title(): axis.get_position() for axis in figure.axes}
    assert len(places) == 9
    upper = {round(place.y0, 3) for name, place in places.items() if "logistic" in name}
    assert len(upper) == 1 and "K = 1, logistic" not in places
    assert places["K = 8, logistic"].x0 == pytest.approx(places["K = 8, mass_mean"].x0, abs=1e-3)


def test_more_panels_than_fit_in_a_row_are_wrapped() -> None:
    figure = picture(full(("logistic",), ks=(1, 2, 4, 8, 14)))
    assert len(figure.axes) == 5
    figure.canvas.draw()
    # The third has no panel below it.
    named = [bool(axis.get_xlabel()) for axis in figure.axes]
    assert named == [False, False, True, True, True]
    assert all(label.get_visible() for label in figure.axes[2].get_xticklabels())


def test_values_that_do_not_exist_leave_a_gap() -> None:
    table = full(("logistic",), ks=(4,))
    hole = (table["alpha"] == 5.0) & (table["measure"] == "FB")
    table.loc[hole, ["value", "low", "high"]] = np.nan
    y = line_of(picture(table).axes[0], sweep.COLOURS["FB"]).get_ydata()
    assert np.isnan(y[3]) and np.isfinite(np.delete(y, 3)).all()


def test_saved_with_its_numbers_and_the_same_bytes_again(folder, tmp_path, capsys) -> None:
    config = {"model": "tiny-qwen2-vl", "order": "1", "setting": "multimodal", "seed": 0}
    run = folder(full(), config)
    sweep.main([str(run)])
    printed = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert printed == [run / "figures" / f"sweep.{kind}" for kind in ("png", "pdf", "parquet")]
    before = [path.read_bytes() for path in printed]
    shown = pd.read_parquet(printed[2])
    pd.testing.assert_frame_equal(shown, sweep.curves(sweep.read_sweep(run)))
    again = sweep.draw(sweep.SweepConfig(run, out=tmp_path / "elsewhere"))
    assert [path.read_bytes() for path in again] == before
    assert sweep.read_title(run) == ["tiny-qwen2-vl", "order 1", "setting multimodal"]


def damaged(change: Callable[[pd.DataFrame], pd.DataFrame]) -> pd.DataFrame:
    return change(full().copy())


def with_value(column: str, value: object) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda table: table.assign(**{column: value})


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        (lambda t: t.drop(columns=["low", "n"]), RunFolderError, "has no column low, n"),
        (with_value("alpha", "strong"), RunFolderError, "column alpha does not hold numbers"),
        (with_value("value", 57.0), RunFolderError, "value should be a share .* there is 57"),
        (with_value("k", np.nan), RunFolderError, "no k, no alpha or no n"),
        (with_value("split", "test"), ChoiceError, r"no row of split validation \(.*: test\)"),
        (lambda t: t.iloc[:0], ChoiceError, r"splits there: none"),
        (lambda t: t[t["k"] > 0], RunFolderError, r"no row without steering \(k = 0\)"),
        (lambda t: t[t["k"] == 0], RunFolderError, "no row with steering"),
        (
            lambda t: pd.concat([t, t[t["alpha"] == 5.0].head(1)]),
            RunFolderError,
            "more than one row for direction logistic, heads probe, k 4, alpha 5.0, measure TB",
        ),
        (
            lambda t: t[~((t["k"] == 8) & (t["alpha"] == 5.0) & (t["measure"] == "FB"))],
            RunFolderError,
            "has no FB for direction logistic, k 8, alpha 5",
        ),
    ],
)
def test_a_table_that_no_sweep_wrote_is_refused(folder, change, kind, said) -> None:
    run = folder(damaged(change))
    with pytest.raises(kind, match=said) as raised:
        sweep.draw(sweep.SweepConfig(run))
    assert "sweep.parquet" in str(raised.value)
    assert not (run / "figures").exists()


def test_files_that_are_missing_or_damaged_are_named(folder, tmp_path) -> None:
    with pytest.raises(MissingRunFileError, match="no sweep folder at .*sally-anne sweep"):
        sweep.read_sweep(tmp_path / "none")
    run = folder(full(), {})
    path = run / "sweep.parquet"
    whole = path.read_bytes()
    for broken in (b"", b"not parquet", whole[: len(whole) // 2], whole[:-9] + b"\0" * 9):
        path.write_bytes(broken)
        with pytest.raises(RunFolderError, match="sweep.parquet is damaged"):
            sweep.read_sweep(run)
    path.unlink()
    with pytest.raises(MissingRunFileError, match="sweep.parquet is missing; .*sally-anne sweep"):
        sweep.read_sweep(run)
    for text in ("{", "[]", '{"config": 1}'):
        (run / "results.json").write_text(text)
        with pytest.raises(FigureError, match="results.json"):
            sweep.read_title(run)
    assert sweep.read_title(tmp_path) == []


def test_the_command_is_light_and_fails_in_one_line(tmp_path) -> None:
    code = (
        "import sys; sys.argv = ['x', '--help']\nimport figures.sweep as m\n"
        "try: m.main()\n"
        "except SystemExit as end: assert end.code == 0\n"
        "heavy = {'torch', 'matplotlib', 'seaborn'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    env = {**os.environ, "COLUMNS": "100"}
    settings = {"capture_output": True, "text": True, "env": env, "check": False}
    done = subprocess.run([sys.executable, "-c", code], **settings)
    assert done.returncode == 0, done.stderr
    assert "usage: sally-anne sweep-figure " in done.stdout and "sally-anne sweep`" in done.stdout
    done = subprocess.run(
        [sys.executable, "-m", "sally_anne.figures.sweep", str(tmp_path)], **settings
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"error: {tmp_path / 'sweep.parquet'} is missing; `sally-anne sweep` makes it\n"
    )
