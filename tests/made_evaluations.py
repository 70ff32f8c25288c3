"""Folders of finished evaluations, of which every answer is written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from sally_anne.core.files import write_json
from sally_anne.core.folder import RESULTS
from sally_anne.harness.score import results_of


def answers(right: Sequence[int | None], films: int = 6, parsers: Sequence[str] = ("robust",)):
    """One item each, right (1), wrong (0) or invalid (None), of films in turn, with two tags.

    The first half is of ability beliefs, the second of emotions; each third has the cue gaze.
    """
    rows = []
    for number, outcome in enumerate(right):
        row: dict[str, Any] = {
            "item_id": f"q{number:03}",
            "story": f"film-{number % films}",
            "split": "validation",
            "condition": "",
            "first": "",
            "hidden": False,
            "answer": "AB"[number % 2],
            "reply": "A",
            "tag_ability": "beliefs" if number < len(right) / 2 else "emotions",
            "tag_cue": "gaze" if number % 3 == 0 else "",
        }
        for parser in parsers:
            row |= {f"{parser}_correct": outcome == 1, f"{parser}_invalid": outcome is None}
        rows.append(row)
    return pd.DataFrame(rows)


def beliefs(pairs: Sequence[tuple[int, int]], maps: int = 6) -> pd.DataFrame:
    """GridToM's TB and FB of each story, right (1) or wrong (0), of maps in turn."""
    rows = [
        {
            "item_id": f"{story}/{condition}",
            "story": f"story-{story}",
            "map": f"map-{story % maps}",
            "split": "test",
            "condition": condition,
            "first": "",
            "hidden": False,
            "answer": "red",
            "reply": "red",
            "robust_correct": bool(outcome),
            "robust_invalid": False,
        }
        for story, pair in enumerate(pairs)
        for condition, outcome in zip(("TB", "FB"), pair, strict=True)
    ]
    return pd.DataFrame(rows)


def evaluation(
    folder: Path,
    table: pd.DataFrame,
    about: dict[str, Any] | None = None,
    cells: Sequence[str] = (),
    **options: Any,
) -> Path:
    """A folder as ``sally-anne evaluate`` leaves it, of these answers."""
    config = {"task": "moments", "model": "tiny-qwen2-vl", "view": None, "steer": None} | options
    folder.mkdir(parents=True)
    table.to_parquet(folder / "answers.parquet", index=False)
    order = config.get("order")
    kinds = [str(c).removeprefix("tag_") for c in table if str(c).startswith("tag_")]
    paired = order is not None and order != "initial"
    results = results_of(table, kinds, cells, paired)
    about = (about or {}) | ({"order": order} if order else {})
    saved = {"config": config, "about": about, "results": results, "beliefs": paired}
    write_json(folder / RESULTS, saved)
    return folder
