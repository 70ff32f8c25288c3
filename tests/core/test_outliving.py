"""A command outlives whoever reads what it prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.integration
PRINTS = """
import sys
from sally_anne.core.console import plain_errors
from sally_anne.core.errors import SallyAnneError
with plain_errors():
    for number in range(2_000):
        print("one", number, flush=number % 7 == 0)
        print("two", number, file=sys.stderr)
    open(sys.argv[1], "w").write("done")
    print("three")
    if len(sys.argv) > 2:
        raise SallyAnneError("said")
"""


@pytest.mark.parametrize("closed", ["stdout", "stderr", "both"])
@pytest.mark.parametrize("words", [[], ["fail"]], ids=["", "fails"])
def test_the_work_goes_on_in_silence(tmp_path: Path, closed: str, words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    gone = ("stdout", "stderr") if closed == "both" else (closed,)
    ended = subprocess.run(
        [sys.executable, "-c", PRINTS, str(tmp_path / "result"), *words],
        cwd=ROOT,
        text=True,
        check=False,
        **{name: writing if name in gone else subprocess.PIPE for name in ("stdout", "stderr")},
    )
    os.close(writing)
    assert (tmp_path / "result").read_text() == "done"
    assert ended.returncode == len(words)
    if ended.stdout is not None:
        assert ended.stdout.splitlines() == [*(f"one {n}" for n in range(2_000)), "three"]
    if ended.stderr is not None:
        said = ["error: said"] if words else []
        assert ended.stderr.splitlines() == [*(f"two {n}" for n in range(2_000)), *said]


@pytest.mark.parametrize("redirection", ["| head -1", ">&-", "2>&- | head -1"])
def test_in_a_shell(tmp_path: Path, redirection: str) -> None:
    command = f'"{sys.executable}" -c "$PRINTS" "{tmp_path}/result" {redirection}'
    ended = subprocess.run(
        ["sh", "-c", command],
        cwd=ROOT,
        env={**os.environ, "PRINTS": PRINTS},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (tmp_path / "result").read_text() == "done"
    assert ended.stdout == ("" if redirection == ">&-" else "one 0\n")
    assert "Traceback" not in ended.stderr


def test_streams_are_as_before_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    from sally_anne.core.console import plain_errors

    before = sys.stdout, sys.stderr
    with plain_errors():
        print("shown")
    assert (sys.stdout, sys.stderr) == before
    assert capsys.readouterr().out == "shown\n"
