"""The file in which answers are handed in."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from sally_anne.core.errors import HarnessError
from sally_anne.harness.results import write_submission

TABLE = pd.DataFrame(
    {
        "item_id": ["a", "b", "c"],
        "robust_label": ["B", None, "A"],
        "official_label": [None, None, None],
    }
)


def test_the_file(tmp_path: Path) -> None:
    write_submission(TABLE, tmp_path / "x.json", missing=["d"])
    assert json.loads((tmp_path / "x.json").read_text()) == [
        {"question_id": "a", "answer_key": "B"},
        {"question_id": "b", "answer_key": None},
        {"question_id": "c", "answer_key": "A"},
        {"question_id": "d", "answer_key": "NA"},
    ]


def test_another_reader_and_a_table_from_disk(tmp_path: Path) -> None:
    TABLE.to_parquet(tmp_path / "t.parquet", index=False)
    table = pd.read_parquet(tmp_path / "t.parquet")
    for reader, labels in (("robust", ["B", None, "A"]), ("official", [None, None, None])):
        write_submission(table, tmp_path / "x.json", reader=reader)
        entries = json.loads((tmp_path / "x.json").read_text())
        assert [entry["answer_key"] for entry in entries] == labels


@pytest.mark.parametrize(
    ("table", "missing", "reader", "message"),
    [
        (TABLE, ["a"], "robust", "'a' stands there twice"),
        (pd.concat([TABLE, TABLE]), [], "robust", "'a' stands there twice"),
        (TABLE, [], "judge", "no column 'judge_label'"),
    ],
)
def test_what_cannot_be_handed_in(
    tmp_path: Path, table: pd.DataFrame, missing: list[str], reader: str, message: str
) -> None:
    with pytest.raises(HarnessError, match=message):
        write_submission(table, tmp_path / "x.json", missing, reader)
