"""What a run says of itself: the best heads of each label, and what surface features give away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from probing.activations import Activations
from probing.probes import HeadProbes
from sally_anne.benchmarks.samples import SampleSet

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
# Accuracy above which a feature is said to give a label away: so much more than chance.
GIVEN_AWAY = 0.1
LENGTH = "length of the text in words"


def summarise(
    heads: pd.DataFrame, x: Activations, probes: Mapping[str, HeadProbes]
) -> dict[str, Any]:
    """The figures of a run that are quoted: best head, first layer and chance, for each label."""
    items = x.items
    summary: dict[str, Any] = {
        "samples": {str(k): int(v) for k, v in items["split"].value_counts().items()},
        "unconverged_heads": {name: probe.unconverged_ for name, probe in probes.items()},
        # Where the gradient at zero is within the solver's tolerance, it stops at once: such a
        # probe says the same of every sample.
        "zero_weight_heads": {name: int((~_weighted(probes[name])).sum()) for name in x.labels},
        "stories": {str(k): int(v) for k, v in items.groupby("split")["group"].nunique().items()},
    }
    for label in x.labels:
        best = heads.loc[heads[f"{label}_rank"].idxmin()]
        first = heads[heads["layer"] == 0][f"{label}_test_accuracy"]
        summary[label] = {
            "best_layer": int(best["layer"]),
            "best_head": int(best["head"]),
            "best_validation_accuracy": float(best[f"{label}_validation_accuracy"]),
            "best_test_accuracy": float(best[f"{label}_test_accuracy"]),
            "layer_0_median_test_accuracy": float(first.median()),
            "chance_test_accuracy": _chance(items, label),
        }
    return summary


def _weighted(probe: HeadProbes) -> Any:
    """``[L, H]``: whether a head's probe has weights."""
    return probe.coef_.reshape(*probe.intercept_.shape[:2], -1).any(axis=-1)


def _chance(items: pd.DataFrame, label: str) -> float:
    """Test accuracy of always guessing the most frequent label of the training samples."""
    train = items.loc[items["split"] == "train", label]
    return float((items.loc[items["split"] == "test", label] == train.mode()[0]).mean())


def confound_report(items: pd.DataFrame, data: SampleSet) -> list[dict[str, object]]:
    """How far surface features alone predict the labels: what a probe could use instead.

    The paper's first-order false-belief pairs differ in perspective and caption as well as in the
    statement. This says, without any model, how well each label follows from such features: the
    samples' tags, and the length of their text. For each value of a feature the label that is most
    frequent among the training samples is guessed; held-out samples (validation and test) are
    scored.

    Args:
        items: the store's table.
        data: the same samples, in the same order.

    Returns:
        One row for each condition, feature and label: condition, feature, label, accuracy.
    """
    labels = list(data.samples[0].labels)
    length = [str(sum(len(turn["content"].split()) for turn in s.turns)) for s in data.samples]
    tags = dict.fromkeys(tag for sample in data.samples for tag in sample.tags)
    values = {tag: [str(s.tags.get(tag)) for s in data.samples] for tag in tags}
    values = {tag: values[tag] for tag in tags if tag != "condition"} | {LENGTH: length}
    conditions = items["condition"] if "condition" in items else pd.Series("all", items.index)
    rows: list[dict[str, object]] = []
    for feature, found in values.items():
        table = items[["split", *labels]].assign(value=found)
        whole = feature in data.content
        parts = [("all", table)] if whole else table.groupby(conditions, sort=False)
        rows += [
            {
                "condition": str(condition),
                "feature": data.features.get(feature, feature),
                "label": label,
                "accuracy": _guessed(part, label),
            }
            for condition, part in parts
            for label in labels
        ]
    return rows


def _guessed(table: pd.DataFrame, label: str) -> float:
    """Accuracy on held-out samples of the label most frequent in training for their value.

    Of labels that are equally frequent one is drawn: each counts as right in part.
    """
    train, held_out = table[table["split"] == "train"], table[table["split"] != "train"]
    counts = pd.crosstab(train["value"], train[label])
    best = counts.eq(counts.max(axis=1), axis=0)
    chances = best.div(best.sum(axis=1), axis=0)
    unseen = pd.Series(1 / max(1, len(counts.columns)), counts.columns)
    right = [
        (chances.loc[value] if value in chances.index else unseen).get(wanted, 0.0)
        for value, wanted in zip(held_out["value"], held_out[label], strict=True)
    ]
    return float(pd.Series(right, dtype=float).mean())


def misfits(found: Mapping[str, Any], labels: Sequence[str]) -> list[str]:
    """Entries of a saved run that printing needs and that are missing or of another type."""
    results, confounds, pictures = (found.get(k) for k in ("results", "confounds", "figures"))
    if not isinstance(results, dict):
        wrong = ["results"]
    else:
        # Runs of older versions lack the heads at zero weights.
        wrong = [f"results.{label}" for label in labels if not _has(results.get(label), QUOTED)]
        counts = {
            "unconverged_heads": results.get("unconverged_heads"),
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
    console: Console,
    heads: pd.DataFrame,
    results: Mapping[str, Any],
    meaning: Mapping[str, str],
    c: float,
) -> None:
    """Tables of the best heads, and one line a label.

    Args:
        console: where.
        heads: the table of heads.
        results: of :func:`summarise`.
        meaning: what a probe of some labels tells; those are written in capitals.
        c: inverse strength of the probes' penalty.
    """
    labels = [name.removesuffix("_rank") for name in heads if name.endswith("_rank")]
    spoken = {label: label.upper() if label in meaning else label for label in labels}
    for label in labels:
        title = f"{spoken[label]}: {meaning[label]}" if label in meaning else label
        table = Table(title=title)
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
        chance = figures.get("chance_test_accuracy", 0.5)
        console.print(
            f"{spoken[label]}: best head (by validation) layer {figures['best_layer']} head "
            f"{figures['best_head']}, test accuracy {figures['best_test_accuracy']:.3f}; "
            f"median of layer 0 {figures['layer_0_median_test_accuracy']:.3f}"
            + (f"; chance {chance:.3f}" if chance != 0.5 else "")
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
                f"[dim]{spoken[name]}: {whose} stayed at zero weights: nothing linear to find at "
                f"this C ({c})[/dim]"
            )


def print_confounds(
    console: Console,
    rows: Sequence[Mapping[str, Any]],
    results: Mapping[str, Any],
    meaning: Mapping[str, str],
) -> None:
    """Say which labels follow from surface features; silent features are left out.

    Labels with a ``meaning`` are written in capitals, as by :func:`print_summary`.
    """
    for row in rows:
        chance = results.get(row["label"], {}).get("chance_test_accuracy", 0.5)
        if row["accuracy"] > chance + GIVEN_AWAY:
            label = row["label"].upper() if row["label"] in meaning else row["label"]
            console.print(
                f"[yellow]confound[/yellow] ({row['condition']}): the {row['feature']} alone gives "
                f"{label} with accuracy {row['accuracy']:.2f}"
            )
