"""Examples before a question: of stories that are not asked about, with their right answers."""

from __future__ import annotations

import io
import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sally_anne.core.errors import HarnessError
from sally_anne.data.items import BenchmarkItem, Context, Media, Option
from sally_anne.experiments.train_tiny.families import Family
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.evaluate import evaluate
from sally_anne.harness.items import Item
from sally_anne.harness.prompts import _sources, answered, examples_for, set_apart, with_examples
from sally_anne.harness.tasks import load_items
from tests.harness import made_benchmarks as made
from tests.harness.test_prompting import Recorder, recorder  # noqa: F401  # a fixture
from tests.shared_data import official_data


def shown(text: str) -> tuple[str, str]:
    """The examples of a prompt, and the question that is asked."""
    head, asked = text.split("The question to answer now is on a new story.")
    return head, asked.removeprefix(" The pictures belong to it.").strip()


@pytest.mark.integration
@pytest.mark.parametrize("order", ["1", "2", "initial", "reality"])
@pytest.mark.parametrize("style", ["plain", "json"])
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
        assert len(told) == 4 and len({one.story for one in told}) == 4
        assert item.story not in {one.story for one in told}
        for one in told:
            right = answered(one).removeprefix(one.text).strip()
            if style == "json":
                said = json.loads(right)["answer"]
                assert set([said] if isinstance(said, str) else said) == set(one.answer)
            else:
                assert right == " and ".join(one.answer)
        if order == "1":
            assert Counter(one.condition for one in told) == {"TB": 2, "FB": 2}


@pytest.mark.integration
def test_what_is_sent_has_the_examples(
    folders: dict[Family, Path],
    tmp_path: Path,
    recorder: Recorder,  # noqa: F811
) -> None:
    config = EvalConfig(
        model=str(folders["qwen2-vl"]), prompting="few-shot", shots=2, limit=1, out=tmp_path / "r"
    )
    evaluate(config, console=Console(file=io.StringIO()))
    assert recorder.texts == [item.text for item in load_items(config).items]
    assert all(prompt.clip is not None and tokens == 16 for prompt, tokens in recorder.asked)
    saved = json.loads((tmp_path / "r" / "results.json").read_text())
    assert saved["about"]["prompting"] == "few-shot"
    with pytest.raises(HarnessError, match="prompts is"):
        evaluate(replace(config, shots_seed=1), console=Console(file=io.StringIO()))


def test_the_draw_depends_on_seed_and_item_alone() -> None:
    config = EvalConfig(limit=4, setting="text", prompting="few-shot")
    texts = [item.text for item in load_items(config).items]
    assert texts == [item.text for item in load_items(config).items]
    heads = [shown(text)[0] for text in texts]
    assert len(set(heads)) == len(heads)
    other = load_items(replace(config, shots_seed=1)).items
    assert all(a != b.text for a, b in zip(texts, other, strict=True))
    fewer = load_items(replace(config, limit=2)).items
    assert len(fewer) == 4 and {item.text for item in fewer} < set(texts)


def test_where_all_are_asked_some_stories_are_kept_for_examples(tmp_path: Path) -> None:
    """Of two stories one is shown."""
    config = EvalConfig(
        task="bigtom", data=made.bigtom(tmp_path / "b"), prompting="few-shot", shots=1
    )
    work = load_items(config)
    assert len({item.story for item in work.items}) == 1
    assert len(work.items) == 2 and len(work.notes) == 1
    for item in work.items:
        head, asked = shown(item.text)
        assert head.count("Question:") == asked.count("Question:") == 1
        assert head.rstrip().endswith(("Answer: A", "Answer: B"))
    with pytest.raises(HarnessError, match="--shots 2: .* there are 2 with known answers"):
        load_items(replace(config, shots=2))
    assert not load_items(replace(config, limit=1)).notes


def record(number: int, rng: random.Random) -> BenchmarkItem:
    return BenchmarkItem(
        item_id=f"i{number}",
        benchmark="made",
        split=rng.choice(["test", "train"]),
        group=f"g{rng.randrange(12)}",
        question=f"Question {number}?",
        options=(Option("A", "red"), Option("B", "blue")),
        answer=rng.choice(["A", "B", None]),
        media=(Media(path=Path(f"film{rng.randrange(20)}"), url="archive"),),
        context=Context(scene=f"scene {rng.randrange(40)}"),
    )


@pytest.mark.parametrize("seed", range(40))
def test_nothing_that_is_shown_shares_group_film_or_words_with_what_is_asked(seed: int) -> None:
    rng = random.Random(seed)
    records = [record(number, rng) for number in range(rng.randrange(2, 60))]
    chosen = [r for r in records if r.split == "test"][: rng.randrange(1, 40)]
    try:
        pool, asked = set_apart(records, chosen, 2, seed)
    except HarnessError:
        return
    assert asked and len({r.group for r in pool}) >= 2
    assert not any(r.hidden for r in pool)
    for shown_one in pool:
        for one in asked:
            assert shown_one.group != one.group and shown_one.context != one.context
            assert shown_one.media[0].path != one.media[0].path
            assert _sources(shown_one).isdisjoint(_sources(one))


def item(number: int, place: int, condition: str = "") -> Item:
    options = (Option("A", "red"), Option("B", "blue"))
    return Item(
        f"i{number}", f"s{number // 2}", "test", condition, "", f"Q{number} Answer:", options,
        (options[place].label,),
    )  # fmt: skip


def test_examples_teach_neither_place_nor_condition() -> None:
    rng = random.Random(0)
    # Nine in ten are of true beliefs, and nine in ten of these have the answer A.
    pool = [
        item(n, int(rng.random() > 0.9), "FB" if rng.random() > 0.9 else "TB") for n in range(400)
    ]
    for number in range(1000, 1020):
        drawn = examples_for(item(number, 0), pool, 4, 0)
        assert Counter(one.condition for one in drawn) == {"TB": 2, "FB": 2}
        assert Counter(one.answer for one in drawn) == {("A",): 2, ("B",): 2}
        assert len({one.story for one in drawn}) == 4


def test_an_items_own_story_is_never_drawn() -> None:
    pool = [item(n, n % 2) for n in range(12)]
    for one in pool:
        for seed in range(10):
            assert one.story not in {example.story for example in examples_for(one, pool, 4, seed)}


def test_open_questions_are_shown_with_their_reference() -> None:
    one = replace(item(0, 0), options=(), answer=(), reference="A rope.", text="What? Answer:")
    (given,) = with_examples([item(9, 0)], [one], 1, 0)
    assert "What? Answer: A rope.\n" in given.text


@pytest.mark.parametrize(
    ("task", "view"),
    [("mmtom_qa", "text"), ("muma_tom", "text"), ("bigtom", "text"), ("moments", "none")],
)
def test_official_files(task: str, view: Any) -> None:
    config = EvalConfig(task=task, data=official_data("published", task), view=view, limit=5)
    direct = load_items(config).items
    few = load_items(replace(config, prompting="few-shot", shots=3)).items
    assert [i.item_id for i in few] == [i.item_id for i in direct]
    for one, plain in zip(few, direct, strict=True):
        head, asked = shown(one.text)
        assert asked == plain.text.strip() and plain.text.strip() not in head
