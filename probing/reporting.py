"""What a run prints: the best heads of both labels, and what surface features give away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from probing.config import ProbeConfig
from probing.ranking import LABELS, ProbeSet

TOP = 10
Types = dict[str, type | tuple[type, ...]]
NUMBER = (int, float)
# What is printed of a saved run.
QUOTED: Types = {
    "best_layer": int,
    "best_head": int,
    "best_test_accuracy": NUMBER,
    "layer_0_median_test_accuracy": NUMBER,
}
CONFOUND: Types = {"condition": str, "feature": str, "label": str, "accuracy": NUMBER}
# In second order the two views are the participant's and the protagonist's.
MEANING = {
    1: {"y_p": "the protagonist's belief", "y_o": "reality"},
    2: {
        "y_p": "the participant's idea of the protagonist's belief",
        "y_o": "the protagonist's belief",
    },
}


def summarise(heads: pd.DataFrame, items: pd.DataFrame, probes: ProbeSet) -> dict[str, Any]:
    """The figures of a run that are quoted: best head and first layer, for both labels."""
    summary: dict[str, Any] = {
        "samples": {str(k): int(v) for k, v in items["split"].value_counts().items()},
        "unconverged_heads": {name: getattr(probes, name).unconverged_ for name in (*LABELS, "op")},
        # Where the gradient at zero is within the solver's tolerance, it stops at once: such a
        # probe says the same of every sample, which counts as accuracy 0.5.
        "zero_weight_heads": {
            name: int((~getattr(probes, name).coef_.any(axis=-1)).sum()) for name in LABELS
        },
        "stories": {str(k): int(v) for k, v in items.groupby("split")["group"].nunique().items()},
    }
    for label in LABELS:
        best = heads.loc[heads[f"{label}_rank"].idxmin()]
        first = heads[heads["layer"] == 0][f"{label}_test_accuracy"]
        summary[label] = {
            "best_layer": int(best["layer"]),
            "best_head": int(best["head"]),
            "best_validation_accuracy": float(best[f"{label}_validation_accuracy"]),
            "best_test_accuracy": float(best[f"{label}_test_accuracy"]),
            "layer_0_median_test_accuracy": float(first.median()),
        }
    return summary


def misfits(saved: dict[str, Any]) -> list[str]:
    """Entries of a saved run that printing needs and that are missing or of another type."""
    results, confounds, pictures = (saved.get(k) for k in ("results", "confounds", "figures"))
    if not isinstance(results, dict):
        wrong = ["results"]
    else:
        wrong = [f"results.{label}" for label in LABELS if not _has(results.get(label), QUOTED)]
        counts = {
            "unconverged_heads": results.get("unconverged_heads"),
            # Runs of older versions lack it.
            "zero_weight_heads": results.get("zero_weight_heads", {}),
        }
        wrong += [f"results.{name}" for name, value in counts.items() if not _is_count(value)]
    if not isinstance(confounds, list) or not all(_has(row, CONFOUND) for row in confounds):
        wrong.append("confounds")
    if not isinstance(pictures, list) or not all(isinstance(name, str) for name in pictures):
        wrong.append("figures")
    return wrong


def _has(value: Any, entries: Types) -> bool:
    return isinstance(value, dict) and all(
        isinstance(value.get(name), kind) for name, kind in entries.items()
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(v, int) for v in value.values())


def print_summary(
    console: Console, heads: pd.DataFrame, results: dict[str, Any], config: ProbeConfig
) -> None:
    """Tables of the best heads, and one line a label."""
    for label in LABELS:
        meaning = MEANING[config.order][label]
        table = Table(title=f"{label.upper()}: does the statement fit {meaning}?")
        for column in ("rank", "layer", "head", "train", "validation", "test", "test AUC", "sigma"):
            table.add_column(column, justify="right")
        for _, row in heads.sort_values(f"{label}_rank").head(TOP).iterrows():
            table.add_row(
                str(int(row[f"{label}_rank"])),
                str(int(row["layer"])),
                str(int(row["head"])),
                *(f"{row[f'{label}_{s}_accuracy']:.3f}" for s in ("train", "validation", "test")),
                f"{row[f'{label}_test_auc']:.3f}",
                f"{row[f'{label}_sigma']:.3f}",
            )
        console.print(table)
        figures = results[label]
        console.print(
            f"{label.upper()}: best head (by validation) layer {figures['best_layer']} head "
            f"{figures['best_head']}, test accuracy {figures['best_test_accuracy']:.3f}; "
            f"median of layer 0 {figures['layer_0_median_test_accuracy']:.3f}"
        )
    for name, count in results["unconverged_heads"].items():
        if count:
            console.print(
                f"[yellow]{name}: the solver stopped early at {count} heads[/yellow]; "
                "raise --max-iter"
            )
    for name, count in results.get("zero_weight_heads", {}).items():
        if count:
            whose = "1 head's probe" if count == 1 else f"{count} heads' probes"
            console.print(
                f"[dim]{name.upper()}: {whose} stayed at zero weights: nothing linear to find at "
                f"this C ({config.c})[/dim]"
            )


def print_confounds(console: Console, rows: Sequence[dict[str, Any]]) -> None:
    """Say which labels follow from surface features; silent features are left out."""
    for row in rows:
        if row["accuracy"] > 0.6:
            console.print(
                f"[yellow]confound[/yellow] ({row['condition']}): the {row['feature']} alone gives "
                f"{row['label'].upper()} with accuracy {row['accuracy']:.2f}"
            )
