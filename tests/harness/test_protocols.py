"""Prompts of ``--protocol official``, equal to what the authors' own string building makes."""

from __future__ import annotations

import csv
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from sally_anne.data.gridtom.build import info_line
from sally_anne.data.gridtom.release import open_stories
from sally_anne.data.items import Media, Question
from sally_anne.data.media import cut
from sally_anne.data.tasks import find_task
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.parse import OFFICIAL
from sally_anne.harness.protocols import PROTOCOLS
from sally_anne.harness.questions import PromptConfig, render
from sally_anne.harness.tasks import load_items
from tests.harness.made_benchmarks import bigtom, mimeqa
from tests.shared_data import official_data, shared_data


def shown(benchmark, **options) -> PromptConfig:
    """How a benchmark is asked with these options."""
    protocol = PROTOCOLS[benchmark.name] if options.get("protocol") == "official" else None
    return PromptConfig.of(benchmark, EvalConfig(task="bigtom", **options), protocol)


def asked(task: str, folder: Path, **options) -> list[Question]:
    return load_items(EvalConfig(task=task, data=folder, protocol="official", **options)).items


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
    assert [(item.text, *item.key) for item in found] == wanted
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
    assert [item.key[0] for item in found] == [r["answer"] for r in records]
    assert {item.system for item in found} == {"You are a helpful assistant."}
    assert source == "made" or len(found) >= 40
    known = find_task("mmtom_qa")
    film = Media(path=Path("film"))
    filmed = [replace(one, media=(film,)) for one in known.load(path.parent)]
    for view, alone in (("video", True), ("multimodal", False)):
        given = render(known, filmed, shown(known, view=view, protocol="official"))
        told = [(item.text, item.system, item.notes) for item in given]
        assert told == [(mmtom_prompt(r, alone), "", None) for r in records]


@pytest.fixture(scope="module")
def gridtom(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict]]:
    """A release of 170 stories, of which no frame is looked at, and its lines."""
    folder = tmp_path_factory.mktemp("gridtom")
    stories = open_stories(None, 2025)
    lines = [json.loads(info_line(stories.story(index), None)) for index in stories.indices[:170]]
    for line in lines:
        del line["second_order_belief"]
        for belief in ("TrueBelief", "FalseBelief"):
            (folder / str(line["index"]) / belief / "full").mkdir(parents=True)
    (folder / "info.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder, lines


def gridtom_prompt(line: dict, belief: dict, video_only: bool) -> str:
    """As evaluate.py does."""
    first, last = belief["options"]
    wanted = '{"answer": "your option"}'
    text = (
        f"Question: {belief['question']} Choose from {first} or {last}.\n"
        "Requirement: Please answer only in the following JSON format without adding any "
        f"additional text or instructions:```json{wanted}"
    )
    return text if video_only else f"Description: {line['env_desc']} {belief['caption']}\n{text}"


@pytest.mark.parametrize("setting", ["multimodal", "video", "text"])
def test_gridtom_is_asked_as_by_its_authors(gridtom, setting: str) -> None:
    folder, lines = gridtom
    given = asked("gridtom", folder, setting=setting, split="published")
    wanted = [
        (gridtom_prompt(line, belief, setting == "video"), belief["answer"])
        for line in lines[:-148]
        for belief in line["first_order_belief"]
    ]
    assert len(wanted) == 44 and [(item.text, *item.key) for item in given] == wanted
    assert {item.split for item in given} == {"published"}
    assert all((item.clip is None) == (setting == "text") for item in given)
    rooms = [[option.text for option in item.options] for item in given]
    assert rooms == [b["options"] for line in lines[:-148] for b in line["first_order_belief"]]
    assert OFFICIAL["gridtom"].asks.search(given[0].text)
    for order, tokens in (("1", 20), ("2", 20), ("initial", 400)):
        how = EvalConfig(data=folder, protocol="official", order=order)
        assert how.reply_tokens == tokens


def test_gridtoms_initial_beliefs_are_asked_as_by_its_authors(gridtom) -> None:
    folder, lines = gridtom
    given = asked("gridtom", folder, order="initial", split="published")
    wanted = [
        f"Description: {line['init_env_desc']}\nQuestion: {one['question']}"
        for line in lines[:-148]
        for one in line["init_belief"]
    ]
    assert len(wanted) == 66 and [item.text for item in given] == wanted
    assert not any(item.tags for item in given)


def mimeqa_prompt(row: list[str], title: str, duration: float, times: tuple[float, ...]) -> str:
    """As eval_utils.py and llava_video_eval.py do; no title where that is empty."""

    def written(seconds: float) -> str:
        minutes = int(seconds // 60)
        return f"{minutes:02} min:{seconds % 60:.2f} sec"

    _, question, kind, span, _ = row
    if kind not in ("Social Judgment", "Working Memory", "Perspective Taking"):
        start, end = map(float, span[1:-1].split(", "))
        question = f"From timestamp {written(start)} to {written(end)}, {question}"
    lines = [
        "You are an expert in mime performance understanding and question answering. ",
        "    Typically, the mime would use exaggerated gestures or pretend objects to convey a "
        "message.",
        f"    The video lasts for {written(duration)}, and {len(times)} frames are uniformly "
        "sampled from it.",
        f"    These frames are located at {','.join(map(written, times))}. Answer the question in "
        "one sentence using the video, with brief explanations. ",
        "    Do not describe the frames just answer the question. ",
        "    If the mime is using imaginary objects, describe the objects as if they were real.",
        f"    The title of the video is {title}" if title else "    ",
        f"Question: {question}",
    ]
    return "\n".join(lines)


@pytest.mark.parametrize("view", ["video", "multimodal"])
def test_mimeqa_is_asked_as_by_its_authors(tmp_path: Path, view: str) -> None:
    folder = mimeqa(tmp_path / "mimeqa")
    kinds = ["Grounding the Imagined", "Affect Recognition", "Temporal", "Intention"]
    kinds += ["Social Judgment", "Working Memory", "Perspective Taking"]
    rows = [
        ["abc.mp4", f"What is {n}?", kinds[n % 7], f"({n / 4}, {2.5 * n + 1})", "A rope."]
        for n in range(49)
    ]
    with (folder / "annotation_final.csv").open("w", newline="") as file:
        header = ["file", "question", "question type", "timestamp", "reference_answer"]
        csv.writer(file).writerows([header, *rows])
    (folder / "file_mapping.json").write_text(json.dumps({"abc.mp4": "The {rope}"}))
    known = find_task("mimeqa")
    chosen = cut(known.load(folder)[0].media[0], "full", known.sampling)
    shown_title = "The {rope}" if view == "multimodal" else ""
    wanted = [mimeqa_prompt(row, shown_title, chosen.duration, chosen.times) for row in rows]
    found = asked("mimeqa", folder, view=view)
    assert [item.first_prompt() for item in found if item.notes] == wanted
    assert EvalConfig(task="mimeqa", protocol="official").reply_tokens == 128


def test_the_length_of_replies_and_the_folder_follow_the_protocol(tmp_path: Path) -> None:
    ours = EvalConfig(task="bigtom", data=bigtom(tmp_path))
    theirs = replace(ours, protocol="official")
    assert (ours.reply_tokens, theirs.reply_tokens) == (32, 100)
    assert replace(theirs, max_new_tokens=7).reply_tokens == 7
    assert theirs.folder != ours.folder and "official" in theirs.folder.name
    about = [load_items(config).about for config in (ours, theirs)]
    assert "protocol" not in about[0] and about[1]["protocol"] == "official"
    assert load_items(theirs).departs == PROTOCOLS["bigtom"].departs
