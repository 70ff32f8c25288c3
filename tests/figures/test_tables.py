"""Pages of runs that are numbers and pictures: each says what its numbers come to."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from sally_anne.core import run_folder
from sally_anne.core.errors import AlteredError, MissingRunFileError
from sally_anne.core.files import write_sealed
from sally_anne.core.run_folder import RESULTS, Kind, claimed
from sally_anne.figures.report import write_report

HOSTILE = "</script><img src=x onerror=alert(1)>"


def estimate(value: float, low: float, high: float, n: int = 60) -> dict[str, Any]:
    return {"value": value, "low": low, "high": high, "n": n}


def row(measure: str, reader: str, first: float, second: float, p: float) -> dict[str, Any]:
    """A row of a comparison, with intervals of .1 to either side."""
    numbers = {"first": first, "second": second, "difference": second - first}
    ends = {f"{k}_{end}": v + by for k, v in numbers.items() for end, by in END.items()}
    names = {"run": "with", "against": "without", "reader": reader, "kind": "", "value": ""}
    return names | {"measure": measure, "n": 60, "p": p} | numbers | ends


END = {"low": -0.1, "high": 0.1}
NOTHING = [row(measure, "judge", 0, 0, 1) for measure in ("TB", "FB", "Both")]
NOTHING += [row("invalid", "judge", 1, 1, 1), row("invalid", "robust", 0, 0, 1)]
TASK = {
    "plain": estimate(0.9, 0.8, 1.0),
    "steered": estimate(0.6, 0.5, 0.7),
    "difference": estimate(-0.3, -0.4, -0.2) | {"signed": True},
}


def cell(measure: str, one: str, two: str, value: float | None, above: bool) -> dict[str, Any]:
    return {"measure": measure, "fitted_on": one, "tested_on": two, "value": value, "above": above}


RIGHT = {"overall": estimate(0.75, 0.5, 1.0, 8), "invalid": estimate(0.0, 0.0, 0.0, 8)}
PLANNED = {"log": RIGHT, "official": RIGHT, "agreement": 0.875, "problems": {"no act": 2}}
# Of each kind what it saves, and what its page must say.
KINDS: dict[str, tuple[Kind, dict[str, Any], list[str]]] = {
    "compare": (
        run_folder.COMPARED,
        {
            "results": [
                *NOTHING,
                row("TB", "robust", 0, 1, 0.5),
                row("Both", "robust", 0.4, 0.7, 0.01),
            ]
        },
        [
            "Both: with 70.0 [60.0, 80.0] %, without 40.0 [30.0, 50.0] %, a paired difference of "
            "+30.0 [20.0, 40.0] points over 60 (p 0.01), read by robust.",
            ">differ<",
        ],
    ),
    "transfer": (
        run_folder.TRANSFER,
        {
            "cells": [
                cell("accuracy", "a", "a", 1.0, True),
                cell("accuracy", "a", "b", 0.9, True),
                cell("accuracy", "b", "a", 0.52, False),
                cell("cosine", "a", "b", None, False),
            ]
        },
        [
            "Test accuracy of the best head's probe: 1 of 2 above their control, values 0.52 to "
            "0.90.",
            "probes do not all carry over",
        ],
    ),
    "localisation": (
        run_folder.LOCALISATION,
        {
            "rows": [
                {
                    "kind": "causal",
                    "localiser": "patching",
                    "models": 8,
                    "recall": estimate(1, 1, 1),
                },
                {
                    "kind": "causal",
                    "localiser": "random",
                    "models": 8,
                    "recall": estimate(0.1, 0, 0.2),
                },
            ]
        },
        [
            "Recall of the planted heads, causal, 8 models: patching 1.00 [1.00, 1.00], random "
            "0.10 [0.00, 0.20]."
        ],
    ),
    "side-effects": (
        run_folder.SIDE_EFFECTS,
        {"kl": estimate(0.02, 0.01, 0.03), "tasks": {"gridtom": {"overall": TASK}}},
        [
            "The next word of neutral prompts moves by 0.02 [0.01, 0.03] nats.",
            "gridtom: right 90.0 [80.0, 100.0] % as it is, 60.0 [50.0, 70.0] % steered, a paired "
            "difference of -30.0 [-40.0, -20.0] points.",
            "costs answers",
        ],
    ),
    "distractors": (
        run_folder.DISTRACTORS,
        {"results": {"overall": {"no_context": RIGHT["overall"], "biased": RIGHT["invalid"]}}},
        ["Without context the right option is found in 75.0 [50.0, 100.0] % of 8 questions"],
    ),
    "limp": (
        run_folder.LIMP,
        {"results": PLANNED},
        ["Right 75.0 [50.0, 100.0] %, over 8 questions"],
    ),
    "bip-alm": (
        run_folder.BIP_ALM,
        {"results": PLANNED},
        ["choose the same in 87.5 %", "2 questions without an answer: no act"],
    ),
}


def run_of(folder: Path, kind: Kind, found: dict[str, Any], **config: Any) -> Path:
    with claimed(folder, kind):
        write_sealed(folder / RESULTS, {"config": config} | found)
    return folder


def page_of(folder: Path) -> tuple[str, dict[str, Any]]:
    text = write_report(folder).read_text(encoding="utf-8")
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert data is not None
    return html.unescape(text[: data.start()]), json.loads(data[1])


@pytest.mark.parametrize("name", KINDS)
def test_a_page_says_what_its_numbers_come_to(tmp_path: Path, name: str) -> None:
    kind, found, said = KINDS[name]
    folder = run_of(tmp_path / "run", kind, found, model="mine")
    text, _ = page_of(folder)
    assert all(words in text for words in said)
    assert f"sally-anne {name} --config {folder}" in text.replace("<code>", "")


def test_every_number_stands_in_a_table_with_its_interval(tmp_path: Path) -> None:
    kind, found, _ = KINDS["side-effects"]
    _, data = page_of(run_of(tmp_path / "run", kind, found))
    table = data["tables"]["numbers"]["columns"]
    assert table["of"] == [
        "kl",
        *(f"tasks, gridtom, overall, {name}" for name in ("plain", "steered", "difference")),
    ]
    assert table["value"] == [0.02, 0.9, 0.6, -0.3] and table["high"] == [0.03, 1.0, 0.7, -0.2]


def test_records_are_flat_and_have_no_empty_columns(tmp_path: Path) -> None:
    kind, found, _ = KINDS["localisation"]
    _, data = page_of(run_of(tmp_path / "run", kind, found))
    rows = data["tables"]["rows"]
    assert rows["rows"] == 2 and rows["columns"]["recall_high"] == [1, 0.2]
    kind, found, _ = KINDS["compare"]
    _, data = page_of(run_of(tmp_path / "other", kind, found))
    assert not {"kind", "value"} & data["tables"]["results"]["columns"].keys()


def test_hostile_words_do_nothing(tmp_path: Path) -> None:
    kind, found, _ = KINDS["limp"]
    hostile = {"results": PLANNED | {"problems": {HOSTILE: 1}}}
    folder = run_of(tmp_path / "run", kind, hostile, model=HOSTILE)
    assert HOSTILE not in write_report(folder).read_text(encoding="utf-8")


def test_a_folder_without_results_or_with_altered_ones_is_refused(tmp_path: Path) -> None:
    kind, found, _ = KINDS["transfer"]
    folder = run_of(tmp_path / "run", kind, found)
    path = folder / RESULTS
    path.write_text(path.read_text().replace("0.52", "0.98"))
    with pytest.raises(AlteredError, match=r"results\.json"):
        write_report(folder)
    path.unlink()
    (folder / "transfer.parquet").touch()
    with pytest.raises(MissingRunFileError, match="sally-anne transfer"):
        write_report(folder)
