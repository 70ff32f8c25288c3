"""From replies to the numbers of a run: scored items, metrics by reader, and what is handed in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Unpack

import pandas as pd

from sally_anne.core.errors import HarnessError
from sally_anne.core.files import write_atomic
from sally_anne.harness.answers import (
    READERS,
    Reader,
    answers_all,
    conclusion,
    read_answer,
    read_words,
    without_cue,
)
from sally_anne.harness.gridtom import REWORDED
from sally_anne.harness.items import Item
from sally_anne.harness.metrics import Resampling, Unit, accuracy, belief_metrics, over
from sally_anne.harness.official import OFFICIAL

# In the order of the printed columns.
ALL_READERS = ("robust", "official", "options", "judge")
UNAVAILABLE = "NA"
# The tag that names a score which wants all its questions to be right.
JOINT = "joint"


def score(items: Sequence[Item], answers: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """One row an item: what was said, and how each reader reads it.

    Returns:
        Columns ``item_id, story, split, condition, first, hidden, answer, reply``, ``cut`` (whether
        the reply was cut before the model ended it), ``conclusion`` (what is read of a reply that
        thinks aloud), ``perspective`` and ``perspective_cut`` (SimToM's first reply), ``map`` where
        stories have one, ``tag_<kind>`` for each kind of tag (values joined by ``|``), and for each
        reader (``official``, ``robust``, and ``options`` where options were scored)
        ``<reader>_label``, ``<reader>_correct`` and ``<reader>_invalid``.
        Where the key is hidden nothing is correct: leave these rows out by ``hidden``. Open
        questions have ``question`` and ``reference`` instead of readers' columns; a judge reads
        them.
    """
    kinds = dict.fromkeys(kind for item in items for kind in item.tags)
    rows = []
    for item, answer in zip(items, answers, strict=True):
        row: dict[str, Any] = {
            name: getattr(item, name)
            for name in ("item_id", "story", "split", "condition", "first", "hidden")
        }
        row |= {"map": item.map} if item.map else {}
        row |= {"answer": ", ".join(item.answer), "reply": answer["reply"]}
        # Older journals do not say.
        row["cut"] = not answer.get("ended", True)
        if item.before:
            row["perspective"] = answer["perspective"]
            row["perspective_cut"] = not answer["perspective_ended"]
        said = answer["reply"]
        if item.reasons:
            said = row["conclusion"] = conclusion(said, ended=not row["cut"])
        row |= {f"tag_{kind}": "|".join(item.tags.get(kind, ())) for kind in kinds}
        if not item.options:
            rows.append(row | {"question": item.question, "reference": item.reference})
            continue
        for reader in READERS:
            label, right = _read(item, said, reader)
            row[f"{reader}_label"] = label
            row[f"{reader}_correct"], row[f"{reader}_invalid"] = right, label is None
        if log_probs := answer.get("option_log_probs"):
            best = item.options[max(range(len(log_probs)), key=log_probs.__getitem__)].label
            row["options_label"] = best
            row |= {"options_correct": best in item.answer, "options_invalid": False}
        rows.append(row)
    return pd.DataFrame(rows)


def _read(item: Item, reply: str, reader: Reader) -> tuple[str | None, bool]:
    """What the reply chooses, None if nothing, and whether that is right."""
    if reader == "official":
        return OFFICIAL[item.official].read(without_cue(reply) if item.reasons else reply, item)
    if item.names:
        choices = [o.text for o in item.options]
        named = read_words(reply, choices, reader)
        right = answers_all(reply, item.answer, choices, reader) is True
        return ", ".join(sorted(named)) or None, right
    label = read_answer(reply, item.options, reader)
    return label, label in item.answer


def scores(table: pd.DataFrame, reader: str) -> pd.DataFrame:
    """The items that one reader has read, as :mod:`sally_anne.harness.metrics` takes them."""
    names = {f"{reader}_correct": "correct", f"{reader}_invalid": "invalid"}
    kept = ["item_id", "story", "condition", "first", *names]
    kept += ["map"] if "map" in table else []
    return table[kept].rename(columns=names)


def readers(table: pd.DataFrame) -> list[str]:
    """Those who have read these items."""
    return [reader for reader in ALL_READERS if f"{reader}_correct" in table]


def summarise(table: pd.DataFrame, order: str) -> dict[str, Any]:
    """GridToM: each reader's metrics as plain numbers: value, interval, count.

    Of belief questions TB, FB, Both and invalid; of initial ones accuracy and invalid. Where
    intervals are over maps, those over stories stand beside as ``over_stories``.
    """

    def metrics(reader: str, unit: Unit | None = None) -> dict[str, Any]:
        measure = accuracy if order == "initial" else belief_metrics
        return asdict(measure(scores(table, reader), unit=unit))  # type: ignore[operator]

    beside = over(table) == "map"
    return {
        reader: metrics(reader) | ({"over_stories": metrics(reader, "story")} if beside else {})
        for reader in readers(table)
    }


def by_value(cells: pd.Series) -> Iterator[tuple[str, pd.Series]]:
    """Each of the values, which cells join by ``|``, and the rows that have it."""
    values = cells.str.split("|")
    for value in sorted({value for cell in values for value in cell if value}):
        yield value, values.map(lambda cell, value=value: value in cell)


@dataclass(frozen=True)
class Part:
    """Scores of some items, of which numbers are reported; see :func:`parts`.

    Attributes:
        kind: of tags; ``cells`` of a combination of several, ``joint`` of what must be right
            together, empty of all items.
        value: of the tag, or of the combination.
        rows: scores, as :mod:`sally_anne.harness.metrics` takes them.
        beliefs: whether TB, FB and Both are reported, or plain accuracy.
        unit: what intervals resample; None as :func:`sally_anne.harness.metrics.over` says.
    """

    kind: str
    value: str
    rows: pd.DataFrame
    beliefs: bool = False
    unit: Unit | None = None


def parts(
    keyed: pd.DataFrame, reader: str, kinds: Sequence[str], cells: Sequence[str] = ()
) -> Iterator[Part]:
    """What one reader's numbers are reported of, as :func:`break_down` says, in its order."""
    theirs = scores(keyed, reader)
    yield Part("", "", theirs)
    for kind in kinds:
        for value, having in by_value(keyed.get(f"tag_{kind}", pd.Series("", keyed.index))):
            yield Part(kind, value, theirs[having])
    if f"tag_{JOINT}" in keyed:
        yield from _joint(keyed, theirs)
    if (pairs := _pairs(keyed, theirs, cells)) is None:
        return
    yield Part("", "", pairs, beliefs=True, unit="map")
    if cells:
        for values, rows in pairs.groupby([keyed.loc[pairs.index, f"tag_{c}"] for c in cells]):
            yield Part("cells", ", ".join(values), rows, beliefs=True, unit="map")


def break_down(
    table: pd.DataFrame,
    kinds: Sequence[str],
    cells: Sequence[str] = (),
    **resampling: Unpack[Resampling],
) -> dict[str, Any]:
    """Each reader's accuracy: overall, by tags, and of beliefs.

    An item with several values of a kind of tag counts in each of them; those without a key are
    left out. By reader ``overall``, ``invalid``, ``groups`` (by kind and value), and ``belief``
    (TB, FB, Both, invalid) where items with a condition make pairs; ``cells`` has the same for each
    combination of the values of these kinds of tags, which it names in their order. Questions asked
    in one condition alone, as BigToM's percept_to_belief, are in none of them. ``joint`` has, for
    each value of that tag, the share of groups (or of their sets) that have all its questions
    right. Intervals are over groups, as everywhere. Empty if no item has a key.
    """
    keyed = table[~table["hidden"]]
    found: dict[str, Any] = {}
    for reader in readers(keyed) if not keyed.empty else ():
        own: dict[str, Any] = {}
        for part in parts(keyed, reader, kinds, cells):
            if part.beliefs:
                measured = asdict(belief_metrics(part.rows, unit=part.unit, **resampling))
                if part.kind:
                    own.setdefault(part.kind, {})[part.value] = measured
                else:
                    own["belief"] = measured
            elif part.kind:
                place = own if part.kind == JOINT else own["groups"]
                measured = asdict(accuracy(part.rows, **resampling).overall)
                place.setdefault(part.kind, {})[part.value] = measured
            else:
                own = asdict(accuracy(part.rows, **resampling))
                own["groups"] = {kind: {} for kind in kinds}
        found[reader] = own
    return found


def counts(table: pd.DataFrame, missing: Sequence[str] = ()) -> dict[str, int]:
    """How many items were asked, have a hidden key, got a cut reply, and could not be asked.

    ``reworded`` is there where questions of GridToM's official wording had two true answers.
    """
    sums = {name: int(table[name].sum()) for name in ("hidden", "cut")}
    found = {"asked": len(table), **sums, "missing": len(missing)}
    if "perspective_cut" in table:
        found["perspectives_cut"] = int(table["perspective_cut"].sum())
    if "tag_question" in table and (reworded := int((table["tag_question"] == REWORDED).sum())):
        found["reworded"] = reworded
    return found


def _joint(keyed: pd.DataFrame, theirs: pd.DataFrame) -> Iterator[Part]:
    """By value of the tag ``joint``: whether all questions of a group, or set, are right."""
    right = theirs.assign(
        item_id=keyed["story"] + "/" + keyed.get("tag_set", pd.Series("", keyed.index)),
        correct=theirs["correct"] & ~theirs["invalid"],
    )
    how = {"story": "first", "correct": "all", "invalid": "any"}
    for value, having in by_value(keyed[f"tag_{JOINT}"]):
        yield Part(JOINT, value, right[having].groupby("item_id", as_index=False).agg(how))


def _pairs(
    keyed: pd.DataFrame, theirs: pd.DataFrame, cells: Sequence[str] = ()
) -> pd.DataFrame | None:
    """Items with a belief condition, TB and FB of what is else the same side by side.

    Their group and the tags of these kinds, or without any all other tags, tell which belong
    together; tags that come with one condition alone are left out. The group stands as ``map``,
    which intervals are over: the questions of a story about several variables are not independent
    of each other.
    """
    tags = [c for c in keyed if c.startswith("tag_") and c != "tag_condition"]
    named = [f"tag_{kind}" for kind in cells if f"tag_{kind}" in keyed]
    kind = keyed[["split", *(named or tags)]].agg("/".join, axis=1)
    both = keyed[keyed["condition"] != ""].groupby(kind)["condition"].nunique() == 2
    beliefs = (keyed["condition"] != "") & kind.isin(both.index[both])
    if not beliefs.any():
        return None
    pairs = theirs[beliefs].assign(map=keyed["story"])
    pairs["story"] = pairs["story"] + "/" + kind
    return None if pairs.duplicated(["story", "condition"]).any() else pairs


def write_submission(
    table: pd.DataFrame, path: Path, missing: Sequence[str] = (), reader: str = "robust"
) -> None:
    """Write what was answered, as one reader reads it, in the form of the dataset's card.

    That is a JSON list of objects with ``question_id`` and ``answer_key``, a label. ``"NA"`` stands
    for questions whose film could not be had; they are left out of the accuracy there. A reply
    that chooses nothing is not such a question: it is null here, so that whoever scores the file
    sees it and can count it as wrong. The card says nothing of null.
    """
    column = f"{reader}_label"
    for name in ("item_id", column):
        if name not in table:
            raise HarnessError(f"there is no column {name!r}, so nothing can be handed in")
    names = [*table["item_id"], *missing]
    labels = [None if pd.isna(label) else str(label) for label in table[column]]
    labels += [UNAVAILABLE] * len(missing)
    if twice := [name for name in names if names.count(name) > 1]:
        raise HarnessError(f"item {twice[0]!r} stands there twice")
    pairs = zip(names, labels, strict=True)
    entries = [{"question_id": name, "answer_key": label} for name, label in pairs]
    write_atomic(path, (json.dumps(entries, indent=2) + "\n").encode())
