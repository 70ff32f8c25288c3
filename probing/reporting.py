"""What a run says of itself: the best heads of each label, and what surface features give away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from sally_anne.core.bootstrap import draw_groups, estimate_mean
from sally_anne.core.head import Head
from sally_anne.core.run import confounded
from sally_anne.data.samples import SampleSet
from sally_anne.probing.nulls import above, stability
from sally_anne.probing.probes import Activations, HeadProbes

# So many heads are printed, with these columns.
TOP = 10
SHOWN = {
    "train": "train_accuracy",
    "validation": "validation_accuracy",
    "test": "test_accuracy",
    "test AUC": "test_auc",
    "sigma": "sigma",
    "p": "p_fwer",
    "selectivity": "selectivity",
}
# So many of the best heads are followed through other splits.
STABLE = 8
LENGTH = "length of the text in words"
CHANGES = {"resplits": "{count:.0f} other splits", "c": "a tenth and ten times of C"}


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
        "zero_weight_heads": {name: _zero_weights(probes[name].coef_) for name in x.labels},
        "stories": {str(k): int(v) for k, v in items.groupby("split")["group"].nunique().items()},
    }
    for label in x.labels:
        best = heads.loc[heads[f"{label}_rank"].idxmin()]
        first = heads[heads["layer"] == 0][f"{label}_test_accuracy"]
        most = items.loc[items["split"] == "train", label].mode()[0]
        summary[label] = {
            "best_layer": int(best["layer"]),
            "best_head": int(best["head"]),
            "best_validation_accuracy": float(best[f"{label}_validation_accuracy"]),
            "best_test_accuracy": float(best[f"{label}_test_accuracy"]),
            "layer_0_median_test_accuracy": float(first.median()),
            # Of always guessing the most frequent label of the training samples.
            "chance_test_accuracy": float(
                (items.loc[items["split"] == "test", label] == most).mean()
            ),
        }
    return summary


def _zero_weights(coef: np.ndarray) -> int:
    """Heads without any weight, of ``[L, H, D]`` or ``[L, H, K, D]``."""
    return int((~coef.any(axis=tuple(range(2, coef.ndim)))).sum())


def add_intervals(
    summary: dict[str, Any],
    x: Activations,
    probes: Mapping[str, HeadProbes],
    heads: pd.DataFrame,
    data: SampleSet,
) -> None:
    """Add how sure the quoted figures are: over clusters, other splits and other C.

    ``best_test_low`` and ``best_test_high``, 95 % over test clusters of the probe as it is, and
    ``stability``, see :func:`probing.nulls.stability`.
    """
    clusters = np.array([data.clusters.get(group, group) for group in x.items["group"]])
    test = x.test
    member = np.unique(clusters[(x.items["split"] == "test").to_numpy()], return_inverse=True)[1]
    for label in x.labels:
        quoted, probe = summary[label], probes[label]
        ranked = heads.sort_values(f"{label}_rank").index[:STABLE].tolist()
        accuracy = heads[f"{label}_validation_accuracy"].to_numpy()
        quoted["stability"] = stability(x, label, clusters, ranked, accuracy, probe.c)
        if not len(test):
            continue
        best = quoted["best_layer"], quoted["best_head"]
        right = (probe.predict(test.x)[:, *best] == test.values(label)).astype(float)
        mean = estimate_mean(right, member, draw_groups(int(member.max()) + 1))
        quoted |= {
            "best_test_low": mean.low,
            "best_test_high": mean.high,
            "test_clusters": int(member.max()) + 1,
            "clusters": "maps" if data.clusters else data.noun,
        }


def confound_report(items: pd.DataFrame, data: SampleSet) -> list[dict[str, object]]:
    """How far surface features alone predict the labels: what a probe could use instead.

    The paper's first-order false-belief pairs differ in perspective and caption as well as in the
    statement. This says, without any model, how well each label follows from such features: the
    samples' tags, and the length of their text. For each value of a feature the label that is most
    frequent among the training samples is guessed; held-out samples (validation and test) are
    scored. ``items`` is the store's table of the same samples.

    Returns:
        One row for each condition, feature and label: condition, feature, label, accuracy.
    """
    labels = list(data.samples[0].labels)
    length = [str(sum(len(turn["content"].split()) for turn in s.turns)) for s in data.samples]
    tags = dict.fromkeys(tag for sample in data.samples for tag in sample.tags)
    values = {t: [str(s.tags.get(t)) for s in data.samples] for t in tags if t != "condition"}
    conditions = items["condition"] if "condition" in items else pd.Series("all", items.index)
    rows: list[dict[str, object]] = []
    for feature, column in (values | {LENGTH: length}).items():
        table = items[["split", *labels]].assign(value=column)
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
        (chances.loc[value] if value in chances.index else unseen).get(expected, 0.0)
        for value, expected in zip(held_out["value"], held_out[label], strict=True)
    ]
    return float(pd.Series(right, dtype=float).mean())


def print_summary(
    console: Console,
    heads: pd.DataFrame,
    results: Mapping[str, Any],
    meaning: Mapping[str, str],
    c: float,
) -> None:
    """Tables of the best heads, and one line a label of the ``results`` of :func:`summarise`.

    Labels with a ``meaning``, which says what a probe of it tells, are written in capitals.
    """
    labels = [name.removesuffix("_rank") for name in heads if name.endswith("_rank")]
    names = {label: label.upper() if label in meaning else label for label in labels}
    for label, name in names.items():
        table = Table(title=f"{name}: {meaning[label]}" if label in meaning else label)
        shown = {title: f"{label}_{column}" for title, column in SHOWN.items()}
        shown = {title: column for title, column in shown.items() if column in heads}
        for column in ("rank", "layer", "head", *shown):
            table.add_column(column, justify="right", overflow="fold")
        for _, row in heads.sort_values(f"{label}_rank").head(TOP).iterrows():
            table.add_row(
                *(f"{row[column]:.0f}" for column in (f"{label}_rank", "layer", "head")),
                *(f"{row[column]:.3f}" for column in shown.values()),
            )
        console.print(table)
        console.print(f"{name}: {_quoted(results[label])}")
        if stable := results[label].get("stability"):
            parts = [
                f"{CHANGES[change].format(**part)}: Spearman {part['spearman']:.2f} (least "
                f"{part['least']:.2f}), {part['stay']:.1f} of the first {part['top']:.0f} heads "
                "stay"
                for change, part in stable.items()
            ]
            console.print(f"{name}: ranking over {'; over '.join(parts)}")
        if f"{label}_p_fwer" in heads:
            console.print(f"{name}: {above(heads, label)}")
    for probe, count in results["unconverged_heads"].items():
        if count:
            console.print(
                f"[yellow]{probe}: the solver stopped early at {count} heads[/yellow]; "
                "raise --max-iter"
            )
    for label, count in results.get("zero_weight_heads", {}).items():
        if count:
            whose = "1 head's probe" if count == 1 else f"{count} heads' probes"
            console.print(
                f"[dim]{names[label]}: {whose} stayed at zero weights: nothing linear to find at "
                f"this C ({c})[/dim]"
            )


def _quoted(figures: Mapping[str, Any]) -> str:
    """The best head and what it is compared with."""
    head = Head(figures["best_layer"], figures["best_head"])
    chance = figures.get("chance_test_accuracy", 0.5)
    parts = [f"best head (by validation) {head}, test accuracy {figures['best_test_accuracy']:.3f}"]
    if "best_test_low" in figures:
        parts[0] += (
            f" [{figures['best_test_low']:.3f}, {figures['best_test_high']:.3f}] over "
            f"{figures['test_clusters']} {figures['clusters']}"
        )
    parts.append(f"median of layer 0 {figures['layer_0_median_test_accuracy']:.3f}")
    if chance != 0.5:
        parts.append(f"chance {chance:.3f}")
    return "; ".join(parts)


def print_confounds(
    console: Console,
    rows: Sequence[Mapping[str, Any]],
    results: Mapping[str, Any],
    meaning: Mapping[str, str],
) -> None:
    """Say which labels follow from surface features; silent features are left out."""
    for row in confounded({"confounds": rows, "results": results}):
        label = row["label"].upper() if row["label"] in meaning else row["label"]
        console.print(
            f"[yellow]confound[/yellow] ({row['condition']}): the {row['feature']} alone gives "
            f"{label} with accuracy {row['accuracy']:.2f}"
        )
