"""How far a judge agrees with people (MimeQA paper, section 4.1)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from sally_anne.core.bootstrap import draw_groups, percentile_interval
from sally_anne.core.errors import HarnessError
from sally_anne.core.files import reading

RIGHT = frozenset({"1", "1.0", "true", "t", "yes", "y", "right", "correct"})
WRONG = frozenset({"0", "0.0", "false", "f", "no", "n", "wrong", "incorrect"})


def read_labels(path: Path) -> pd.DataFrame:
    """People's labels from a CSV with the columns ``item_id`` and ``label``.

    Labels are words such as true and false, right and wrong, or 1 and 0, and become bools; an empty
    one is left out.
    """
    with reading(path, HarnessError):
        table = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    if missing := [name for name in ("item_id", "label") if name not in table.columns]:
        raise HarnessError(
            f"{path}: there is no column {missing[0]!r}; the header has {', '.join(table)[:200]}"
        )
    table = table[["item_id", "label"]].apply(lambda column: column.str.strip())
    table = table[table["label"] != ""].reset_index(drop=True)
    for item_id, label in table[~table["label"].str.lower().isin(RIGHT | WRONG)].to_numpy():
        raise HarnessError(f"{path}: item {item_id!r} has the label {label!r}; write true or false")
    twice = table["item_id"][table["item_id"].duplicated()]
    if not twice.empty:
        raise HarnessError(f"{path}: item {twice.iloc[0]!r} has two labels")
    return table.assign(label=table["label"].str.lower().isin(RIGHT))


def agreement(
    judged: pd.DataFrame,
    human: pd.DataFrame,
    *,
    bootstrap: int = 2000,
    seed: int = 0,
    level: float = 0.95,
) -> dict[str, float]:
    """Raw agreement and Cohen's kappa on the items that both have judged.

    ``judged`` is from :func:`sally_anne.harness.judge.judge_answers`, ``human`` from
    :func:`read_labels`; stories are resampled. A verdict that cannot be read says wrong. Kappa has
    no value where both give all items one and the same label.

    Returns:
        ``agreement`` and ``kappa``, each with ``_low`` and ``_high`` ends of its percentile
        interval; counts: ``n`` items, ``stories``, ``invalid`` verdicts among them, and
        ``unmatched`` labels of items that were not judged.
    """
    pairs = _pairs(judged, human)
    says, label = pairs["says"].to_numpy(dtype=bool), pairs["label"].to_numpy(dtype=bool)
    story = pd.factorize(pairs["story"].astype(str), sort=True)[0]
    # tables [S, 4]: how often a story has both wrong, only people right, only the judge, both.
    tables = np.zeros((story.max() + 1, 4))
    np.add.at(tables, (story, 2 * says + label), 1)
    drawn = draw_groups(len(tables), bootstrap, seed, "multinomial") @ tables
    alike = (drawn[:, 0] + drawn[:, 3]) / drawn.sum(1)
    intervals: dict[str, float] = {}
    for name, values in (("agreement", alike), ("kappa", _kappas(drawn))):
        low, high = percentile_interval(values, level)
        intervals |= {f"{name}_low": low, f"{name}_high": high}
    return {
        "agreement": float((says == label).mean()),
        "kappa": float(_kappas(tables.sum(0, keepdims=True))[0]),
        **intervals,
        "n": len(pairs),
        "stories": len(tables),
        "invalid": int(pairs["judge_invalid"].sum()),
        "unmatched": len(human) - len(pairs),
    }


def _pairs(judged: pd.DataFrame, human: pd.DataFrame) -> pd.DataFrame:
    wanted = {
        "judged": (judged, ["item_id", "story", "judge_correct", "judge_invalid"]),
        "human": (human, ["item_id", "label"]),
    }
    for name, (table, columns) in wanted.items():
        if missing := [column for column in columns if column not in table.columns]:
            raise HarnessError(f"the {name} table lacks the column {missing[0]!r}")
        if table["item_id"].astype(str).duplicated().any():
            raise HarnessError(f"an item stands in the {name} table twice")
    seen = judged[~judged["hidden"].astype(bool)] if "hidden" in judged else judged
    left = seen[wanted["judged"][1]].assign(item_id=seen["item_id"].astype(str))
    right = human[["item_id", "label"]].assign(item_id=human["item_id"].astype(str))
    pairs = left.merge(right, on="item_id").sort_values("item_id", ignore_index=True)
    if pairs.empty:
        raise HarnessError(
            "none of the items with a person's label was judged; are the ids those of the answers?"
        )
    return pairs.assign(says=pairs["judge_correct"].astype(bool) & ~pairs["judge_invalid"])


def _kappas(tables: np.ndarray) -> np.ndarray:
    """Cohen's kappa of each table ``[B, 4]``; NaN where chance alone agrees on everything."""
    neither, people, judge, both = (tables / tables.sum(1, keepdims=True)).T
    chance = (judge + both) * (people + both) + (neither + people) * (neither + judge)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(chance < 1 - 1e-12, (neither + both - chance) / (1 - chance), np.nan)
