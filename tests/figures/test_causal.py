"""The causal figure shows the columns of the scan, and calls heads what they were found to be."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sally_anne.core.errors import RunFolderError
from sally_anne.figures import causal, style
from sally_anne.figures.all import draw_all
from sally_anne.hooks.geometry import Head

pytestmark = pytest.mark.integration


def scanned(heads: pd.DataFrame) -> pd.DataFrame:
    """Head 4.3 is readable (planted); 4.3 and 1.2 are used."""
    heads = heads.copy()
    place = heads["layer"] * 10 + heads["head"]
    heads["y_p_threshold"], heads["y_p_p_family"] = 0.8, np.where(place == 43, 0.001, 0.6)
    heads["question_verdict"] = "as the scan found it"
    heads["question_patch"] = np.select([place == 43, place == 12], [0.6, 0.3], 0.0)
    heads["question_patch_low"] = heads["question_patch"] - 0.1
    heads["question_patch_high"] = heads["question_patch"] + 0.1
    return heads


def test_the_table_says_what_each_head_is(run) -> None:
    table = causal.causal_table(scanned(run.heads), "y_p").set_index(["layer", "head"])
    assert table.loc[(4, 3), "verdict"] == "readable and used"
    assert table.loc[(1, 2), "verdict"] == "used, not readable"
    assert (table["verdict"] == "neither readable nor used").sum() == len(table) - 2
    np.testing.assert_array_equal(
        table.loc[(4, 3), ["share", "low", "high"]].astype(float), [0.6, 0.5, 0.7]
    )
    heads = scanned(run.heads)
    heads["question_patch_low"] = -0.1
    table = causal.causal_table(heads, "y_p").set_index(["layer", "head"])
    assert table.loc[(4, 3), "verdict"] == "readable, not used"
    # Where the model does not tell the twins apart, the scan says nothing of heads.
    heads["question_verdict"] = ""
    assert set(causal.causal_table(heads, "y_p")["verdict"]) == {causal.UNSAID}


def test_drawn_and_saved_among_all_figures(run) -> None:
    heads = scanned(run.heads)
    heads.to_parquet(run.folder / "heads.parquet")
    paths = draw_all(run.folder)
    png, _, numbers = (path for path in paths if path.stem == "causal")
    assert png.stat().st_size > 10_000
    pd.testing.assert_frame_equal(
        pd.read_parquet(numbers), causal.causal_table(heads, "y_p").reset_index(drop=True)
    )


def test_points_lines_and_names(run) -> None:
    table = causal.causal_table(scanned(run.heads), "y_p")
    with style.look():
        figure = causal.causal_figure(table, "y_p", Head(4, 3), ["model"])
        figure.draw_without_rendering()
    cells, scatter = figure.axes[:2]
    assert {".60", ".30"} == {text.get_text() for text in cells.texts}
    points = scatter.collections[1].get_offsets()
    np.testing.assert_allclose(points, table[["accuracy", "share"]])
    assert {"4.3", "1.2"} <= {text.get_text() for text in scatter.texts}
    assert scatter.lines[0].get_xdata()[0] == 0.8
    assert scatter.lines[1].get_ydata()[0] == pytest.approx(1 / len(table))


def test_a_run_without_a_scan_says_what_makes_one(run) -> None:
    assert causal.kinds_of(run.heads) == []
    with pytest.raises(RunFolderError, match="sally-anne causal RUN.*question_patch"):
        causal.causal_table(run.heads, "y_p")
