"""A folder belongs to one kind of run, and to one run at a time, whenever a run is killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sally_anne.core import run_folder
from sally_anne.core.errors import FolderError
from sally_anne.core.processes import Processes
from sally_anne.core.run_folder import (
    BUILD,
    EVALUATION,
    LIMP,
    PROBING,
    VECTOR,
    claimed,
    require_own,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_folder, "_PATIENCE", 0.05)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def put(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


@pytest.mark.parametrize("there", [False, True])
def test_a_new_or_empty_folder_is_claimed_and_resumed(tmp_path: Path, there: bool) -> None:
    folder = tmp_path / "runs" / "one"
    if there:
        folder.mkdir(parents=True)
    for _ in range(2):
        with claimed(folder, EVALUATION):
            put(folder, "anything")
    assert contents(folder) == {".lock": b"sally-anne: an evaluation\n", "anything": b"anything"}


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("error", [None, RuntimeError("mine")])
def test_a_run_that_wrote_nothing_leaves_nothing(tmp_path: Path, there: bool, error) -> None:
    folder = tmp_path / "run"
    if there:
        folder.mkdir()
    try:
        with claimed(folder, EVALUATION):
            if error:
                raise error
    except RuntimeError as raised:
        assert raised is error
    assert [p.name for p in tmp_path.rglob("*")] == (["run"] if there else [])


@pytest.mark.parametrize(
    ("names", "kind", "seems"),
    [
        (["thesis.txt"], EVALUATION, r"other files \(thesis.txt\), not an evaluation"),
        (["a", "b", "c", "d"], PROBING, r"other files \(a, b, c, ...\), not a probing run"),
        (["config.json", "model.safetensors"], PROBING, "a model"),
        (["answers.jsonl", "answers.parquet"], LIMP, "an evaluation|check"),
        (["episodes.jsonl", "answers.jsonl"], PROBING, "a LIMP run"),
        (["activations/index.json"], EVALUATION, "a probing run"),
        (["index.json", "shard-00000.safetensors"], PROBING, "a store of activations"),
        (["README.md"], VECTOR, "other files"),
    ],
)
def test_other_folders_are_refused_and_stay_as_they_are(tmp_path, names, kind, seems) -> None:
    folder = put(tmp_path / "work", *names)
    before = contents(folder)
    for claim in (lambda: require_own(folder, kind), lambda: claimed(folder, kind).__enter__()):
        with pytest.raises(FolderError, match=seems) as caught:
            claim()
        assert str(folder) in str(caught.value) and "Choose another --out" in str(caught.value)
    assert contents(folder) == before


def test_the_line_tells_kinds_apart_that_look_alike(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with claimed(folder, EVALUATION):
        put(folder, "validation.jsonl", "episodes.jsonl")
    with pytest.raises(FolderError, match="holds an evaluation"):
        require_own(folder, LIMP)
    (folder / ".lock").write_text("pid 17\n")
    with pytest.raises(FolderError, match="not an evaluation"):
        require_own(folder, EVALUATION)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (PROBING, "activations/index.json"),
        (EVALUATION, "answers.jsonl"),
        (LIMP, "episodes.jsonl"),
        (BUILD, "build.json"),
        (VECTOR, "vector.safetensors"),
    ],
)
def test_folders_of_earlier_versions_are_known_by_their_files(tmp_path, kind, name) -> None:
    folder = put(tmp_path, name, "notes.txt")
    require_own(folder, kind)
    with claimed(folder, kind, mark=kind is not BUILD):
        pass
    assert (folder / ".lock").exists() == (kind is not BUILD)
    require_own(folder, kind)


def test_one_run_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with claimed(folder, EVALUATION):
        put(folder, "kept")
        with (
            pytest.raises(FolderError, match=f"another run is writing to {folder}"),
            claimed(folder, EVALUATION),
        ):
            pass
        with claimed(
            folder, EVALUATION, Processes(rank=1, count=2, local_rank=1, local_world_size=2)
        ):
            pass  # the first process holds it for all
    with claimed(folder, EVALUATION):
        pass


@pytest.mark.parametrize("part", ["file", "file/run"])
def test_a_file_is_no_folder(tmp_path: Path, part: str) -> None:
    put(tmp_path, "file")
    with pytest.raises(FolderError, match="cannot be made"), claimed(tmp_path / part, EVALUATION):
        pass
    assert contents(tmp_path) == {"file": b"file"}


def work(folder: Path, left: int) -> None:
    """Claim, and leave a folder and two files."""
    for _ in range(left):
        with claimed(folder, EVALUATION):
            (folder / "parts").mkdir(exist_ok=True)
            put(folder, "parts/one", "two")


@pytest.mark.integration
def test_a_killed_run_lets_go_and_can_be_resumed(tmp_path: Path) -> None:
    """Killed with SIGKILL at any moment, the folder is the run's own afterwards, and not held."""
    chance = random.Random(0)
    for number in range(20):
        folder = tmp_path / str(number)
        child = os.fork()
        if child == 0:
            work(folder, 10_000)
            os._exit(0)
        deadline = time.monotonic() + 10
        while not folder.exists() and time.monotonic() < deadline:
            pass
        time.sleep(chance.uniform(0, 0.003))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        work(folder, 1)
        assert set(contents(folder)) == {".lock", "parts/one", "two"}
    assert number == 19


@pytest.mark.integration
def test_runs_that_begin_at_once_do_not_meet(tmp_path: Path) -> None:
    """A folder that is made and removed again and again is held by one at any time."""
    code = f"""
import os, sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from sally_anne.core.errors import FolderError
from sally_anne.core.run_folder import EVALUATION, claimed
folder = Path({str(tmp_path)!r}) / "run"
for _ in range(60):
    with claimed(folder, EVALUATION):
        handle = os.open(folder.with_name("alone"), os.O_CREAT | os.O_EXCL)
        os.close(handle)
        os.unlink(folder.with_name("alone"))
print("done")
"""
    running = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(2)
    ]
    assert [process.communicate()[0] for process in running] == [b"done\n", b"done\n"]
    assert list(tmp_path.rglob("run/*")) == []


def test_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone" / "deeper")
    for folder in (tmp_path / "link", tmp_path / "link" / "run"):
        with pytest.raises(FolderError, match="cannot be made"), claimed(folder, EVALUATION):
            pass
