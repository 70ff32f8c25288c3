"""Maps of heads show the table's numbers, in the right cells; colours part at chance."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sally_anne.cli import main
from sally_anne.core import run as choose
from sally_anne.core.errors import FigureError, RunFolderError
from sally_anne.core.files import write_json
from sally_anne.core.hub import short_name
from sally_anne.core.run import Head
from sally_anne.figures import comparison, heatmap, style
from sally_anne.figures.config import FiguresConfig
from sally_anne.figures.draw import draw, extremes, table_of, title_of

pytestmark = pytest.mark.integration


def made_table(
    cells: np.ndarray, label: str = "y_p", threshold: float = np.nan, chance: float = 0.5
) -> pd.DataFrame:
    layer, head = np.indices(cells.shape)
    table = pd.DataFrame({"label": label, "layer": layer.ravel(), "head": head.ravel()})
    table["accuracy"] = cells.ravel()
    table["best"] = table["accuracy"] == table["accuracy"].max()
    table["threshold"] = threshold
    table["above"] = table["accuracy"] > threshold
    return table.assign(chance=chance)


def figure_of(*tables: pd.DataFrame, split: str = "validation"):
    with style.look():
        figure = heatmap.heatmap_figure(pd.concat(tables), split, 40, ["model", "order 1"])
        figure.draw_without_rendering()
    return figure


@pytest.mark.parametrize(("split", "sides"), [("validation", (0.96, 0.51)), ("test", (0.93, 0.54))])
def test_the_heatmap_shows_the_planted_accuracies(planted, saved, split, sides) -> None:
    draw(FiguresConfig(planted, kind=("heatmap",), split=split))
    (figure,) = saved
    panels = [axis for axis in figure.axes if "best" in axis.get_title()]
    for panel, shift in zip(panels, (0.0, 0.03), strict=True):
        cells = [value + shift for value in sides]
        np.testing.assert_allclose(panel.collections[0].get_array().reshape(1, 2), [cells])
        texts = {text.get_position(): text.get_text() for text in panel.texts}
        expected = {(h + 0.5, 0.5): f"{v:.2f}" for h, v in enumerate(cells)}
        assert texts == expected
        (ring,) = panel.lines
        assert ring.get_xydata().tolist() == [[0.5, 0.5]]
        assert f"L0H0 ({cells[0]:.2f})" in panel.get_title()


def test_layer_0_is_at_the_top_and_colours_part_at_chance() -> None:
    cells = np.linspace(0.42, 0.98, 48).reshape(6, 8)
    figure = figure_of(made_table(cells), made_table(np.full((6, 8), 0.34), "y_o"))
    left, right, bar, _ = figure.axes
    assert left.get_ylim() == (6.0, 0.0)
    assert left.collections[0].get_clim() == right.collections[0].get_clim() == (0.0, 1.0)
    above, below = left.collections[0].get_facecolor()[-1], right.collections[0].get_facecolor()[0]
    assert above[2] > above[0] and below[0] > below[2]  # purple, and orange
    words = [text.get_text() for text in bar.get_yticklabels()]
    assert words == ["0", "0.5 chance", "1"]


def test_heads_above_the_null_have_a_dot() -> None:
    figure = figure_of(made_table(np.array([[0.5, 0.7], [0.71, 1.0]]), threshold=0.7))
    places = figure.axes[0].collections[1].get_offsets()
    assert np.floor(places).tolist() == [[0, 1], [1, 1]]
    assert not len(figure_of(made_table(np.eye(2))).axes[0].collections[1].get_offsets())


def test_a_large_model_has_no_numbers_and_a_missing_head_is_grey() -> None:
    large = figure_of(made_table(np.random.default_rng(0).uniform(0.4, 1.0, (80, 28)))).axes[0]
    assert not large.texts and len(large.get_yticks()) <= 12
    panel = figure_of(made_table(np.full((2, 3), 0.6)).drop(index=4)).axes[0]
    assert panel.collections[0].get_array().mask.sum() == 1
    assert panel.get_facecolor() == pytest.approx((0.741, 0.741, 0.741, 1), abs=0.001)


def test_a_heatmap_of_one_condition_shows_its_accuracy(run, saved) -> None:
    heads = run.heads.assign(y_p_validation_FB=np.linspace(0, 1, len(run.heads)))
    heads.to_parquet(run.folder / "heads.parquet")
    config = FiguresConfig(run.folder, kind=("heatmap",), label="y_p", split="validation")
    draw(replace(config, condition="FB"))
    shown = saved[0].axes[0].collections[0].get_array()
    np.testing.assert_allclose(shown.ravel(), heads["y_p_validation_FB"])
    with pytest.raises(FigureError, match="FB"):
        draw(replace(config, condition="auc"))


def test_a_missing_or_empty_column_is_refused(run) -> None:
    for heads in (
        run.heads.drop(columns="y_o_test_accuracy"),
        run.heads.assign(y_o_test_accuracy=np.nan),
    ):
        with pytest.raises(RunFolderError, match="y_o_test_accuracy"):
            heatmap.accuracy_table(heads, ["y_o"], "test")


def scanned(heads: pd.DataFrame) -> pd.DataFrame:
    """L4H3 is readable (planted); L4H3 and L1H2 are used, L0H1 is used against."""
    place = heads["layer"] * 10 + heads["head"]
    effect = np.select([place == 43, place == 12, place == 1], [0.6, 0.3, -0.4], 0.0)
    return heads.assign(
        y_p_threshold=0.8,
        y_p_p_fwer=np.where(place == 43, 0.001, 0.6),
        question_conclusion="as the scan says",
        question_used=np.select([effect > 0, effect < 0], ["used", "used against"], "not used"),
        question_against_below=-0.05,
        question_used_above=0.15,
        question_effect=effect,
        question_effect_low=effect - 0.1,
        question_effect_high=effect + 0.1,
    )


def test_the_table_says_what_each_head_is(run) -> None:
    table = heatmap.patching_table(scanned(run.heads), "y_p").set_index(["layer", "head"])
    assert table.loc[(4, 3), "conclusion"] == "readable and used"
    assert table.loc[(1, 2), "conclusion"] == "used, not readable"
    assert table.loc[(0, 1), "conclusion"] == "used against, not readable"
    assert (table["conclusion"] == "neither readable nor used").sum() == len(table) - 3
    numbers = table.loc[(4, 3), ["effect", "low", "high"]].astype(float)
    np.testing.assert_array_equal(numbers, [0.6, 0.5, 0.7])
    heads = scanned(run.heads).assign(question_used="not used")
    table = heatmap.patching_table(heads, "y_p").set_index(["layer", "head"])
    assert table.loc[(4, 3), "conclusion"] == "readable, not used"
    # Where the pair accuracy is too low, the scan says nothing of heads.
    untested = heatmap.patching_table(heads.assign(question_used=""), "y_p")
    assert set(untested["conclusion"]) == {heatmap.UNTESTED}


def test_points_lines_and_names(run) -> None:
    table = heatmap.patching_table(scanned(run.heads), "y_p")
    with style.look():
        figure = heatmap.patching_figure(table, "y_p", Head(4, 3), ["model"], str.title)
        figure.draw_without_rendering()
    cells, scatter = figure.axes[:2]
    texts = {text.get_position(): text.get_text() for text in cells.texts}
    assert (texts[3.5, 4.5], texts[2.5, 1.5], texts[0.5, 0.5]) == ("0.60", "0.30", "0.00")
    (ring,) = cells.lines
    assert ring.get_xydata().tolist() == [[3.5, 4.5]]
    # What is named stays in the frame.
    frame = scatter.get_window_extent()
    assert all(frame.contains(*text.get_window_extent().max) for text in scatter.texts)
    assert cells.get_title().startswith("effect on the Question")
    points = scatter.collections[1].get_offsets()
    np.testing.assert_allclose(points, table[["accuracy", "effect"]])
    assert {"L4H3", "L1H2", "L0H1"} == {text.get_text() for text in scatter.texts}
    assert scatter.lines[0].get_xdata()[0] == 0.8
    assert [line.get_ydata()[0] for line in scatter.lines[1:]] == [0.15, -0.05]
    bars = scatter.collections[0].get_segments()
    np.testing.assert_allclose([bar[:, 1] for bar in bars], table[["low", "high"]])


def test_it_is_drawn_of_a_run_that_was_scanned(run, saved) -> None:
    with pytest.raises(FigureError):
        draw(FiguresConfig(run.folder, kind=("patching",)))
    heads = scanned(run.heads)
    heads.to_parquet(run.folder / "heads.parquet")
    *_, numbers = draw(FiguresConfig(run.folder, kind=("patching",)))
    expected = heatmap.patching_table(heads, "y_p").reset_index(drop=True)
    pd.testing.assert_frame_equal(pd.read_parquet(numbers), expected)


SHARE = {"value": 0.5, "low": 0.25, "high": 0.75, "n": 8}


def printed(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    capsys.readouterr()
    main([*map(str, words)])
    return capsys.readouterr().out


def test_all_figures_of_a_run_are_drawn_and_repeat_to_the_byte(run, capsys) -> None:
    lines = printed(capsys, "figures", run.folder).splitlines()
    stems = ["heatmap", "heatmap_test", "kde", "kde_y_o", "clusters"]
    expected = [f"{stem}.{kind}" for stem in stems for kind in ("png", "pdf", "parquet")]
    assert [Path(line).name for line in lines] == expected
    assert all(Path(line).parent == run.folder / "figures" for line in lines)
    words = ("--kind", "clusters", "--out", run.folder / "again")
    for line in printed(capsys, "figures", run.folder, *words).splitlines():
        assert Path(line).read_bytes() == (run.folder / "figures" / Path(line).name).read_bytes()
    with pytest.raises(SystemExit, match="patching"):
        main(["figures", str(run.folder), "--kind", "patching"])


def test_titles_name_a_model_shortly_and_say_of_other_tasks_what_they_have() -> None:
    config = {"model": "/home/me/llama/model.gguf", "order": 1, "setting": "multimodal"}
    assert title_of({"config": config}) == ["llama", "order 1", "setting multimodal"]
    own = config | {"model": "/home/me/llama/", "task": "/home/me/film.jsonl", "view": "full"}
    assert title_of({"config": own}) == ["llama", "task film.jsonl", "view full"]
    assert short_name("owner/name") == "owner/name"


def test_heads_are_chosen_by_validation_accuracy_alone() -> None:
    heads = pd.DataFrame({"layer": [0, 0, 1, 1], "head": [0, 1, 0, 1]})
    heads["y_p_validation_accuracy"] = [0.9, 0.7, 0.5, 0.6]
    heads["y_o_validation_accuracy"] = [0.5, 0.7, 0.5, 0.6]
    heads["y_p_rank"] = [1, 2, 4, 3]
    labels = ("y_p", "y_o")
    assert choose.best(heads, "y_p") == Head(0, 0)
    assert extremes(heads, labels, lambda head: True) == (Head(0, 1), Head(1, 0))
    # A probe that stayed at zero has no boundary to show.
    chosen = extremes(heads, labels, lambda head: head != Head(1, 0))
    assert chosen == (Head(0, 1), Head(1, 1))


def test_a_table_has_all_digits_as_csv_and_some_in_words(run, capsys) -> None:
    csv = pd.read_csv(io.StringIO(printed(capsys, "table", run.folder, "--format", "csv")))
    ranked = run.heads.sort_values("y_p_rank").reset_index(drop=True)
    pd.testing.assert_frame_equal(csv, ranked, check_exact=True)
    columns = ("--columns", "layer", "head", "y_p_test_accuracy", "--rows", "2")
    top = ranked.iloc[0]
    cells = [f"{top['layer']:.0f}", f"{top['head']:.0f}", f"{top['y_p_test_accuracy']:.3f}"]
    lines = printed(capsys, "table", run.folder, *columns).splitlines()
    assert [cell.strip() for cell in lines[2].strip("|").split("|")] == cells and len(lines) == 4
    latex = printed(capsys, "table", run.folder, *columns, "--format", "latex")
    assert rf"{' & '.join(cells)} \\" in latex


def test_tables_of_other_runs(tmp_path: Path) -> None:
    points = pd.DataFrame({"k": [4, 8], "alpha": [0.5, -1.0], "value": [0.25, 1 / 3]})
    (tmp_path / "sweep").mkdir()
    points.to_parquet(tmp_path / "sweep" / "sweep.parquet")
    pd.testing.assert_frame_equal(table_of(tmp_path / "sweep"), points)
    (tmp_path / "answers").mkdir()
    pd.DataFrame({"item_id": ["a"]}).to_parquet(tmp_path / "answers" / "answers.parquet")
    rows = [
        {"parser": "robust", "part": part, "measure": "overall", **SHARE}
        for part in ("", "type: belief")
    ]
    write_json(tmp_path / "answers" / "results.json", {"config": {}, "results": rows})
    assert table_of(tmp_path / "answers").to_dict("records") == rows
    row = {"order": 1, "method": "baseline", "TB": SHARE}
    (tmp_path / "table1").mkdir()
    write_json(tmp_path / "table1" / "results.json", {"config": {}, "rows": [row]})
    (one,) = table_of(tmp_path / "table1").to_dict("records")
    assert one["method"] == "baseline" and one["TB.value"] == 0.5 and one["TB.n"] == 8


def compared(run: str, items: str, first: float, second: float) -> dict:
    row = {"parser": "robust", "measure": "overall", "items": items, "run": run, "n": 40}
    row |= {"against": "plain"}
    for name, value in (("first", first), ("second", second), ("difference", second - first)):
        row |= {name: value, f"{name}_low": value - 0.1, f"{name}_high": value + 0.1}
    return row


def test_a_comparison_shows_shares_and_paired_differences() -> None:
    table = pd.DataFrame(
        [
            compared("a", "all", 0.5, 0.8),
            compared("b", "all", 0.5, 0.55),
            compared("a", "x", 0.4, 0.4),
        ]
    )
    parser, points = comparison.comparison_points(table)
    assert parser == "robust" and list(points["run"]) == ["plain", "a", "b", "plain", "a"]
    with style.look():
        figure = comparison.comparison_figure(points, ["moments"])
        figure.draw_without_rendering()
    right, gain = figure.axes
    dots = [c for c in gain.collections if type(c).__name__ == "PathCollection"]
    np.testing.assert_allclose(dots[0].get_offsets()[:, 0], [30.0, 0.0], atol=1e-9)
    # Filled where the interval leaves out zero.
    assert [tuple(face[:3]) == (1, 1, 1) for face in dots[0].get_facecolor()] == [False, True]
    assert tuple(dots[1].get_facecolor()[0][:3]) == (1, 1, 1)
    (bars, *_) = [c for c in right.collections if type(c).__name__ == "LineCollection"]
    np.testing.assert_allclose(bars.get_segments()[0][:, 0], [40.0, 60.0])
    assert [text.get_text() for text in right.get_yticklabels()] == ["all (40)", "x (40)"]
