"""How accuracies in two kinds of questions go together from film to film.

MimeQA paper, appendix B.5, figures 9 and 10, which name no coefficient; this is Pearson's.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd

from sally_anne.core.bootstrap import draw_groups, percentile_interval
from sally_anne.core.errors import HarnessError
from sally_anne.data.mimeqa import CATEGORIES

# Any two points lie on a line.
FEWEST = 3


def group_accuracy(table: pd.DataFrame, parser: str, tag: str = "category") -> pd.DataFrame:
    """Accuracy of each group (film) in each category.

    Of answers with ``item_id``, ``story`` (the group), ``<parser>_correct``, ``tag_<tag>`` (values
    joined by ``|``; an item counts in each of them), and where they are there ``<parser>_invalid``
    (which counts as wrong) and ``hidden`` (left out). One row a group, one column a category (the
    paper's order, others after them, sorted), NaN where a group has no question of it.
    """
    right, tags = f"{parser}_correct", f"tag_{tag}"
    if missing := [name for name in ("story", right, tags) if name not in table]:
        raise HarnessError(
            f"the answers lack the column {missing[0]!r}; they have {', '.join(map(str, table))}"
        )
    kept = table[~_flags(table, "hidden")]
    if not kept[right].isin([True, False]).all():
        raise HarnessError(f"the answers' column {right!r} holds what is neither True nor False")
    scores = kept[right].astype(bool) & ~_flags(kept, f"{parser}_invalid")
    rows = pd.DataFrame(
        {
            "group": kept["story"].astype(str),
            "category": kept[tags].fillna("").astype(str).str.split("|"),
            "right": scores.astype(float),
        }
    ).explode("category")
    rows = rows[rows["category"].str.strip() != ""]
    if rows.empty:
        raise HarnessError(f"no answer with a key has a {tag}")
    wide = rows.pivot_table(index="group", columns="category", values="right", aggfunc="mean")
    known = [name for name in CATEGORIES if name in wide.columns]
    return wide[known + sorted(set(wide.columns) - set(known))]


def _flags(table: pd.DataFrame, name: str) -> pd.Series:
    """A column of flags; where it or a value of it is missing, it is False."""
    return table.get(name, pd.Series(False, table.index)).fillna(False).astype(bool)


def category_correlations(
    table: pd.DataFrame, parser: str, tag: str = "category", *, level: float = 0.95
) -> pd.DataFrame:
    """Correlation of the accuracies of each two categories, over the groups that have both.

    Takes what :func:`group_accuracy` does, and the level of the intervals, of which groups are
    resampled.

    Returns:
        One row a pair: ``first``, ``second`` (in the order of the categories), ``correlation``,
        ``low``, ``high`` (percentile interval) and ``n``, the number of groups with both. The
        correlation is NaN where there are fewer than three groups or one of the two accuracies is
        the same in all of them; resamples of that kind are left out of the interval.
    """
    wide = group_accuracy(table, parser, tag)
    names = [str(name) for name in wide.columns]
    if len(names) < 2:
        raise HarnessError(f"a correlation needs two values of {tag}; there is only {names[0]!r}")
    draws = draw_groups(len(wide), method="multinomial").astype(int)
    taken = [wide.iloc[np.repeat(np.arange(len(wide)), times)] for times in draws]
    whole, *drawn = (one.corr(min_periods=FEWEST).to_numpy() for one in [wide, *taken])
    there = wide.notna().to_numpy(dtype=int)
    rows = []
    for i, j in combinations(range(len(names)), 2):
        low, high = np.nan, np.nan
        if np.isfinite(whole[i, j]):
            low, high = percentile_interval(np.array([one[i, j] for one in drawn]), level)
        n = int(there[:, i] @ there[:, j])
        rows.append((names[i], names[j], float(whole[i, j]), low, high, n))
    return pd.DataFrame(rows, columns=["first", "second", "correlation", "low", "high", "n"])
