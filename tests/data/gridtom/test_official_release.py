"""A release with the paper's fields and wording alone, as in its figures 10 and 11."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sally_anne.core.errors import MediaError
from sally_anne.data.gridtom.release import load

pytestmark = pytest.mark.integration

QUESTION = (
    "At the very end of the video, which color room does the yellow agent believe the white "
    "agent should be in?"
)
ARRIVAL = (
    "The story proceeds as follows: 1. Initially, the white agent stands in the corridor. It "
    "walks towards the red room, opens the red door, enters the room, and closes the red door "
    "behind itself. Throughout this time, the yellow agent is in the corridor and sees the white "
    "agent go into the red room. 2. After the white agent closes the door to the red room, the "
    "yellow agent goes over to the green room, opens the green door, enters it, "
)
OPEN = (
    "but the yellow agent does not close the green door. Therefore, the yellow agent can see "
    "everything happening outside the green room. 3. While the yellow agent is inside the green "
    "room (with the green door open), "
)
CLOSED = (
    "and the yellow agent closes the green door. Therefore, the yellow agent cannot see anything "
    "happening outside the green room. 3. While the yellow agent is inside the green room (with "
    "the green door closed), "
)
TRANSFER = (
    "the white agent opens the red room door, leaves the red room, then walks to the purple room, "
    "opens the purple door, goes inside, and closes the purple door. That is where the video ends."
)
RECORD = {
    "index": 7,
    "env_desc": "The video shows a 2D grid world viewed from above. There are two triangles here.",
    "init_env_desc": "The video shows a 2D grid world viewed from above.",
    # The protagonist need not stand second.
    "colors": {
        "protagonist": "yellow",
        "participant": "white",
        "a": "green",
        "b": "purple",
        "c": "red",
    },
    "nodes": [0, 11, 19, 36],
    "init_belief": [
        {
            "question": "How many agents (triangles) are there? What colors are they? Choose from "
            "the following colors and just answer the color(s). (white, green, red, yellow, "
            "purple)",
            "section": [0, 36],
            "answer": ["white", "yellow"],
        },
        {
            "question": "What color room did the white agent walk into? Choose from the following "
            "colors and just answer the color. (red, green, purple)",
            "section": [0, 11],
            "answer": "red",
        },
        {
            "question": "What color room did the yellow agent walk into?",
            "section": [0, 19],
            "answer": ["green"],
        },
    ],
    "first_order_belief": [
        {
            "type": "TrueBelief",
            "question": QUESTION,
            "options": ["red", "purple"],
            "answer": "purple",
            "caption": ARRIVAL + OPEN + TRANSFER,
            "belief_true": "The white agent is now in the purple room. ",
            "belief_false": "The white agent is now in the red room.",
        },
        {
            "type": "FalseBelief",
            "question": QUESTION,
            "options": ["red", "purple"],
            "answer": "red",
            "caption": ARRIVAL + CLOSED + TRANSFER,
            "belief_true": "The white agent is now in the red room.",
            "belief_false": "The white agent is now in the purple room.",
        },
    ],
}


def picture(version: str, view: str, tick: int) -> np.ndarray:
    seed = [version == "TrueBelief", view == "full", tick]
    return np.random.default_rng(seed).integers(0, 256, (420, 294, 3), dtype=np.uint8)


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """One story with its key frames, one of them with an alpha channel."""
    for version in ("TrueBelief", "FalseBelief"):
        for view in ("full", "protagonist_pov"):
            folder = tmp_path / "7" / version / view
            folder.mkdir(parents=True)
            for tick in (0, 5, 11, 15, 19, 27, 36):
                image = Image.fromarray(picture(version, view, tick))
                (image.convert("RGBA") if tick == 5 else image).save(folder / f"{tick}.png")
    (tmp_path / "info.json").write_text(json.dumps(RECORD) + "\n")
    return tmp_path


def test_parts_in_the_plot_are_found(release: Path) -> None:
    record = load(release).story(7)
    assert record.cast == ("white", "yellow", "red", "green", "purple")
    assert record.rooms == ("green", "purple", "red")
    assert record.colors == RECORD["colors"]
    assert list(record.colors) == ["protagonist", "participant", "a", "b", "c"]
    assert record.nodes == (0, 11, 19, 36)
    assert record.map is None
    assert record.group == "story-0007"


def test_wording_is_kept(release: Path) -> None:
    record = load(release)[0]
    assert record.environment == RECORD["env_desc"]
    assert record.initial_environment == RECORD["init_env_desc"]
    for case in record.cases(1):
        assert case.question.question == QUESTION
        assert case.question.options == ("red", "purple")
    true, false = record.cases(1)
    assert true.captions["omniscient"] == ARRIVAL + OPEN + TRANSFER
    # The blank at its end would be the last token.
    assert true.statement("purple") == "The white agent is now in the purple room."
    assert (true.question.answer, false.question.answer) == ("purple", "red")
    assert (true.believed, false.believed, false.reality) == ("purple", "red", "purple")


def test_the_deceived_protagonist_gets_our_own_sentence(release: Path) -> None:
    true, false = load(release)[0].cases(1)
    assert true.captions["protagonist"] == true.captions["omniscient"]
    told = false.captions["protagonist"]
    assert told == (
        f"{ARRIVAL}{CLOSED.split(' 3. ')[0]} 3. While the yellow agent is in the green room with "
        "the green door closed, the yellow agent does not know what happens outside the green "
        "room. That is where the video ends."
    )
    assert "purple" not in told


def test_the_participant_does_not_hear_of_the_protagonists_walk(release: Path) -> None:
    told = load(release)[0].case(1, "FB").captions["participant"]
    assert told.startswith("The story proceeds as follows: 1. Initially, the white agent stands")
    second = told.split(" 2. ")[1].split(" 3. ")[0]
    assert "green" not in second
    assert "the white agent does not know what happens outside the red room" in second
    assert told.endswith(TRANSFER)


def test_frames(release: Path) -> None:
    case = load(release)[0].case(1, "FB")
    for perspective, view in (("omniscient", "full"), ("protagonist", "protagonist_pov")):
        wanted = [picture("FalseBelief", view, t) for t in (0, 5, 11, 15, 19, 27, 36)]
        assert np.array_equal(case.frames(perspective), np.stack(wanted))  # type: ignore[arg-type]
    with pytest.raises(MediaError, match="no frames from the participant perspective"):
        case.frames("participant")
