"""The build: interrupted, resumed, refused; and the whole benchmark checked."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sally_anne.cli import main
from sally_anne.core.errors import BenchmarkError, FolderError, RecordError
from sally_anne.data.gridtom.build import BuildConfig, build, claimed_build
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


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"seed": 1}, "begun with seed = 2025, asked for is seed = 1"),
        ({"stories": 5}, "begun with stories = 4, asked for is stories = 5"),
        ({"metadata_only": True}, "metadata_only = False, asked for is metadata_only = True"),
    ],
)
def test_other_options_are_refused_and_change_nothing(export: Path, change, problem) -> None:
    before = (export / "info.json").stat().st_mtime_ns
    with pytest.raises(BenchmarkError, match=problem):
        build(BuildConfig(**{"out": export, "stories": 4, "workers": 1, **change}))
    assert (export / "info.json").stat().st_mtime_ns == before


def test_a_folder_with_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(FolderError, match="thesis"):
        build(BuildConfig(out=tmp_path, stories=1, metadata_only=True))
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_two_builds_in_one_folder_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "data"
    with (
        claimed_build(out, {"seed": 1}),
        pytest.raises(FolderError, match="another run is writing to"),
        claimed_build(out, {"seed": 1}),
    ):
        pass
    assert [p.name for p in out.iterdir()] == ["build.json"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--stories", "0"], "--stories must be at least 1, got 0"),
        (["--stories", "649"], "--stories must be from 1 to 648, is 649"),
        (["--workers", "0"], "--workers must be at least 1, got 0"),
    ],
)
def test_the_command_says_what_is_wrong(options, problem) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["build", *options])
    assert stopped.value.code == f"error: {problem}"


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
