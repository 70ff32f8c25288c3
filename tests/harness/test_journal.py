"""Answers outlive whatever stops the run, and are never taken over by another one."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import TextIO

import pytest

from sally_anne.core.errors import HarnessError
from sally_anne.harness.journal import Journal

ABOUT = {"model": "tiny", "order": "1", "alpha": None, "data": Path("somewhere")}
ANSWERS = [{"item_id": f"item-{i}", "reply": f"the {i}. room — é\u2028\n"} for i in range(4)]


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


def test_answers_are_on_disk_at_once(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    with Journal(path, ABOUT) as journal:
        assert journal.answers == {}
        journal.add(ANSWERS[:1])
        assert journal.answers == by_id(ANSWERS[:1])
        assert Journal(path, ABOUT).answers == by_id(ANSWERS[:1])
        journal.add([])
        journal.add(ANSWERS[1:3])
        assert Journal(path, ABOUT).answers == by_id(ANSWERS[:3])


def test_a_run_is_resumed(path: Path) -> None:
    journal = Journal(path, ABOUT)
    assert journal.answers == by_id(ANSWERS)
    more = [{"item_id": "item-4", "reply": "", "option_log_probs": [-1.5, -0.25]}]
    with journal:
        journal.add(more)
    assert Journal(path, ABOUT).answers == by_id([*ANSWERS, *more])
    lines = path.read_text().splitlines()
    assert len(lines) == 6
    assert sum("about" in json.loads(line) for line in lines) == 1


def test_answers_before_an_error_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    with pytest.raises(RuntimeError, match="mine"), Journal(path, ABOUT) as journal:
        journal.add(ANSWERS)
        raise RuntimeError("mine")
    assert Journal(path, ABOUT).answers == by_id(ANSWERS)
    with pytest.raises(HarnessError, match="not open"):
        journal.add(ANSWERS)


def test_a_truncated_last_line_is_dropped(path: Path) -> None:
    whole = path.read_bytes()
    before_last = whole[:-1].rindex(b"\n") + 1
    for end in (before_last + 1, before_last + 20, len(whole) - 1):
        path.write_bytes(whole[:end])
        with Journal(path, ABOUT) as journal:
            assert journal.answers == by_id(ANSWERS[:3])
            assert path.read_bytes() == whole[:before_last]
            journal.add(ANSWERS[3:])
        assert path.read_bytes() == whole


@pytest.mark.parametrize("kept", [0, 1, 10])
def test_a_first_line_cut_short_begins_anew(path: Path, kept: int) -> None:
    path.write_bytes(path.read_bytes()[:kept])
    with Journal(path, {**ABOUT, "order": "2"}) as journal:
        assert journal.answers == {}
        journal.add(ANSWERS)
    assert Journal(path, {**ABOUT, "order": "2"}).answers == by_id(ANSWERS)


def test_every_flipped_bit_is_noticed(path: Path) -> None:
    """An altered answer is never taken over; at most it is asked again."""
    whole = path.read_bytes()
    refused, places = 0, range(0, 8 * len(whole), 3)
    handle = os.open(path, os.O_WRONLY)
    for place in places:
        byte, bit = divmod(place, 8)
        os.pwrite(handle, bytes([whole[byte] ^ 1 << bit]), byte)
        try:
            answers = Journal(path, ABOUT).answers
        except HarnessError as error:
            refused += 1
            assert "answers.jsonl, line " in str(error) or "holds another run" in str(error)
        else:
            # The last line's end is not there: the line counts as cut short.
            assert answers == by_id(ANSWERS[:3]), f"bit {bit} of byte {byte}"
            path.write_bytes(whole)  # what was cut short is cut off
        os.pwrite(handle, whole[byte : byte + 1], byte)
    os.close(handle)
    assert path.read_bytes() == whole
    assert refused >= len(places) - 8


def test_lines_without_a_checksum_are_refused(path: Path) -> None:
    whole = path.read_bytes()
    about = json.loads(json.dumps(ABOUT, default=str))
    path.write_text("".join(json.dumps(line) + "\n" for line in [{"about": about}, *ANSWERS]))
    with pytest.raises(HarnessError, match="line 1 is damaged .it has no checksum.; delete the"):
        Journal(path, ABOUT)
    path.write_bytes(whole + b'{"item_id": "item-4", "reply": "red"}\n')
    with pytest.raises(HarnessError, match="line 6 is damaged .it has no checksum.; delete that"):
        Journal(path, ABOUT)


@pytest.mark.parametrize(
    "damage",
    [
        b'{"item_id": "item-1", "re\n',
        b"\n",
        b"\x00\xff\xfe\n",
        b"[1]\n",
        b'{"reply": "x"}\n',
        b"7\n",
    ],
)
def test_a_damaged_line_in_the_middle_is_named(path: Path, damage: bytes) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = damage
    path.write_bytes(b"".join(lines))
    with pytest.raises(HarnessError, match="answers.jsonl, line 3 is damaged"):
        Journal(path, ABOUT)
    assert path.read_bytes() == b"".join(lines)


def test_a_file_of_another_kind_is_not_touched(path: Path) -> None:
    path.write_text('{"name": "somebody"}\n{"name": "els')
    with pytest.raises(HarnessError, match="line 1 is damaged"):
        Journal(path, ABOUT)
    assert path.read_text() == '{"name": "somebody"}\n{"name": "els'


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"order": "2"}, "order is '1' there, '2' here"),
        ({"alpha": 10.0}, "alpha is None there, 10.0 here"),
        ({"data": "elsewhere"}, "data is 'somewhere' there, 'elsewhere' here"),
        ({"style": "json"}, "style is None there, 'json' here"),
    ],
)
def test_another_run_is_refused_with_both_values(path: Path, change, match: str) -> None:
    before = path.read_bytes()
    with pytest.raises(HarnessError, match=f"{match}. Choose another --out") as caught:
        Journal(path, {**ABOUT, **change})
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before


def test_the_part_that_differs_is_named_and_shown_in_short(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    facts = {"seen": ["a" * 16] * 500, "c": 2}
    with Journal(path, {"fitted": facts}) as journal:
        journal.add(ANSWERS)
    for change, match in (
        ({"c": 1}, "fitted, c is 2 there, 1 here"),
        ({"seen": []}, "fitted, seen is"),
    ):
        with pytest.raises(HarnessError, match=match) as caught:
            Journal(path, {"fitted": facts | change})
        assert len(str(caught.value)) < len(str(path)) + 300


def test_what_agrees_after_json_agrees(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    with Journal(path, {"heads": ((0, 1), (2, 3)), "alpha": 1.0}) as journal:
        journal.add(ANSWERS)
    assert Journal(path, {"heads": [[0, 1], [2, 3]], "alpha": 1}).answers == by_id(ANSWERS)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(HarnessError, match="cannot be made .* choose another --out"),
        Journal(tmp_path / "file" / "run" / "answers.jsonl", ABOUT),
    ):
        pass


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch) -> None:
    def refuse(self: Path, *args):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with (
        pytest.raises(HarnessError, match="cannot be written .*Permission denied"),
        Journal(tmp_path / "answers.jsonl", ABOUT),
    ):
        pass


def test_not_open(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="not open"):
        Journal(tmp_path / "answers.jsonl", ABOUT).add(ANSWERS)


FULL = Path("/dev/full")
full = pytest.mark.skipif(not FULL.exists(), reason="only Linux has a device that is always full")


def open_full(path: Path, mode: str) -> TextIO:
    return os.fdopen(os.open(FULL, os.O_WRONLY), mode)


@full
def test_a_full_disk_while_answers_are_kept(path: Path, monkeypatch) -> None:
    before = path.read_bytes()
    journal = Journal(path, ABOUT)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", open_full)
        with pytest.raises(HarnessError, match="No space left.*make room and run again"), journal:
            journal.add([{"item_id": "item-4", "reply": "red"}])
    assert "item-4" not in journal.answers
    assert path.read_bytes() == before
    assert Journal(path, ABOUT).answers == by_id(ANSWERS)


@full
def test_a_full_disk_at_the_start(tmp_path: Path, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", open_full)
        with (
            pytest.raises(HarnessError, match="No space left"),
            Journal(tmp_path / "answers.jsonl", ABOUT),
        ):
            pass
    with Journal(tmp_path / "answers.jsonl", ABOUT) as journal:
        journal.add(ANSWERS)
    assert Journal(tmp_path / "answers.jsonl", ABOUT).answers == by_id(ANSWERS)


def test_a_disk_that_is_full_in_the_middle_of_a_line(path: Path, monkeypatch) -> None:
    """Half a line got through before the error; the next run drops it."""
    whole = path.read_bytes()

    def fail(number: int) -> None:
        with path.open("r+b") as file:
            file.truncate(len(whole) + 9)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fail)
        with pytest.raises(HarnessError, match="No space left"), Journal(path, ABOUT) as journal:
            journal.add([{"item_id": "item-4", "reply": "red"}])
    assert len(path.read_bytes()) == len(whole) + 9
    with Journal(path, ABOUT) as journal:
        assert journal.answers == by_id(ANSWERS)
        assert path.read_bytes() == whole
