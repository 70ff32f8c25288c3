"""How questions are put: what is sent to the model, and what is read of its replies."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from sally_anne.core.errors import HarnessError
from sally_anne.data.gridtom.release import open_stories
from sally_anne.data.items import Context, Media, Option, Question
from sally_anne.data.moments import MOMENTS
from sally_anne.harness.chat_endpoint import messages_of
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.evaluate import evaluate
from sally_anne.harness.gridtom import FIELDS, Order, Wording, items
from sally_anne.harness.model import Completion, Prompt, SteeredModel
from sally_anne.harness.protocols import (
    RETOLD,
    THOUGHTS,
    _sources,
    answered,
    examples_for,
    set_apart,
)
from sally_anne.harness.questions import PromptConfig, prompt_text
from sally_anne.harness.tasks import load_items
from sally_anne.models.tiny import Family
from tests.harness import made_benchmarks as made
from tests.made_replies import replied
from tests.made_stories import asked_of, cast_of, made_story

pytestmark = pytest.mark.integration


@dataclass
class Recorder:
    """A model that keeps what it is asked; ``say`` makes its reply from the prompt's text."""

    say: Callable[[str], str] = lambda text: "Hm."
    asked: list[tuple[Prompt, int]] = field(default_factory=list)
    ended: bool = True

    @property
    def texts(self) -> list[str]:
        return [prompt.text for prompt, _ in self.asked]


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    kept = Recorder()

    def replies(self: Any, prompts: Sequence[Prompt], max_new_tokens: int) -> list[Completion]:
        kept.asked += [(prompt, max_new_tokens) for prompt in prompts]
        return replied((kept.say(prompt.text) for prompt in prompts), kept.ended)

    monkeypatch.setattr(SteeredModel, "replies", replies)
    return kept


def config_of(task: str, tmp_path: Path, **options: Any) -> EvalConfig:
    """A small evaluation of a task, with films in its default view where the task has them."""
    if task == "gridtom":
        options = {"setting": "text", "limit": 2, **options}
    else:
        options["data"] = getattr(made, task)(tmp_path / task)
        if task == "mmtom_qa":
            options = {"view": "text", **options}
    return EvalConfig(task=task, **{"out": tmp_path / "run", **options})


def outcome(config: EvalConfig, folders: dict[Family, Path]) -> pd.DataFrame:
    return evaluate(replace(config, model=str(folders["qwen2-vl"])), console=Console(quiet=True))


@pytest.mark.parametrize("task", ("gridtom", "mimeqa"))
def test_thoughts_are_asked_for_in_place_of_the_answer_alone(
    task: str, folders: dict[Family, Path], tmp_path: Path, recorder: Recorder
) -> None:
    config = config_of(task, tmp_path, prompting="cot")
    direct = {i.item_id: i.text for i in load_items(replace(config, prompting="direct")).items}
    table = outcome(config, folders)
    assert len(recorder.asked) == len(table) == len(direct)
    for (prompt, tokens), plain in zip(recorder.asked, direct.values(), strict=True):
        assert tokens == THOUGHTS
        told = plain[: plain.index("Question:")].split("<frames>")[0].rstrip()
        assert prompt.text.startswith(told) and "Think step by step first" in prompt.text
        # Nothing asks for the answer at once.
        assert "Reply" not in prompt.text and not prompt.text.endswith("Answer:")
        question = plain[plain.index("Question:") :].removesuffix("Answer:").split("\nReply")[0]
        assert question.strip() in prompt.text
    saved = json.loads((config.folder / "results.json").read_text())
    assert saved["about"]["prompting"] == "cot" and saved["config"]["prompting"] == "cot"


@pytest.mark.parametrize("style", ["plain", "json"])
def test_the_end_of_the_thoughts_is_read_and_not_what_they_weigh(
    style: str, folders: dict[Family, Path], tmp_path: Path, recorder: Recorder
) -> None:
    """Each reply first says that the answer is the wrong room."""
    config = config_of("gridtom", tmp_path, prompting="cot", style=style)
    keys = {item.text: item for item in load_items(config).items}

    def say(text: str) -> str:
        item = keys[text]
        (right,) = item.key
        wrong = next(o.text for o in item.options if o.label != right)
        end = json.dumps({"answer": right}) if style == "json" else right
        return f"At first the answer is {wrong}. Then the door closes.\n\nAnswer: {end}"

    recorder.say = say
    table = outcome(config, folders)
    assert table["robust_correct"].all()
    assert table["official_correct"].all() == (style == "json")
    assert table["reply"].str.startswith("At first").all()
    assert (table["conclusion"].str.contains("first")).sum() == 0


