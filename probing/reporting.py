"""What is said of a run's heads, and ``sally-anne nulls RUN``: which score more than chance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
from rich.markup import escape
from scipy.stats import false_discovery_control

from sally_anne.core.bootstrap import FEW, draw_groups, estimate_mean, percentile_interval
from sally_anne.core.console import Console, many, number, percent, print_lines, print_table, stage
from sally_anne.core.errors import ProbingError
from sally_anne.core.files import write_atomic
from sally_anne.core.folder import RESULTS, claimed
from sally_anne.core.run import LEVEL, Head, Run, confounded, heads_of, labels_of, symbol
from sally_anne.data.samples import SampleSet
from sally_anne.probing.activations import Activations
from sally_anne.probing.config import NullsConfig, ProbeConfig
from sally_anne.probing.probes import HeadProbes, chance
from sally_anne.probing.solver import groups_and_codes, permutation_test, refit

# So many rows of heads are printed, with these columns, and so many features that give labels away.
ROWS, GIVEN_AWAY = 5, 2
SHOWN = {"validation": "validation_accuracy", "test": "test_accuracy", "p": "p_fwer"}
# What refits take of a run's options, and so many control tasks.
OF_FITS, AGAIN = ("c", "max_iter", "normalise"), 10
# How often draws of groups that lack a class are drawn again.
DRAWS = 1000


def summarise(
    heads: pd.DataFrame, x: Activations, probes: Mapping[str, HeadProbes], data: SampleSet
) -> dict[str, Any]:
    """The figures of a run that are quoted: each label's best head, its interval, and chance."""
    items, test = x.items, x.test
    clusters = [data.clusters.get(group, group) for group in test.items["group"]]
    names, member = np.unique(clusters, return_inverse=True)
    summary: dict[str, Any] = {
        "samples": items["split"].value_counts().to_dict(),
        "unconverged_heads": {name: probe.unconverged_ for name, probe in probes.items()},
        "stories": items.groupby("split")["group"].nunique().to_dict(),
    }
    for label in x.labels:
        best = heads.loc[heads[f"{label}_rank"].idxmin()]
        head, y = Head(int(best["layer"]), int(best["head"])), test.values(label)
        own = summary[label] = {"best_layer": head.layer, "best_head": head.head}
        for split in ("validation", "test"):
            own[f"best_{split}_accuracy"] = float(best[f"{label}_{split}_accuracy"])
        own["chance_test_accuracy"] = chance(x.train.values(label), y)
        if len(test):
            right = (probes[label].predict(test.x)[:, *head] == y).astype(float)
            mean = estimate_mean(right, member, draw_groups(len(names)))
            ends = (mean.low, mean.high) if len(names) > 1 else (np.nan, np.nan)
            own |= zip(("best_test_low", "best_test_high"), ends, strict=True)
            own["test_clusters"] = len(names)
            own["clusters"] = "maps" if data.clusters else data.noun
    return summary


def confound_report(items: pd.DataFrame, data: SampleSet) -> list[dict[str, object]]:
    """How far surface features alone predict labels, by condition: of tags, and of the length."""
    labels = list(data.samples[0].labels)
    length = [str(sum(len(turn["content"].split()) for turn in s.turns)) for s in data.samples]
    tags = dict.fromkeys(tag for sample in data.samples for tag in sample.tags)
    values = {t: [str(s.tags.get(t)) for s in data.samples] for t in tags if t != "condition"}
    tagged = "condition" in items and "condition" not in labels
    conditions = items["condition"].fillna("none") if tagged else pd.Series("all", items.index)
    rows: list[dict[str, object]] = []
    for feature, column in (values | {"length of the text in words": length}).items():
        table = items[["split", *labels]].assign(_value=column)
        whole = feature in data.content
        for of, part in [("all", table)] if whole else table.groupby(conditions, sort=False):
            own = {"condition": str(of), "feature": data.features.get(feature, feature)}
            rows += [own | {"label": name, "accuracy": _guess(part, name)} for name in labels]
    return rows


def _guess(table: pd.DataFrame, label: str) -> float:
    """Accuracy of the label most frequent in training for a value; equals are right in part."""
    train, held_out = table[table["split"] == "train"], table[table["split"] != "train"]
    counts = pd.crosstab(train["_value"], train[label])
    best = counts.eq(counts.max(axis=1), axis=0)
    chances, unseen = best.div(best.sum(axis=1), axis=0), 1 / max(1, len(counts.columns))
    chances = chances.reindex(held_out["_value"].unique(), fill_value=unseen)
    asked = pd.MultiIndex.from_frame(held_out[["_value", label]])
    return float(chances.stack().reindex(asked, fill_value=0.0).mean())


