"""The file in which answers to MoMentS are handed in, as its test keys are not public.

The format is that of the dataset's card: a JSON list of objects with ``question_id`` and
``answer_key``, a label. ``"NA"`` stands for questions whose film could not be had; they are left
out of the accuracy there. A reply that chooses nothing is not such a question: it is null here, so
that whoever scores the file sees it and can count it as wrong. The card says nothing of null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from sally_anne.core.errors import HarnessError
from sally_anne.core.files import write_atomic

UNAVAILABLE = "NA"


@dataclass(frozen=True)
class Submission:
    """What is handed in.

    Attributes:
        labels: by question, in order; None for an invalid reply, ``"NA"`` for a missing film.
        answered: number of labels.
        invalid: number of invalid replies.
        unavailable: number of questions without a film.
    """

    labels: Mapping[str, str | None]
    answered: int
    invalid: int
    unavailable: int


def submission(
    table: pd.DataFrame, missing: Iterable[str] = (), reader: str = "robust"
) -> Submission:
    """What was answered, as one reader reads it.

    Args:
        table: from :func:`sally_anne.harness.evaluate.score`.
        missing: ids of items that could not be asked, as their films are not here.
        reader: whose column ``<reader>_label`` is taken.

    Raises:
        HarnessError: the reader has read nothing, or an item stands there twice.
    """
    column = f"{reader}_label"
    for name in ("item_id", column):
        if name not in table:
            raise HarnessError(f"there is no column {name!r}, so nothing can be handed in")
    labels: dict[str, str | None] = {}
    for name, label in zip(table["item_id"], table[column], strict=True):
        _once(labels, name)
        labels[name] = None if pd.isna(label) else str(label)
    invalid = sum(label is None for label in labels.values())
    for name in missing:
        _once(labels, name)
        labels[name] = UNAVAILABLE
    return Submission(labels, len(table) - invalid, invalid, len(labels) - len(table))


def write_submission(
    table: pd.DataFrame, path: Path, missing: Iterable[str] = (), reader: str = "robust"
) -> Submission:
    """Write :func:`submission` to ``path``.

    Returns:
        What was written, with counts to be reported.

    Raises:
        HarnessError: as :func:`submission`.
        StoreError: the disk is full.
    """
    made = submission(table, missing, reader)
    entries = [{"question_id": name, "answer_key": label} for name, label in made.labels.items()]
    write_atomic(path, (json.dumps(entries, indent=2) + "\n").encode())
    return made


def _once(labels: Mapping[str, str | None], name: str) -> None:
    if name in labels:
        raise HarnessError(f"item {name!r} stands there twice")
