"""Which frames belong to a question, and where they are looked for."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from sally_anne.benchmarks.mmtom_qa import load
from sally_anne.benchmarks.mmtom_qa.episodes import picture
from sally_anne.core.errors import RecordError

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


def test_pictures_are_named_with_four_digits() -> None:
    assert picture(7) == "Action_0007_0_normal.png"
    assert picture(12_345) == "Action_12345_0_normal.png"


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


def test_intervals_without_frames_tell_the_numbers_alone(tmp_path) -> None:
    (tmp_path / "task_23").mkdir()
    (tmp_path / "task_23" / "frame_intervals.pik").write_bytes(pickle.dumps(STEPS))
    (item,) = load(questions(tmp_path, 1))
    assert (item.media[0].path, item.media[0].frames) == (None, (0, 1, 2, 3, 4, 5))


def test_a_film_without_usable_intervals_is_an_error(tmp_path) -> None:
    film(tmp_path / "videos" / "task_23")
    path = tmp_path / "videos" / "task_23" / "frame_intervals.pik"
    questions(tmp_path, 0)
    path.write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(RecordError, match=f"{path}: asks for 'os.system'"):
        load(tmp_path)
    path.unlink()
    with pytest.raises(RecordError, match=f"{path}: cannot be read"):
        load(tmp_path)


def test_a_step_that_the_episode_does_not_have_is_an_error(tmp_path) -> None:
    film(tmp_path / "task_23")
    with pytest.raises(
        RecordError, match="line 2: field end_time is 3, but .*frame_intervals.pik has 3 steps"
    ):
        load(questions(tmp_path, 0, 3))
