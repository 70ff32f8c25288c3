"""What a run prints: the best heads of both labels, and what surface features give away."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Sequence
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from probing.config import ProbeConfig
from probing.ranking import LABELS, ProbeSet

TOP = 10
PACKAGES = ("sally-anne", "torch", "transformers", "scikit-learn", "numpy", "minigrid")
# In second order the two views are the participant's and the protagonist's.
MEANING = {
    1: {"y_p": "the protagonist's belief", "y_o": "reality"},
    2: {
        "y_p": "the participant's idea of the protagonist's belief",
        "y_o": "the protagonist's belief",
    },
}


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide the numbers."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def summarise(heads: pd.DataFrame, items: pd.DataFrame, probes: ProbeSet) -> dict[str, Any]:
    """The figures of a run that are quoted: best head and first layer, for both labels."""
    summary: dict[str, Any] = {
        "samples": {str(k): int(v) for k, v in items["split"].value_counts().items()},
        "unconverged_heads": {name: getattr(probes, name).unconverged_ for name in (*LABELS, "op")},
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


def print_confounds(console: Console, rows: Sequence[dict[str, Any]]) -> None:
    """Say which labels follow from surface features; silent features are left out."""
    for row in rows:
        if row["accuracy"] > 0.6:
            console.print(
                f"[yellow]confound[/yellow] ({row['condition']}): the {row['feature']} alone gives "
                f"{row['label'].upper()} with accuracy {row['accuracy']:.2f}"
            )
