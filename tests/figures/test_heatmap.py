"""The heatmap shows the head table's numbers, in the right cells, on one scale."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sally_anne.core.errors import RunFolderError
from sally_anne.figures import heatmap, style
from sally_anne.figures.choose import best

pytestmark = pytest.mark.integration

TITLE = ["model", "order 1"]


def table_of(
    cells: np.ndarray, label: str = "y_p", threshold: float = np.nan, chance: float = 0.5
) -> pd.DataFrame:
    layer, head = np.indices(cells.shape)
    table = pd.DataFrame({"label": label, "layer": layer.ravel(), "head": head.ravel()})
    table["accuracy"] = cells.ravel()
    table["best"] = table["accuracy"] == table["accuracy"].max()
    table["threshold"] = threshold
    table["above"] = table["accuracy"] > threshold
    table["chance"] = chance
    return table


def figure_of(table: pd.DataFrame):
    with style.look():
        figure = heatmap.heatmap_figure(table, "validation", 40, TITLE)
        figure.draw_without_rendering()
    return figure


def test_the_saved_numbers_are_those_of_the_head_table(run, numbers_only) -> None:
    png, pdf, numbers = heatmap.draw(heatmap.HeatmapConfig(run.folder))
    assert {p.parent for p in (png, pdf, numbers)} == {run.folder / "figures"}
    table = pd.read_parquet(numbers)
    named = ["label", "layer", "head", "accuracy", "best", "threshold", "above", "chance"]
    assert list(table.columns) == named
    assert set(table["chance"]) == {0.5} and not table["above"].any()
    assert len(table) == 2 * 6 * 8
    for label in ("y_p", "y_o"):
        rows = table[table["label"] == label]
        np.testing.assert_array_equal(rows["accuracy"], run.heads[f"{label}_validation_accuracy"])
        ringed = rows[rows["best"]]
        assert len(ringed) == 1
        assert tuple(ringed[["layer", "head"]].iloc[0]) == best(run.heads, label)
    assert tuple(table[table["best"]].iloc[0][["layer", "head"]]) == (4, 3)  # planted


def test_another_split_shows_its_numbers_and_the_ring_stays_with_validation(
    run, numbers_only
) -> None:
    heads = run.heads.copy()
    heads["y_p_test_accuracy"] = 0.5
    heads.loc[0, "y_p_test_accuracy"] = 1.0  # best on test, not on validation
    heads.to_parquet(run.folder / "heads.parquet")
    config = heatmap.HeatmapConfig(run.folder, split="test", label="y_p")
    paths = heatmap.draw(config)
    assert paths[0].name == "heatmap_y_p_test.png"
    table = pd.read_parquet(paths[2])
    assert set(table["label"]) == {"y_p"}
    assert table.loc[0, "accuracy"] == 1.0
    assert tuple(table[table["best"]].iloc[0][["layer", "head"]]) == best(run.heads, "y_p")


def test_rows_in_any_order_give_the_same_table(run) -> None:
    shuffled = run.heads.sample(frac=1.0, random_state=0)
    pd.testing.assert_frame_equal(
        heatmap.accuracy_table(shuffled, ["y_p", "y_o"], "validation"),
        heatmap.accuracy_table(run.heads, ["y_p", "y_o"], "validation"),
    )


def test_the_picture_is_labelled_and_layer_0_is_at_the_top() -> None:
    cells = np.linspace(0.42, 0.98, 48).reshape(6, 8)
    table = pd.concat([table_of(cells, "y_p"), table_of(cells[::-1], "y_o")])
    figure = figure_of(table)
    left, right = figure.axes[:2]
    assert left.get_ylabel() == "layer (0 at the top)"
    assert left.get_xlabel() == right.get_xlabel() == "head"
    assert list(left.get_xticks()) == list(range(8))
    assert list(left.get_yticks()) == list(range(6))
    bottom, top = left.get_ylim()
    assert (bottom, top) == (5.5, -0.5)
    assert left.get_title() == "$Y_p$ (protagonist)\nbest: L5H7 (0.98)"
    assert right.get_title() == "$Y_o$ (omniscient)\nbest: L0H7 (0.98)"
    assert figure.get_suptitle() == "model  ·  order 1"


def test_on_test_samples_the_title_says_where_the_best_head_comes_from() -> None:
    with style.look():
        figure = heatmap.heatmap_figure(table_of(np.eye(3)), "test", 40, TITLE)
    title = figure.axes[0].get_title()
    assert title == "$Y_p$ (protagonist)\nbest on validation:\nlayer 0, head 0 (1.00)"


def test_cells_ring_and_numbers_sit_where_they_belong() -> None:
    cells = np.full((3, 4), 0.5)
    cells[2, 1] = 0.93
    panel = figure_of(table_of(cells)).axes[0]
    np.testing.assert_array_equal(panel.collections[0].get_array(), cells)
    (ring,) = panel.lines
    assert (ring.get_xdata()[0], ring.get_ydata()[0]) == (1, 2)
    written = {text.get_position(): text.get_text() for text in panel.texts}
    assert written[(1, 2)] == ".93"
    assert written[(2, 1)] == ".50"
    assert len(written) == 12


def test_both_panels_share_one_scale_that_parts_at_chance() -> None:
    table = pd.concat(
        [table_of(np.full((2, 2), 0.9), "y_p"), table_of(np.full((2, 2), 0.34), "y_o")]
    )
    figure = figure_of(table)
    left, right, *_, bar = figure.axes
    assert left.collections[0].get_clim() == right.collections[0].get_clim() == (0.0, 1.0)
    above, below = (panel.collections[0].get_facecolor()[0] for panel in (left, right))
    assert above[2] > above[0] and below[0] > below[2]  # purple, and orange
    assert bar.get_ylabel() == "validation accuracy\n(N = 40 samples)"
    words = [text.get_text() for text in bar.get_yticklabels()]
    assert words == [*(f"{n / 10:.1f}" for n in range(11) if n != 5), "0.5 chance"]
    assert any(list(line.get_ydata()) == [0.5, 0.5] for line in bar.lines)


@pytest.mark.parametrize(
    ("worst", "chance", "ends"),
    [(0.7, 0.5, (0.0, 1.0)), (0.3, 0.5, (0.0, 1.0)), (0.1, 0.25, (-0.5, 1.0)), (0, 0.6, (0, 1.2))],
)
def test_the_scale_reaches_as_far_below_chance_as_above(worst, chance, ends) -> None:
    limits = heatmap.colour_limits(pd.DataFrame({"accuracy": [worst, 1.0], "chance": chance}))
    assert limits == pytest.approx(ends)


def test_labels_of_other_chances_have_scales_of_their_own() -> None:
    cells = np.array([[0.5, 0.125], [0.9, 0.06]])
    tables = [table_of(cells, "fits"), table_of(cells, "room", chance=0.125)]
    figure = figure_of(pd.concat(tables))
    assert len(figure.axes) == 6
    fits, room, *_, first, second = figure.axes
    white = fits.collections[0].get_facecolor()[0]
    np.testing.assert_allclose(room.collections[0].get_facecolor()[1], white)
    assert second.get_ylim() == (0.0, 1.0)
    assert "0.12 chance" in [text.get_text() for text in second.get_yticklabels()]
    assert "0.5 chance" in [text.get_text() for text in first.get_yticklabels()]


def test_chance_is_what_the_most_frequent_class_of_train_gives() -> None:
    samples = pd.DataFrame({"split": ["train"] * 5 + ["test"] * 4, "room": list("aabcb" + "abbc")})
    samples.loc[0, "room"] = "b"
    shown = (samples["split"] == "test").to_numpy()
    assert heatmap.chance_of(samples, "room", shown) == 0.5
    assert heatmap.chance_of(samples, "room", ~shown) == 0.6


@pytest.mark.parametrize("size", [28, 32, 80])
def test_a_large_model_gets_few_ticks_and_no_numbers(size) -> None:
    figure = figure_of(table_of(np.random.default_rng(0).uniform(0.4, 1.0, (size, size))))
    panel = figure.axes[0]
    assert len(panel.texts) == 0
    assert 6 <= len(panel.get_xticks()) <= heatmap.TICKS_UP_TO
    assert panel.get_xticks()[1] % 4 == 0
    boxes = [text.get_window_extent() for text in panel.get_xticklabels()]
    assert all(a.x1 < b.x0 for a, b in zip(boxes, boxes[1:], strict=False))


@pytest.mark.parametrize("shape", [(1, 1), (2, 12), (6, 8), (28, 28), (32, 32), (40, 10)])
@pytest.mark.parametrize("labels", [["y_p"], ["y_p", "y_o"]])
def test_nothing_is_cut_and_panels_do_not_overlap(shape, labels) -> None:
    cells = np.random.default_rng(0).uniform(0.4, 1.0, shape)
    with style.look():
        figure = heatmap.heatmap_figure(
            pd.concat([table_of(cells, label) for label in labels]),
            "validation",
            2000,
            ["llava-hf/LLaVA-NeXT-Video-7B-hf", "order 2", "contrast matched", "site head_out"],
        )
        figure.draw_without_rendering()
        boxes = [axis.get_tightbbox() for axis in figure.axes]
    for box in [*boxes, figure._suptitle.get_window_extent()]:
        assert box.x0 >= -1 and box.y0 >= -1
        assert box.x1 <= figure.bbox.x1 + 1 and box.y1 <= figure.bbox.y1 + 1
    assert len(boxes) == 2 * len(labels) + 1
    boxes.sort(key=lambda box: box.x0)
    assert all(a.x1 <= b.x0 + 1 for a, b in zip(boxes, boxes[1:], strict=False))
    assert boxes[0].y1 <= figure._suptitle.get_window_extent().y0 + 1


def test_a_head_that_was_not_probed_is_grey(run) -> None:
    heads = run.heads.drop(index=5)
    table = heatmap.accuracy_table(heads, ["y_p"], "validation")
    cells = heatmap.grid(table, "y_p")
    assert np.isnan(cells[0, 5]) and np.isfinite(cells).sum() == 47
    panel = figure_of(table).axes[0]
    assert panel.collections[0].get_array().mask.sum() == 1
    assert panel.get_facecolor() == pytest.approx((0.741, 0.741, 0.741, 1), abs=0.001)


def test_a_missing_or_empty_column_is_named(run) -> None:
    with pytest.raises(RunFolderError, match="no column y_o_test_accuracy"):
        heatmap.accuracy_table(run.heads.drop(columns="y_o_test_accuracy"), ["y_o"], "test")
    with pytest.raises(RunFolderError, match="y_p_test_accuracy is empty"):
        heatmap.accuracy_table(run.heads.assign(y_p_test_accuracy=np.nan), ["y_p"], "test")


def sides_of(panel) -> set[frozenset[tuple[float, float]]]:
    """Ends of the lines drawn round cells."""
    return {frozenset(map(tuple, side)) for side in panel.collections[1].get_segments()}


def test_heads_above_the_null_are_outlined_and_it_is_written_beside() -> None:
    table = table_of(np.array([[0.5, 0.7], [0.71, 1.0]]), threshold=0.7)
    figure = figure_of(table)
    corners = [(-0.5, 0.5), (0.5, 0.5), (1.5, 0.5), (1.5, 1.5), (0.5, 1.5), (-0.5, 1.5)]
    # The two cells of the lower row have no line between them.
    wanted = {frozenset(pair) for pair in zip(corners, [*corners[1:], corners[0]], strict=True)}
    assert sides_of(figure.axes[0]) == wanted
    assert figure.axes[1].get_title() == "null .70"
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert words[1] == "above the null of permuted labels" and words[-1] == "null"
    without = figure_of(table_of(np.eye(2)))
    assert not sides_of(without.axes[0]) and not without.axes[1].get_title()
    assert not any("null" in text.get_text() for text in without.legends[0].get_texts())


def test_on_test_samples_heads_are_outlined_that_validation_found(run, numbers_only) -> None:
    heads = run.heads.assign(y_p_threshold=0.8)
    above = heads["y_p_validation_accuracy"] > 0.8
    assert 0 < above.sum() < len(heads)
    table = heatmap.accuracy_table(heads, ["y_p"], "test")
    np.testing.assert_array_equal(table["above"], above)
    with style.look():
        figure = heatmap.heatmap_figure(table, "test", 40, TITLE)
    assert sides_of(figure.axes[0]) and not figure.axes[1].get_title()
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert words[1] == "on validation above the null of permuted labels"


def test_beside_each_panel_stand_best_mean_and_null_of_each_layer() -> None:
    cells = np.array([[0.5, 0.7, 0.6], [0.9, 0.5, 0.4]])
    tables = [table_of(cells, "y_p", 0.65), table_of(cells[::-1], "y_o")]
    first, second = figure_of(pd.concat(tables)).axes[2:4]
    chance, null, mean, best_of = first.lines
    assert (chance.get_xdata()[0], null.get_xdata()[0]) == (0.5, 0.65)
    np.testing.assert_allclose(mean.get_xdata(), [0.6, 0.6])
    np.testing.assert_array_equal(best_of.get_xdata(), [0.7, 0.9])
    assert list(best_of.get_ydata()) == [0, 1] and first.get_ylim() == (1.5, -0.5)
    # Without a null there is no line of it.
    assert len(second.lines) == 3
    np.testing.assert_array_equal(second.lines[-1].get_xdata(), [0.9, 0.7])
