"""Which frames belong to a question, and where they are looked for."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from sally_anne.data.media import cut
from sally_anne.data.mmtom_qa import MMTOM_QA, load, picture

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
    assert first.media[0].kind == "frames"
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
        [int(n) for n in found.timeline.numbers[found.places]]
        for item in load(questions(tmp_path, 0, 1, 2))
        for found in [cut(item.media[0], "full", MMTOM_QA.sampling)]
    ]
    assert shown[0] == [0, 14, 28, 42, 56, 70, 84, 98] == as_published(100)
    assert shown[1] == [0, 50, 100, 150, 200, 250, 300, 350] == as_published(350)
    # There is no frame 700.
    assert shown[2] == [0, 99, 198, 297, 396, 495, 594, 693] == as_published(699)
