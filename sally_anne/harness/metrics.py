"""How often answers are right: TB, FB, Both and plain accuracy, with intervals.

Every function takes a table of scores, one row an item:

- ``item_id``: unique.
- ``story``: stories are what intervals resample, since the items of one are not independent.
- ``map``: may be there; stories of one map are not independent either.
- ``condition``: TB or FB; in second order that of the participant.
- ``first``: in second order the protagonist's condition. Without it, or where it is empty or the
  same as ``condition`` throughout, the scores are of first order.
- ``correct``, ``invalid``: bool. An invalid answer counts as wrong (GridToM paper, appendix E),
  whatever ``correct`` says, and is reported beside.

Intervals are percentile bootstraps (:mod:`sally_anne.core.bootstrap`) over maps where there are at
least five of them, else over stories; ``bootstrap``, ``seed`` and ``level`` are the number of
resamples, what draws them and the middle share of them. The order of the rows does not matter.

A :class:`HarnessError` names the first item that is unusable, or a column that is missing; an
:class:`OptionError` says that bootstrap or level is out of range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from sally_anne.core.bootstrap import Estimate, draw_groups, estimate_mean
from sally_anne.core.errors import HarnessError

CONDITIONS = ("TB", "FB")
MEASURES = ("TB", "FB", "Both")
Unit = Literal["story", "map"]
# Fewer maps than these say nothing of other maps.
FEWEST_MAPS = 5
# Values to average, and the number of the group that each belongs to; both [n].
_Grouped = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Metrics:
    """Belief metrics of one order (GridToM paper, table 1 and appendix F.3).

    Attributes:
        TB: share of right answers under true belief.
        FB: the same under false belief.
        Both: share of pairs, TB and FB of one story, with both right.
        invalid: share of invalid answers.
    """

    TB: Estimate
    FB: Estimate
    Both: Estimate
    invalid: Estimate


@dataclass(frozen=True)
class Accuracy:
    """Accuracy of a plain task, such as initial belief.

    Attributes:
        overall: share of right answers.
        invalid: share of invalid answers.
        groups: share of right answers by the values of a column; empty if none was named.
    """

    overall: Estimate
    invalid: Estimate
    groups: dict[str, Estimate]


def over(items: pd.DataFrame) -> Unit:
    """What intervals resample: maps, or stories where maps are few or not known."""
    maps = items["map"] if "map" in items else pd.Series(dtype=object)
    known = maps.notna() & (maps != "")
    return "map" if len(maps) and known.all() and maps.nunique() >= FEWEST_MAPS else "story"


def belief_metrics(
    items: pd.DataFrame,
    *,
    bootstrap: int = 2000,
    seed: int = 0,
    level: float = 0.95,
    unit: Unit | None = None,
) -> Metrics:
    """TB, FB, Both and the share of invalid answers.

    Both matches TB and FB of one story; in second order, of one story and one ``first``. A pair
    that lacks a side counts as neither right nor wrong in Both; its item still counts in TB or FB.

    Args:
        items: the scores; at most one item a story, condition and ``first``.
        bootstrap, seed, level: see the module.
        unit: what is resampled; by default what :func:`over` says.
    """
    checked = _checked_beliefs(items, unit)
    grouped = _beliefs(checked) | {"invalid": _grouped(checked, "invalid")}
    return Metrics(**_estimates(grouped, bootstrap, seed, level))


def accuracy(
    items: pd.DataFrame,
    by: str | None = None,
    *,
    bootstrap: int = 2000,
    seed: int = 0,
    level: float = 0.95,
    unit: Unit | None = None,
) -> Accuracy:
    """Accuracy over all items, and in each group of the column ``by``; no condition is needed."""
    checked = _checked(items, [] if by is None else [by], unit)
    grouped = {"overall": _grouped(checked, "_right"), "invalid": _grouped(checked, "invalid")}
    estimates = _estimates(grouped, bootstrap, seed, level)
    groups = {}
    if by is not None:
        _require(checked, checked[by].notna(), f"has no {by}")
        groups = {str(key): _grouped(rows, "_right") for key, rows in checked.groupby(by)}
    return Accuracy(**estimates, groups=_estimates(groups, bootstrap, seed, level))


def paired_difference(
    a: pd.DataFrame,
    b: pd.DataFrame,
    *,
    bootstrap: int = 2000,
    seed: int = 0,
    level: float = 0.95,
) -> dict[str, Estimate]:
    """How much better ``b`` (e.g. steered) is than ``a`` on the same items, in TB, FB and Both.

    Each resample draws the same groups for both.
    """
    before, after = (_beliefs(checked) for checked in _matched(a, b))
    gains = {name: (after[name][0] - values, group) for name, (values, group) in before.items()}
    return _estimates(gains, bootstrap, seed, level)


def paired_accuracy(
    a: pd.DataFrame,
    b: pd.DataFrame,
    *,
    bootstrap: int = 2000,
    seed: int = 0,
    level: float = 0.95,
) -> dict[str, Estimate]:
    """How much more often ``b`` is right (``overall``) and ``invalid`` than ``a``, as above."""
    before, after = _checked(a, []), _checked(b, [])
    _same_items(before, after, ("story",))
    gains = {
        name: (
            after[column].to_numpy(dtype=float) - before[column].to_numpy(dtype=float),
            before["_unit"].to_numpy(),
        )
        for name, column in (("overall", "_right"), ("invalid", "invalid"))
    }
    return _estimates(gains, bootstrap, seed, level)


def mcnemar_both(a: pd.DataFrame, b: pd.DataFrame) -> float:
    """Exact two-sided McNemar test of whether ``a`` and ``b`` differ in Both on the same items.

    Of the pairs that only one of them gets right, each is a fair coin under the null hypothesis.
    In second order two pairs share a story, which the test takes as independent.

    Returns:
        The p-value; 1 if no pair differs.
    """
    before, after = (_beliefs(checked)["Both"][0] for checked in _matched(a, b))
    won, lost = int((after > before).sum()), int((after < before).sum())
    return float(binomtest(won, won + lost, 0.5).pvalue) if won + lost else 1.0


def _require(items: pd.DataFrame, good: pd.Series, problem: str) -> None:
    """Names the first item that is not good."""
    if not good.all():
        raise HarnessError(f"item {items.loc[~good, 'item_id'].iloc[0]!r} {problem}")


def _checked(items: pd.DataFrame, columns: Sequence[str], unit: Unit | None = None) -> pd.DataFrame:
    """A checked copy, ordered by item.

    Beside ``_right`` it has the numbers of the story, ``_story``, and of what is resampled,
    ``_unit``.
    """
    wanted = ["item_id", "story", *columns, "correct", "invalid"]
    if missing := [name for name in wanted if name not in items.columns]:
        raise HarnessError(
            f"the scores lack the column {missing[0]!r}; they have {', '.join(map(str, items))}"
        )
    if items.empty:
        raise HarnessError("there are no items to score")
    more = [name for name in ("first", "map") if name in items]
    found = items[list(dict.fromkeys([*wanted, *more]))].reset_index(drop=True)
    if found["item_id"].isna().any():
        raise HarnessError(f"row {found['item_id'].isna().argmax()} has no item_id")
    _require(found, ~found["item_id"].duplicated(), "stands in the scores twice")
    _require(found, found["story"].notna(), "has no story")
    for name in ("correct", "invalid"):
        _require(found, found[name].isin([True, False]), f"is neither True nor False in {name!r}")
        found[name] = found[name].astype(bool)
    found["_right"] = found["correct"] & ~found["invalid"]
    for name, column in (("_story", "story"), ("_unit", unit or over(items))):
        found[name] = pd.factorize(found[column].astype(str), sort=True)[0]
    return found.sort_values("item_id", key=lambda ids: ids.astype(str), ignore_index=True)


def _checked_beliefs(items: pd.DataFrame, unit: Unit | None = None) -> pd.DataFrame:
    """A checked copy with conditions; ``first`` is there, and empty in first order."""
    found = _checked(items, ["condition"], unit)
    names = ["condition", "first"]
    first = found["first"].astype(object) if "first" in found else pd.Series("", found.index)
    if (first.isna() | (first == "")).all() or (first == found["condition"].astype(object)).all():
        found["first"] = ""
        names.remove("first")
    for name in names:
        _require(found, found[name].isin(CONDITIONS), f"is neither TB nor FB in {name!r}")
        found[name] = found[name].astype(str)
    twice = found.duplicated(["story", "first", "condition"])
    _require(found, ~twice, "is the second one of its story and condition")
    return found


def _matched(a: pd.DataFrame, b: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Checked scores of the same items in the same order."""
    left, right = _checked_beliefs(a), _checked_beliefs(b)
    _same_items(left, right, ("story", "condition", "first"))
    return left, right


