"""From scored items to the numbers of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from sally_anne.harness.metrics import Unit, accuracy, belief_metrics, over

READERS = ("robust", "official", "options", "judge")


def summarise(table: pd.DataFrame, order: str) -> dict[str, Any]:
    """GridToM: each reader's metrics as plain numbers: value, interval, count.

    Where intervals are over maps, those over stories stand beside as ``over_stories``.
    """
    found = {}
    for reader in readers(table):
        found[reader] = asdict(metrics_of(table, reader, order))
        if over(table) == "map":
            found[reader]["over_stories"] = asdict(metrics_of(table, reader, order, "story"))
    return found


def break_down(table: pd.DataFrame, kinds: Sequence[str]) -> dict[str, Any]:
    """Each reader's accuracy: overall, by tags, and of beliefs.

    An item with several values of a kind counts in each of them.

    Args:
        table: from :func:`sally_anne.harness.evaluate.score`; items without a key are left out.
        kinds: of tags.

    Returns:
        By reader ``overall``, ``invalid``, ``groups`` (by kind and value), and ``belief`` (TB, FB,
        Both, invalid) where all items that have a condition make pairs; each with value, interval
        and count. Empty if no item has a key.
    """
    scored = table[~table["hidden"]]
    found: dict[str, Any] = {}
    if scored.empty:
        return found
    for reader in readers(scored):
        sheet = scores(scored, reader)
        whole = accuracy(sheet)
        groups = {
            kind: {
                value: asdict(accuracy(sheet[scored[f"tag_{kind}"].map(_having(value))]).overall)
                for value in _values(scored, kind)
            }
            for kind in kinds
        }
        found[reader] = {
            "overall": asdict(whole.overall),
            "invalid": asdict(whole.invalid),
            "groups": groups,
        }
        if (pairs := _pairs(scored, sheet)) is not None:
            found[reader]["belief"] = asdict(belief_metrics(pairs))
    return found


def counts(table: pd.DataFrame, missing: Sequence[str] = ()) -> dict[str, int]:
    """How many items were asked, have a hidden key, and could not be asked."""
    return {"asked": len(table), "hidden": int(table["hidden"].sum()), "missing": len(missing)}


def metrics_of(table: pd.DataFrame, reader: str, order: str, unit: Unit | None = None) -> Any:
    """TB, FB, Both and invalid of belief questions; accuracy and invalid of initial ones."""
    sheet = scores(table, reader)
    if order == "initial":
        return accuracy(sheet, unit=unit)
    return belief_metrics(sheet, unit=unit)


def scores(table: pd.DataFrame, reader: str) -> pd.DataFrame:
    """The items as :mod:`sally_anne.harness.metrics` takes them, read by one reader."""
    names = {f"{reader}_correct": "correct", f"{reader}_invalid": "invalid"}
    kept = ["item_id", "story", "condition", "first", *names]
    kept += ["map"] if "map" in table else []
    return table[kept].rename(columns=names)


def readers(table: pd.DataFrame) -> list[str]:
    """Those who have read these items."""
    return [reader for reader in READERS if f"{reader}_correct" in table]


def _values(table: pd.DataFrame, kind: str) -> list[str]:
    """Values of a kind of tag, in order."""
    if f"tag_{kind}" not in table:
        return []
    return sorted({value for cell in table[f"tag_{kind}"] for value in cell.split("|") if value})


def _having(value: str) -> Any:
    return lambda cell: value in cell.split("|")


def _pairs(scored: pd.DataFrame, sheet: pd.DataFrame) -> pd.DataFrame | None:
    """Items with a belief condition, TB and FB of what is else the same side by side.

    Their group and all other tags tell which belong together.
    """
    beliefs = scored["condition"] != ""
    if not beliefs.any():
        return None
    tags = [c for c in scored if c.startswith("tag_") and c != "tag_condition"]
    pairs = sheet[beliefs].copy()
    pairs["story"] = scored.loc[beliefs, ["story", *tags]].agg("/".join, axis=1)
    return None if pairs.duplicated(["story", "condition"]).any() else pairs
