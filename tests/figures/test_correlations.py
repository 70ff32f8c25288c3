"""The heatmap of correlations: its cells, its words, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from sally_anne.core.errors import ChoiceError, MissingRunFileError, RunFolderError
from sally_anne.data.mimeqa import CATEGORIES
from sally_anne.figures import correlations, style
from sally_anne.harness.correlations import category_correlations

pytestmark = pytest.mark.integration


def answers(films: int = 40, categories: tuple[str, ...] = CATEGORIES) -> pd.DataFrame:
    """Two questions a film and category; the first two categories go together, the last is flat."""
    rng = np.random.default_rng(0)
    rows = []
    for film in range(films):
        skill = rng.random()
        for place, category in enumerate(categories):
            chance = skill if place < 2 else 0.5
            for number in range(4):
                right = rng.random() < chance and place < len(categories) - 1
                rows.append(
                    {
                        "item_id": f"{film}/{category}/{number}",
                        "story": f"{film:04}",
                        "tag_category": category,
                        "tag_level": "scene" if place else "grounding",
                        "judge_correct": bool(right),
                        "judge_invalid": False,
                        "hidden": False,
                    }
                )
    return pd.DataFrame(rows)


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    def make(table: pd.DataFrame, saved: object = None) -> Path:
        table.to_parquet(tmp_path / "answers.parquet", index=False)
        if saved is not None:
            (tmp_path / "results.json").write_text(json.dumps(saved))
        return tmp_path

    return make


SAVED = {"config": {"model": "tiny-qwen2-vl", "task": "mimeqa", "view": None, "alpha": 2.0}}
SAVED |= {"about": {"view": "video", "window": "full"}}


def picture(table: pd.DataFrame, title: tuple[str, ...] = ("tiny",)):
    with style.look():
        figure = correlations.correlations_figure(category_correlations(table, "judge"), title)
        figure.draw_without_rendering()
    return figure


def texts(axis) -> dict[tuple[int, int], list]:
    found: dict[tuple[int, int], list] = {}
    for text in axis.texts:
        found.setdefault((round(text.get_position()[1]), round(text.get_position()[0])), []).append(
            text
        )
    return found


def test_draws_what_it_saves(folder) -> None:
    table = answers()
    run = folder(table, SAVED)
    paths = correlations.draw(correlations.CorrelationsConfig(run))
    assert [p.name for p in paths] == [f"correlations.{s}" for s in ("png", "pdf", "parquet")]
    assert paths[0].read_bytes()[:4] == b"\x89PNG" and paths[1].read_bytes()[:4] == b"%PDF"
    saved = pd.read_parquet(paths[2])
    pd.testing.assert_frame_equal(saved, category_correlations(table, "judge"))
    assert len(saved) == 21 and set(saved["n"]) == {40}
    first = [path.read_bytes() for path in paths]
    again = correlations.draw(correlations.CorrelationsConfig(run))
    assert [path.read_bytes() for path in again] == first


def test_cells_numbers_and_the_missing() -> None:
    table = answers()
    pairs = category_correlations(table, "judge")
    axis = picture(table).axes[0]
    assert [label.get_text() for label in axis.get_xticklabels()] == list(CATEGORIES[:-1])
    assert [label.get_text() for label in axis.get_yticklabels()] == list(CATEGORIES[1:])
    cells = axis.collections[0].get_array()
    assert int((~np.ma.getmaskarray(cells)).sum()) == 15  # 21 pairs, 6 of them with a flat category
    written = texts(axis)
    assert len(written) == 21
    for pair in pairs.itertuples(index=False):
        row, column = CATEGORIES.index(pair.second) - 1, CATEGORIES.index(pair.first)
        words = [text.get_text() for text in written[row, column]]
        assert words[-1] == "n = 40"
        if math.isnan(pair.correlation):
            assert len(words) == 1
            continue
        assert float(words[0].replace("−", "-")) == pytest.approx(pair.correlation, abs=0.0051)
        assert cells[row, column] == pair.correlation
        sure = pair.low > 0 or pair.high < 0
        assert (written[row, column][0].get_fontweight() == "bold") == sure
    assert written[0, 0][0].get_fontweight() == "bold"
    grey = [p for p in axis.patches if isinstance(p, Rectangle)]
    assert len(grey) == 6 and grey[0].get_facecolor()[:3] == to_rgb(style.MISSING)


def test_the_scale_is_symmetric_and_holds_all_cells() -> None:
    figure = picture(answers())
    mesh = figure.axes[0].collections[0]
    strongest = float(np.abs(mesh.get_array()).max())
    assert mesh.norm.vmin == -mesh.norm.vmax
    assert strongest <= mesh.norm.vmax < strongest + 0.1 + 1e-9
    flat = pd.DataFrame({"correlation": [math.nan]})
    assert correlations.limit_of(flat) == 0.3
    assert correlations.limit_of(flat.assign(correlation=[-1.0])) == 1.0
    assert correlations.limit_of(flat.assign(correlation=[0.4])) == 0.4


@pytest.mark.parametrize("count", [2, 3, 7, 14])
def test_nothing_is_cut_off_and_words_do_not_touch(count: int) -> None:
    categories = (
        CATEGORIES if count == 7 else tuple(f"a rather long kind {n}" for n in range(count))
    )
    figure = picture(answers(12, categories), ("tiny-qwen2-vl", "task mimeqa", "view video"))
    box = figure.bbox
    shown = [t for axis in figure.axes for t in (*axis.get_xticklabels(), *axis.get_yticklabels())]
    shown += [figure.axes[1].yaxis.label, figure._suptitle]
    shown += [figure._supxlabel] if figure._supxlabel else []
    for text in shown:
        place = text.get_window_extent()
        assert box.x0 <= place.x0 and place.x1 <= box.x1, text
        assert box.y0 <= place.y0 and place.y1 <= box.y1, text
    if count <= correlations.NUMBERS_UP_TO:
        for words in texts(figure.axes[0]).values():
            if len(words) == 2:
                above, below = (text.get_window_extent() for text in words)
                assert below.y1 <= above.y0
    else:
        assert not figure.axes[0].texts


def test_headings(folder) -> None:
    run = folder(answers(6), SAVED)
    assert correlations.read_title(run) == [
        *("tiny-qwen2-vl", "task mimeqa", "view video", "window full", "alpha 2.0")
    ]
    (run / "results.json").unlink()
    assert correlations.read_title(run) == []


def test_readers_and_tags(folder) -> None:
    table = answers(6).assign(robust_correct=True, robust_invalid=False)
    run = folder(table)
    assert correlations.choose_reader(table, None, run) == "judge"
    paths = correlations.draw(correlations.CorrelationsConfig(run, "robust", "level"))
    assert paths[0].name == "correlations_robust_level.png"
    assert len(pd.read_parquet(paths[2])) == 1


def test_the_command(folder, capsys: pytest.CaptureFixture[str]) -> None:
    run = folder(answers(6))
    correlations.main([str(run)])
    assert capsys.readouterr().out.splitlines()[0] == str(run / "figures" / "correlations.png")
    with pytest.raises(SystemExit, match=r"^error: .*not read by 'owl' \(readers: judge\)"):
        correlations.main([str(run), "--reader", "owl"])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda t: t.head(0), RunFolderError, "has no rows"),
        (lambda t: t.drop(columns="judge_correct"), ChoiceError, "nobody has read; run .* --judge"),
        (lambda t: t.drop(columns="tag_category"), ChoiceError, r"no tag 'category' \(tags: level"),
        (lambda t: t.drop(columns="story"), RunFolderError, "lack the column 'story'"),
        (lambda t: t.assign(hidden=True), RunFolderError, "no answer with a key"),
        (lambda t: t.assign(tag_category="x"), RunFolderError, "needs two values of category"),
    ],
)
def test_runs_that_cannot_be_drawn(folder, change, error, message: str) -> None:
    run = folder(change(answers(4)))
    with pytest.raises(error, match=message):
        correlations.draw(correlations.CorrelationsConfig(run))


def test_files_that_are_missing_or_damaged(tmp_path: Path, folder) -> None:
    with pytest.raises(MissingRunFileError, match="no run folder at"):
        correlations.read_answers(tmp_path / "none")
    with pytest.raises(MissingRunFileError, match="answers.parquet is missing"):
        correlations.read_answers(tmp_path)
    (tmp_path / "answers.parquet").write_bytes(b"PAR1")
    with pytest.raises(RunFolderError, match="damaged or another kind of file"):
        correlations.read_answers(tmp_path)
    for content in ("{", "[]", '{"config": 3}', "[" * 100_000):
        (tmp_path / "results.json").write_text(content)
        with pytest.raises(RunFolderError, match="results.json"):
            correlations.read_title(tmp_path)
