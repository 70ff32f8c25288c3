"""A folder belongs to one kind of run, and to one run at a time; answers are never lost."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sally_anne.core import folder as module
from sally_anne.core.errors import FolderError, HarnessError
from sally_anne.core.folder import Journal, claimed, make_own, record_of
from sally_anne.core.processes import Processes
from tests.core.conftest import contents

ABOUT = {"model": "tiny", "order": "1", "alpha": None, "data": Path("somewhere")}
ANSWERS = [{"item_id": f"item-{i}", "reply": f"the {i}. room — é\u2028\n"} for i in range(4)]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.05)


def test_a_new_folder_is_claimed_and_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "one"
    for _ in range(2):
        with claimed(folder, "an evaluation"):
            (folder / "anything").write_text("x")
    assert set(contents(folder)) == {".lock", "run.json", "anything"}
    assert record_of(folder)["kind"] == "an evaluation"


@pytest.mark.parametrize("there", [False, True])
def test_a_run_that_wrote_nothing_leaves_nothing(tmp_path: Path, there: bool) -> None:
    folder = tmp_path / "one"
    if there:
        folder.mkdir()
    with pytest.raises(RuntimeError, match="mine"), claimed(folder, "a sweep"):
        raise RuntimeError("mine")
    assert folder.exists() == there and not list(tmp_path.rglob("one/*"))


def test_other_folders_are_refused_and_stay_as_they_are(tmp_path: Path) -> None:
    with claimed(tmp_path / "sweep", "a sweep"):
        (tmp_path / "sweep" / "x").touch()
    for name, file in (("old", "config.json"), ("mine", "thesis.tex")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("{}")
    before = contents(tmp_path)
    for name in ("sweep", "old", "mine"):
        with pytest.raises(FolderError, match=name), claimed(tmp_path / name, "an evaluation"):
            pass
    assert contents(tmp_path) == before
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(FolderError), claimed(path, "a sweep"):
            pass


def test_one_run_at_a_time_and_other_ranks_follow(tmp_path: Path) -> None:
    with claimed(tmp_path / "run", "a sweep"):
        with pytest.raises(FolderError, match="another run"), claimed(tmp_path / "run", "a sweep"):
            pass
        with claimed(tmp_path / "run", "a sweep", Processes(1, 2)):
            pass


@pytest.mark.integration
@pytest.mark.parametrize("first", ["", "os.replace = wait\n"], ids=["later", "in its first file"])
def test_a_killed_run_lets_go(tmp_path: Path, first: str) -> None:
    code = (
        "import os, pathlib, sys, time\nfrom sally_anne.core.folder import claimed\n"
        "def wait(*paths):\n    print('held', flush=True)\n    time.sleep(60)\n"
        f"{first}with claimed(pathlib.Path(sys.argv[1]), 'a sweep'):\n    wait()\n"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "run")]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        with pytest.raises(FolderError), claimed(tmp_path / "run", "a sweep"):
            pass
        os.kill(process.pid, signal.SIGKILL)
    time.sleep(0.05)
    with claimed(tmp_path / "run", "a sweep"):
        (tmp_path / "run" / "x").touch()
    assert set(contents(tmp_path / "run")) == {".lock", "run.json", "x"}


def test_what_a_killed_run_left_of_a_sign_is_its_own(tmp_path: Path) -> None:
    (tmp_path / ".vector.safetensors.tmp").touch()
    make_own(tmp_path, "a steering vector", "vector.safetensors")
    with pytest.raises(FolderError):
        make_own(tmp_path, "a sweep")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal of four answers."""
    path = tmp_path / "run" / "answers.jsonl"
    with Journal(path, ABOUT) as journal:
        journal.add(ANSWERS[:2])
        journal.add(iter(ANSWERS[2:]))
    return path


def by_id(answers) -> dict:
    return {answer["item_id"]: answer for answer in answers}


def test_answers_are_on_disk_at_once_and_resumed(path: Path) -> None:
    journal = Journal(path, ABOUT)
    assert journal.answers == by_id(ANSWERS)
    more = [{"item_id": "item-4", "reply": "", "option_log_probs": [-1.5, -0.25]}]
    with pytest.raises(RuntimeError, match="mine"), journal:
        journal.add(more)
        assert Journal(path, ABOUT).answers == by_id([*ANSWERS, *more])
        raise RuntimeError("mine")
    assert Journal(path, ABOUT).answers == by_id([*ANSWERS, *more])
    lines = path.read_text().splitlines()
    assert sum("about" in json.loads(line) for line in lines) == 1


@pytest.mark.parametrize("kept", [0, 1, 20, -1, -10])
def test_a_torn_line_at_the_end_is_cut_off(path: Path, kept: int) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:kept])
    with Journal(path, ABOUT) as journal:
        left = journal.answers
        assert left == (by_id(ANSWERS[:3]) if kept < 0 else {})
        journal.add(a for a in ANSWERS if a["item_id"] not in left)
    assert path.read_bytes() == whole


def test_a_full_disk_keeps_what_was_answered(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Journal(path, ABOUT) as journal, monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(HarnessError, match="No space left on device"):
            journal.add([{"item_id": "item-4"}])
    assert by_id(ANSWERS).items() <= Journal(path, ABOUT).answers.items()


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"reply": "?"}', b"\xff"])
def test_another_or_damaged_journal_is_refused_and_stays(path: Path, damage: bytes) -> None:
    with pytest.raises(HarnessError, match="alpha"):
        Journal(path, ABOUT | {"alpha": 10.0})
    lines = path.read_bytes().split(b"\n")
    lines[2] = damage
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(HarnessError, match=r"answers\.jsonl, line 3"):
        Journal(path, ABOUT)
    assert path.read_bytes() == b"\n".join(lines)
