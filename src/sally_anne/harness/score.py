"""From replies to figures: scored items, then TB, FB, Both and accuracy with intervals.

A score table has one row an item: ``item_id`` (unique), ``story``, ``condition`` (TB or FB; in
second order that of the participant), ``correct`` and ``invalid`` (an invalid answer counts as
wrong, GridToM paper, appendix E), and maybe ``map`` and ``first`` (in second order the
protagonist's condition). Intervals are 95 % percentile bootstraps over maps, or over stories where
maps are few or not known; ``bootstrap``, ``seed`` and ``level`` are of the resampling.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from sally_anne.core.bootstrap import Estimate, draw_groups, estimate_mean
from sally_anne.core.errors import HarnessError
from sally_anne.core.files import write_atomic
from sally_anne.data.items import Question
from sally_anne.harness.parse import PARSERS, conclusion, parse, without_cue

CONDITIONS = ("TB", "FB")
# In the order of the printed columns.
ALL_PARSERS = ("robust", "official", "options", "judge")
# The tag that names a score which wants all its questions to be right.
JOINT = "joint"
Unit = Literal["story", "map"]
# Fewer maps than these say nothing of other maps.
FEWEST_MAPS = 5


class Part(NamedTuple):
    """Scores of some items, of which TB, FB and Both (``beliefs``) or plain accuracy is reported.

    ``kind`` is that of a tag, ``cells`` of several together, :data:`JOINT`, or empty of all items.
    """

    kind: str
    value: str
    rows: pd.DataFrame
    beliefs: bool = False
    unit: Unit | None = None

    @property
    def name(self) -> str:
        """In words; empty of all items."""
        named = {"": "", "cells": self.value, JOINT: f"all right: {self.value}"}
        return named.get(self.kind, f"{self.kind}: {self.value}")


class Outcomes(NamedTuple):
    """Values to average and the number of each one's group, both ``[n]``, of so many groups."""

    values: np.ndarray
    group: np.ndarray
    groups: int

    def estimate(self, bootstrap: int = 2000, seed: int = 0, level: float = 0.95) -> Estimate:
        """The mean; outcomes of as many groups have the same resamples."""
        times = _draws(self.groups, bootstrap, seed)
        return estimate_mean(self.values, self.group, times, level)


_draws = lru_cache(maxsize=8)(draw_groups)


