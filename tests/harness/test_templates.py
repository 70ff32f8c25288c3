"""Prompts of one's own: GridToM's in a file's words, and a judge's, to the character."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from rich.console import Console

from sally_anne.core.errors import HarnessError
from sally_anne.data.gridtom.stories import open_stories
from sally_anne.experiments.train_tiny.families import Family
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.evaluate import evaluate
from sally_anne.harness.gridtom import FIELDS, Order, Wording, items
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.harness.tasks import load_items
from tests.harness import made_benchmarks as made
from tests.harness.chat_server import Server, completion
from tests.made_stories import asked_of, cast_of, made_story

OURS = "{context} Question: {asked} Answer:"
SETTINGS = ("multimodal", "video", "text")
JUDGED = "{question}|{reference}|{reply}|{{{right}/{wrong}}}\n"


def written(folder: Path, text: str, name: str = "mine.txt") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def outcome(config: EvalConfig) -> str:
    printed = io.StringIO()
    evaluate(config, console=Console(file=printed, width=200))
    return printed.getvalue()


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("ask", get_args(Order))
def test_our_own_prompt_as_a_template_is_the_default_one(ask, setting) -> None:
    stories = [made_story(3), made_story(4), *map(open_stories(None, 2025).story, (5, 40))]
    splits = dict.fromkeys((story.index for story in stories), "test")
    ours = list(items(stories, splits, ask, Wording(setting)))
    assert list(items(stories, splits, ask, Wording(setting, template=OURS))) == ours != []
    if setting == "text" or (setting, ask) == ("multimodal", "1"):
        parts = OURS.replace("{context}", "{world} {caption}")
        assert list(items(stories, splits, ask, Wording(setting, template=parts))) == ours


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_field_of_a_belief_question(setting) -> None:
    (asked, _) = items([made_story(3)], {3: "test"}, "1", Wording(setting, template=all_fields(2)))
    one, other = asked_of(3, "1")[0].options
    told = "" if setting == "video" else "Story 3, TB, seen by the omniscient."
    assert asked.text.split("|") == [
        f"World 3. {told}".strip(),
        "World 3.",
        told,
        "Who is where in TB?",
        f"Who is where in TB? Choose one: {one} or {other}.",
        f"{one}\n{other}",
        f"{one} or {other} only",
        f"the {cast_of(3).protagonist} agent",
        # Numbers 0 to 18, three a second.
        *(
            ("", "", "", "")
            if setting == "text"
            else (
                "You see 0:06.3 of the film in 7 frames, from 0:00, 0:00.7, 0:01.3, 0:02.3, "
                "0:03.3, 0:04.7, 0:06.\n",
                "6.33 seconds",
                "7",
                "0.00s,0.67s,1.33s,2.33s,3.33s,4.67s,6.00s",
            )
        ),
        *(one, one, other, other),
    ]


def all_fields(options: int) -> str:
    each = [f"{kind}_{n + 1}" for n in range(options) for kind in ("option", "label")]
    return "|".join(f"{{{name}}}" for name in (*FIELDS, *each))


def test_initial_beliefs_have_the_frames_of_their_section_and_options_of_their_own() -> None:
    template = "{question}|{asked}|{options}|{labels}|{person}|{caption}|{count}|{times}"
    _, room = items([made_story(3)], {3: "test"}, "initial", Wording("video", template=template))
    one, two, three = cast_of(3)[2:]
    assert room.text.split("|") == [
        *("First room? (3)", "First room? (3)", f"{one}\n{two}\n{three}"),
        *(f"{one}, {two} or {three} only", "", "", "3", "0.00s,0.67s,1.33s"),
    ]


def test_examples_are_told_in_the_template_s_words(tmp_path: Path) -> None:
    config = EvalConfig(limit=2, prompting="few-shot", shots=2)
    path = written(tmp_path, OURS)
    assert load_items(replace(config, template=path)).items == load_items(config).items
    path.write_text("In words: {caption}\n{asked}")
    for item in load_items(replace(config, template=path, setting="video")).items:
        # Frames are shown of the question that is asked, and of no example.
        assert [bool(part[:1].strip()) for part in item.text.split("In words: ")[1:]] == [1, 1, 0]


def test_a_folder_never_mixes_templates(tmp_path: Path, server: Server) -> None:
    server.answer = lambda body: (200, completion("the red room"))
    mine = written(tmp_path, "First: {context} {asked}")
    config = EvalConfig(
        endpoint=server.url, endpoint_model="m", setting="text", limit=2, out=tmp_path / "run"
    )
    assert replace(config, out=None, template=mine).folder.name.endswith(
        "text-template-mine-2drawn"
    )
    asked = replace(config, template=mine)
    outcome(asked)
    sent = [body["messages"][-1]["content"] for _, _, body in server.seen]
    assert sorted(sent) == sorted(item.text for item in load_items(asked).items)
    assert all(text.startswith("First: ") for text in sent)
    outcome(asked)
    other = written(tmp_path, "Then: {context} {asked}", "other.txt")
    for changed, here in ((other, "'Then: {context} {asked}'"), (None, "None")):
        with pytest.raises(HarnessError, match="template is 'First.* there, ") as error:
            outcome(replace(asked, template=changed))
        assert f"{here} here" in str(error.value)
    assert len(server.seen) == len(sent) == 4


@pytest.fixture
def judged(tmp_path: Path, server: Server) -> EvalConfig:
    """Replies to two open questions, by the server, which judges also."""
    server.answer = lambda body: (
        200,
        completion("YES." if body["model"] == "judge" else "A  rope\nor {so}."),
    )
    data = made.mimeqa(tmp_path / "data")
    where = {"endpoint": server.url, "endpoint_model": "m", "judge_words": ("YES", "NO")}
    return EvalConfig(task="mimeqa", view="none", data=data, out=tmp_path / "run", **where)


def wanted(config: EvalConfig) -> list[str]:
    """What :data:`JUDGED` makes of the replies, whose white space counts as single spaces."""
    return [
        f"{item.question}|{item.reference}|A rope or {{so}}.|{{YES/NO}}\n"
        for item in load_items(config).items
    ]


@pytest.mark.integration
def test_a_judge_s_model_has_the_template(
    judged, tmp_path: Path, folders: dict[Family, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def option_log_probs(
        self: SteeredModel, prompts: Sequence[Prompt], options: Sequence[Sequence[str]]
    ) -> list[list[float]]:
        seen.extend(prompt.text for prompt in prompts)
        return [[-1.0, -2.0]] * len(prompts)

    monkeypatch.setattr(SteeredModel, "option_log_probs", option_log_probs)
    judge = replace(judged, judge=str(folders["qwen2-vl"]), judge_words=("right", "wrong"))
    outcome(replace(judge, judge_template=written(tmp_path, JUDGED)))
    assert seen == [text.replace("YES/NO", "right/wrong") for text in wanted(judged)]
    outcome(judge)
    assert len(seen) == 4 and len(list(judged.folder.glob("verdicts-*.jsonl"))) == 2
