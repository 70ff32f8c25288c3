"""The figure of patching shows the scan's columns, and names what heads were measured to be."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sally_anne.core.head import Head
from sally_anne.figures import patching, style
from sally_anne.figures.config import FiguresConfig
from sally_anne.figures.draw import draw

pytestmark = pytest.mark.integration


def scanned(heads: pd.DataFrame) -> pd.DataFrame:
    """L4H3 is readable (planted); L4H3 and L1H2 are used."""
    place = heads["layer"] * 10 + heads["head"]
    effect = np.select([place == 43, place == 12], [0.6, 0.3], 0.0)
    return heads.assign(
        y_p_threshold=0.8,
        y_p_p_fwer=np.where(place == 43, 0.001, 0.6),
        question_conclusion="as the scan says",
        question_effect=effect,
        question_effect_low=effect - 0.1,
        question_effect_high=effect + 0.1,
    )


def test_the_table_says_what_each_head_is(run) -> None:
    table = patching.patching_table(scanned(run.heads), "y_p").set_index(["layer", "head"])
    assert table.loc[(4, 3), "conclusion"] == "readable and used"
    assert table.loc[(1, 2), "conclusion"] == "used, not readable"
    assert (table["conclusion"] == "neither readable nor used").sum() == len(table) - 2
    numbers = table.loc[(4, 3), ["effect", "low", "high"]].astype(float)
    np.testing.assert_array_equal(numbers, [0.6, 0.5, 0.7])
    heads = scanned(run.heads).assign(question_effect_low=-0.1)
    table = patching.patching_table(heads, "y_p").set_index(["layer", "head"])
    assert table.loc[(4, 3), "conclusion"] == "readable, not used"
    # Where the pair accuracy is too low, the scan says nothing of heads.
    untested = patching.patching_table(heads.assign(question_conclusion=""), "y_p")
    assert set(untested["conclusion"]) == {patching.UNTESTED}


def test_points_lines_and_names(run) -> None:
    table = patching.patching_table(scanned(run.heads), "y_p")
    with style.look():
        figure = patching.patching_figure(table, "y_p", Head(4, 3), ["model"])
        figure.draw_without_rendering()
    cells, scatter = figure.axes[:2]
    texts = {text.get_position(): text.get_text() for text in cells.texts}
    assert (texts[3.5, 4.5], texts[2.5, 1.5], texts[0.5, 0.5]) == (".60", ".30", "0")
    (ring,) = cells.lines
    assert ring.get_xydata().tolist() == [[3.5, 4.5]]
    points = scatter.collections[1].get_offsets()
    np.testing.assert_allclose(points, table[["accuracy", "effect"]])
    assert {"L4H3", "L1H2"} <= {text.get_text() for text in scatter.texts}
    assert scatter.lines[0].get_xdata()[0] == 0.8
    assert scatter.lines[1].get_ydata()[0] == pytest.approx(1 / len(table))
    bars = scatter.collections[0].get_segments()
    np.testing.assert_allclose([bar[:, 1] for bar in bars], table[["low", "high"]])


def test_it_is_among_all_figures_of_a_run_that_was_scanned(run, saved) -> None:
    assert "patching" not in {path.stem for path in draw(FiguresConfig(run.folder))}
    heads = scanned(run.heads)
    heads.to_parquet(run.folder / "heads.parquet")
    (numbers,) = [p for p in draw(FiguresConfig(run.folder)) if p.name == "patching.parquet"]
    expected = patching.patching_table(heads, "y_p").reset_index(drop=True)
    pd.testing.assert_frame_equal(pd.read_parquet(numbers), expected)
