"""Prose about what is where, and about what somebody does, becomes contents and steps."""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sally_anne.core.errors import RecordError
from sally_anne.data.media import cut
from sally_anne.data.mmtom_qa import MMTOM_QA, MOST, load, picture, read_intervals
from sally_anne.data.mmtom_qa.scenes import Contents, Course, read_actions
from tests.shared_data import SOURCES, official_data

SCENE = Contents(
    "The apartment has rooms.\nIn the kitchen, there is a fridge, a stove and a microwave. The "
    "first, second and third cabinets are empty.\nThe living room has a cabinet, which is empty.\n"
    "The bathroom has a cabinet."
)
SHORT = {"go to": ">", "pass": "~", "open": "+", "close": "-", "be about to open": "?"}


def short(course: Course) -> str:
    """``kitchen| >fridge +fridge``: the first room and all steps, cabinets as ``K1``."""
    names = [f"{SHORT[a.verb]}{a.target}" for a in course.actions]
    return f"{course.room}| {' '.join(names)}".replace("kitchen cabinet ", "K")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("He is in the kitchen. He opens the fridge.", "kitchen| >fridge +fridge"),
        (
            "He is in the bathroom. He goes to the kitchen, opens and then closes the stove.",
            "bathroom| >kitchen >stove +stove -stove",
        ),
        (
            "She opens the fridge and closes it, does the same with the stove, and is about to "
            "open the microwave.",
            "| >fridge +fridge -fridge >stove +stove -stove ?microwave",
        ),
        (
            "She walks to the third, first and second kitchen cabinets, opening and closing each.",
            "| >K3 +K3 -K3 >K1 +K1 -K1 >K2 +K2 -K2",
        ),
        ("She moves to the stove. She opens the stove.", "| >stove +stove"),
        (
            "He walks to the first cabinet, opens it and closes it, as well as the fridge.",
            "| >K1 +K1 -K1 >fridge +fridge -fridge",
        ),
        (
            "He opens the stove and closes it, before heading to the fridge to do the same.",
            "| >stove +stove -stove >fridge +fridge -fridge",
        ),
        (
            "She is in the kitchen. She leaves the kitchen and goes to the living room, preparing "
            "to open a cabinet.",
            "kitchen| >living room ?living room cabinet",
        ),
        (
            "She is in the kitchen. She walks to the bathroom, opens and closes the bathroom "
            "cabinet, and goes back to the kitchen.",
            "kitchen| >bathroom >bathroom cabinet +bathroom cabinet -bathroom cabinet >kitchen",
        ),
        (
            "He is in the kitchen. He walks past the stove towards the wine glass.",
            "kitchen| ~stove >wine glass",
        ),
        ("He enters the kitchen and continues his journey to the fridge.", "kitchen| >fridge"),
        ("He sings, opens up, and closes.", "| "),
        ("", "| "),
    ],
)
def test_forms_of_sentences(text: str, expected: str) -> None:
    assert short(read_actions(text, SCENE)) == expected


@pytest.mark.parametrize("source", SOURCES)
def test_steps_of_official_prose_hang_together(source: str) -> None:
    for item in load(official_data(source, "mmtom_qa")):
        contents = Contents(item.context.scene)
        course = read_actions(item.context.actions, contents)
        assert course.room and course.actions, item.item_id
        here = ""
        for action, after in zip(course.actions, [*course.actions[1:], None], strict=True):
            if action.verb in ("open", "close"):
                assert action.target == here, item.item_id
            # What is opened is closed, what is gone to is opened: all but what comes last.
            if after and action.aim == "place":
                follow = {"open": ("close",), "go to": ("open", "close")}.get(action.verb)
                assert follow is None or after.verb in follow, item.item_id
            assert action.aim != "place" or action.target in contents.rooms, item.item_id
            here = action.target


WORDS = re.findall(
    r"\S+",
    "He She opens closes shuts it the a fridge stove microwave first second third fourth kitchen "
    "cabinet cabinets bathroom living room and then , . does the same with repeats this action is "
    "about to open preparing past leaves as well as wine glass salmon each",
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(text=st.text() | st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join))
def test_any_text_gives_steps(text: str) -> None:
    course = read_actions(text, SCENE)
    for action, before in zip(course.actions, [None, *course.actions], strict=False):
        assert action.target
        if action.verb in ("open", "close"):
            assert before is not None and before.target == action.target


DESCRIPTION = """The apartment consists of a bedroom, kitchen, living room, and bathroom.
In the bedroom, there is a desk and a cabinet. The cabinet houses two books, while a plate
rests on the desk.
The kitchen is equipped with eight cabinets, a fridge, a stove, a microwave, and a dishwasher.
The first cabinet holds two bottles of wine, the second a bag of chips. The third and 5th cabinets
are empty, and the sixth through eighth cabinets, from left to right, each hold a dish bowl.
The fridge stores a plate and two water glasses, and a salmon is in the microwave.
A cupcake can be found in both the microwave and the stove.
Lastly, the bathroom has a cabinet, which is currently empty."""
# One line for each room, as published.
DESCRIPTION = re.sub(r"(?<!\.)\n", " ", DESCRIPTION)


@pytest.mark.parametrize(
    ("container", "thing", "expected"),
    [
        ("1st kitchen cabinet", "bottle of wine", True),
        ("1st kitchen cabinet", "bag of chips", False),
        ("2nd kitchen cabinet", "bag of chips", True),
        ("2nd kitchen cabinet", "bottle of wine", False),
        ("3rd kitchen cabinet", "plate", False),
        ("5th kitchen cabinet", "dishbowl", False),
        ("6th kitchen cabinet", "dishbowl", True),
        ("7th kitchen cabinet", "dish bowl", True),
        ("8th kitchen cabinet", "dishbowl", True),
        ("4th kitchen cabinet", "plate", None),
        ("fridge", "plate", True),
        ("Fridge", "water glass", True),
        ("fridge", "wine glass", False),
        ("fridge", "salmon", False),
        ("microwave", "salmon", True),
        ("microwave", "plate", False),
        ("microwave", "cupcake", True),
        ("stove", "cupcake", True),
        ("stove", "salmon", False),
        # Named among the furniture alone: nothing is told of what is in it.
        ("dishwasher", "plate", None),
        ("bathroom cabinet", "plate", False),
        ("cabinet", "book", True),
        ("cabinet", "plate", False),
        ("desk", "plate", True),
        ("wardrobe", "plate", None),
        ("fridge", "elephant", None),
        ("", "", None),
    ],
)
def test_things_are_where_the_description_puts_them(container, thing, expected) -> None:
    text = DESCRIPTION.replace("cabinets\nare", "cabinets are").replace(
        "second a bag", "second one a bag"
    )
    assert Contents(text).holds(container, thing) is expected


def test_two_cabinets_count_if_they_agree() -> None:
    def cabinets(bedroom: str, living: str) -> Contents:
        return Contents(
            f"In the bedroom, the cabinet holds {bedroom}.\nIn the living room, the cabinet holds "
            f"{living}."
        )

    assert cabinets("a book", "two books").holds("cabinet", "book") is True
    assert cabinets("a book", "a plate").holds("cabinet", "book") is None
    assert cabinets("an apple", "a plate").holds("cabinet", "book") is False


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
