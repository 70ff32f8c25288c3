"""``sally-anne table``: what a run holds, as CSV, LaTeX or Markdown."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pandas as pd
import pytest

from sally_anne.cli import main
from sally_anne.core.files import write_sealed
from sally_anne.figures.table import table_of
from tests.made_run import MadeRun

SWEPT = pd.DataFrame(
    {"direction": ["logistic"] * 2, "k": [4, 8], "alpha": [0.5, -1.0], "value": [0.25, 1 / 3]}
)
SHARE = {"value": 0.5, "low": 0.25, "high": 0.75, "n": 8}


def printed(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    capsys.readouterr()
    main(["table", *map(str, words)])
    return capsys.readouterr().out


def test_heads_stand_best_first(run: MadeRun, capsys: pytest.CaptureFixture[str]) -> None:
    found = pd.read_csv(io.StringIO(printed(capsys, run.folder, "--format", "csv")))
    ranked = run.heads.sort_values("y_p_rank").reset_index(drop=True)
    pd.testing.assert_frame_equal(found, ranked, check_exact=True)
    columns = ("--columns", "layer", "head", "y_p_test_accuracy", "--rows", "2")
    best = ranked.loc[0]
    score = f"{best.y_p_test_accuracy:.3f}"
    lines = printed(capsys, run.folder, *columns).splitlines()
    assert [cell.strip() for cell in lines[2].strip("|").split("|")] == [
        f"{best.layer:.0f}",
        f"{best['head']:.0f}",
        score,
    ]
    assert len(lines) == 4
    latex = printed(capsys, run.folder, *columns, "--format", "latex")
    assert r"layer & head & y\_p\_test\_accuracy \\" in latex
    assert rf"{best.layer:.0f} & {best['head']:.0f} & {score} \\" in latex


def test_a_sweep_is_printed_as_it_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    SWEPT.to_parquet(tmp_path / "sweep.parquet")
    names, *rows = csv.reader(io.StringIO(printed(capsys, tmp_path, "--format", "csv")))
    assert names == list(SWEPT)
    assert [
        [row[0], int(row[1]), float(row[2]), float(row[3])] for row in rows
    ] == SWEPT.values.tolist()
    assert "0.33 |" in printed(capsys, tmp_path, "--digits", "2")


def test_an_evaluation_has_a_row_a_measure(tmp_path: Path) -> None:
    pd.DataFrame({"item_id": ["a"]}).to_parquet(tmp_path / "answers.parquet")
    results = {"robust": {"overall": SHARE, "groups": {"type": {"belief": SHARE}}}}
    write_sealed(tmp_path / "results.json", {"config": {}, "results": results})
    assert table_of(tmp_path).to_dict("records") == [
        {"reader": "robust", "part": part, "measure": "overall", **SHARE}
        for part in ("", "type: belief")
    ]


def test_table_1_has_a_row_a_method(tmp_path: Path) -> None:
    row = {"order": 1, "setting": "text", "method": "baseline", "TB": SHARE}
    write_sealed(tmp_path / "results.json", {"config": {}, "rows": [row]})
    (found,) = table_of(tmp_path).to_dict("records")
    assert found["method"] == "baseline" and found["TB.value"] == 0.5 and found["TB.n"] == 8


def test_what_is_no_table_is_named(
    run: MadeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="holds no table of a finished run"):
        main(["table", str(tmp_path)])
    with pytest.raises(SystemExit, match="has no column 'nothing'; it has layer, head, "):
        main(["table", str(run.folder), "--columns", "nothing"])
    write_sealed(tmp_path / "results.json", {"config": {}, "rows": []})
    saved = json.loads((tmp_path / "results.json").read_text())
    (tmp_path / "results.json").write_text(json.dumps(saved | {"rows": [{"TB": 1}]}))
    with pytest.raises(SystemExit, match="results.json is altered"):
        main(["table", str(tmp_path)])
