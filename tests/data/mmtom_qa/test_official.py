"""Questions in the published layout: made ones, and those published that are here."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from sally_anne.data.items import Question
from sally_anne.data.mmtom_qa import MMTOM_QA, TYPES
from sally_anne.data.mmtom_qa.contrasts import balanced, belief_pairs
from sally_anne.data.mmtom_qa.scenes import Contents
from tests.shared_data import SOURCES, official_data


@pytest.fixture(scope="module", params=SOURCES)
def source(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def items(source: str) -> list[Question]:
    return MMTOM_QA.load(official_data(source, "mmtom_qa"))


def test_every_line_is_an_item_of_its_type(items, source) -> None:
    lines = official_data(source, "mmtom_qa", "questions.json").read_text().splitlines()
    records = [json.loads(line) for line in lines if line.strip()]
    assert len(items) == len(records)
    assert len({item.item_id for item in items}) == len(items)
    found = Counter(item.tags["type"][0] for item in items)
    assert found == Counter(str(record["question_type"]) for record in records)
    # The official file has 100 questions of each belief type and 75 of each goal type; the part
    # of it beside the checkout has as many of one as of another.
    assert set(found) == set(TYPES)
    sizes = [found[kind] for kind in TYPES]
    assert sizes == [100] * 3 + [75] * 4 or len(set(sizes)) == 1
    for item, record in zip(items, records, strict=True):
        assert item.answer == record["answer"]
        assert item.group == f"episode-{record['episode']}"


def test_every_part_is_there_and_in_its_place(items) -> None:
    for item in items:
        assert [option.label for option in item.options] == ["a", "b"]
        assert item.answer in ("a", "b")
        parts = [item.context.scene, item.context.actions, item.question]
        parts += [option.text for option in item.options]
        for part in parts:
            assert part and part == part.strip()
            assert not re.search(r"Please respond|\([ab]\)|Question:|Actions taken|What's in", part)
        assert item.context.scene.startswith("The apartment consists of")
        assert item.question.endswith("statements is more likely to be true?")
        assert all(option.text.endswith(".") for option in item.options)
        name = item.context.actions.split()[0]
        assert all(option.text.startswith(f"{name} ") for option in item.options)
        assert item.tags["modality"] == ("init_graph", "actions")
        assert item.media[0].path is None


def test_both_letters_are_right_about_equally_often(items) -> None:
    share = sum(item.answer == "a" for item in items) / len(items)
    assert 0.4 < share < 0.6


def right(items: list[Question], kind: str) -> list[str]:
    chosen = [item for item in items if item.tags["type"] == (kind,)]
    return [next(o.text for o in item.options if o.label == item.answer) for item in chosen]


def test_right_answers_are_those_of_their_type(items) -> None:
    """Who is about to open a container believes that it holds what it does; who passes, not."""
    assert all(" is inside " in text for text in right(items, "1.1") + right(items, "1.2"))
    assert all(" is not inside " in text for text in right(items, "1.3"))
    for kind in ("2.1", "2.2", "2.3", "2.4"):
        assert all(" has been trying to get " in text for text in right(items, kind))


FIRST_QUESTION = {
    "made": (
        "episode-3/1.1/0-6",
        ("Ines", "cupcake", "fridge"),
        "Ines is standing in the bedroom. She walks",
        "with a bathroom cabinet, which holds a remote control.",
    ),
    "published": (
        "episode-23/1.1/21-21",
        ("Mark", "salmon", "microwave"),
        "Mark is situated in the bathroom. He proceeds",
        "with a bathroom cabinet, which is currently empty.",
    ),
}


def test_the_first_question_word_by_word(items, source) -> None:
    item_id, (name, thing, place), begins, ends = FIRST_QUESTION[source]
    item = next(item for item in items if item.item_id == item_id)
    goal = f"If {name} has been trying to get a {thing}, which one of the following statements"
    assert item.question == f"{goal} is more likely to be true?"
    assert [option.text for option in item.options] == [
        f"{name} thinks that the {thing} is not inside the {place}.",
        f"{name} thinks that the {thing} is inside the {place}.",
    ]
    assert item.answer == "b"
    assert item.context.actions.startswith(begins)
    assert item.context.actions.endswith(f"and is about to open the {place}.")
    assert item.context.scene.endswith(ends)


def test_descriptions_agree_with_the_published_types(items) -> None:
    """Types 1.1 and 1.2 say whether the thing is there, so they check how prose is read."""
    checked = 0
    for item in items:
        if item.tags["type"][0] in ("1.1", "1.2"):
            statement = re.fullmatch(
                r".* that the (.*) is (?:not )?inside the (.*)\.", item.options[0].text
            )
            assert statement is not None
            so = Contents(item.context.scene).holds(statement[2], statement[1])
            assert so in (None, item.tags["type"] == ("1.1",)), item.item_id
            checked += so is not None
    assert checked >= 0.95 * sum(item.tags["type"][0] in ("1.1", "1.2") for item in items)


def test_pairs_of_all_belief_types(items) -> None:
    pairs = belief_pairs(items)
    types = {item.item_id: item.tags["type"][0] for item in items}
    asked = sum(kind.startswith("1") for kind in types.values())
    assert 0.95 * asked <= len(pairs) <= asked
    conditions = {(types[p.item_id], p.condition, p.says_inside) for p in pairs}
    # As published, 1.3 is about false beliefs without exception.
    assert conditions == {("1.1", "TB", True), ("1.2", "FB", True), ("1.3", "FB", False)}
    samples = [sample for pair in balanced(pairs) for sample in pair.samples()]
    assert len(samples) >= asked
    says_not = [" is not inside " in sample.content.split("Belief:")[1] for sample in samples]
    table = Counter(zip((s.labels["y_p"] for s in samples), says_not, strict=True))
    assert len(table) == 4 and len(set(table.values())) == 1
