"""Reading ``info.json``: ours, and the paper's fields and wording alone (figures 10 and 11)."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sally_anne.core.errors import BenchmarkError, MediaError, RecordError
from sally_anne.data.gridtom.build import info_line
from sally_anne.data.gridtom.release import load
from sally_anne.data.gridtom.samples import build
from sally_anne.data.gridtom.stories import generated
from tests.data.test_damage import damaged

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
    assert list(record.colors.items()) == list(RECORD["colors"].items())  # type: ignore[attr-defined]
    assert record.nodes == (0, 11, 19, 36)
    assert (record.map, record.group) == (None, "story-0007")
    with pytest.raises(BenchmarkError, match="story 7 has no questions of order 2"):
        record.cases(2)


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


def test_the_released_contrast_is_the_text_that_the_released_code_reads(release: Path) -> None:
    samples = build(load(release), {7: "train"}, 1, "released", "multimodal")
    text = {(s.tags["condition"], s.labels["y_p"]): s.text for s in samples}
    true, false = RECORD["first_order_belief"]  # type: ignore[misc]
    begin = f"Description: {RECORD['env_desc']}"
    # As save_states.py has it; its statements keep a blank at their end.
    known, hidden = false["caption"].split(" 3. ")
    lacking = (
        f"{begin} {known} So the yellow agent is unable to know the following information: "
        f"{hidden.replace(' That is where the video ends.', '')}"
    )
    assert text == {
        ("TB", True): f"{begin} {true['caption']}\nBelief: {true['belief_true'].strip()}",
        ("TB", False): f"{begin} {true['caption']}\nBelief: {true['belief_false']}",
        ("FB", True): f"{lacking}\nBelief: {false['belief_true']}",
        ("FB", False): f"{begin} {false['caption']}\n\nBelief: {false['belief_false']}",
    }


def test_initial_answers_are_strings_or_lists(release: Path) -> None:
    count, first, second = load(release)[0].initial
    assert count.answer == ("white", "yellow")
    assert count.choices == ("white", "green", "red", "yellow", "purple")
    assert (first.answer, first.choices) == (("red",), ("red", "green", "purple"))
    assert (second.answer, second.choices) == (("green",), ("green", "purple", "red"))


def test_the_deceived_protagonist_gets_our_own_sentence(release: Path) -> None:
    true, false = load(release)[0].cases(1)
    assert true.captions["protagonist"] == true.captions["omniscient"]
    caption = false.captions["protagonist"]
    assert caption == (
        f"{ARRIVAL}{CLOSED.split(' 3. ')[0]} 3. While the yellow agent is in the green room with "
        "the green door closed, the yellow agent does not know what happens outside the green "
        "room. That is where the video ends."
    )
    assert "purple" not in caption


def test_the_participant_does_not_know_the_protagonists_walk(release: Path) -> None:
    caption = load(release)[0].case(1, "FB").captions["participant"]
    assert caption.startswith("The story proceeds as follows: 1. Initially, the white agent stands")
    second = caption.split(" 2. ")[1].split(" 3. ")[0]
    assert "green" not in second
    assert "the white agent does not know what happens outside the red room" in second
    assert caption.endswith(TRANSFER)


def test_frames(release: Path) -> None:
    case = load(release)[0].case(1, "FB")
    for perspective, view in (("omniscient", "full"), ("protagonist", "protagonist_pov")):
        expected = [picture("FalseBelief", view, t) for t in (0, 5, 11, 15, 19, 27, 36)]
        assert np.array_equal(case.frames(perspective), np.stack(expected))  # type: ignore[arg-type]
    with pytest.raises(MediaError, match="participant_pov"):
        case.frames("participant")


def test_a_caption_without_parts_is_named(release: Path) -> None:
    record = json.loads(json.dumps(RECORD))
    record["first_order_belief"][1]["caption"] = "The white agent hides."
    (release / "info.json").write_text(json.dumps(record))
    with pytest.raises(RecordError, match=r"first_order_belief\[1\].caption"):
        load(release)


LINE = info_line(generated(stories=[30])[0], "train")


@pytest.fixture
def without_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "isdir", lambda path: True)


def write(folder: Path, *lines: str | bytes) -> Path:
    data = [line if isinstance(line, bytes) else line.encode() for line in lines]
    (folder / "info.json").write_bytes(b"".join(data))
    return folder


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"\n\n", ""),
        (b"[1, 2]", ", line 1"),
        (b"[" * 100_000, ", line 1"),
        (LINE.encode() * 2, ", line 2"),
    ],
)
def test_a_bad_file_is_named(tmp_path, content, place) -> None:
    with pytest.raises(RecordError, match=rf"info\.json{place}"):
        load(write(tmp_path, content))


def test_missing_files_are_named(tmp_path) -> None:
    with pytest.raises(RecordError, match="info.json: cannot be read.*sally-anne build --out"):
        load(tmp_path / "nowhere")


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(500))
@pytest.mark.usefixtures("without_frames")
def test_a_damaged_record_is_right_or_a_named_error(tmp_path: Path, seed: int) -> None:
    record = damaged(random.Random(seed), json.loads(LINE))
    try:
        story = load(write(tmp_path, json.dumps(record)))[0]
    except BenchmarkError as error:
        assert "info.json, line 1" in str(error)
        return
    assert len({*story.cast}) == 5
    assert story.nodes == tuple(sorted(set(story.nodes)))
    assert len(story.cases(1)) == 2
    for case in story.versions:
        right = case.believed if case.order == 1 else case.thought
        assert case.question.answer == right
        assert set(case.question.options) == {story.cast.first_room, story.cast.last_room}
        assert right in case.statement(right)
        assert set(case.captions) == {"omniscient", "protagonist", "participant"}
    assert all(set(q.answer) <= set(q.choices) for q in story.initial)