def shown(text: str) -> tuple[str, str]:
    """The examples of a prompt, and the question that is asked."""
    head, asked = text.split("The question to answer now is on a new story.")
    return head, asked.removeprefix(" The pictures belong to it.").strip()


@pytest.mark.parametrize(("order", "style"), [("1", "plain"), ("2", "json"), ("initial", "json")])
def test_gridtom_shows_training_stories_with_their_answers(order: Any, style: Any) -> None:
    config = EvalConfig(order=order, style=style, limit=3, prompting="few-shot", shots=4)
    direct = load_items(replace(config, prompting="direct")).items
    train = {
        i.text: i
        for i in load_items(
            EvalConfig(order=order, style=style, split="train", setting="text")
        ).items
    }
    few = load_items(config).items
    assert [i.item_id for i in few] == [i.item_id for i in direct]
    for item, plain in zip(few, direct, strict=True):
        head, asked = shown(item.text)
        assert asked == plain.text and item.clip is not None
        told = [one for text, one in train.items() if text in head]
        assert len(told) == 4 and len({one.group for one in told}) == 4
        assert item.group not in {one.group for one in told}
        for one in told:
            right = answered(one).removeprefix(one.text).strip()
            if style == "json":
                said = json.loads(right)["answer"]
                assert set([said] if isinstance(said, str) else said) == set(one.key)
            else:
                assert right == " and ".join(one.key)
        if order == "1":
            assert Counter(one.condition for one in told) == {"TB": 2, "FB": 2}


OPTIONS = (Option("A", "red"), Option("B", "blue"))


def record(number: int, rng: random.Random) -> Question:
    split, group = rng.choice(["test", "train"]), f"g{rng.randrange(12)}"
    answer, film = rng.choice(["A", "B", None]), f"film{rng.randrange(20)}"
    facts = {"context": Context(scene=f"scene {rng.randrange(40)}"), "answer": answer}
    facts["media"] = (Media(path=Path(film), url="archive"),)
    return Question(f"i{number}", "made", split, group, f"Question {number}?", OPTIONS, **facts)


@pytest.mark.parametrize("seed", range(12))
def test_nothing_that_is_shown_shares_group_film_or_words_with_what_is_asked(seed: int) -> None:
    rng = random.Random(seed)
    records = [record(number, rng) for number in range(rng.randrange(2, 60))]
    chosen = [r for r in records if r.split == "test"][: rng.randrange(1, 40)]
    try:
        pool, asked = set_apart(records, chosen, 2)
    except HarnessError:
        return
    assert asked and len({r.group for r in pool}) >= 2
    assert not any(r.hidden for r in pool)
    for shown_one in pool:
        for one in asked:
            assert shown_one.group != one.group and shown_one.context != one.context
            assert shown_one.media[0].path != one.media[0].path
            assert _sources(shown_one).isdisjoint(_sources(one))


def item(number: int, place: int, condition: str = "") -> Question:
    about = {"answer": "AB"[place], "condition": condition, "text": f"Q{number} Answer:"}
    return Question(f"i{number}", "made", "test", f"s{number // 2}", "", OPTIONS, **about)


def test_examples_teach_neither_place_nor_condition() -> None:
    rng = random.Random(0)
    # Nine in ten are of true beliefs, and nine in ten of these have the answer A.
    pool = [
        item(n, int(rng.random() > 0.9), "FB" if rng.random() > 0.9 else "TB") for n in range(400)
    ]
    for number in range(1000, 1020):
        drawn = examples_for(item(number, 0), pool, 4)
        assert Counter(one.condition for one in drawn) == {"TB": 2, "FB": 2}
        assert Counter(one.answer for one in drawn) == {"A": 2, "B": 2}
        assert len({one.group for one in drawn}) == 4


def first_step(text: str) -> bool:
    return not text.startswith("This is all that")


