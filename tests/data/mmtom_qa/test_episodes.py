"""Which frames belong to a question: folders, and pickles of intervals that are never loaded."""

from __future__ import annotations

import json
import os
import pickle
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sally_anne.core.errors import RecordError
from sally_anne.data.media import cut
from sally_anne.data.mmtom_qa import MMTOM_QA, MOST, load, picture, read_intervals

STEPS = [[0, 3], [3, 5], [5, 9]]
ASKED = "Question: Which? (a) One. (b) Two. Please respond with either a or b."
RECORD: dict[str, Any] = {
    "question": ASKED,
    "answer": "b",
    "question_type": 2.2,
    "test": [],
    "episode": 23,
    "start_time": 0,
}


def questions(folder: Path, *ends: int) -> Path:
    lines = [json.dumps(RECORD | {"end_time": end}) for end in ends]
    (folder / "questions.json").write_text("\n".join(lines))
    return folder


def film(task: Path, frames: int = 9) -> Path:
    """An episode of which the pictures are empty files, beside those of other kinds."""
    pictures = task / "script" / "0"
    pictures.mkdir(parents=True)
    (task / "frame_intervals.pik").write_bytes(pickle.dumps(STEPS))
    for number in range(frames):
        (pictures / picture(number)).touch()
        (pictures / f"Action_{number:04d}_0_seg_inst.png").touch()
    return pictures


@pytest.mark.parametrize("place", ["", "videos", "benchmark", "videos/highres", "benchmark/all"])
def test_frames_go_from_the_first_to_the_end_of_the_step(tmp_path, place) -> None:
    pictures = film(tmp_path / place / "task_23")
    first, second, last = load(questions(tmp_path, 0, 1, 2))
    assert [item.media[0].path for item in (first, second, last)] == [pictures] * 3
    assert first.media[0].frames == (0, 1, 2, 3)
    assert second.media[0].frames == (0, 1, 2, 3, 4, 5)
    # There is no frame 9: the last step ends with the film.
    assert last.media[0].frames == tuple(range(9))
    assert all((pictures / picture(n)).exists() for n in last.media[0].frames or ())


def test_the_end_frame_belongs_to_the_question_if_it_is_there(tmp_path) -> None:
    film(tmp_path / "task_23", frames=10)
    (item,) = load(questions(tmp_path, 2))
    assert item.media[0].frames == tuple(range(10))


def test_another_episode_s_film_is_none(tmp_path) -> None:
    film(tmp_path / "task_2")
    film(tmp_path / "task_230")
    (item,) = load(questions(tmp_path, 0))
    assert (item.media[0].path, item.media[0].frames) == (None, None)
    assert item.media[0].url.endswith("benchmark.zip")


def as_published(end_frame: int, count: int = 8) -> list[int]:
    """The frames that the authors' evaluation shows, as their testing_gpt.py numbers them."""
    step = int(end_frame / (count - 1))
    return [i * step for i in range(count)]


def test_frames_are_spread_up_to_the_moment_asked_about(tmp_path, monkeypatch) -> None:
    """The film goes on to frame 699; a question about frame 100 has eight frames all the same."""
    monkeypatch.setattr(f"{__name__}.STEPS", [[0, 100], [100, 350], [350, 700]])
    film(tmp_path / "videos" / "task_23", frames=700)
    shown = [
        found.places
        for item in load(questions(tmp_path, 0, 1, 2))
        for found in [cut(item.media[0], "full", MMTOM_QA.sampling)]
    ]
    assert shown[0] == [0, 14, 28, 42, 56, 70, 84, 98] == as_published(100)
    assert shown[1] == [0, 50, 100, 150, 200, 250, 300, 350] == as_published(350)
    # There is no frame 700.
    assert shown[2] == [0, 99, 198, 297, 396, 495, 594, 693] == as_published(699)


PAIRS = ((0, 38), (38, 90), (90, 300), (300, 70_000))
PICKLES = [
    pickle.dumps(value, protocol)
    for value in (PAIRS, [list(p) for p in PAIRS], [[float(n) for n in p] for p in PAIRS])
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
]


def saved(folder: Path, data: bytes) -> Path:
    path = folder / "frame_intervals.pik"
    path.write_bytes(data)
    return path


def test_pairs_of_every_shape_and_protocol(tmp_path) -> None:
    for data in PICKLES:
        assert read_intervals(saved(tmp_path, data)) == PAIRS


class Payload:
    """Runs a command when Python's own unpickler reads it."""

    def __reduce__(self) -> tuple:
        return os.system, ("touch touched",)


@pytest.mark.parametrize(
    "data",
    [
        *(pickle.dumps([Payload()], protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)),
        pickle.dumps(np.array(PAIRS)),
        pickle.dumps({0: (0, 3)}),
        pickle.dumps([(0, 38), (38, 20)]),
        pickle.dumps([(0, 38, 38)]),
        pickle.dumps([(0, True)]),
        # Protocol 0 by hand: instance, object and extension opcodes, a persistent id.
        b"(S'touch x'\nios\nsystem\n.",
        b"(cos\nsystem\nS'touch x'\no.",
        b"\x82\x01.",
        b"Psomething\n.",
        # Cut short, empty, and numbers far too long.
        *(b"", b"]", b".", b"K\x01a.", b"\xff.", b"I" + b"9" * 5000 + b"\n.", b"not a pickle"),
        b"\x8e" + struct.pack("<Q", 2**62) + b"x.",
    ],
)
def test_what_is_no_list_of_pairs_is_refused_and_nothing_is_run(tmp_path, data) -> None:
    path = saved(tmp_path, data)
    with pytest.raises(RecordError) as raised:
        read_intervals(path)
    assert str(raised.value).startswith(f"{path}: ") and not Path("touched").exists()
    with pytest.raises(RecordError):
        read_intervals(tmp_path)


@pytest.mark.fuzz
def test_a_damaged_pickle_gives_pairs_or_a_named_error(tmp_path) -> None:
    chance = random.Random(0)
    for _ in range(1500):
        data = chance.choice(PICKLES)
        for _ in range(chance.randint(1, 3)):
            place = chance.randint(0, len(data))
            new = bytes([chance.choice((chance.randint(0, 255), *b"(Kqh.]})abetR\x86"))])
            data = data[:place] + new + data[place + chance.randint(0, 3) :]
        path = saved(tmp_path, data)
        try:
            steps = read_intervals(path)
        except RecordError as error:
            assert str(error).startswith(str(path))
        else:
            assert all(0 <= first <= last <= MOST for first, last in steps)
