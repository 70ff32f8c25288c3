"""How often answers are right: TB, FB, Both and plain accuracy, with intervals.

Every function takes a sheet of scored items, one row an item:

- ``item_id``: unique.
- ``story``: stories are what intervals resample, since the items of one are not independent.
- ``condition``: TB or FB; in second order that of the participant.
- ``first``: in second order the protagonist's condition. A sheet without it, or in which it is
  empty or the same as ``condition`` throughout, is of first order.
- ``correct``, ``invalid``: bool. An invalid answer counts as wrong (GridToM paper, appendix E),
  whatever ``correct`` says, and is reported beside.

- ``map``: may be there; stories of one map are not independent either.

Intervals are percentile bootstraps over maps where there are at least five of them, else over
stories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from sally_anne.core.errors import HarnessError

CONDITIONS = ("TB", "FB")
MEASURES = ("TB", "FB", "Both")
Unit = Literal["story", "map"]
# Fewer maps than these say nothing of other maps.
FEWEST_MAPS = 5


@dataclass(frozen=True)
class Estimate:
    """A share, or a difference of shares, with its interval.

    Attributes:
        value: between 0 and 1, or -1 and 1 for a difference; NaN if n is 0.
        low: lower end of the interval; NaN if no resample has a value.
        high: upper end, likewise.
        n: number of items, or of pairs for Both.
    """

    value: float
    low: float
    high: float
    n: int


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
        groups: share of right answers by the values of a column, in their order; empty if none
            was named.
    """

    overall: Estimate
    invalid: Estimate
    groups: dict[str, Estimate]


