"""The pickle of frame intervals: plain pairs are read, everything else is refused by name."""

from __future__ import annotations

import os
import pickle
import random
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sally_anne.core.errors import RecordError
from sally_anne.data.mmtom_qa import MOST, read_intervals

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


@pytest.mark.parametrize("shape", SHAPES)
def test_pairs_of_every_shape_and_protocol(tmp_path, shape) -> None:
    for protocol in PROTOCOLS:
        assert read_intervals(saved(tmp_path, pickle.dumps(SHAPES[shape], protocol))) == PAIRS


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "payload",
    [
        Payload(os.system, "touch {}"),
        Payload(eval, "open('{}', 'w')"),
        Path("x"),
        np.array(PAIRS),
        {0: (0, 3)},
    ],
)
def test_classes_are_refused_by_name_and_nothing_is_run(tmp_path, payload, protocol) -> None:
    touched = tmp_path / "touched"
    if isinstance(payload, Payload):
        function, (text,) = payload.call
        payload = Payload(function, text.format(touched))
    path = saved(tmp_path, pickle.dumps([payload], protocol))
    with pytest.raises(RecordError):
        read_intervals(path)
    assert not touched.exists()


@pytest.mark.parametrize(
    "data",
    [
        # Protocol 0 by hand: instance, object and extension opcodes, a persistent id.
        b"(S'touch x'\nios\nsystem\n.",
        b"(cos\nsystem\nS'touch x'\no.",
        b"\x82\x01.",
        b"Psomething\n.",
        b"(K\x01\x91.",
        b"K\x01)R.",
        b"\x8c\x02os\x8c\x06system\x93.",
        # Cut short, or no stack for what is asked.
        b"",
        b"]",
        b".",
        b"K\x01a.",
        b"\x96" + struct.pack("<Q", 2**40) + b"x.",
        b"\xff.",
        b"I" + b"9" * 5000 + b"\n.",
        b"not a pickle",
        # Lengths and places in memory far beyond the file.
        b"\x8e" + struct.pack("<Q", 2**62) + b"x.",
        b"\x8b" + struct.pack("<i", 2**31 - 1) + b"\x01.",
        b"\x80\x04\x95" + struct.pack("<Q", 2**62) + b"].",
        b"]r" + struct.pack("<I", 2**32 - 1) + b".",
    ],
)
def test_malicious_and_broken_pickles_are_refused(tmp_path, data) -> None:
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


def test_a_missing_file_is_named(tmp_path) -> None:
    with pytest.raises(RecordError):
        read_intervals(tmp_path / "frame_intervals.pik")
    with pytest.raises(RecordError):
        read_intervals(tmp_path)


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
            assert all(0 <= first <= last <= MOST for first, last in steps)