def _same_items(left: pd.DataFrame, right: pd.DataFrame, facts: Sequence[str]) -> None:
    """Both hold the same items, which agree in their facts."""
    for here, there, name in ((left, right, "second"), (right, left, "first")):
        _require(here, here["item_id"].isin(there["item_id"]), f"is not in the {name} table")
    for name in facts:
        _require(left, left[name] == right[name], f"has another {name} in the second table")


def _grouped(items: pd.DataFrame, column: str) -> _Grouped:
    return items[column].to_numpy(dtype=float), items["_unit"].to_numpy()


def _beliefs(items: pd.DataFrame) -> dict[str, _Grouped]:
    """Right or wrong by condition, and of each complete pair."""
    sides = {name: items[items["condition"] == name] for name in CONDITIONS}
    pairs = sides["TB"].merge(sides["FB"], on=["_story", "first"], suffixes=("", "_FB"))
    pairs["_right"] &= pairs["_right_FB"]
    return {name: _grouped(rows, "_right") for name, rows in (sides | {"Both": pairs}).items()}


def _estimates(
    grouped: Mapping[str, _Grouped], bootstrap: int, seed: int, level: float
) -> dict[str, Estimate]:
    """Means and their intervals; one draw of groups serves all of them."""
    count = 1 + max((int(group.max()) for _, group in grouped.values() if len(group)), default=-1)
    times = draw_groups(count, bootstrap, seed)
    return {
        name: estimate_mean(values, group, times, level)
        for name, (values, group) in grouped.items()
    }
