"""The pickle of frame intervals: plain pairs are read, everything else is refused by name."""

from __future__ import annotations

import os
import pickle
import random
import struct
import tracemalloc
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sally_anne.core.errors import RecordError
from sally_anne.data.mmtom_qa.episodes import MOST_BYTES, MOST_FRAMES, read_intervals
from sally_anne.data.mmtom_qa.pickles import read_pickle

PAIRS = ((0, 38), (38, 90), (90, 300), (300, 70_000))
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
SHAPES: dict[str, Any] = {
    "lists": [list(pair) for pair in PAIRS],
    "tuples": PAIRS,
    "whole floats": [[float(first), float(last)] for first, last in PAIRS],
}


def saved(folder: Path, data: bytes) -> Path:
    path = folder / "frame_intervals.pik"
    path.write_bytes(data)
    return path


class Payload:
    """Runs a command when Python's own unpickler reads it."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple:
        return self.call


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("shape", SHAPES)
def test_pairs_of_every_shape_and_protocol(tmp_path, shape, protocol) -> None:
    path = saved(tmp_path, pickle.dumps(SHAPES[shape], protocol))
    assert read_intervals(path) == PAIRS


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "value",
    [
        None,
        [1, 2.5, None, True, "é", -(10**30)],
        [[[["deep"]]], (), "", ("one",)],
        ["twice"] * 2,
        list(range(3000)),
    ],
)
def test_plain_values_come_out_as_they_went_in(value, protocol) -> None:
    assert read_pickle(pickle.dumps(value, protocol)) == value


def test_a_list_that_holds_itself_is_read() -> None:
    loop: list = []
    loop.append(loop)
    found = read_pickle(pickle.dumps(loop))
    assert isinstance(found, list)
    assert len(found) == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("payload", "name"),
    [
        (Payload(os.system, "touch {}"), rf"'{os.system.__module__}\.system'"),
        (Payload(eval, "open('{}', 'w')"), "eval'"),
        (Payload(exec, "open('{}', 'w')"), "exec'"),
        (Payload(print, "{}"), "print'"),
        (OrderedDict(a=1), "collections.OrderedDict'"),
        (Path("x"), "athlib.*Path'"),
        (np.array(PAIRS), "numpy.*(_reconstruct|_frombuffer)'"),
        ({1, 2}, "(set'|EMPTY_SET)"),
        ({0: (0, 3)}, "DICT"),
        (bytearray(3), "(bytearray'|BYTEARRAY8)"),
        (slice(1), "slice'"),
    ],
)
def test_classes_are_refused_by_name_and_nothing_is_run(tmp_path, payload, name, protocol) -> None:
    touched = tmp_path / "touched"
    if isinstance(payload, Payload):
        function, (text,) = payload.call
        payload = Payload(function, text.format(touched))
    path = saved(tmp_path, pickle.dumps([payload], protocol))
    with pytest.raises(RecordError):
        read_intervals(path)
    assert not touched.exists()


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        # Protocol 0 by hand: instance, object and extension opcodes, a persistent id.
        (b"(S'touch x'\nios\nsystem\n.", "uses instruction INST"),
        (b"(cos\nsystem\nS'touch x'\no.", "asks for 'os.system'"),
        (b"\x82\x01.", "uses instruction EXT1"),
        (b"Psomething\n.", "uses instruction PERSID"),
        (b"(K\x01\x91.", "uses instruction FROZENSET"),
        (b"K\x01)\x81.", "uses instruction NEWOBJ"),
        (b"(K\x03o.", "uses instruction OBJ"),
        (b"K\x01)R.", "uses instruction REDUCE"),
        (b"K\x01]b.", "uses instruction BUILD"),
        (b"\x8c\x02os\x8c\x06system\x93.", "asks for 'os.system'"),
        (b"K\x01\x8c\x06system\x93.", "is no whole pickle .STACK_GLOBAL requires str"),
        # Cut short, or no stack for what is asked.
        (b"", "is no whole pickle"),
        (b"]", "is no whole pickle"),
        (b".", "is no whole pickle"),
        (b"(.", "is no whole pickle"),
        (b"K\x01a.", "is no whole pickle"),
        (b"K\x01K\x02a.", "is no whole pickle"),
        (b"]K\x01K\x02s.", "uses instruction SETITEM"),
        (b"e.", "is no whole pickle"),
        (b"\x96" + struct.pack("<Q", 2**40) + b"x.", "uses instruction BYTEARRAY8"),
        (b"h\x05.", "is no whole pickle"),
        (b"(K\x01d.", "uses instruction DICT"),
        (b"\xff.", "is no whole pickle"),
        (b"I" + b"9" * 5000 + b"\n.", "is no whole pickle"),
        (b"not a pickle", "is no whole pickle"),
        # Lengths and places in memory far beyond the file.
        (b"\x8e" + struct.pack("<Q", 2**62) + b"x.", "is no whole pickle"),
        (b"\x8b" + struct.pack("<i", 2**31 - 1) + b"\x01.", "is no whole pickle"),
        (b"X" + struct.pack("<I", 2**32 - 1) + b"a.", "is no whole pickle"),
        (b"\x80\x04\x95" + struct.pack("<Q", 2**62) + b"].", "must have from 1 to"),
        (b"]r" + struct.pack("<I", 2**32 - 1) + b".", "must have from 1 to"),
    ],
)
def test_malicious_and_broken_pickles_are_refused(tmp_path, data, problem) -> None:
    path = saved(tmp_path, data)
    tracemalloc.start()
    try:
        with pytest.raises(RecordError) as raised:
            read_intervals(path)
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()
    assert str(raised.value).startswith(f"{path}: ")
    assert len(str(raised.value)) < len(str(path)) + 250


@pytest.mark.parametrize("opening", [b"]", b"("])
def test_a_deeply_nested_pickle_is_no_list_of_pairs(tmp_path, opening) -> None:
    depth = 20_000
    data = opening * depth + (b"a" * (depth - 1) if opening == b"]" else b"t" * depth) + b"."
    with pytest.raises(RecordError):
        read_intervals(saved(tmp_path, data))


def test_a_value_that_doubles_at_every_level_is_refused_at_once(tmp_path) -> None:
    """Its text, its hash and its comparison would each take 2 ** 60 steps."""
    doubling = b"K\x01" + b"".join(b"q%ch%c\x86" % (i, i) for i in range(60))
    with pytest.raises(RecordError):
        read_intervals(saved(tmp_path, b"]" + doubling + b"a."))


def test_a_long_list_in_many_places_is_refused_at_once(tmp_path) -> None:
    """Copied for each of its places it would have 10 ** 10 elements."""
    row = b"(" + b"K\x01" * 100_000 + b"lq\x00"
    data = b"(" + row + b"h\x00" * 99_999 + b"l."
    with pytest.raises(RecordError):
        read_intervals(saved(tmp_path, data))


def test_a_huge_number_is_no_frame(tmp_path) -> None:
    huge = b"\x8b" + struct.pack("<i", 100_000) + b"\x7f" * 100_000
    with pytest.raises(RecordError):
        read_intervals(saved(tmp_path, b"]K\x00" + huge + b"\x86a."))


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("ab", "must be a list of pairs, is str"),
        (None, "must be a list of pairs, is NoneType"),
        ([], "must have from 1 to 100000 steps, has 0"),
        ([0] * 100_001, "must have from 1 to 100000 steps, has 100001"),
        ([(0, 1), 5], "step 1: must be a first and a last frame"),
        ([(0, 1, 2)], "step 0: must be a first and a last frame"),
        (["ab"], "step 0: must be a first and a last frame"),
        ([(0, "1")], "step 0: a frame must be a whole number, is str"),
        ([(0, True)], "step 0: a frame must be a whole number, is bool"),
        ([(0, 1.5)], "step 0: a frame must be a whole number from 0"),
        ([(0, float("nan"))], "step 0: a frame must be a whole number from 0"),
        ([(0, float("inf"))], "step 0: a frame must be a whole number from 0"),
        ([(-1, 1)], "step 0: a frame must be a whole number from 0"),
        ([(0, MOST_FRAMES + 1)], f"step 0: a frame must be a whole number from 0 to {MOST_FRAMES}"),
        ([(5, 4)], "step 0: ends at frame 4, before its first frame 5"),
    ],
)
def test_values_that_are_no_pairs_of_frames_are_named(tmp_path, value, problem) -> None:
    path = saved(tmp_path, pickle.dumps(value))
    with pytest.raises(RecordError):
        read_intervals(path)


def test_a_missing_folder_or_huge_file_is_named(tmp_path) -> None:
    with pytest.raises(RecordError):
        read_intervals(tmp_path / "frame_intervals.pik")
    with pytest.raises(RecordError):
        read_intervals(tmp_path)
    with pytest.raises(RecordError):
        read_intervals(saved(tmp_path, bytes(MOST_BYTES + 1)))


@pytest.mark.parametrize("shape", SHAPES)
def test_every_cut_off_file_is_refused(tmp_path, shape) -> None:
    whole = pickle.dumps(SHAPES[shape], 4)
    for length in range(len(whole)):
        with pytest.raises(RecordError):
            read_intervals(saved(tmp_path, whole[:length]))


SOURCES = [pickle.dumps(value, p) for value in SHAPES.values() for p in PROTOCOLS]


def damaged(seed: int) -> bytes:
    """A good pickle with one to three pieces replaced by others, mostly by instructions."""
    chance = random.Random(seed)
    data = chance.choice(SOURCES)
    for _ in range(chance.randint(1, 3)):
        place = chance.randint(0, len(data))
        new = bytes(
            chance.choice((chance.randint(0, 255), *b"(Kqh.]})abetR\x86")) for _ in range(2)
        )
        data = data[:place] + new[: chance.randint(0, 2)] + data[place + chance.randint(0, 3) :]
    return data


@pytest.mark.fuzz
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    # A smaller seed is no simpler record.
    phases=[Phase.generate],
)
@given(seeds=st.lists(st.integers(0, 2**32), min_size=50, max_size=50, unique=True))
def test_a_damaged_pickle_gives_pairs_or_a_named_error(tmp_path_factory, seeds) -> None:
    for seed in seeds:
        path = saved(tmp_path_factory.getbasetemp(), damaged(seed))
        try:
            steps = read_intervals(path)
        except RecordError as error:
            assert str(error).startswith(str(path))
        else:
            assert all(0 <= first <= last <= MOST_FRAMES for first, last in steps)
