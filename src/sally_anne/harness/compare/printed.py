"""The printed tables of a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from rich.console import Console
from rich.markup import escape

from sally_anne.harness.compare.paired import ENDS, ESTIMATES
from sally_anne.harness.compare.runs import Shared, in_words
from sally_anne.harness.metrics import over
from sally_anne.harness.reporting import TIGHT, print_table


def understood(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of readers who could read some reply of some run, if there are such."""
    invalid = table[table["measure"] == "invalid"]
    nothing = (invalid[["first", "second"]] == 1).all(axis=1).groupby(invalid["reader"]).all()
    kept = table[~table["reader"].map(nothing).astype(bool)]
    return table if kept.empty else kept


def unit(shared: Shared) -> str:
    """What intervals are over, in words."""
    if shared.runs[0].order is None:
        return "groups (films, episodes, stories)"
    return {"map": "maps", "story": "stories"}[over(shared.tables[0])]


def print_comparison(console: Console, shared: Shared, table: pd.DataFrame) -> None:
    """A table for each later run and reader; before them how runs differ, and what is left out."""
    for line in (*in_words(shared.runs), *shared.said):
        console.print(escape(line), soft_wrap=True)
    first = shared.labels[0]
    for (label, reader), own in understood(table).groupby(["run", "reader"], sort=False):
        rows = [
            [
                row["items"],
                row["n"],
                *(_estimate(row, name) for name in ESTIMATES[:2]),
                _estimate(row, "difference") | {"signed": True},
                f"{row['only_first']}, {row['only_second']}",
                f"{row['p']:.3f}" if row["p"] >= 0.001 else "< .001",
            ]
            for row in own.to_dict("records")
        ]
        print_table(
            console,
            f"{shared.runs[0].task}, read by {reader}: {label} against {first} (%)",
            ["items", "n", first, label, "difference", "alone", "p"],
            rows,
            **TIGHT,
        )
    console.print(
        f"95 % intervals over {unit(shared)}, paired. alone: in how many items, or pairs of TB and "
        "FB, only the first and only the second run has it. p: McNemar's exact test of that row",
        soft_wrap=True,
    )


def _estimate(row: Mapping[str, Any], name: str) -> dict[str, float]:
    return {end: row[name if end == "value" else f"{name}_{end}"] for end in ENDS}
