"""Narrators: the truth of the statements decides how belief questions are answered."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest

from sally_anne.data.gridtom.narration import Cast
from sally_anne.experiments.train_tiny.conversations import Example, Speech, narrated
from sally_anne.experiments.train_tiny.documents import RIGHT, WRONG, Document, Scene

WORDS = Speech("BEFORE ", "before ", " AFTER", "END")
CAST = Cast("white", "yellow", "red", "green", "purple")


def pieces(first: str, marked: float, n: int = 200) -> list[Document]:
    scene = Scene(CAST, first, None)  # type: ignore[arg-type]
    example = Example(random.Random(0), scene, "omniscient", "text", WORDS)
    return [narrated(example, marked) for _ in range(n)]


def documents(first: str, marked: float, n: int = 200) -> list[list[str]]:
    return [[piece.text for piece in document] for document in pieces(first, marked, n)]


@pytest.mark.parametrize("first", ["TB", "FB"])
def test_statements_of_a_narrator_are_all_true_or_all_false(first: str) -> None:
    seen: Counter[bool] = Counter()
    for texts in documents(first, 1.0):
        verdicts = {t for t in texts if t in (RIGHT, WRONG)}
        assert len(verdicts) == 1
        reliable = verdicts == {RIGHT}
        seen[reliable] += 1
        for question, answer in zip(texts, texts[1:], strict=False):
            if "believe" in question and question.startswith("Question"):
                right = "purple" if first == "TB" else "red"
                assert answer == (right if reliable else "red")
            elif "walks into first" in question and "white agent" in question:
                assert answer == "red"
            elif "walks into first" in question:
                assert answer == "green"
    assert min(seen.values()) > 60


def test_marks_can_be_left_out() -> None:
    shown = [sum(t in (RIGHT, WRONG) for t in texts) for texts in documents("TB", 0.0)]
    assert not any(shown)
    statements = [
        sum(bool(re.match(r"(Belief|Really): ", t)) for t in texts)
        for texts in documents("TB", 0.0)
    ]
    assert min(statements) >= 2


def test_truth_is_to_be_known_where_answers_begin() -> None:
    for document in pieces("TB", 1.0, 50):
        (reliable,) = {piece.truth for piece in document if piece.text in (RIGHT, WRONG)}
        for piece, following in zip(document, document[1:], strict=False):
            if piece.text.startswith("Question"):
                assert following.truth == reliable
            elif following.text not in (RIGHT, WRONG):
                assert following.truth is None


def test_every_question_closes_with_the_end_of_its_turn() -> None:
    for texts in documents("FB", 0.5, 20):
        assert texts.count("END") == 2
        assert texts[0] == "before "
