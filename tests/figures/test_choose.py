"""Heads are chosen by validation numbers, test numbers never matter."""

from __future__ import annotations

import pandas as pd
import pytest

from sally_anne.core.errors import ChoiceError, RunFolderError
from sally_anne.figures.choose import best, insensitive, named, sensitive
from sally_anne.hooks.geometry import Head


@pytest.fixture
def heads() -> pd.DataFrame:
    columns = ["layer", "head", "y_p_validation_accuracy", "y_o_validation_accuracy", "y_p_rank"]
    rows = [
        (0, 0, 1.0, 0.4, 1),
        (0, 1, 0.8, 0.9, 3),
        (1, 0, 0.8, 0.8, 4),
        (1, 1, 0.9, 0.5, 2),
        (2, 0, 0.4, 0.4, 5),
        (2, 1, 0.9, 0.8, 6),
    ]
    table = pd.DataFrame(rows, columns=columns)
    table["y_p_test_accuracy"] = [0.1, 0.2, 0.3, 0.4, 0.5, 1.0]
    return table.sample(frac=1.0, random_state=1)


def test_best_is_rank_one(heads) -> None:
    assert best(heads, "y_p") == Head(0, 0)
    with pytest.raises(RunFolderError, match="heads.parquet has no column y_o_rank"):
        best(heads, "y_o")
    with pytest.raises(ChoiceError, match="ranks no head"):
        best(heads.assign(y_p_rank=float("nan")), "y_p")


def test_sensitive_has_the_best_worse_label_and_ties_go_to_the_sum(heads) -> None:
    assert sensitive(heads) == Head(0, 1)  # (0, 1), (1, 0), (2, 1) share 0.8; lower layer wins


def weights_in(*chosen: tuple[int, int]):
    return lambda layer, head: (layer, head) in chosen


def everywhere(layer: int, head: int) -> bool:
    return True


def test_insensitive_has_the_worst_better_label(heads) -> None:
    assert insensitive(heads, everywhere, Head(0, 1)) == Head(2, 0)  # 0.4 and 0.4


def test_insensitive_ties_go_to_the_worse_sum_then_to_the_higher_head(heads) -> None:
    tied = weights_in((0, 1), (1, 1), (2, 1))  # all 0.9 and 0.9, 0.5, 0.8
    assert insensitive(heads, tied, Head(0, 0)) == Head(1, 1)
    same = heads.assign(y_p_validation_accuracy=0.5, y_o_validation_accuracy=0.5)
    assert insensitive(same, everywhere, Head(0, 0)) == Head(2, 1)


def test_insensitive_passes_over_heads_without_weights_if_others_have_some(heads) -> None:
    assert insensitive(heads, weights_in((0, 0), (1, 0), (1, 1)), Head(0, 1)) == Head(1, 0)
    assert insensitive(heads, weights_in(), Head(0, 1)) == Head(2, 0)


def test_insensitive_is_another_head_than_the_sensitive_one(heads) -> None:
    assert insensitive(heads, everywhere, Head(2, 0)) == Head(1, 0)  # 0.8 and 0.8
    assert insensitive(heads, weights_in((0, 1)), Head(0, 1)) == Head(2, 0)
    assert insensitive(heads.query("layer == 0 and head == 1"), everywhere, Head(0, 1)) == (0, 1)


def test_a_head_without_an_accuracy_is_passed_over(heads) -> None:
    blank = (heads["layer"] == 0) & (heads["head"] == 1)
    heads.loc[blank, "y_o_validation_accuracy"] = float("nan")
    assert sensitive(heads) == Head(2, 1)
    with pytest.raises(ChoiceError, match="no validation accuracy"):
        sensitive(heads.assign(y_o_validation_accuracy=float("nan")))


def test_a_head_asked_for_must_exist(heads) -> None:
    assert named(heads, 2, 1) == Head(2, 1)
    with pytest.raises(ChoiceError, match="no L3H0: layers 0 to 2, heads 0 to 1"):
        named(heads, 3, 0)


def test_a_head_reads_as_words() -> None:
    assert str(Head(28, 15)) == "L28H15"
