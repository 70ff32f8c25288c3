"""What a finished run wrote is read as it was written, or refused by name."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from sally_anne.core.errors import AlteredError
from sally_anne.core.files import intact, require_sealed, write_atomic, write_sealed

CONTENT = {
    "config": {"c": 0.015, "out": Path("runs"), "k": (1, 2)},
    "results": [float("nan"), 1e-5],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "table").write_bytes(b"numbers")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "one").write_bytes(b"more")
    write_sealed(tmp_path / "results.json", CONTENT, ("table", "parts/one"))
    return tmp_path / "results.json"


def read(path: Path) -> dict:
    saved = json.loads(path.read_text())
    require_sealed(path, saved, "Run again.")
    return saved


def test_comes_back_as_it_was(path: Path) -> None:
    saved = read(path)
    assert saved["config"] == {"c": 0.015, "out": "runs", "k": [1, 2]}
    assert [*saved] == ["config", "results", "files", "sha256"]
    assert intact(path.parent, "table", saved, "") == b"numbers"
    assert intact(path.parent, "parts/one", saved, "") == b"more"


def test_written_again_it_is_the_same_and_known_files_are_not_read(path: Path) -> None:
    before = path.read_bytes()
    (path.parent / "table").write_bytes(b"other")
    write_sealed(path, read(path), ("table", "parts/one"))
    assert path.read_bytes() == before


def test_every_flipped_bit_is_noticed_or_does_not_matter(path: Path) -> None:
    whole, saved = path.read_bytes(), read(path)
    for place in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        try:
            found = json.loads(damaged)
            require_sealed(path, found, "")
        except (ValueError, AlteredError):
            continue
        assert json.dumps(found) == json.dumps(saved), f"bit {place % 8} of byte {place // 8}"


@pytest.mark.parametrize("name", ["table", "parts/one"])
@pytest.mark.parametrize("now", [b"", b"numbert", b"numbers\n"])
def test_another_file_is_named(path: Path, name: str, now: bytes) -> None:
    (path.parent / name).write_bytes(now)
    with pytest.raises(AlteredError, match="altered, or of another run.*Run again") as caught:
        intact(path.parent, name, read(path), "Run again.")
    assert str(path.parent / name) in str(caught.value)


@pytest.mark.parametrize("entry", ["files", "sha256"])
def test_an_entry_that_is_gone(path: Path, entry: str) -> None:
    saved = json.loads(path.read_text())
    del saved[entry]
    with pytest.raises(AlteredError, match=f"{path} is altered.*Run again"):
        require_sealed(path, saved, "Run again.")


@pytest.mark.integration
def test_a_kill_leaves_no_json_that_vouches_for_other_files(tmp_path: Path) -> None:
    """Killed with SIGKILL at any moment, what is there is whole, and fits what is beside it."""

    def finish(number: int) -> None:
        (tmp_path / "results.json").unlink(missing_ok=True)
        for name in ("table", "probes"):
            write_atomic(tmp_path / name, f"{name} {number}".encode())
        write_sealed(tmp_path / "results.json", {"config": {}}, ("table", "probes"))

    chance = random.Random(0)
    finish(-1)
    for number in range(20):
        child = os.fork()
        if child == 0:
            finish(number)
            os._exit(0)
        time.sleep(chance.uniform(0, 0.01))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if (tmp_path / "results.json").exists():
            saved = read(tmp_path / "results.json")
            written = {intact(tmp_path, name, saved, "").split()[1] for name in saved["files"]}
            assert len(written) == 1
    finish(0)
    assert intact(tmp_path, "table", read(tmp_path / "results.json"), "") == b"table 0"


def test_earlier_versions_had_no_checksums(path: Path) -> None:
    for old in ({"config": {}}, [], "text", None):
        require_sealed(path, old, "")
    assert intact(path.parent, "table", {"config": {}}, "") == b"numbers"