def null_columns(
    x: Activations, heads: pd.DataFrame, how: ProbeConfig, types: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """The table of heads, with what permuted labels say of each label's validation accuracy.

    ``{label}_p`` is of the head alone, ``_q`` by Benjamini and Hochberg over heads, ``_p_fwer``
    against the best of all heads, and above ``_threshold`` that is at most ``LEVEL``. All are NaN
    where permuting changes nothing. With ``types`` also :func:`selectivity_columns`.
    """
    own: Any = {name: getattr(how, name) for name in OF_FITS}
    for label in x.labels:
        found: dict[str, Any] = dict.fromkeys(("p", "q", "p_fwer", "threshold"), np.nan)
        with suppress(ProbingError):
            parts = x.train, x.validation, label
            test = permutation_test(*parts, how.permutations, how.seed, **own)
            p = at_heads(test.p_values, heads)
            found |= {"p": p, "q": false_discovery_control(p)}
            if math.isfinite(threshold := test.threshold()):  # else they are too few
                found |= {"threshold": threshold, "p_fwer": at_heads(test.p_fwer, heads)}
        heads = heads.assign(**{f"{label}_{name}": value for name, value in found.items()})
    return selectivity_columns(x, heads, types, how) if types else heads


def at_heads(values: np.ndarray, heads: pd.DataFrame) -> np.ndarray:
    """Of ``values [L, H]`` those of a table's heads, a row each."""
    return values[heads["layer"].to_numpy(), heads["head"].to_numpy()]


def selectivity_columns(
    x: Activations, heads: pd.DataFrame, types: Mapping[str, str], how: ProbeConfig
) -> pd.DataFrame:
    """The table of heads with ``{label}_selectivity``: validation accuracy less that of controls.

    In a control task (Hewitt and Liang 2019, section 2) each type of input (``types`` by samples'
    names) has a class at random, which can be learned by heart, and scored on samples whose type
    trains. NaN where there are fewer types than classes, or none of them is held out.
    """
    train, held = x.train, x.validation
    words, others = (part.items["item_id"].map(types).to_numpy() for part in (train, held))
    names, code = np.unique(words, return_inverse=True)
    known = np.isin(others, names)
    code = np.concatenate([code, np.searchsorted(names, others[known])])
    controls: dict[int, np.ndarray] = {}
    for label in x.labels:
        classes = len(np.unique(train.values(label)))
        if classes not in controls and known.any() and len(names) >= classes:
            draw, each = np.random.default_rng(how.seed), np.arange(len(names)) % classes
            labels = np.array([draw.permutation(each) for _ in range(AGAIN)])
            own: Any = {name: getattr(how, name) for name in OF_FITS}
            accuracy = refit(train, held[known], labels[:, code], **own)
            controls[classes] = at_heads(accuracy.mean(axis=0), heads)
        more = heads[f"{label}_validation_accuracy"] - controls.get(classes, np.nan)
        heads = heads.assign(**{f"{label}_selectivity": more})
    return heads


def bootstrap(
    train: Activations, held: Activations, label: str, count: int = 1000, seed: int = 0, **how: Any
) -> np.ndarray:
    """Accuracies on groups resampled in both parts, ``[P, L, H]``; as of ``permutation_test``."""
    groups, codes = groups_and_codes(train, held, label)
    draw, n = np.random.default_rng(seed), len(train)
    weights = np.hstack([group_weights(part, count, draw) for part in (groups[:n], groups[n:])])
    classes = np.eye(codes.max() + 1)[codes[:n]]
    for _ in range(DRAWS):
        # Draws in which a class does not train are drawn again.
        again = ((weights[:, :n] @ classes) == 0).any(axis=1)
        if not again.any():
            break
        weights[again, :n] = group_weights(groups[:n], int(again.sum()), draw)
    return refit(train, held, np.tile(codes, (count, 1)), weights=weights, **how)


def group_weights(groups: np.ndarray, count: int, draw: np.random.Generator) -> np.ndarray:
    """How often each sample's group was drawn, of as many groups as there are: ``[count, N]``."""
    names, member = np.unique(groups, return_inverse=True)
    return draw_groups(len(names), count, draw)[:, member]


def nulls(config: NullsConfig, console: Console | None = None) -> pd.DataFrame:
    """Write and print ``nulls-SPLIT.parquet``, as docs/files.md says."""
    console = console or Console()
    saved = Run.open(config.run)
    with claimed(config.run, "a probing run"):
        x = Activations(saved.activations(), saved.samples, saved.labels)
        train, held, heads = x.train, x.part(config.split), saved.heads[["layer", "head"]]
        how: dict[str, Any] = {"seed": config.seed} | {n: saved.config[n] for n in OF_FITS}
        for label in saved.labels:
            with stage(console, f"{label}: {config.permutations} permutations"):
                test = permutation_test(train, held, label, config.permutations, **how)
            found = {"accuracy": test.observed, "p": test.p_values, "p_fwer": test.p_fwer}
            if config.bootstraps:
                with stage(console, f"{label}: {config.bootstraps} bootstraps"):
                    draws = bootstrap(train, held, label, config.bootstraps, **how)
                found["low"], found["high"] = np.apply_along_axis(percentile_interval, 0, draws)
            own = {f"{label}_{name}": at_heads(each, heads) for name, each in found.items()}
            heads = heads.assign(**own, **{f"{label}_threshold": test.threshold()})
            shown = {name: name for name in found if name != "p"}
            best = heads.sort_values([f"{label}_p_fwer", f"{label}_p"])
            print_heads(console, f"{label}, {config.split}", best, [label], shown)
            print_lines(console, [f"{symbol(label)}: {above(heads, label)}"])
        path = config.run / f"nulls-{config.split}.parquet"
        write_atomic(path, heads.to_parquet(None, index=False))
    print_lines(console, [f"table: {path}"])
    return heads


def print_heads(
    console: Console,
    title: str,
    heads: pd.DataFrame,
    labels: Sequence[str],
    shown: Mapping[str, str] = SHOWN,
) -> None:
    """Each label's first heads, by rank or as they come; ``shown`` are columns by their titles."""
    shown = {title: c for title, c in shown.items() if f"{labels[0]}_{c}" in heads}
    rows: list[list[Any]] = []
    for label in labels[:ROWS]:
        best = heads.sort_values(f"{label}_rank") if f"{label}_rank" in heads else heads
        best = best.head(max(1, ROWS // len(labels)))
        values = best[[f"{label}_{column}" for column in shown.values()]].to_numpy()
        for head, own in zip(heads_of(best), values, strict=True):
            rows.append([symbol(label), head, *(number(value, 3) for value in own)])
    print_table(console, title, ["label", "head", *shown], rows)


def above(heads: pd.DataFrame, label: str) -> str:
    """How many heads score more than the best of all heads does by chance."""
    p, threshold = heads[f"{label}_p_fwer"], float(heads[f"{label}_threshold"].iloc[0])
    if not math.isfinite(threshold):
        return "no null: there are too few permutations, or nothing to permute"
    return f"{(p <= LEVEL).sum()} of {len(heads)} heads above {threshold:.3f}, the null"


def print_summary(
    console: Console, heads: pd.DataFrame, saved: Mapping[str, Any], meaning: Mapping[str, str]
) -> None:
    """The best heads, what probes of labels tell, and what ``results.json`` has to be known."""
    results, labels, lines = saved["results"], labels_of(heads), []
    about = [f"{symbol(label)}: {meaning[label]}" for label in labels if label in meaning]
    print_heads(console, " ".join(about) or "best heads by validation", heads, labels)
    for label in labels:
        own = results[label]
        ends = {end: own.get(f"best_test_{end}") for end in ("low", "high")}
        test = percent({"value": own["best_test_accuracy"], **ends}, scale=1, digits=3)
        over = f"{many(own['test_clusters'], own['clusters'])}, " if "clusters" in own else ""
        over += "too few, " * (own.get("test_clusters", FEW) < FEW)
        line = f"{symbol(label)}: best head {Head(own['best_layer'], own['best_head'])}, test "
        line += f"accuracy {test} ({over}chance {own.get('chance_test_accuracy', 0.5):.3f})"
        lines.append(line + (f"; {above(heads, label)}" if f"{label}_p_fwer" in heads else ""))
    for probe, count in results["unconverged_heads"].items():
        if count:
            lines.append(f"{symbol(probe)}: {many(count, 'heads')} unconverged; raise --max-iter")
    given = confounded(saved)
    for row in given[:GIVEN_AWAY]:
        words = f"the {row['feature']} alone gives {symbol(row['label'])}"
        lines.append(f"confound ({row['condition']}): {words} in {row['accuracy']:.2f}")
    if more := len(given[GIVEN_AWAY:]):
        lines.append(f"{more} more confounds are in {RESULTS}")
    for line in lines:
        console.print(escape(line))
