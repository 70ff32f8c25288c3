"""From replies to figures: scored items, then TB, FB, Both and accuracy with intervals.

A score table has one row an item, in any order: ``item_id`` (unique), ``story`` (items of one are
not independent), ``condition`` (TB or FB; in second order that of the participant), ``correct`` and
``invalid`` (an invalid answer counts as wrong, GridToM paper, appendix E), and maybe ``map``
(stories of one map are not independent either) and ``first`` (in second order the protagonist's
condition). Intervals are 95 % percentile bootstraps over maps, or over stories where maps are few
or not known.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

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
# Values to average, and the number of the group that each belongs to; both [n].
_Grouped = tuple[np.ndarray, np.ndarray]


class Resampling(TypedDict, total=False):
    """Of intervals: the number of resamples, their seed and the middle share of them."""

    bootstrap: int
    seed: int
    level: float


@dataclass(frozen=True)
class Metrics:
    """Shares right under true and under false belief, of pairs with both right, and of invalid.

    As in the GridToM paper, table 1 and appendix F.3.
    """

    TB: Estimate
    FB: Estimate
    Both: Estimate
    invalid: Estimate


@dataclass(frozen=True)
class Accuracy:
    """Shares of right and of invalid answers; of right ones also by the values of a column."""

    overall: Estimate
    invalid: Estimate
    groups: dict[str, Estimate]


@dataclass(frozen=True)
class Part:
    """Scores of some items, of which figures are reported.

    Attributes:
        kind: of tags; ``cells`` of a combination of several, ``joint`` of what must be right
            together, empty of all items.
        value: of the tag, or of the combination.
        rows: a score table.
        beliefs: whether TB, FB and Both are reported, or plain accuracy.
        unit: what intervals resample; None as :func:`over` says.
    """

    kind: str
    value: str
    rows: pd.DataFrame
    beliefs: bool = False
    unit: Unit | None = None


def score(items: Sequence[Question], answers: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """One row an item: the reply, and how each parser reads it.

    Returns:
        Columns ``item_id, story, split, condition, first, hidden, answer, reply``, ``cut`` (whether
        the reply was cut before the model ended it), ``conclusion`` (the end of a reply that thinks
        aloud), ``perspective`` and ``perspective_cut`` (SimToM's first reply), ``map`` where
        stories have one, ``tag_<kind>`` for each kind of tag (values joined by ``|``), and for each
        parser (``official``, ``robust``, and ``options`` where options were scored)
        ``<parser>_label``, ``<parser>_correct`` and ``<parser>_invalid``. Where the key is hidden
        nothing is correct. Open questions have ``question`` and ``reference`` instead; a judge
        rates them.
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
            label, right = parse(item, text, parser)
            row[f"{parser}_label"] = label
            row[f"{parser}_correct"], row[f"{parser}_invalid"] = right, label is None
        if log_probs := answer.get("option_log_probs"):
            best = item.options[int(np.argmax(log_probs))].label
            row["options_label"] = best
            row |= {"options_correct": best in item.key, "options_invalid": False}
    return pd.DataFrame(rows)


def scores(table: pd.DataFrame, parser: str) -> pd.DataFrame:
    """The score table of one parser."""
    names = {f"{parser}_correct": "correct", f"{parser}_invalid": "invalid"}
    kept = ["item_id", "story", "condition", "first", *names]
    kept += ["map"] if "map" in table else []
    return table[kept].rename(columns=names)


def parsers(table: pd.DataFrame) -> list[str]:
    """Those that have read these items."""
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
    if (pairs := _pairs(table, own, cells)) is None:
        return
    yield Part("", "", pairs, beliefs=True, unit="map")
    if cells:
        for values, rows in pairs.groupby([table.loc[pairs.index, f"tag_{c}"] for c in cells]):
            yield Part("cells", ", ".join(values), rows, beliefs=True, unit="map")


def results_of(
    table: pd.DataFrame,
    kinds: Sequence[str] = (),
    cells: Sequence[str] = (),
    beliefs: bool = False,
    **resampling: Unpack[Resampling],
) -> dict[str, Any]:
    """Each parser's figures as plain numbers: value, interval, count; items without a key are out.

    With ``beliefs`` TB, FB, Both and invalid, else ``overall``, ``invalid``, ``groups`` (by kind
    and value), ``joint``, and ``belief`` and ``cells`` where items with a condition make pairs.
    Where intervals are over maps, those over stories are ``over_stories``.
    """
    keyed = table[~table["hidden"]]
    found: dict[str, Any] = {}
    for parser in parsers(keyed) if not keyed.empty else ():
        own: dict[str, Any] = {} if beliefs else {"groups": {kind: {} for kind in kinds}}
        for part in parts(keyed, parser, kinds, cells, beliefs):
            figures = _figures(part, part.unit, **resampling)
            if part.kind == "cells":
                own.setdefault("cells", {})[part.value] = figures
            elif part.kind:
                place = own if part.kind == JOINT else own["groups"]
                place.setdefault(part.kind, {})[part.value] = figures["overall"]
            elif part.beliefs and not beliefs:
                own["belief"] = figures
            else:
                own = figures | own
                if over(part.rows) == "map":
                    own["over_stories"] = _figures(part, "story", **resampling)
        found[parser] = own
    return found


def _figures(part: Part, unit: Unit | None, **resampling: Unpack[Resampling]) -> dict[str, Any]:
    if part.beliefs:
        return asdict(belief_metrics(part.rows, unit=unit, **resampling))
    found = asdict(accuracy(part.rows, unit=unit, **resampling))
    return {name: found[name] for name in ("overall", "invalid")}


def by_value(cells: pd.Series) -> Iterator[tuple[str, pd.Series]]:
    """Each of the values, which cells join by ``|``, and the rows that have it."""
    values = cells.str.split("|")
    for value in sorted({value for cell in values for value in cell if value}):
        yield value, values.map(lambda cell, value=value: value in cell)


def _pairs(table: pd.DataFrame, own: pd.DataFrame, cells: Sequence[str]) -> pd.DataFrame | None:
    """Items with a belief condition, TB and FB of what is else the same in one ``story``.

    Their group and the tags of these kinds, or without any all other tags, tell which belong
    together; tags that come with one condition alone are left out. The group stands as ``map``,
    which intervals are over: the questions of a story about several variables are not independent
    of each other.
    """
    tags = [c for c in table if c.startswith("tag_") and c != "tag_condition"]
    named = [f"tag_{kind}" for kind in cells if f"tag_{kind}" in table]
    kind = table[["split", *(named or tags)]].agg("/".join, axis=1)
    both = table[table["condition"] != ""].groupby(kind)["condition"].nunique() == 2
    having = (table["condition"] != "") & kind.isin(both.index[both])
    if not having.any():
        return None
    pairs = own[having].assign(map=table["story"])
    pairs["story"] = pairs["story"] + "/" + kind
    return None if pairs.duplicated(["story", "condition"]).any() else pairs


def counts(table: pd.DataFrame, missing: Sequence[str] = ()) -> dict[str, int]:
    """How many items were asked, have a hidden key, got a cut reply, and could not be asked."""
    sums = {name: int(table[name].sum()) for name in ("hidden", "cut")}
    found = {"asked": len(table), **sums, "missing": len(missing)}
    if "perspective_cut" in table:
        found["perspectives_cut"] = int(table["perspective_cut"].sum())
    return found


def write_submission(
    table: pd.DataFrame, path: Path, missing: Sequence[str] = (), parser: str = "robust"
) -> None:
    """Write the answers, as one parser reads them, in the form of MoMentS' dataset card.

    That is a JSON list of objects with ``question_id`` and ``answer_key``, a label. ``"NA"`` stands
    for questions whose film could not be had; they are left out of the accuracy there. A reply
    that chooses nothing is not such a question: it is null here, so that whoever scores the file
    sees it and can count it as wrong. The card says nothing of null.
    """
    labels = [None if pd.isna(label) else str(label) for label in table[f"{parser}_label"]]
    pairs = [*zip(table["item_id"], labels, strict=True), *((name, "NA") for name in missing)]
    entries = [{"question_id": name, "answer_key": label} for name, label in pairs]
    write_atomic(path, (json.dumps(entries, indent=2) + "\n").encode())


def over(items: pd.DataFrame) -> Unit:
    """What intervals resample: maps, or stories where maps are few or not known."""
    maps = items["map"] if "map" in items else pd.Series(dtype=object)
    known = maps.notna() & (maps != "")
    return "map" if len(maps) and known.all() and maps.nunique() >= FEWEST_MAPS else "story"


def belief_metrics(
    items: pd.DataFrame, *, unit: Unit | None = None, **resampling: Unpack[Resampling]
) -> Metrics:
    """TB, FB, Both and the share of invalid answers of a score table.

    Both matches TB and FB of one story; in second order, of one story and one ``first``. A pair
    that lacks a side counts as neither right nor wrong in Both; its item still counts in TB or FB.
    A HarnessError names a column that is missing, or the first item that is unusable.
    """
    return Metrics(**_estimates(_measures(items, True, unit), **resampling))


def accuracy(
    items: pd.DataFrame,
    by: str | None = None,
    *,
    unit: Unit | None = None,
    **resampling: Unpack[Resampling],
) -> Accuracy:
    """Accuracy over all items, and in each group of the column ``by``, whatever the condition."""
    measures = _measures(items, False, unit)
    right, group = measures["overall"]
    groups = {}
    if by is not None:
        keys = _in_order(items)[by].astype(str).to_numpy()
        groups = {k: (right[keys == k], group[keys == k]) for k in sorted(set(keys))}
    return Accuracy(**_estimates(measures, **resampling), groups=_estimates(groups, **resampling))


def paired(
    a: pd.DataFrame,
    b: pd.DataFrame,
    *,
    beliefs: bool,
    unit: Unit | None = None,
    **resampling: Unpack[Resampling],
) -> dict[str, dict[str, Any]]:
    """Each measure of two score tables of the same items, and the difference, b minus a.

    Measures are those of :func:`belief_metrics` where ``beliefs``, else of :func:`accuracy`, each
    with the interval that these give; each resample takes the same groups for both. Each has the
    estimates ``first``, ``second`` and ``difference``, in how many items (for Both pairs) only one
    of the two has it (``only_first``, ``only_second``), and the ``p`` of :func:`mcnemar`.
    """
    before, after = _measures(a, beliefs, unit), _measures(b, beliefs, unit)
    names = ["item_id", "story", *(["condition"] if beliefs else [])]
    left, right = (_in_order(table)[names].astype(str) for table in (a, b))
    if not left.equals(right):
        raise HarnessError("the two tables are not of the same items, stories and conditions")
    gains = {name: (after[name][0] - values, group) for name, (values, group) in before.items()}
    three = {"first": before, "second": after, "difference": gains}
    estimates = {which: _estimates(grouped, **resampling) for which, grouped in three.items()}
    found: dict[str, dict[str, Any]] = {}
    for name, (gain, _) in gains.items():
        lost, won, p = mcnemar(gain)
        found[name] = {which: each[name] for which, each in estimates.items()}
        found[name] |= {"only_first": lost, "only_second": won, "p": p}
    return found


def paired_difference(
    a: pd.DataFrame, b: pd.DataFrame, **resampling: Unpack[Resampling]
) -> dict[str, Estimate]:
    """How much better ``b`` (e.g. steered) is than ``a`` on the same items, in TB, FB and Both."""
    found = paired(a, b, beliefs=True, **resampling)
    return {name: one["difference"] for name, one in found.items() if name != "invalid"}


def paired_accuracy(
    a: pd.DataFrame, b: pd.DataFrame, **resampling: Unpack[Resampling]
) -> dict[str, Estimate]:
    """How much more often ``b`` is right (``overall``) and ``invalid`` than ``a``."""
    found = paired(a, b, beliefs=False, **resampling)
    return {name: one["difference"] for name, one in found.items()}


def mcnemar(gains: np.ndarray) -> tuple[int, int, float]:
    """Exact two-sided McNemar test of paired outcomes, given as second minus first.

    Of those that only one of the two has right, each is a fair coin under the null hypothesis,
    which takes them as independent. Returns how many only the first has, how many only the second,
    and the p-value: 1 if nothing differs.
    """
    won, lost = int((gains > 0).sum()), int((gains < 0).sum())
    p = float(binomtest(won, won + lost, 0.5).pvalue) if won + lost else 1.0
    return lost, won, p


def mcnemar_both(a: pd.DataFrame, b: pd.DataFrame) -> float:
    """The p-value of :func:`mcnemar` of whether ``a`` and ``b`` differ in Both on the same items.

    In second order two pairs share a story, which the test takes as independent.
    """
    return paired(a, b, beliefs=True, bootstrap=1)["Both"]["p"]


def _in_order(items: pd.DataFrame) -> pd.DataFrame:
    return items.sort_values("item_id", key=lambda ids: ids.astype(str), ignore_index=True)


def _measures(items: pd.DataFrame, beliefs: bool, unit: Unit | None = None) -> dict[str, _Grouped]:
    """Right or wrong, by condition and of each complete pair where ``beliefs``; and invalid.

    Values are in the order of the items' ids; their groups are numbered in the order of the names.
    """
    columns = ["item_id", "story", *(["condition"] if beliefs else []), "correct", "invalid"]
    if missing := [name for name in columns if name not in items]:
        raise HarnessError(f"the scores lack the column {missing[0]!r}")
    if items.empty:
        raise HarnessError("there are no items to score")
    found = _in_order(items)
    whole = found[columns].notna().all(axis=1)
    whole &= found[["correct", "invalid"]].isin([True, False]).all(axis=1)
    _require(found, whole, "has no story, outcome or condition")
    _require(found, ~found["item_id"].duplicated(), "stands in the scores twice")
    found[["correct", "invalid"]] = found[["correct", "invalid"]].astype(bool)
    found["right"] = found["correct"] & ~found["invalid"]
    found["_unit"] = pd.factorize(found[unit or over(items)].astype(str), sort=True)[0]
    if not beliefs:
        return {"overall": _grouped(found, "right"), "invalid": _grouped(found, "invalid")}
    condition = found["condition"] = found["condition"].astype(str)
    first = found.get("first", pd.Series("", found.index)).fillna("").astype(str)
    if (first == "").all() or (first == condition).all():  # first order
        first = pd.Series(CONDITIONS[0], found.index)
    found["first"] = first
    known = condition.isin(CONDITIONS) & first.isin(CONDITIONS)
    _require(found, known, "is neither TB nor FB")
    twice = found.duplicated(["story", "first", "condition"])
    _require(found, ~twice, "is the second one of its story and condition")
    sides = {name: found[condition == name] for name in CONDITIONS}
    pairs = sides["TB"].merge(sides["FB"], on=["story", "first"], suffixes=("", "_FB"))
    pairs["right"] &= pairs["right_FB"]
    measures = {name: _grouped(rows, "right") for name, rows in (sides | {"Both": pairs}).items()}
    return measures | {"invalid": _grouped(found, "invalid")}


def _require(items: pd.DataFrame, good: pd.Series, problem: str) -> None:
    """HarnessError for the first item that is not good."""
    if not good.all():
        raise HarnessError(f"item {items.loc[~good, 'item_id'].iloc[0]!r} {problem}")


def _grouped(items: pd.DataFrame, column: str) -> _Grouped:
    return items[column].to_numpy(dtype=float), items["_unit"].to_numpy()


def _estimates(
    grouped: Mapping[str, _Grouped], bootstrap: int = 2000, seed: int = 0, level: float = 0.95
) -> dict[str, Estimate]:
    """Means and their intervals; one sample of groups serves all of them."""
    count = 1 + max((int(group.max()) for _, group in grouped.values() if len(group)), default=-1)
    times = draw_groups(count, bootstrap, seed)
    return {
        name: estimate_mean(values, group, times, level)
        for name, (values, group) in grouped.items()
    }
