"""The build: interrupted, resumed, refused; and the whole benchmark checked."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sally_anne.cli import main
from sally_anne.core.errors import RecordError
from sally_anne.data.gridtom.build import BuildConfig, build
from sally_anne.data.gridtom.release import load

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def finished(out: Path) -> dict[str, int]:
    return {p.parent.name: p.stat().st_mtime_ns for p in out.glob("[0-9]*/complete.json")}


def test_a_killed_build_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    out, whole = tmp_path / "killed", tmp_path / "whole"
    command = [sys.executable, "-m", "sally_anne", "build", "--out", str(out)]
    process = subprocess.Popen(
        [*command, "--stories", "6"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 300
    while len(finished(out)) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(0.5)  # its workers notice and end
    before = finished(out)
    assert 2 <= len(before) < 6
    assert not (out / "info.json").exists()
    with pytest.raises(RecordError, match="the build was not finished"):
        load(out)

    build(BuildConfig(out=out, stories=6, workers=1))
    after = finished(out)
    assert {name: after[name] for name in before} == before
    assert len(after) == 6
    build(BuildConfig(out=whole, stories=6, workers=2))
    assert tree(out) == tree(whole)


def test_a_damaged_story_is_built_again(export: Path, tmp_path: Path) -> None:
    import shutil

    out = Path(shutil.copytree(export, tmp_path / "data"))
    (out / "1" / "TrueBelief" / "full" / "3.png").unlink()
    (out / "2" / "FalseBelief" / "full" / "3.png").write_bytes(b"half")
    untouched = finished(out)["0"]
    build(BuildConfig(out=out, stories=4, workers=1))
    assert tree(out) == tree(export)
    assert finished(out)["0"] == untouched


def test_without_out_all_versions_of_all_stories_are_checked(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    main(["build"])
    told = capsys.readouterr().out
    assert "648 stories on 27 maps, 1296 TB and FB versions, 1944 initial-belief" in told
    assert "checked all 2592 versions; nothing written" in told
    assert "train 86, validation 45, test 500, none 17" in told
    average = float(told.split("frames a version: ")[1].split()[0])
    assert 35 <= average <= 45
    assert list(tmp_path.iterdir()) == []
