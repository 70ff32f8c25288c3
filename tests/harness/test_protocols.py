"""Prompts of ``--protocol official``, equal to what the authors' own string building makes."""

from __future__ import annotations

import csv
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from sally_anne.benchmarks.items import Media
from sally_anne.core.errors import HarnessError
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.items import Item
from sally_anne.harness.official import OFFICIAL
from sally_anne.harness.pipeline import check
from sally_anne.harness.protocols import PROTOCOLS
from sally_anne.harness.tasks import find_task
from sally_anne.harness.views import items, shown
from sally_anne.harness.work import prepare
from tests.harness.made_benchmarks import bigtom
from tests.shared_data import official_data, shared_data


def asked(task: str, folder: Path, **options) -> list[Item]:
    return prepare(EvalConfig(task=task, data=folder, protocol="official", **options)).items


def bigtom_prompts(path: Path) -> list[tuple[str, str]]:
    """As evaluate_conditions.py --mcq and the method chat-0shot do: prompts and right keys."""
    random.seed(0)
    found = []
    for story, question, true, wrong in csv.reader(path.open(), delimiter=";"):
        answers = [true, wrong]
        random.shuffle(answers)
        question += f"\nChoose one of the following:\na){answers[0]}\nb){answers[1]}"
        key = "a" if answers[0] == true else "b"
        found.append((f"Story: {story}\nQuestion: {question}", key))
    return found


def test_bigtom_is_asked_as_by_its_authors() -> None:
    folder = shared_data("bigtom")
    wanted = [pair for path in sorted(folder.glob("*/*.csv")) for pair in bigtom_prompts(path)]
    found = asked("bigtom", folder)
    assert len(found) >= 400 and {key for _, key in wanted} == {"a", "b"}
    assert [(item.text, *item.answer) for item in found] == wanted
    (system,) = {item.system for item in found}
    assert system.endswith("Answer as 'Answer:<option>)<answer>'.")
    # The reader of the authors finds its form asked for, in the system message.
    assert OFFICIAL["bigtom"].asks.search(system)


def mmtom_prompt(record: dict, video_only: bool) -> str:
    """As testing_gpt.py does without examples."""
    question = record["question"]
    if video_only:
        question = "\nQuestion:" + question.split("\nQuestion:")[-1]
    return question + "\nAnswer: "


@pytest.mark.parametrize("source", ["made", "published"])
def test_mmtom_qa_is_asked_as_by_its_authors(source: str) -> None:
    path = official_data(source, "mmtom_qa", "questions.json")
    records = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    found = asked("mmtom_qa", path.parent, view="text")
    assert [item.text for item in found] == [mmtom_prompt(r, False) for r in records]
    assert [item.answer[0] for item in found] == [r["answer"] for r in records]
    assert {item.system for item in found} == {"You are a helpful assistant."}
    assert source == "made" or len(found) >= 40
    known = find_task("mmtom_qa")
    film = Media(path=Path("film"))
    filmed = [replace(one, media=(film,)) for one in known.load(path.parent)]
    for view, alone in (("video", True), ("multimodal", False)):
        given = items(known, filmed, shown(known, view=view, protocol="official"))
        told = [(item.text, item.system, item.notes) for item in given]
        assert told == [(mmtom_prompt(r, alone), "", None) for r in records]


def test_the_length_of_replies_and_the_folder_follow_the_protocol(tmp_path: Path) -> None:
    ours = EvalConfig(task="bigtom", data=bigtom(tmp_path))
    theirs = replace(ours, protocol="official")
    assert (ours.reply_tokens, theirs.reply_tokens) == (32, 100)
    assert replace(theirs, max_new_tokens=7).reply_tokens == 7
    assert theirs.folder != ours.folder and "official" in theirs.folder.name
    about = [prepare(config).about for config in (ours, theirs)]
    assert "protocol" not in about[0] and about[1]["protocol"] == "official"
    assert prepare(theirs).departs == PROTOCOLS["bigtom"].departs


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"template": Path("t.txt")}, "--template asks for another"),
        ({"prompting": "cot"}, "--prompting asks for another"),
        ({"task": "mine.jsonl"}, "of mine.jsonl none is known"),
    ],
)
def test_what_a_protocol_cannot_be_combined_with(options: dict, message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        check(EvalConfig(**{"task": "bigtom", "protocol": "official"} | options))


def test_views_that_are_not_the_authors() -> None:
    with pytest.raises(HarnessError, match="--view none: the authors of bigtom show text only"):
        shown(find_task("bigtom"), view="none", protocol="official")