@dataclass(frozen=True)
class _Scores:
    """Values to average: ``value [n]`` and the number ``story [n]`` of what is resampled."""

    story: np.ndarray
    value: np.ndarray


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
        items: the sheet; at most one item a story, condition and ``first``.
        bootstrap: number of resamples.
        seed: draws them; the order of the rows does not matter.
        level: of the intervals.
        unit: what is resampled; by default what :func:`over` says.

    Raises:
        HarnessError: the sheet lacks a column, is empty or has an unusable item, which is named;
            bootstrap or level is out of range.
    """
    sheet = _belief_sheet(items, unit)
    scores = _belief_scores(sheet) | {"invalid": _scores(sheet, "invalid")}
    return Metrics(**_estimates(scores, bootstrap, seed, level))


def paired_difference(
    a: pd.DataFrame,
    b: pd.DataFrame,
    *,
    bootstrap: int = 2000,
    seed: int = 0,
    level: float = 0.95,
) -> dict[str, Estimate]:
    """How much better ``b`` is than ``a`` on the same items.

    Each resample draws the same stories for both sheets.

    Args:
        a: sheet to compare with, e.g. without steering.
        b: sheet of the same items, e.g. with steering.
        bootstrap: number of resamples.
        seed: draws them.
        level: of the intervals.

    Returns:
        b - a for TB, FB and Both.

    Raises:
        HarnessError: an item is in one sheet only or differs in story or condition, and is named;
            or as :func:`belief_metrics`.
    """
    before, after = (_belief_scores(sheet) for sheet in _matched(a, b))
    gains = {
        name: _Scores(before[name].story, after[name].value - before[name].value)
        for name in MEASURES
    }
    return _estimates(gains, bootstrap, seed, level)


def paired_accuracy(
    a: pd.DataFrame,
    b: pd.DataFrame,
    *,
    bootstrap: int = 2000,
    seed: int = 0,
    level: float = 0.95,
) -> dict[str, Estimate]:
    """How much more often ``b`` is right, and invalid, than ``a`` on the same items.

    Each resample draws the same groups for both sheets.

    Args:
        a: sheet to compare with; needs no condition.
        b: sheet of the same items.
        bootstrap: number of resamples.
        seed: draws them.
        level: of the intervals.

    Returns:
        b - a for ``overall`` and ``invalid``.

    Raises:
        HarnessError: an item is in one sheet only or differs in story, and is named; or as
            :func:`accuracy`.
    """
    before, after = _sheet(a, []), _sheet(b, [])
    _same_items(before, after, ("story",))
    gains = {
        name: _Scores(
            before["_unit"].to_numpy(),
            after[column].to_numpy(dtype=float) - before[column].to_numpy(dtype=float),
        )
        for name, column in (("overall", "_right"), ("invalid", "invalid"))
    }
    return _estimates(gains, bootstrap, seed, level)


def mcnemar_both(a: pd.DataFrame, b: pd.DataFrame) -> float:
    """Exact two-sided McNemar test of whether ``a`` and ``b`` differ in Both.

    Of the pairs that only one of the sheets gets right, each is a fair coin under the null
    hypothesis. In second order two pairs share a story, which the test takes as independent.

    Args:
        a: sheet of scored items.
        b: sheet of the same items.

    Returns:
        The p-value; 1 if no pair differs.

    Raises:
        HarnessError: as :func:`paired_difference`.
    """
    before, after = (_belief_scores(sheet)["Both"].value for sheet in _matched(a, b))
    won, lost = int((after > before).sum()), int((after < before).sum())
    return float(binomtest(won, won + lost, 0.5).pvalue) if won + lost else 1.0


def accuracy(
    items: pd.DataFrame,
    by: str | None = None,
    *,
    bootstrap: int = 2000,
    seed: int = 0,
    level: float = 0.95,
    unit: Unit | None = None,
) -> Accuracy:
    """Accuracy over all items, and in each group of a column.

    Args:
        items: the sheet; needs no condition.
        by: column to group by.
        bootstrap: number of resamples.
        seed: draws them; the order of the rows does not matter.
        level: of the intervals.
        unit: what is resampled; by default what :func:`over` says.

    Raises:
        HarnessError: as :func:`belief_metrics`; an item without a group is named.
    """
    sheet = _sheet(items, [] if by is None else [by], unit)
    scores = {"overall": _scores(sheet, "_right"), "invalid": _scores(sheet, "invalid")}
    estimates = _estimates(scores, bootstrap, seed, level)
    groups = {}
    if by is not None:
        _require(sheet, sheet[by].notna(), f"has no {by}")
        groups = {str(key): _scores(rows, "_right") for key, rows in sheet.groupby(by)}
    return Accuracy(**estimates, groups=_estimates(groups, bootstrap, seed, level))


def _require(sheet: pd.DataFrame, good: pd.Series, problem: str) -> None:
    """Names the first item that is not good."""
    if not good.all():
        raise HarnessError(f"item {sheet.loc[~good, 'item_id'].iloc[0]!r} {problem}")


def _sheet(items: pd.DataFrame, columns: Sequence[str], unit: Unit | None = None) -> pd.DataFrame:
    """A checked copy, ordered by item.

    Beside ``_right`` it has the numbers of the story, ``_code``, and of what is resampled,
    ``_unit``.
    """
    wanted = ["item_id", "story", *columns, "correct", "invalid"]
    if missing := [name for name in wanted if name not in items.columns]:
        raise HarnessError(
            f"the sheet lacks the column {missing[0]!r}; it has {', '.join(map(str, items))}"
        )
    if items.empty:
        raise HarnessError("the sheet has no items")
    unit = over(items) if unit is None else unit
    more = [name for name in ("first", "map") if name in items]
    kept = dict.fromkeys([*wanted, *more])
    sheet = items[list(kept)].reset_index(drop=True)
    if sheet["item_id"].isna().any():
        raise HarnessError(f"row {sheet['item_id'].isna().argmax()} has no item_id")
    _require(sheet, ~sheet["item_id"].duplicated(), "stands in the sheet twice")
    _require(sheet, sheet["story"].notna(), "has no story")
    for name in ("correct", "invalid"):
        _require(sheet, sheet[name].isin([True, False]), f"is neither True nor False in {name!r}")
        sheet[name] = sheet[name].astype(bool)
    sheet["_right"] = sheet["correct"] & ~sheet["invalid"]
    sheet["_code"] = pd.factorize(sheet["story"].astype(str), sort=True)[0]
    sheet["_unit"] = pd.factorize(sheet[unit].astype(str), sort=True)[0]
    return sheet.sort_values("item_id", key=lambda ids: ids.astype(str), ignore_index=True)


def _belief_sheet(items: pd.DataFrame, unit: Unit | None = None) -> pd.DataFrame:
    """A checked copy with conditions; ``first`` is there, and empty in first order."""
    sheet = _sheet(items, ["condition"], unit)
    names = ["condition"]
    if "first" not in sheet or _first_order(sheet):
        sheet["first"] = ""
    else:
        names.append("first")
    for name in names:
        _require(sheet, sheet[name].isin(CONDITIONS), f"is neither TB nor FB in {name!r}")
        sheet[name] = sheet[name].astype(str)
    twice = sheet.duplicated(["story", "first", "condition"])
    _require(sheet, ~twice, "is the second one of its story and condition")
    return sheet


def _first_order(sheet: pd.DataFrame) -> bool:
    """Whether ``first`` says nothing that ``condition`` does not."""
    first = sheet["first"].astype(object)
    empty = first.isna() | (first == "")
    return bool(empty.all() or (first == sheet["condition"].astype(object)).all())


def _matched(a: pd.DataFrame, b: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two checked sheets of the same items in the same order."""
    left, right = _belief_sheet(a), _belief_sheet(b)
    _same_items(left, right, ("story", "condition", "first"))
    return left, right


