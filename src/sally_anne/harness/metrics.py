"""How often answers are right: TB, FB, Both and plain accuracy, with intervals.

Tables of scores are as :func:`belief_metrics` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict, Unpack

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from sally_anne.core.bootstrap import Estimate, draw_groups, estimate_mean
from sally_anne.core.errors import HarnessError

CONDITIONS = ("TB", "FB")
Unit = Literal["story", "map"]
# Fewer maps than these say nothing of other maps.
FEWEST_MAPS = 5
# What both tables of a comparison must say of an item.
_BELIEF_FACTS = ("story", "condition", "first")
# Values to average, and the number of the group that each belongs to; both [n].
_Grouped = tuple[np.ndarray, np.ndarray]


class Resampling(TypedDict, total=False):
    """Of intervals: the number of resamples, what draws them and the middle share of them."""

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
class Paired:
    """One measure of two runs on the same items, and their difference, the second minus the first.

    ``only_first`` and ``only_second`` count what only one of them has (items that are right, for
    Both pairs, for invalid items without an answer); ``p`` is McNemar's.
    """

    first: Estimate
    second: Estimate
    difference: Estimate
    only_first: int
    only_second: int
    p: float


@dataclass(frozen=True)
class Accuracy:
    """Shares of right and of invalid answers; of right ones also by the values of a column."""

    overall: Estimate
    invalid: Estimate
    groups: dict[str, Estimate]


def over(items: pd.DataFrame) -> Unit:
    """What intervals resample: maps, or stories where maps are few or not known."""
    maps = items["map"] if "map" in items else pd.Series(dtype=object)
    known = maps.notna() & (maps != "")
    return "map" if len(maps) and known.all() and maps.nunique() >= FEWEST_MAPS else "story"


def belief_metrics(
    items: pd.DataFrame, *, unit: Unit | None = None, **resampling: Unpack[Resampling]
) -> Metrics:
    """TB, FB, Both and the share of invalid answers, of a table with one row an item, in any order.

    - ``item_id``: unique.
    - ``story``: items of one are not independent.
    - ``map``: may be there; stories of one map are not independent either.
    - ``condition``: TB or FB; in second order that of the participant.
    - ``first``: in second order the protagonist's condition. Without it, or where it is empty or
      the same as ``condition`` throughout, the scores are of first order.
    - ``correct``, ``invalid``: bool. An invalid answer counts as wrong (GridToM paper, appendix E),
      whatever ``correct`` says, and is reported beside.

    Both matches TB and FB of one story; in second order, of one story and one ``first``. A pair
    that lacks a side counts as neither right nor wrong in Both; its item still counts in TB or FB.
    Intervals are percentile bootstraps over ``unit``, by default what :func:`over` says. A
    HarnessError names a column that is missing, or the first item that is unusable.
    """
    checked = _checked_beliefs(items, unit)
    grouped = _beliefs(checked) | {"invalid": _grouped(checked, "invalid")}
    return Metrics(**_estimates(grouped, **resampling))


def accuracy(
    items: pd.DataFrame,
    by: str | None = None,
    *,
    unit: Unit | None = None,
    **resampling: Unpack[Resampling],
) -> Accuracy:
    """Accuracy over all items, and in each group of the column ``by``; no condition is needed."""
    checked = _checked(items, [] if by is None else [by], unit)
    estimates = _estimates(_plain(checked), **resampling)
    groups = {}
    if by is not None:
        _require(checked, checked[by].notna(), f"has no {by}")
        groups = {str(key): _grouped(rows, "_right") for key, rows in checked.groupby(by)}
    return Accuracy(**estimates, groups=_estimates(groups, **resampling))


def paired_difference(
    a: pd.DataFrame, b: pd.DataFrame, **resampling: Unpack[Resampling]
) -> dict[str, Estimate]:
    """How much better ``b`` (e.g. steered) is than ``a`` on the same items, in TB, FB and Both.

    Each resample draws the same groups for both.
    """
    return _estimates(_gains(*_both_beliefs(a, b)), **resampling)


def paired_accuracy(
    a: pd.DataFrame, b: pd.DataFrame, **resampling: Unpack[Resampling]
) -> dict[str, Estimate]:
    """How much more often ``b`` is right (``overall``) and ``invalid`` than ``a``, as above."""
    tables = _matched(_checked(a, []), _checked(b, []), "story")
    return _estimates(_gains(*map(_plain, tables)), **resampling)


def paired(
    a: pd.DataFrame,
    b: pd.DataFrame,
    *,
    beliefs: bool,
    unit: Unit | None = None,
    **resampling: Unpack[Resampling],
) -> dict[str, Paired]:
    """Each measure of ``a`` and ``b``, two tables of scores of the same items, and its difference.

    Measures are those of :func:`belief_metrics` where ``beliefs``, else of :func:`accuracy`, each
    with the interval that these give; one draw of groups serves both runs and the difference.
    """
    if beliefs:
        tables = _matched(_checked_beliefs(a, unit), _checked_beliefs(b, unit), *_BELIEF_FACTS)
        before, after = (_beliefs(t) | {"invalid": _grouped(t, "invalid")} for t in tables)
    else:
        tables = _matched(_checked(a, [], unit), _checked(b, [], unit), "story")
        before, after = map(_plain, tables)
    gains = _gains(before, after)
    first, second, difference = (_estimates(g, **resampling) for g in (before, after, gains))
    return {
        name: Paired(first[name], second[name], difference[name], *mcnemar(gain))
        for name, (gain, _) in gains.items()
    }


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
    return mcnemar(_gains(*_both_beliefs(a, b))["Both"][0])[2]


def _require(items: pd.DataFrame, good: pd.Series, problem: str) -> None:
    """Names the first item that is not good."""
    if not good.all():
        raise HarnessError(f"item {items.loc[~good, 'item_id'].iloc[0]!r} {problem}")


def _checked(items: pd.DataFrame, columns: Sequence[str], unit: Unit | None = None) -> pd.DataFrame:
    """A copy, ordered by item, with ``_right`` and numbers of ``_story`` and what is resampled."""
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


def _matched(left: pd.DataFrame, right: pd.DataFrame, *facts: str) -> list[pd.DataFrame]:
    """Checked scores, if both hold the same items, which agree in their facts."""
    for here, there, name in ((left, right, "second"), (right, left, "first")):
        _require(here, here["item_id"].isin(there["item_id"]), f"is not in the {name} table")
    for name in facts:
        _require(left, left[name] == right[name], f"has another {name} in the second table")
    return [left, right]


def _both_beliefs(a: pd.DataFrame, b: pd.DataFrame) -> list[dict[str, _Grouped]]:
    tables = _checked_beliefs(a), _checked_beliefs(b)
    return [_beliefs(table) for table in _matched(*tables, *_BELIEF_FACTS)]


def _grouped(items: pd.DataFrame, column: str) -> _Grouped:
    return items[column].to_numpy(dtype=float), items["_unit"].to_numpy()


def _plain(items: pd.DataFrame) -> dict[str, _Grouped]:
    return {"overall": _grouped(items, "_right"), "invalid": _grouped(items, "invalid")}


def _gains(before: dict[str, _Grouped], after: dict[str, _Grouped]) -> dict[str, _Grouped]:
    return {name: (after[name][0] - values, group) for name, (values, group) in before.items()}


def _beliefs(items: pd.DataFrame) -> dict[str, _Grouped]:
    """Right or wrong by condition, and of each complete pair."""
    sides = {name: items[items["condition"] == name] for name in CONDITIONS}
    pairs = sides["TB"].merge(sides["FB"], on=["_story", "first"], suffixes=("", "_FB"))
    pairs["_right"] &= pairs["_right_FB"]
    return {name: _grouped(rows, "_right") for name, rows in (sides | {"Both": pairs}).items()}


def _estimates(
    grouped: Mapping[str, _Grouped], bootstrap: int = 2000, seed: int = 0, level: float = 0.95
) -> dict[str, Estimate]:
    """Means and their intervals; one draw of groups serves all of them."""
    count = 1 + max((int(group.max()) for _, group in grouped.values() if len(group)), default=-1)
    times = draw_groups(count, bootstrap, seed)
    return {
        name: estimate_mean(values, group, times, level)
        for name, (values, group) in grouped.items()
    }
