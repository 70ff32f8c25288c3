"""Pairs of belief statements: labels, conditions, and what is left out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sally_anne.data.items import Context, Option, Question
from sally_anne.data.mmtom_qa import BeliefPair, balanced, belief_pair
from sally_anne.data.samples import Sample

GOAL = "Ann has been trying to get a salmon"
INSIDE = "Ann thinks that the salmon is inside the fridge."
NOT_INSIDE = "Ann thinks that the salmon is not inside the fridge."
FULL, EMPTY = "In the kitchen, the fridge holds a salmon.", "The fridge is empty."


def item(kind: str = "1.1", answer: str = "a", scene: str = FULL) -> Question:
    tags = {"type": (kind,), "family": ("belief",)}
    if kind in ("1.1", "1.2"):
        tags["condition"] = ("TB" if kind == "1.1" else "FB",)
    asked = f"If {GOAL}, which one of the following statements is more likely to be true?"
    where = (f"episode-1/{kind}/0-1", "mmtom_qa", "test", "episode-1", asked)
    options = (Option("a", INSIDE), Option("b", NOT_INSIDE))
    told = Context(scene=scene, actions="She walks to the fridge.")
    return Question(*where, options, answer, context=told, tags=tags)


@pytest.mark.parametrize(
    ("kind", "answer", "scene", "condition"),
    [
        ("1.1", "a", FULL, "TB"),
        ("1.2", "a", EMPTY, "FB"),
        ("1.3", "b", FULL, "FB"),
        ("1.3", "b", EMPTY, "TB"),
    ],
)
def test_a_pair_is_labelled_by_belief_and_by_what_is_so(kind, answer, scene, condition) -> None:
    pair = belief_pair(item(kind, answer, scene))
    assert pair is not None
    held, other = pair
    assert held.tags["condition"] == other.tags["condition"] == condition
    assert (held.labels["y_p"], other.labels["y_p"]) == (True, False)
    inside, outside = (held, other) if answer == "a" else (other, held)
    assert inside.content.endswith(INSIDE) and outside.content.endswith(NOT_INSIDE)
    # What is so is the scene's, whatever is believed.
    assert (inside.labels["y_o"], outside.labels["y_o"]) == (scene == FULL, scene == EMPTY)
    assert inside.item_id == f"episode-1/{kind}/0-1/inside"
    assert outside.item_id == f"episode-1/{kind}/0-1/not-inside"


def test_both_sides_differ_in_the_statement_alone() -> None:
    pair = belief_pair(item())
    assert pair is not None
    told = f"{FULL}\nShe walks to the fridge.\n{GOAL}. Belief: "
    assert [sample.content for sample in pair] == [told + INSIDE, told + NOT_INSIDE]


GOOD = item()


@pytest.mark.parametrize(
    "other",
    [
        replace(GOOD, question="Which one of the following statements is more likely to be true?"),
        replace(GOOD, question=GOOD.question.replace("more", "less")),
        replace(GOOD, context=Context(scene="There is a fridge.")),
        replace(GOOD, context=Context()),
        # The published type and the description contradict each other.
        item("1.1", scene=EMPTY),
        item("1.2", scene=FULL),
        replace(GOOD, answer=None),
        replace(GOOD, options=()),
        replace(GOOD, options=(Option("a", INSIDE), Option("b", INSIDE))),
        replace(GOOD, options=(GOOD.options[0], Option("b", NOT_INSIDE.replace("salmon", "cod")))),
    ],
)
def test_what_cannot_be_labelled_is_left_out(other) -> None:
    assert belief_pair(GOOD) is not None
    assert belief_pair(other) is None


def pairs(count: int, condition: str, says: str) -> list[BeliefPair]:
    tags = {"condition": condition, "says": says}
    names = [f"{condition}-{says}-{i}" for i in range(count)]
    return [(Sample(n, "true", tags=tags, context=n), Sample(f"{n}-", "false")) for n in names]


@pytest.mark.parametrize(
    ("counts", "kept"),
    [
        # TB inside, FB inside, TB not inside, FB not inside.
        ((100, 100, 0, 100), (50, 50, 0, 100)),
        ((3, 50, 0, 20), (3, 17, 0, 20)),
        ((5, 5, 5, 5), (5, 5, 5, 5)),
        ((5, 5, 8, 1), (4, 5, 8, 1)),
        ((9, 9, 0, 0), (0, 0, 0, 0)),
    ],
)
def test_balanced_keeps_as_many_of_either_statement(counts, kept) -> None:
    cells = (("TB", "inside"), ("FB", "inside"), ("TB", "not-inside"), ("FB", "not-inside"))
    every = [p for n, cell in zip(counts, cells, strict=True) for p in pairs(n, *cell)]
    found = balanced(every)
    assert found == [pair for pair in every if pair in found]
    sizes = [sum(tuple(p[0].tags.values()) == cell for p in found) for cell in cells]
    assert sizes == list(kept)
    # Which are kept depends on names alone, not on their order.
    assert {p[0].item_id for p in balanced(every[::-1])} == {p[0].item_id for p in found}
