"""``sally-anne compare``: what it prints, saves and draws, which is the same."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sally_anne.cli import main
from sally_anne.core.console import Console
from sally_anne.core.errors import FolderError
from sally_anne.figures import comparison, style
from sally_anne.harness.compare.command import CompareConfig, work
from sally_anne.harness.compare.paired import part_name
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.pipeline import run as evaluate
from sally_anne.models.loading import load_model
from tests.made_evaluations import answers, evaluation

pytestmark = pytest.mark.integration

BEFORE = [0, 0, 0, 0, 1, 1] + [1, 1, 1, 0, 0, None]
AFTER = [1, 1, 1, 1, 1, 1] + [0, 1, 1, 0, 0, 0]


def two(folder: Path) -> tuple[Path, Path]:
    full = {"view": "multimodal", "window": "full"}
    return (
        evaluation(folder / "a", answers(BEFORE), full),
        evaluation(folder / "b", answers(AFTER), full | {"window": "focused"}),
    )


def compared(folder: Path, *runs: Path, width: int = 120) -> tuple[pd.DataFrame, list[str]]:
    console = Console(file=io.StringIO(), width=width)
    table = work(CompareConfig(runs, out=folder), console)
    said = console.file.getvalue()  # type: ignore[attr-defined]
    return table, [" ".join(line.split()) for line in said.splitlines()]


def test_the_command_ends_with_its_page(tmp_path: Path, capsys) -> None:
    out = tmp_path / "out"
    main(["compare", *map(str, two(tmp_path)), "--out", str(out)])
    assert capsys.readouterr().out.splitlines()[-1] == f"report: {out / 'report.html'}"
    words = (out / "report.html").read_text(encoding="utf-8")
    table = pd.read_parquet(out / "comparison.parquet")
    (row,) = table[(table["measure"] == "overall") & (table["kind"] == "")].to_dict("records")
    assert f"a paired difference of {100 * row['difference']:+.1f} [" in words
    assert f"over {row['n']} (p {row['p']:.2g})." in words


def test_printed_saved_and_drawn_agree(tmp_path: Path) -> None:
    out = tmp_path / "out"
    table, lines = compared(out, *two(tmp_path))
    assert lines[0] == "window: full against focused"
    assert lines[1] == "moments, read by robust: focused against full (%)"
    assert "all 12 41.7 [" in next(line for line in lines if line.startswith("all "))
    for _, row in table.iterrows():
        ends = [row[name] for name in table if str(name).startswith(("first", "second", "diff"))]
        first, second, gain = (
            f"{100 * value:{sign}.1f} [{100 * low:.1f}, {100 * high:.1f}]"
            for sign, value, low, high in zip(
                ("", "", "+"), *(ends[n::3] for n in range(3)), strict=True
            )
        )
        alone = f"{row['only_first']}, {row['only_second']}"
        wanted = f"{part_name(row)} {row['n']} {first} {second} {gain} {alone} {row['p']:.3f}"
        assert wanted in lines
    pd.testing.assert_frame_equal(pd.read_parquet(out / "comparison.parquet"), table)
    saved = json.loads((out / "results.json").read_text())
    assert saved["labels"] == ["full", "focused"]
    assert saved["differences"] == {"window": ["full", "focused"]}
    assert pd.DataFrame(saved["results"]).equals(table)
    assert {one["source"] for one in saved["published"]} == {"MoMentS (EMNLP 2025), table 3"}
    assert any("LLaVA-Video-72B multimodal, full 65.96" in line for line in lines)
    drawn = pd.read_parquet(out / "figures" / "comparison.parquet")
    shown = table[table["measure"] != "invalid"].reset_index(drop=True)
    first, second = (
        drawn[drawn["run"] == run].reset_index(drop=True) for run in ("full", "focused")
    )
    assert list(second["items"]) == [part_name(row) for _, row in shown.iterrows()]
    for own, which in ((first, "first"), (second, "second")):
        for name, column in (("value", which), ("low", f"{which}_low"), ("high", f"{which}_high")):
            assert (own[name] == shown[column]).all()
    for name in ("difference", "difference_low", "difference_high"):
        assert (second[name] == shown[name]).all() and first[name].isna().all()
    assert (out / "figures" / "comparison.png").read_bytes()[:4] == b"\x89PNG"
    # The same command again writes the same.
    before = [(out / name).read_bytes() for name in ("comparison.parquet", "results.json")]
    compared(out, tmp_path / "a", tmp_path / "b")
    assert [(out / name).read_bytes() for name in ("comparison.parquet", "results.json")] == before


def test_the_picture_holds_what_its_table_says(tmp_path: Path) -> None:
    table, _ = compared(tmp_path / "out", *two(tmp_path))
    reader, shown = comparison.comparison_points(table)
    assert reader == "robust"
    with style.look():
        figure = comparison.comparison_figure(shown, ["moments"])
        figure.draw_without_rendering()
    right, gain = figure.axes
    names = [label.get_text() for label in right.get_yticklabels()]
    assert names == ["all (12)", "ability: beliefs (6)", "ability: emotions (6)", "cue: gaze (4)"]
    runs = [shown[shown["run"] == run] for run in ("full", "focused")]
    assert len(right.collections) == 4 and len(gain.collections) == 2
    for own, (bars, dots) in zip(runs, (right.collections[:2], right.collections[2:]), strict=True):
        assert np.asarray(dots.get_offsets())[:, 0] == pytest.approx(100 * own["value"].to_numpy())
        ends = np.array([[path[0][0], path[1][0]] for path in bars.get_segments()])
        assert ends == pytest.approx(100 * own[["low", "high"]].to_numpy())
    dots = gain.collections[1]
    assert np.asarray(dots.get_offsets())[:, 0] == pytest.approx(
        100 * runs[1]["difference"].to_numpy()
    )
    sure = (runs[1]["difference_low"] > 0) | (runs[1]["difference_high"] < 0)
    filled = [tuple(face[:3]) != (1, 1, 1) for face in dots.get_facecolors()]
    assert filled == list(sure)
    assert "difference to full (points)" in gain.get_xlabel()


def test_a_reader_who_understood_nothing_is_saved_and_not_printed(tmp_path: Path) -> None:
    runs = []
    for name, right in (("a", BEFORE), ("b", AFTER)):
        both = answers(right, readers=("robust", "official"))
        both[["official_correct", "official_invalid"]] = [False, True]
        runs.append(evaluation(tmp_path / name, both))
    table, lines = compared(tmp_path / "out", *runs)
    assert set(table["reader"]) == {"robust", "official"}
    assert not any("read by official" in line for line in lines)
    assert lines[0] == "moments, read by robust: b against a (%)"


def test_in_a_narrow_terminal_intervals_stand_below(tmp_path: Path) -> None:
    _, lines = compared(tmp_path / "out", *two(tmp_path), width=60)
    assert any(line.startswith("all 12 41.7 66.7 +25.0 1, 4 0.375") for line in lines)


def test_wrong_calls_end_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = two(tmp_path)
    first = runs[0]
    with pytest.raises(SystemExit, match="error: give two run folders or more"):
        main(["compare", str(first)])
    with pytest.raises(SystemExit, match="error: no run folder at .*gone"):
        main(["compare", str(first), str(tmp_path / "gone"), "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()
    with pytest.raises(FolderError, match="a holds other files .*not a comparison of evaluations"):
        compared(first, *runs)


def test_folders_are_named_after_the_runs(tmp_path: Path) -> None:
    runs = tuple(tmp_path / name for name in "abcd")
    assert CompareConfig(runs[:2]).folder == Path("runs/compare/a-against-b")
    assert CompareConfig(runs).folder == Path("runs/compare/a-against-b-and-2-more")


def test_words_against_frames_of_a_shipped_model(tmp_path: Path) -> None:
    loaded = load_model("tiny-qwen2-vl")
    right = {}
    for setting in ("text", "video"):
        config = EvalConfig(setting=setting, limit=4, out=tmp_path / setting)  # type: ignore[arg-type]
        table = evaluate(config, console=Console(quiet=True), loaded=loaded)
        right[setting] = table.set_index("item_id")["robust_correct"]
    table, lines = compared(tmp_path / "out", tmp_path / "text", tmp_path / "video")
    assert lines[:2] == [
        "setting: text against video",
        "gridtom order 1, read by robust: video against text (%)",
    ]
    own = table[(table["reader"] == "robust") & (table["measure"] != "Both")].set_index("measure")
    for condition in ("TB", "FB"):
        text, video = (
            one[[name for name in one.index if name.endswith(condition)]]
            for one in (right["text"], right["video"])
        )
        assert len(text) == 4
        assert own.loc[condition, "difference"] == video.mean() - text.mean()
        assert own.loc[condition, "only_second"] == int((video & ~text).sum())
    assert any(line.startswith("doubao-1.5-pro-32k text 100.0 100.0 100.0") for line in lines)
    assert any(line.startswith("human video 84.6 99.8 84.6") for line in lines)
