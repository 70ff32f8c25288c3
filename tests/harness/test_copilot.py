"""The distractor copilot: what gives a set away, by hand, and sessions that are stopped."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sally_anne.core.errors import ContextError, RecordError
from sally_anne.data.items import own_task
from sally_anne.harness.copilot import (
    UNKNOWN,
    Draft,
    Outcome,
    faults,
    giveaways,
    proposal_prompt,
    read_proposal,
    read_questions,
    run,
)
from sally_anne.harness.moments_config import CopilotConfig
from tests.harness.chat_server import Server, Step, completion

ROOT = Path(__file__).parents[2]
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
    return written(tmp_path / "new.jsonl", LINES)


def written(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def longest(prompt: str) -> str:
    """The letter of the option with the most words."""
    options = re.findall(r"^([A-D])\. (.*)$", prompt, re.MULTILINE)
    assert len(options) == 4
    return max(options, key=lambda option: len(option[1].split()))[0]


def simple(body: dict[str, Any]) -> Step:
    """Proposes a set that length gives away, then one that it does not; picks the longest."""
    text = body["messages"][0]["content"]
    if "Write three wrong answers" not in text:
        # A reply that names a letter where one sticks out, else nothing that can be read.
        options = re.findall(r"^[A-D]\. (.*)$", text, re.MULTILINE)
        apart = len({len(option.split()) for option in options}) > 1
        return 200, completion(f"({longest(text)})" if apart else "I cannot tell")
    return 200, completion(json.dumps(ALIKE if "tried before" in text else SHORT))


def session(config: CopilotConfig) -> tuple[list[Outcome], str]:
    printed = io.StringIO()
    return run(config, Console(file=printed, width=200)), printed.getvalue()


def at(server: Server, data: Path, **more: Any) -> CopilotConfig:
    out = data.parent / "run"
    return CopilotConfig(data, endpoint=server.url, endpoint_model="gpt-x", out=out, **more)


def test_a_set_that_length_gives_away_is_sent_back(server: Server, data: Path) -> None:
    server.answer = simple
    outcomes, printed = session(at(server, data))
    for outcome in outcomes:
        first, second = outcome.rounds
        assert first.distractors == tuple(SHORT) and second.distractors == tuple(ALIKE)
        assert first.verdict is not None and second.verdict is not None
        assert (first.verdict.right, first.verdict.biased) == (6, True)
        # Ten words each, so that this checker has nothing to go by.
        assert (second.verdict.right, second.verdict.invalid) == (0, 6) and not second.problems
        told = "\n".join(first.problems)
        assert "picked the right answer 6 times, and 6 times without knowing the question" in told
        assert "the right answer is the longest (10 words, the others have 3, 3, 3)" in told
        assert "nobody was tempted by" in told
    assert "3 of 3 questions have a set that holds" in printed
    back = [b for _, _, b in server.seen if "tried before" in b["messages"][0]["content"]]
    assert len(back) == 3
    assert all("10 words, the others have 3, 3, 3" in b["messages"][0]["content"] for b in back)
    assert all("- she is bored" in b["messages"][0]["content"] for b in back)
    # Nobody who checks is shown what was said, nor what was asked, the second time.
    checks = [b["messages"][0]["content"] for _, _, b in server.seen if b not in back]
    checks = [text for text in checks if "Write three" not in text]
    assert not any("What a day" in text for text in checks)
    blind = [text for text in checks if UNKNOWN in text]
    assert blind and not any("smile" in text for text in blind)


def test_the_sets_that_hold_are_a_task(server: Server, data: Path) -> None:
    def stubborn(body: dict[str, Any]) -> Step:
        text = body["messages"][0]["content"]
        proposes = "Write three" in text and "Why does Bob" in text
        return (200, completion(json.dumps(SHORT))) if proposes else simple(body)

    server.answer = stubborn
    config = at(server, data, rounds=2)
    outcomes, printed = session(config)
    assert "2 of 3 questions have a set that holds" in printed
    assert "Bob: somebody who knew nothing of the film" in printed
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


def test_ones_own_sets_are_looked_at_first(server: Server, data: Path) -> None:
    server.answer = simple
    mine = LINES[0] | {"distractors": ALIKE}
    written(data, [mine])
    outcomes, _ = session(at(server, data))
    assert len(outcomes[0].rounds) == 1 and not outcomes[0].rounds[0].problems
    assert not any("Write three" in b["messages"][0]["content"] for _, _, b in server.seen)


def test_replies_without_a_set_are_sent_back(server: Server, data: Path) -> None:
    written(data, LINES[:1])
    replies = ["I would rather not.", json.dumps([RIGHT.upper(), *SHORT[:2]]), json.dumps(ALIKE)]

    def answer(body: dict[str, Any]) -> Step:
        if "Write three" in body["messages"][0]["content"]:
            return 200, completion(replies.pop(0))
        return 200, completion("?")

    server.answer = answer
    outcomes, _ = session(at(server, data))
    none, same, good = outcomes[0].rounds
    assert none.problems == ("the reply must be 3 wrong options, there are 0",)
    assert same.problems == (f"the reply holds the right answer, {RIGHT!r}",)
    assert good.distractors == tuple(ALIKE) and not good.problems


def test_more_questions_and_more_rounds_go_on(server: Server, data: Path) -> None:
    server.answer = simple
    written(data, LINES[:2])
    first, _ = session(at(server, data, rounds=1))
    assert all(len(outcome.rounds) == 1 and outcome.rounds[0].problems for outcome in first)
    count = len(server.seen)
    again, printed = session(at(server, data, rounds=1))
    assert again == first and len(server.seen) == count and "; 0 replies are new" in printed
    written(data, LINES)
    outcomes, _ = session(at(server, data, rounds=4))
    assert [len(outcome.rounds) for outcome in outcomes] == [2, 2, 2]
    bodies = Counter(json.dumps(body) for _, _, body in server.seen)
    assert max(bodies.values()) == 1


@pytest.mark.integration
def test_a_killed_session_asks_nothing_twice(server: Server, data: Path) -> None:
    answered: list[str] = []
    waiting, release = threading.Event(), threading.Event()

    def answer(body: dict[str, Any]) -> Step:
        if len(answered) == 9 and not release.is_set():
            waiting.set()
            release.wait(60)
            return lambda handler: handler.connection.close()
        answered.append(json.dumps(body))
        return simple(body)

    server.answer = answer
    config = at(server, data, batch_size=1)
    words = ["--data", str(data), "--endpoint", server.url, "--endpoint-model", "gpt-x"]
    words += ["--batch-size", "1", "--out", str(config.folder)]
    command = [sys.executable, "-m", "sally_anne", "copilot", *words]
    began = subprocess.Popen(command, cwd=ROOT, env=os.environ)
    assert waiting.wait(120)
    os.kill(began.pid, signal.SIGKILL)
    began.wait()
    release.set()
    outcomes, _ = session(config)
    assert len(answered) == len(set(answered)) > 9
    whole, _ = session(replace(config, out=data.parent / "whole"))
    assert outcomes == whole
    sets = [folder / "sets.jsonl" for folder in (config.folder, data.parent / "whole")]
    assert sets[0].read_bytes() == sets[1].read_bytes()


@pytest.mark.integration
def test_a_tiny_model_and_what_it_cannot_read(data: Path) -> None:
    config = CopilotConfig(data, model="tiny-qwen2-vl", out=data.parent / "run", max_new_tokens=8)
    written(data, [LINES[0] | {"distractors": ALIKE}])
    outcomes, _ = session(replace(config, rounds=1))
    verdict = outcomes[0].rounds[0].verdict
    assert verdict is not None and verdict.orders == 6
    written(data, [LINES[0] | {"transcript": "so it is " * 9999}])
    with pytest.raises(ContextError, match="question Ann"):
        session(config)


ASKED = Draft("q", "Where did the old captain hide?", "under the captain's table", "")


@pytest.mark.parametrize(
    ("distractors", "picked", "blind", "told"),
    [
        (
            ["behind the green door", "beside the tall tree", "above the small shop"],
            {"under the captain's table": 5, "above the small shop": 1},
            2,
            [
                "picked the right answer 5 times, but 2 times without the question",
                'nobody was tempted by "behind the green door", "beside the tall tree"',
            ],
        ),
        (
            ["never in this whole house", "never on any boat at all", "never in a single room"],
            {"under the captain's table": 6},
            6,
            [
                "picked the right answer 6 times, and 6 times without",
                "the right answer is the shortest (4 words, the others have 5, 6, 5)",
                "all wrong options have words that the right one lacks: never",
            ],
        ),
    ],
)
def test_what_gave_it_away(
    distractors: list[str], picked: dict[str, int], blind: int, told: list[str]
) -> None:
    found = giveaways(ASKED, distractors, picked, blind, 5)
    assert all(any(part in line for line in found) for part in told)


def test_words_of_the_question_in_the_right_answer_alone() -> None:
    asked = replace(ASKED, answer="where the captain sleeps")
    alone = "only the right answer repeats words of the question: captain, where"
    options = ["behind the green door", "beside the tall tree", "above the small shop"]
    assert alone in giveaways(asked, options, {}, 0, 5)
    both = ["where the captain eats", *options[1:]]
    assert not any("repeats words" in line for line in giveaways(asked, both, {}, 0, 5))


@pytest.mark.parametrize(
    ("reply", "texts"),
    [
        ('["a x", "b", "c"]', ["a x", "b", "c"]),
        ('<think>["x"]</think>Here: ```json\n["a",\n "b", "c"]\n```', ["a", "b", "c"]),
        ("Sure!\n1. one thing\n2) another\n(c) a third", ["one thing", "another", "a third"]),
        ('- "one"\n* two\n• three\n', ["one", "two", "three"]),
        ('["a", 2, "c"]', []),
        ("Nothing to say.", []),
    ],
)
def test_replies_are_read(reply: str, texts: list[str]) -> None:
    assert read_proposal(reply) == texts


def test_what_is_no_set() -> None:
    assert faults(["a", "b", "c"], "d") == ""
    for texts in (["a", "b"], ["a b", "A  b!", "c"], ["a", "...", "c"], ["a", "D.", "c"]):
        assert faults(texts, "d")


def test_a_transcript_file_is_cut_to_its_window(tmp_path: Path) -> None:
    cues = ["1\n00:00:01,000 --> 00:00:02,000\n[ANN]: Hello.\n"]
    cues += ["2\n00:00:05,000 --> 00:00:06,000\nNobody.\n"]
    (tmp_path / "film.srt").write_text("\n".join(cues))
    line = {"question": "Why?", "answer": "so", "transcript_file": "film.srt"}
    path = written(tmp_path / "q.jsonl", [line, line | {"end": 3.0}, line | {"start": 7}])
    found = read_questions(path)
    assert [q.transcript for q in found] == ["ANN: Hello.\nNobody.", "ANN: Hello.", "(no speech)"]
    assert [q.item_id for q in found] == ["1", "2", "3"]
    assert "ANN: Hello.\nNobody." in proposal_prompt(found[0])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"answer": None}, "answer"),
        ({"transcript_file": "no.srt"}, "transcript_file"),
        ({"distractors": ["a", "b"]}, "distractors"),
        ({"distractors": [RIGHT, "b", "c"]}, "distractors"),
        ({"tags": {}}, "tags"),
    ],
)
def test_bad_questions(data: Path, change: dict[str, Any], field: str) -> None:
    written(data, [LINES[0] | change])
    with pytest.raises(RecordError, match=f"line 1: field {field} "):
        read_questions(data)