def score(items: Sequence[Question], answers: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """One row an item: the reply, and how each parser reads it; columns as in docs/files.md.

    Where the key is hidden nothing is correct. Open questions have ``question`` and ``reference``
    in place of what parsers read; a judge rates them.
    """
    kinds = dict.fromkeys(kind for item in items for kind in item.tags)
    rows = []
    for item, answer in zip(items, answers, strict=True):
        row: dict[str, Any] = {"item_id": item.item_id, "story": item.group}
        facts = ("split", "condition", "first", "hidden")
        row |= {name: getattr(item, name) for name in facts}
        row |= {"map": item.map} if item.map else {}
        reply, ended = answer["reply"], answer.get("ended", True)
        row |= {"answer": ", ".join(item.key), "reply": reply, "cut": not ended}
        if item.before:
            row["perspective"] = answer["perspective"]
            row["perspective_cut"] = not answer["perspective_ended"]
        if item.reasons:
            reply = row["conclusion"] = conclusion(reply, ended)
        row |= {f"tag_{kind}": "|".join(item.tags.get(kind, ())) for kind in kinds}
        rows.append(row)
        if not item.options:
            row |= {"question": item.question, "reference": item.reference}
            continue
        for parser in PARSERS:
            text = without_cue(reply) if item.reasons and parser == "official" else reply
            label, right = parse(item, text, parser, ended)
            row[f"{parser}_label"] = label
            row[f"{parser}_correct"], row[f"{parser}_invalid"] = right, label is None
        if log_probs := answer.get("option_log_probs"):
            best = item.options[int(np.argmax(log_probs))].label
            row["options_label"] = best
            row |= {"options_correct": best in item.key, "options_invalid": False}
    return pd.DataFrame(rows)


def scores(table: pd.DataFrame, parser: str) -> pd.DataFrame:
    names = {f"{parser}_correct": "correct", f"{parser}_invalid": "invalid"}
    kept = ["item_id", "story", "condition", "first", *names]
    kept += ["map"] if "map" in table else []
    return table[kept].rename(columns=names)


def parsers(table: pd.DataFrame) -> list[str]:
    return [parser for parser in ALL_PARSERS if f"{parser}_correct" in table]


def parts(
    table: pd.DataFrame,
    parser: str,
    kinds: Sequence[str] = (),
    cells: Sequence[str] = (),
    beliefs: bool = False,
) -> Iterator[Part]:
    """What one parser's figures are reported of: all items, those with each tag, combinations.

    An item with several values of a kind of tag counts in each of them. With ``beliefs`` the items
    are TB and FB of stories, and nothing else is reported. ``joint`` has, for each value of that
    tag, the share of groups (or of their sets) with all questions right.
    """
    own = scores(table, parser)
    yield Part("", "", own, beliefs)
    if beliefs:
        return
    for kind in kinds:
        for value, having in by_value(table.get(f"tag_{kind}", pd.Series("", table.index))):
            yield Part(kind, value, own[having])
    if f"tag_{JOINT}" in table:
        right = own.assign(
            item_id=table["story"] + "/" + table.get("tag_set", pd.Series("", table.index)),
            correct=own["correct"] & ~own["invalid"],
        )
        how = {"story": "first", "correct": "all", "invalid": "any"}
        for value, having in by_value(table[f"tag_{JOINT}"]):
            yield Part(JOINT, value, right[having].groupby("item_id", as_index=False).agg(how))
    pairs = _pairs(table, own, cells)
    if pairs.empty:
        return
    yield Part("", "", pairs, beliefs=True, unit="map")
    if cells:
        for values, rows in pairs.groupby([table.loc[pairs.index, f"tag_{c}"] for c in cells]):
            yield Part("cells", ", ".join(values), rows, beliefs=True, unit="map")


def by_value(cells: pd.Series) -> Iterator[tuple[str, pd.Series]]:
    """Each of the values, joined by ``|`` in cells, and the rows that have it."""
    values = cells.str.get_dummies("|").astype(bool)
    for value in sorted(filter(None, values)):
        yield value, values[value]


def _pairs(table: pd.DataFrame, own: pd.DataFrame, cells: Sequence[str]) -> pd.DataFrame:
    """Items with a belief condition, TB and FB of what is else the same in one ``story``.

    Their group and the tags of these kinds, or without any all other tags, tell which belong
    together; tags that come with one condition alone are left out. The group stands as ``map``,
    which intervals are over. Empty where a story has two items of one condition.
    """
    tags = [c for c in table if c.startswith("tag_") and c != "tag_condition"]
    named = [f"tag_{kind}" for kind in cells if f"tag_{kind}" in table]
    kind = table[["split", *(named or tags)]].agg("/".join, axis=1)
    both = table[table["condition"] != ""].groupby(kind)["condition"].nunique() == 2
    having = (table["condition"] != "") & kind.isin(both.index[both])
    pairs = own.assign(map=table["story"], story=table["story"] + "/" + kind)[having]
    return pairs[:0] if pairs.duplicated(["story", "condition"]).any() else pairs


def results_of(
    table: pd.DataFrame,
    kinds: Sequence[str] = (),
    cells: Sequence[str] = (),
    beliefs: bool = False,
    **resampling: Any,
) -> list[dict[str, Any]]:
    """All figures of :func:`parts`, as rows of plain numbers; items without a key are out.

    ``parser, kind, part, measure, value, low, high, n``; ``part`` is in words, empty of all items,
    of which alone ``invalid`` is reported.
    """
    keyed = table[~table["hidden"]]
    return [
        {"parser": parser, "kind": part.kind, "part": part.name, "measure": name, **asdict(one)}
        for parser in (() if keyed.empty else parsers(keyed))
        for number, part in enumerate(parts(keyed, parser, kinds, cells, beliefs))
        for name, one in estimates(part.rows, part.beliefs, part.unit, **resampling).items()
        if name != "invalid" or number == 0
    ]


def counts(table: pd.DataFrame, missing: Sequence[str] = ()) -> dict[str, int]:
    columns = {"hidden": "hidden", "cut": "cut", "perspectives_cut": "perspective_cut"}
    sums = {name: int(table[column].sum()) for name, column in columns.items() if column in table}
    return {"asked": len(table), **sums, "missing": len(missing)}


def write_submission(table: pd.DataFrame, path: Path, missing: Sequence[str] = ()) -> None:
    """Write the answers in the form of MoMentS' dataset card, as the robust parser reads them.

    ``"NA"`` stands for questions whose film could not be had, which are left out of the accuracy
    there; null for a reply that chooses nothing, so that it can be counted as wrong.
    """
    labels = table["robust_label"].astype(object).where(table["robust_label"].notna(), None)
    pairs = [*zip(table["item_id"], labels, strict=True), *((name, "NA") for name in missing)]
    entries = [{"question_id": name, "answer_key": label} for name, label in pairs]
    write_atomic(path, (json.dumps(entries, indent=2) + "\n").encode())


def over(items: pd.DataFrame) -> Unit:
    """What intervals resample: maps, or stories where maps are few or not known."""
    maps = items.get("map", pd.Series(dtype=object)).fillna("")
    return "map" if (maps != "").all() and maps.nunique() >= FEWEST_MAPS else "story"


def outcomes(items: pd.DataFrame, beliefs: bool, unit: Unit | None = None) -> dict[str, Outcomes]:
    """Right or wrong, by condition and of each complete pair where ``beliefs``; and invalid.

    Both matches TB and FB of one story; in second order, of one story and one ``first``; what lacks
    its other side counts in TB or FB alone. HarnessError if a story has two of one condition.
    """
    found = items.assign(
        right=items["correct"].astype(bool) & ~items["invalid"].astype(bool),
        group=pd.factorize(items[unit or over(items)].astype(str), sort=True)[0],
    )
    groups = found["group"].nunique()

    def of(rows: pd.DataFrame, column: str = "right") -> Outcomes:
        return Outcomes(rows[column].to_numpy(float), rows["group"].to_numpy(), groups)

    if not beliefs:
        return {"overall": of(found), "invalid": of(found, "invalid")}
    first = found.get("first", pd.Series("", found.index)).fillna("")
    if (first == "").all() or (first == found["condition"]).all():  # first order
        first = pd.Series(CONDITIONS[0], found.index)
    found["first"] = first
    if (twice := found.duplicated(["story", "first", "condition"])).any():
        item = found["item_id"][twice].iloc[0]
        raise HarnessError(f"item {item!r} is the second one of its story and condition")
    sides = {name: found[found["condition"] == name] for name in CONDITIONS}
    pairs = sides["TB"].merge(sides["FB"], on=["story", "first"], suffixes=("", "_FB"))
    pairs["right"] &= pairs["right_FB"]
    measures = {name: of(rows) for name, rows in (sides | {"Both": pairs}).items()}
    return measures | {"invalid": of(found, "invalid")}


def estimates(
    items: pd.DataFrame, beliefs: bool, unit: Unit | None = None, **resampling: Any
) -> dict[str, Estimate]:
    """:func:`outcomes` with intervals, as in table 1 of the GridToM paper."""
    found = outcomes(items, beliefs, unit)
    return {name: one.estimate(**resampling) for name, one in found.items()}


def paired(
    a: pd.DataFrame | Sequence[pd.DataFrame],
    b: pd.DataFrame | Sequence[pd.DataFrame],
    *,
    beliefs: bool,
    unit: Unit | None = None,
    **resampling: Any,
) -> dict[str, dict[str, Any]]:
    """Each measure of two score tables of the same items, and the difference, b minus a.

    Each resample takes the same groups for both. ``only_first`` and ``only_second`` count the items
    (for Both pairs) that only one of the two has right; ``p`` is of :func:`mcnemar`. Several tables
    in the place of one stand for their mean, item by item.
    """
    sides = [[one] if isinstance(one, pd.DataFrame) else one for one in (a, b)]
    ids = sides[0][0]["item_id"]

    def mean(tables: Sequence[pd.DataFrame]) -> dict[str, Outcomes]:
        if any(set(table["item_id"]) != set(ids) for table in tables):
            raise HarnessError("the two tables are not of the same items")
        each = [t.set_index("item_id", drop=False).loc[ids] for t in tables]
        found = [outcomes(table, beliefs, unit) for table in each]
        values = {name: np.mean([one[name].values for one in found], 0) for name in found[0]}
        return {name: one._replace(values=values[name]) for name, one in found[0].items()}

    before, after = map(mean, sides)
    found: dict[str, dict[str, Any]] = {}
    for name, first in before.items():
        gain = after[name].values - first.values
        three = (first, after[name], first._replace(values=gain))
        lost, won, p = mcnemar(gain)
        each = (one.estimate(**resampling) for one in three)
        found[name] = dict(zip(("first", "second", "difference"), each, strict=True))
        found[name] |= {"only_first": lost, "only_second": won, "p": p}
    return found


def differences(
    a: pd.DataFrame, b: pd.DataFrame, beliefs: bool, **resampling: Any
) -> dict[str, Estimate]:
    """How much more of each measure ``b`` (e.g. steered) has than ``a`` on the same items."""
    found = paired(a, b, beliefs=beliefs, **resampling)
    return {name: one["difference"] for name, one in found.items()}


def mcnemar(gains: np.ndarray) -> tuple[int, int, float]:
    """How many only the first has right, how many only the second, and McNemar's exact p.

    ``gains`` are paired outcomes, second minus first; two-sided, 1 if nothing differs.
    """
    won, lost = int((gains > 0).sum()), int((gains < 0).sum())
    p = float(binomtest(won, won + lost, 0.5).pvalue) if won + lost else 1.0
    return lost, won, p
