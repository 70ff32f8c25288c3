"""Judge against people: known tables, intervals over stories, malformed labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import cohen_kappa_score

from sally_anne.harness.judge import agreement, read_labels


def judged(says: list[bool], stories: list[int] | None = None) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "item_id": [f"i{n}" for n in range(len(says))],
            "story": stories or list(range(len(says))),
            "judge_correct": says,
            "judge_invalid": False,
        }
    )


def human(labels: list[bool]) -> pd.DataFrame:
    return pd.DataFrame({"item_id": [f"i{n}" for n in range(len(labels))], "label": labels})


T, F = True, False


def test_a_table_worked_out_by_hand() -> None:
    # Both right 2, both wrong 1, judge alone 1: agreement 3/4; by chance 3/4*2/4 + 1/4*2/4 = 1/2.
    found = agreement(judged([T, T, F, T]), human([T, T, F, F]))
    assert found["agreement"] == 0.75
    assert found["kappa"] == pytest.approx(0.5)
    assert (found["n"], found["stories"], found["invalid"], found["unmatched"]) == (4, 4, 0, 0)


def test_intervals_are_over_stories() -> None:
    rng = np.random.default_rng(0)
    says = rng.random(200) < 0.4
    label = np.where(rng.random(200) < 0.85, says, ~says)
    alone = agreement(judged(says.tolist()), human(label.tolist()))
    assert alone["kappa"] == pytest.approx(cohen_kappa_score(says, label))
    assert alone["agreement_low"] < alone["agreement"] < alone["agreement_high"]
    assert alone["kappa_low"] < alone["kappa"] < alone["kappa_high"]
    # Whole stories right or wrong: as wide as if there were only ten items.
    right = [n // 20 < 8 for n in range(200)]
    together = agreement(judged([T] * 200, [n // 20 for n in range(200)]), human(right))
    apart = agreement(judged([T] * 200), human(right))
    assert together["agreement"] == apart["agreement"] == 0.8
    assert together["agreement_low"] == pytest.approx(0.5, abs=0.11)
    assert apart["agreement_low"] == pytest.approx(0.745, abs=0.02)


def test_labels_are_read(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_bytes(
        b"\xef\xbb\xbfitem_id,label,by\n0002/0,TRUE,x\n0002/1, f ,x\n1,1,\n2,0.0,\nNA,Wrong,\n9,,\n"
    )
    labels = read_labels(path)
    assert labels["item_id"].tolist() == ["0002/0", "0002/1", "1", "2", "NA"]
    assert labels["label"].tolist() == [True, False, True, False, False]
    assert labels["label"].dtype == bool