@pytest.mark.parametrize("task", ("gridtom", "mimeqa"))
def test_the_second_step_has_the_first_reply_and_nothing_of_the_story(
    task: str, folders: dict[Family, Path], tmp_path: Path, recorder: Recorder
) -> None:
    config = config_of(task, tmp_path, prompting="simtom", batch_size=2)
    direct = load_items(replace(config, prompting="direct")).items
    told = iter(range(100))
    recorder.say = lambda text: f"Fact {next(told)}. " if first_step(text) else "B"
    table = outcome(config, folders)
    ask = [(prompt, tokens) for prompt, tokens in recorder.asked if first_step(prompt.text)]
    answer = [(prompt, tokens) for prompt, tokens in recorder.asked if not first_step(prompt.text)]
    assert len(ask) == len(answer) == len(table) == len(direct)
    for number, (item, (one, retold), (two, tokens)) in enumerate(
        zip(direct, ask, answer, strict=True)
    ):
        story, question = item.text.split("Question:", 1)
        assert retold == RETOLD and tokens == replace(config, prompting="direct").reply_tokens
        assert one.text.startswith(story.split("<frames>")[0].rstrip())
        assert "Leave out all that happens where" in one.text
        assert (one.clip is not None) == (item.clip is not None) and two.clip is None
        # The very question, after what was retold for this item.
        assert f"knows:\nFact {number}." in two.text and two.text.endswith(question)
        for sentence in map(str.strip, story.replace("\n", ". ").split(". ")):
            # The caption's parts are numbered.
            assert len(sentence) < 3 or sentence not in two.text
    assert table["perspective"].tolist() == [f"Fact {n}. " for n in range(len(table))]
    assert not table["perspective_cut"].any()


@pytest.mark.parametrize(
    ("order", "whose"), [("1", "protagonist"), ("2", "participant"), ("reality", "participant")]
)
def test_gridtom_takes_the_view_of_whose_mind_is_asked_about(order: Any, whose: str) -> None:
    from sally_anne.data.gridtom.stories import generated

    records = {record.group: record for record in generated(2025)}
    for item in load_items(EvalConfig(order=order, limit=3, prompting="simtom")).items:
        agent = f"the {getattr(records[item.group].cast, whose)} agent"
        assert f"Tell in order what {agent} sees" in item.before
        assert item.text.startswith(f"This is all that {agent} knows:\n")
        # Neither the question nor its options are told before.
        assert "Question" not in item.before and "Choose one" not in item.before


OURS = "{context} Question: {asked} Answer:"
SETTINGS = ("multimodal", "video", "text")


def written(folder: Path, text: str, name: str = "mine.txt") -> Path:
    path = folder / name
    path.write_text(text)
    return path


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


def test_examples_are_told_in_the_template_s_words(tmp_path: Path) -> None:
    config = EvalConfig(limit=2, prompting="few-shot", shots=2)
    path = written(tmp_path, OURS)
    assert load_items(replace(config, template=path)).items == load_items(config).items
    path.write_text("In words: {caption}\n{asked}")
    for item in load_items(replace(config, template=path, setting="video")).items:
        # Frames are shown of the question that is asked, and of no example.
        assert [bool(part[:1].strip()) for part in item.text.split("In words: ")[1:]] == [1, 1, 0]


def test_the_prompt_holds_what_the_view_shows(tmp_path: Path) -> None:
    record = MOMENTS.load(made.moments(tmp_path / "data"))[0]
    hidden = replace(record.context, actions="hidden")
    record = replace(record, question="Who knows {it}?", context=hidden)
    for window, said in (("full", "Hello.\nWell well."), ("focused", "Well well.")):
        config = EvalConfig(task="moments", view="text", window=window)
        assert prompt_text(MOMENTS, record, PromptConfig.of(MOMENTS, config)) == (
            f"Transcript:\n{said}\n\nThe question is about the moment at the end of this "
            "transcript.\nQuestion: Who knows {it}?\nA. To joke\nB. To help\nC. To leave\n"
            "D. To stay\nReply with A, B, C or D only.\nAnswer:"
        )


def test_a_system_message_reaches_the_model_and_the_endpoint() -> None:
    asked = Prompt("Who?", system="Be brief.")
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}]
    assert messages_of(asked) == asked.turns == turns
    clip = np.zeros((1, 4, 4, 3), np.uint8)
    assert messages_of(replace(asked, clip=clip))[0] == turns[0]
