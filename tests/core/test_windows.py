"""What is of POSIX alone is missed by nothing: run without it, as on Windows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# No fcntl, no handle of a folder, and a msvcrt that is made of locks of bytes, from where the file
# is, as there. What takes it for a sign of Windows is imported before.
WITHOUT = """
import fcntl, os, subprocess, sys, types

def locking(handle, mode, count):
    assert 0 < os.lseek(handle, 0, os.SEEK_CUR) + count < 1 << 31
    try:
        fcntl.lockf(handle, mode, count, 0, os.SEEK_CUR)
    except BlockingIOError as error:
        raise PermissionError(13, "Permission denied") from error

def opened(path, flags, *more, open=os.open):
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied", path)
    return open(path, flags, *more)

mode = fcntl.LOCK_EX | fcntl.LOCK_NB
sys.modules["msvcrt"] = types.SimpleNamespace(LK_NBLCK=mode, locking=locking)
sys.modules["fcntl"] = None
os.open = opened
del os.O_DIRECTORY
"""
HOLD = """
from sally_anne.core import run_folder
from sally_anne.core.errors import FolderError

run_folder._PATIENCE = 0
file = open(sys.argv[1], "r+b")
file.read(2)
try:
    run_folder.lock(file, FolderError("held"), shared=sys.argv[2] == "shared")
except FolderError as error:
    print(error, flush=True)
else:
    assert file.read() == b"ree"
    print("got it", flush=True)
    sys.stdin.read()
"""
CLAIM = """
from pathlib import Path
from sally_anne.core.run_folder import EVALUATION, claimed, save_config

folder = Path(sys.argv[1])
for _ in range(2):
    with claimed(folder, EVALUATION):
        save_config(folder, {})
"""
COMMANDS = """
import contextlib
import sally_anne
from sally_anne.__main__ import COMMANDS, main

main(["--help"])
# Other harnesses' own programs, which import what they like.
for name in COMMANDS.keys() - {"lm-eval", "lmms-eval"}:
    with contextlib.suppress(SystemExit):
        main([name, "--help"])
from sally_anne import HeadProbes, SteeringVector, extract, load_model
"""


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", WITHOUT + code, *map(str, arguments)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.integration
def test_every_command_says_its_options() -> None:
    said, _ = (process := start(COMMANDS)).communicate()
    assert process.returncode == 0
    for name in ("probe", "figures", "export-lm-eval"):
        assert f"usage: sally-anne {name} [-h]" in said


def test_a_folder_is_claimed_and_written_into(tmp_path: Path) -> None:
    process = start(CLAIM, tmp_path / "run")
    process.communicate()
    assert process.returncode == 0
    assert {path.name for path in (tmp_path / "run").iterdir()} == {".lock", "config.json"}


@pytest.mark.parametrize("first", ["shared", "alone"])
def test_locks_are_shared_or_not_and_end_with_their_process(tmp_path: Path, first: str) -> None:
    (tmp_path / "file").write_bytes(b"three")
    held: list[subprocess.Popen[str]] = []

    def got(kind: str) -> bool:
        process = start(HOLD, tmp_path / "file", kind)
        held.append(process)
        assert process.stdout is not None
        return {"got it\n": True, "held\n": False}[process.stdout.readline()]

    try:
        assert got(first)
        assert got("shared") == (first == "shared")
        assert not got("alone")
        for process in held:
            process.kill()
            process.wait()
        assert got("alone")
    finally:
        for process in held:
            process.kill()
            process.communicate()