def _same_items(left: pd.DataFrame, right: pd.DataFrame, facts: Sequence[str]) -> None:
    """Two checked sheets hold the same items, which agree in their facts."""
    for here, there, name in ((left, right, "second"), (right, left, "first")):
        _require(here, here["item_id"].isin(there["item_id"]), f"is not in the {name} sheet")
    for name in facts:
        _require(left, left[name] == right[name], f"has another {name} in the second sheet")


def _scores(sheet: pd.DataFrame, column: str) -> _Scores:
    return _Scores(sheet["_unit"].to_numpy(), sheet[column].to_numpy(dtype=float))


def _belief_scores(sheet: pd.DataFrame) -> dict[str, _Scores]:
    """Right or wrong by condition, and of each complete pair."""
    sides = {name: sheet[sheet["condition"] == name] for name in CONDITIONS}
    pairs = sides["TB"].merge(sides["FB"], on=["_code", "first"], suffixes=("", "_FB"))
    pairs["_right"] &= pairs["_right_FB"]
    return {name: _scores(rows, "_right") for name, rows in (sides | {"Both": pairs}).items()}


def _estimates(
    scores: Mapping[str, _Scores], bootstrap: int, seed: int, level: float
) -> dict[str, Estimate]:
    """Means and their intervals; one draw of stories serves all of them.

    A resample without any value of a name is left out of its interval.
    """
    if bootstrap < 1 or not 0 < level < 1:
        raise HarnessError(
            f"bootstrap must be at least 1 and level between 0 and 1, got {bootstrap} and {level}"
        )
    stories = 1 + max((int(s.story.max()) for s in scores.values() if len(s.story)), default=-1)
    draws = np.random.default_rng(seed).integers(0, max(stories, 1), (bootstrap, stories))
    # times [B, S]: how often each story was drawn.
    offsets = stories * np.arange(bootstrap)[:, None]
    times = np.bincount((draws + offsets).ravel(), minlength=bootstrap * stories)
    times = times.reshape(bootstrap, stories).astype(float)
    tail = (1 - level) / 2
    estimates = {}
    for name, score in scores.items():
        n = len(score.value)
        if n == 0:
            estimates[name] = Estimate(np.nan, np.nan, np.nan, 0)
            continue
        counts = times @ np.bincount(score.story, minlength=stories)
        sums = times @ np.bincount(score.story, score.value, stories)
        drawn = sums[counts > 0] / counts[counts > 0]
        low, high = np.quantile(drawn, [tail, 1 - tail]) if len(drawn) else (np.nan, np.nan)
        estimates[name] = Estimate(float(score.value.mean()), float(low), float(high), n)
    return estimates
