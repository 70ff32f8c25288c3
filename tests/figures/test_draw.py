"""``sally-anne figures`` and ``table``: what a run holds, as pictures, CSV, LaTeX or Markdown."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sally_anne.cli import main
from sally_anne.core import run as choose
from sally_anne.core.files import write_json
from sally_anne.core.hub import short_name
from sally_anne.core.run import Head
from sally_anne.figures import comparison, style
from sally_anne.figures.draw import extremes, table_of, title_of

pytestmark = pytest.mark.integration

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
    results = {"robust": {"overall": SHARE, "groups": {"type": {"belief": SHARE}}}}
    write_json(tmp_path / "answers" / "results.json", {"config": {}, "results": results})
    assert table_of(tmp_path / "answers").to_dict("records") == [
        {"parser": "robust", "part": part, "measure": "overall", **SHARE}
        for part in ("", "type: belief")
    ]
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
