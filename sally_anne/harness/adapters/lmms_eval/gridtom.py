"""GridToM as tasks of lmms-eval: its documents, what they show, how replies are scored.

A task's data is one JSON object that says which questions are meant, see :func:`docs`; the
questions themselves are made from it, and frames are drawn when they are shown. So it needs no
network and no files, and works for all models of lmms-eval. A task with other questions::

    # my_task.yaml                                  # my_questions.json
    include: .../gridtom_order1_video.yaml          {"order": "1", "setting": "video",
    task: my_task                                    "data": "/path/to/GridToM"}
    dataset_kwargs:
      data_files:
        test: my_questions.json
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

import pandas as pd
from datasets import Dataset
from PIL import Image

from sally_anne.benchmarks.gridtom.splits import SPLITS
from sally_anne.benchmarks.items import Setting
from sally_anne.core.errors import HarnessError
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.gridtom import Ask, Style
from sally_anne.harness.items import Item
from sally_anne.harness.metrics import accuracy, belief_metrics
from sally_anne.harness.results import score, scores
from sally_anne.harness.vectors import facts_of
from sally_anne.harness.work import prepare

LOGGER = logging.getLogger(__name__)

# By the beginning of a metric's name. The robust reader is the one that people agree with.
_READERS = {"": "robust", "official_": "official"}
_CHOICES = {
    "order": get_args(Ask),
    "setting": get_args(Setting),
    "style": get_args(Style),
    "split": SPLITS,
}
_FOLDERS = ("data", "steer")
_SEEDS = ("split_seed", "data_seed")


def docs(questions: Dataset) -> Dataset:
    """``process_docs``: the questions that a file asks for, a document each.

    Args:
        questions: one row; all its columns are optional: ``order`` (1, 2, initial), ``setting``
            (multimodal, video, text), ``style`` (plain, json), ``split`` (test, validation,
            train), ``data`` (folder in GridToM's release layout), ``split_seed``, ``data_seed``,
            ``steer`` (folder of the vector that steers the model: test stories that it was fitted
            on are left out); as the options of ``python -m sally_anne.harness.run``.

    Returns:
        Columns ``item_id, story, condition, first, text, answer`` and ``questions``, by which the
        item is found again.

    Raises:
        HarnessError: an option that is none, or has no such value.
        BenchmarkError: the folder is not usable.
    """
    if len(questions) != 1:
        raise HarnessError(f"a file of questions holds one JSON object, this one {len(questions)}")
    wanted = json.dumps({name: v for name, v in questions[0].items() if v is not None})
    return Dataset.from_list(
        [
            {
                "item_id": item.item_id,
                "story": item.story,
                "condition": item.condition,
                "first": item.first,
                "text": item.text,
                "answer": ", ".join(item.answer),
                "questions": wanted,
            }
            for item in _items(wanted).values()
        ]
    )


def frames(doc: Mapping[str, Any]) -> list[Image.Image]:
    """``doc_to_visual``: the story's key frames; none where it is told in words alone."""
    clip = _item(doc).clip
    return [] if clip is None else [Image.fromarray(frame) for frame in clip()]


def results(doc: Mapping[str, Any], replies: Sequence[str]) -> dict[str, dict[str, Any]]:
    """``process_results``: each metric's row for this document, see :mod:`harness.metrics`.

    ``TB`` and ``FB`` are given documents of their condition alone; ``official_`` metrics are of
    the reader that takes nothing but JSON. In ``score``, lmms-eval looks for what it needs to
    give a standard error.
    """
    item = _item(doc)
    table = score([item], [{"item_id": item.item_id, "reply": replies[0]}])
    found: dict[str, dict[str, Any]] = {}
    for prefix, reader in _READERS.items():
        (row,) = scores(table, reader).to_dict("records")
        right = row | {"score": float(row["correct"] and not row["invalid"])}
        if item.condition:
            found |= {f"{prefix}{item.condition}": right, f"{prefix}Both": row}
        else:
            found[f"{prefix}accuracy"] = right
        found[f"{prefix}invalid"] = row | {"score": float(row["invalid"])}
    return found


def true_belief(rows: Sequence[Mapping[str, Any]]) -> float:
    """Share of right answers under true belief."""
    return belief_metrics(pd.DataFrame(rows), bootstrap=1).TB.value


def false_belief(rows: Sequence[Mapping[str, Any]]) -> float:
    """Share of right answers under false belief."""
    return belief_metrics(pd.DataFrame(rows), bootstrap=1).FB.value


def both(rows: Sequence[Mapping[str, Any]]) -> float:
    """Share of pairs, TB and FB of one story, with both right."""
    return belief_metrics(pd.DataFrame(rows), bootstrap=1).Both.value


def right(rows: Sequence[Mapping[str, Any]]) -> float:
    """Share of right answers."""
    return accuracy(pd.DataFrame(rows), bootstrap=1).overall.value


def invalid(rows: Sequence[Mapping[str, Any]]) -> float:
    """Share of replies that are no answer."""
    return accuracy(pd.DataFrame(rows), bootstrap=1).invalid.value


def _item(doc: Mapping[str, Any]) -> Item:
    return _items(doc["questions"])[doc["item_id"]]


@lru_cache(maxsize=16)
def _items(questions: str) -> dict[str, Item]:
    """The items of a row of options, by id."""
    options = json.loads(questions)
    known = (*_CHOICES, *_FOLDERS, *_SEEDS)
    if unknown := sorted(set(options) - set(known)):
        raise HarnessError(f"questions: there is no {unknown[0]!r}; there are {', '.join(known)}")
    for name, choices in _CHOICES.items():
        if name in options and options[name] not in choices:
            raise HarnessError(
                f"questions: {name} must be {', '.join(choices)}, is {options[name]!r}"
            )
    for name in _SEEDS:
        if not isinstance(options.get(name, 0), int):
            raise HarnessError(f"questions: {name} must be a whole number, is {options[name]!r}")
    for name in _FOLDERS:
        if name in options:
            if not isinstance(options[name], str):
                raise HarnessError(f"questions: {name} must be a folder, is {options[name]!r}")
            options[name] = Path(options[name])
    work = prepare(EvalConfig(**options), facts_of(options.get("steer")))
    if work.unseen:
        LOGGER.warning("%s", work.unseen)
    return {item.item_id: item for item in work.items}
