"""The distractor copilot: what gives a set away, by hand, and sessions that are stopped."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sally_anne.core.errors import HarnessError
from sally_anne.data.items import own_task
from sally_anne.harness.distractors import copilot, giveaways, write_lines
from sally_anne.harness.method_config import CopilotConfig
from tests.harness.chat_server import Server, Step, completion, words
from tests.made_replies import printed

RIGHT = "because she has seen the letter in the drawer before"
SHORT = ["she is angry", "she is bored", "she is tired"]
ALIKE = [
    "because he has told her that the letter is fake",
    "because she has heard the postman talk about the news",
    "because the letter was not sealed when it came in",
]
LINES = [
    {"id": name, "question": f"Why does {name} smile at the letter?", "answer": RIGHT}
    | {"transcript": f"{name}: What a day."}
    for name in ("Ann", "Bob", "Cy")
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_lines(tmp_path / "new.jsonl", LINES)
    return tmp_path / "new.jsonl"


def longest(prompt: str) -> str:
    """The letter of the option with the most words."""
    options = re.findall(r"^([A-D])\. (.*)$", prompt, re.MULTILINE)
    assert len(options) == 4
    return max(options, key=lambda option: len(option[1].split()))[0]


def simple(body: dict[str, Any]) -> Step:
    """Proposes a set that length gives away, then one that it does not; picks the longest."""
    text = words(body)
    if "Write three wrong answers" not in text:
        # A reply that names a letter where one sticks out, else nothing that can be read.
        options = re.findall(r"^[A-D]\. (.*)$", text, re.MULTILINE)
        apart = len({len(option.split()) for option in options}) > 1
        return 200, completion(f"({longest(text)})" if apart else "I cannot tell")
    return 200, completion(json.dumps(ALIKE if "tried before" in text else SHORT))


session = partial(printed, copilot)


def at(server: Server, data: Path, **more: Any) -> CopilotConfig:
    out = data.parent / "run"
    return CopilotConfig(data, endpoint=server.url, endpoint_model="gpt-x", out=out, **more)


def test_a_set_that_length_gives_away_is_sent_back(server: Server, data: Path) -> None:
    server.answer = simple
    outcomes, told_all = session(at(server, data))
    for outcome in outcomes:
        first, second = outcome["rounds"]
        assert first["distractors"] == tuple(SHORT) and second["distractors"] == tuple(ALIKE)
        assert first["verdict"] == {"orders": 6, "right": 6, "invalid": 0, "biased": True}
        # Ten words each, so that this checker has nothing to go by.
        assert second["verdict"] == {"orders": 6, "right": 0, "invalid": 6, "biased": False}
        assert not second["problems"]
        told = "\n".join(first["problems"])
        assert "picked the right answer 6 times" in told
        assert "the right answer is the longest (10 words, the others have 3, 3, 3)" in told
        assert "nobody was tempted by" in told
    assert "3 of 3 questions have a set that holds" in told_all
    back = [b for _, _, b in server.seen if "tried before" in words(b)]
    assert len(back) == 3
    assert all("10 words, the others have 3, 3, 3" in words(b) for b in back)
    assert all("- she is bored" in words(b) for b in back)
    # Nobody who checks is shown what was said.
    checks = [words(b) for _, _, b in server.seen if b not in back]
    checks = [text for text in checks if "Write three" not in text]
    assert checks and not any("What a day" in text for text in checks)


def test_the_sets_that_hold_are_a_task(server: Server, data: Path) -> None:
    def stubborn(body: dict[str, Any]) -> Step:
        text = words(body)
        proposes = "Write three" in text and "Why does Bob" in text
        return (200, completion(json.dumps(SHORT))) if proposes else simple(body)

    server.answer = stubborn
    config = at(server, data, rounds=2)
    outcomes, told = session(config)
    assert "2 of 3 questions have a set that holds" in told
    lines = [json.loads(line) for line in (config.folder / "sets.jsonl").read_text().splitlines()]
    assert [line["biased"] for line in lines] == [False, True, False]
    assert [line["distractors"] for line in lines] == [ALIKE, SHORT, ALIKE]
    assert [len(line["rounds"]) for line in lines] == [2, 2, 2]
    items = own_task(config.folder / "task.jsonl").load(config.folder / "task.jsonl")
    assert [item.item_id for item in items] == ["Ann", "Cy"]
    for item in items:
        assert next(o.text for o in item.options if o.label == item.answer) == RIGHT
        assert sorted(o.text for o in item.options) == sorted([RIGHT, *ALIKE])
        assert item.context.scene == f"{item.item_id}: What a day."


def test_a_stopped_session_asks_nothing_twice(server: Server, data: Path) -> None:
    answered: list[str] = []

    def answer(body: dict[str, Any]) -> Step:
        if len(answered) == 9 and not stopped:
            return 403, b"no"
        answered.append(json.dumps(body))
        return simple(body)

    server.answer, stopped = answer, []
    config = at(server, data, batch_size=1)
    with pytest.raises(HarnessError, match="403"):
        session(config)
    stopped.append(True)
    outcomes, _ = session(config)
    assert len(answered) == len(set(answered)) > 9
    assert outcomes == session(replace(config, out=data.parent / "whole"))[0]
    sets = [folder / "sets.jsonl" for folder in (config.folder, data.parent / "whole")]
    assert sets[0].read_bytes() == sets[1].read_bytes()


def test_what_gave_it_away() -> None:
    wrong = ["never in this whole house", "never on any boat at all", "never in a single room"]
    right = "under the captain's table"
    chosen, tempted, length = giveaways(right, wrong, [right] * 5 + [wrong[2]])
    assert "right answer 5 times" in chosen
    assert wrong[0] in tempted and wrong[1] in tempted and wrong[2] not in tempted
    assert "the shortest (4 words, the others have 5, 6, 5)" in length
