"""``sally-anne audit RUN``: what else than a belief could explain a run's accuracy."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import tyro
from rich.markup import escape
from rich.table import Table

from sally_anne.core.commands import command
from sally_anne.core.console import Console, stage
from sally_anne.core.errors import GeometryError, ProbingError
from sally_anne.core.files import write_atomic, write_sealed
from sally_anne.core.options import Seed
from sally_anne.core.run_folder import PROBING, claimed

if TYPE_CHECKING:
    from probing.surface import Probed, Row
    from sally_anne.benchmarks.twins import TwinSet
    from sally_anne.models.loading import LoadedModel

TABLE, SAVED = "audit.parquet", "audit.json"
ALL = "all"
# Rows of these kinds are asked within each condition, too: they say nothing of what a statement
# names, which within one condition decides the labels.
BY_CONDITION = ("format",)
# How many groups of each split where the model reads anew, of six.
PARTS = {"train": 3, "validation": 1, "test": 2}
CHANCE = 0.5


@dataclass(frozen=True)
class AuditConfig:
    """Ask what should not suffice to tell a run's labels: could it explain the result?

    Attributes:
        run: folder of a finished probing run; audit.parquet and audit.json are written into it.
        stories: groups of samples, from all maps in turn, for rows in which the model reads
            anew (untrained twin, text alone, other films, its own answer); half of them train.
        seed: of random weights, films and shuffling.
        device, device_map: where the model is put; as in the run by default.
    """

    run: tyro.conf.Positional[Path]
    stories: int = 96
    seed: Seed = 0
    device: str | None = None
    device_map: str | None = None


def run(config: AuditConfig, console: Console | None = None) -> pd.DataFrame:
    """Write and print the table.

    Returns:
        A row for each label, condition and thing that was asked: ``label, condition, kind, row,
        accuracy, low, high, samples, clusters``, the best head's ``best, best_low, best_high`` on
        the same samples, and whether the row ``reaches`` it: its interval and the best head's
        overlap. Intervals are over maps, or over groups where there are none.

    Raises:
        RunFolderError, FolderError: the folder is not that of a finished run, or a run is writing.
        ProbingError: too few stories, or the samples are not those of the run.
        OtherModelError: the model is not the one that was probed.
    """
    from probing.activations import Activations
    from probing.sources import reopen
    from probing.surface import Probed

    console = console or Console()
    if config.stories < sum(PARTS.values()):
        raise ProbingError(f"--stories {config.stories}: the least is {sum(PARTS.values())}")
    with claimed(config.run, PROBING):
        opened = reopen(config.run, config.device, config.device_map)
        saved, probing, data = opened.run, opened.probing, opened.data
        x = Activations(saved.activations(), saved.samples, saved.labels, probing.site)
        probed = Probed(data, x, probing.c, probing.max_iter)
        questions, clusters = opened.twins.get("question"), opened.clusters
        loaded = opened.model()
        table, facts = audit_of(loaded, probed, questions, clusters, config, console)
        said = {label: verdict(table, label, facts[label]) for label in saved.labels}
        write_atomic(config.run / TABLE, table.to_parquet(None, index=False))
        options = {"stories": config.stories, "seed": config.seed}
        found = {"config": options, "facts": facts, "verdict": said}
        write_sealed(config.run / SAVED, found, (TABLE,))
    for label in saved.labels:
        spoken = label.upper() if label in data.meaning else label
        print_audit(console, table[table["label"] == label], spoken, said[label], facts[label])
    console.print(f"[dim]{escape(facts['sizes'])}[/dim]")
    console.print(f"table: {escape(str(config.run / TABLE))}", soft_wrap=True)
    return table


def audit_of(
    loaded: LoadedModel,
    probed: Probed,
    questions: TwinSet | None,
    clusters: Mapping[str, str],
    how: AuditConfig,
    console: Console,
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Ask every row.

    Args:
        loaded: the model.
        probed: the run.
        questions: twins at whose last token the believed room's colour is asked for, if any.
        clusters: what is drawn anew for intervals, by group.
        how: how much.
        console: where progress is shown.

    Returns:
        The table as of :func:`run`, and facts: for each label its best head, the cosine of that
        probe with the head's direct-logit direction and chance; what was left out and why.
    """
    from probing import baselines as ask
    from probing.surface import embedding_rows, surface_rows
    from sally_anne.benchmarks.samples import SPLITS

    labels, items = probed.x.labels, probed.items
    chosen, counts = choose_groups(items, clusters, how.stories)
    samples = [probed.data.samples[i] for i in chosen]
    left_out: list[str] = []
    best, head, coef = {}, {}, {}
    with stage(console, "asking the run's own heads and words"):
        for label in labels:
            fitted = probed.blank.fit(probed.x.train, label=label)
            fitted.rank(probed.x)
            layer, number = fitted.ranked_[0]
            head[label], coef[label] = (layer, number), fitted.coef_[layer, number]
            right = fitted.predict(probed.x.x)[:, layer, number] == probed.x.values(label)
            best[label] = right.astype(float)
        rows = surface_rows(probed, how.seed) + embedding_rows(loaded, probed)
        part = items.iloc[chosen].reset_index(drop=True)
        few = replace(probed.x, x=probed.x.x[chosen], items=part)
        rows += ask.probed_rows(probed, chosen, few, "view", "the run's own input")
    facts: dict[str, Any] = {}
    direct = None
    words = ask.verdict_words(loaded, samples[0])
    with stage(console, "asking the model's own answer"):
        if words is None:
            left_out.append("verdict token: right and wrong begin with the same token")
        else:
            rows += ask.answer_rows(loaded, probed, chosen, words)
            try:
                found, direct = ask.direct_rows(loaded, probed, words)
                rows += found
            except GeometryError as error:
                left_out.append(f"direct logit: {error}")
    with stage(console, f"an untrained twin reads {len(samples)} samples"):
        names = {"untrained twin": False, "untrained twin, standardised": True}
        twin = ask.untrained_twin(loaded, how.seed)
        rows += ask.refitted(twin, probed, chosen, samples, names, "untrained")
    if all(sample.shows for sample in samples):
        for name, changed in ask.film_changes(samples, how.seed).items():
            with stage(console, f"the model reads {len(samples)} samples: {name}"):
                rows += ask.refitted(loaded, probed, chosen, changed, {name: False}, "view")
    else:
        left_out.append("films: the samples have none")
    table = pd.DataFrame(
        [line for row in rows for line in _lines(row, items, clusters, best[row.label])]
    )
    if questions is not None:
        with stage(console, "asking for the believed room's colour"):
            try:
                first = labels[0]
                told = ask.content_rows(loaded, probed, questions, counts, first, head[first])
            except ProbingError as error:
                told = []
                left_out.append(f"content: {error}")
        for name, right, pairs in told:
            measured = _measured(right, [t.cluster for t in pairs])
            line = {"label": first, "condition": ALL, "kind": "content", "row": name, **measured}
            table = pd.concat([table, pd.DataFrame([line | {"reaches": False}])])
    for label in labels:
        layer, number = head[label]
        facts[label] = {"layer": layer, "head": number}
        if direct is not None and coef[label].ndim == 1:
            a, b = coef[label], direct[layer, number]
            norms = np.linalg.norm(a) * np.linalg.norm(b)
            facts[label]["cosine_with_direct_logit"] = float(a @ b / norms) if norms else 0.0
        whole = _measured(
            best[label][probed.at("test")], _clusters_at(probed.at("test"), items, clusters)
        )
        facts[label] |= {f"best_{key}": value for key, value in whole.items()}
        y = probed.x.values(label)
        common = pd.Series(y[probed.at("train")]).mode()[0]
        facts[label]["chance"] = float((y[probed.at("test")] == common).mean())
    facts["left_out"] = left_out
    facts["stories"] = counts
    noun = "groups" if all(k == v for k, v in clusters.items()) else "maps"
    facts["clusters"] = noun
    sizes = ", ".join(f"{counts[split]} {split}" for split in SPLITS)
    facts["sizes"] = (
        f"Rows in which the model reads anew are of {sum(counts.values())} "
        f"{probed.data.noun} ({sizes}); intervals over {noun}."
        + "".join(f" Left out: {why}." for why in left_out)
    )
    return table.reset_index(drop=True), facts


def choose_groups(
    items: pd.DataFrame, clusters: Mapping[str, str], most: int
) -> tuple[np.ndarray, dict[str, int]]:
    """Places of the samples of at most so many groups, from all clusters in turn; always the same.

    Returns:
        Places ``[n]`` in order, and how many groups of each split.
    """
    taken: set[str] = set()
    counts = {}
    for split, part in PARTS.items():
        groups = items.loc[items["split"] == split, "group"].unique()
        order = sorted(groups, key=lambda g: hashlib.sha256(str(g).encode()).digest())
        turns: dict[str, int] = {}
        place = {}
        for group in order:
            cluster = clusters[group]
            turns[cluster] = turns.get(cluster, -1) + 1
            place[group] = turns[cluster], cluster
        own = sorted(order, key=lambda g: place[g])[: most * part // sum(PARTS.values())]
        counts[split] = len(own)
        taken |= set(own)
    return np.flatnonzero(items["group"].isin(taken).to_numpy()), counts


def _clusters_at(rows: np.ndarray, items: pd.DataFrame, clusters: Mapping[str, str]) -> list[str]:
    return [clusters[group] for group in items["group"].iloc[rows]]


def _measured(right: np.ndarray, clusters: Sequence[str]) -> dict[str, Any]:
    """Accuracy of one thing with its interval over clusters."""
    from sally_anne.core.bootstrap import draw_groups, estimate_mean

    names, group = np.unique(clusters, return_inverse=True)
    found = estimate_mean(right, group, draw_groups(len(names)))
    interval = {"accuracy": found.value, "low": found.low, "high": found.high}
    return interval | {"samples": found.n, "clusters": len(names)}


def _lines(
    row: Row, items: pd.DataFrame, clusters: Mapping[str, str], best: np.ndarray
) -> list[dict[str, Any]]:
    """A row over all samples, and within each condition where that says something."""
    parts = {ALL: np.ones(len(row.rows), dtype=bool)}
    if row.kind in BY_CONDITION and "condition" in items:
        of = items["condition"].to_numpy()[row.rows]
        parts |= {str(name): of == name for name in dict.fromkeys(of)}
    found = []
    for condition, part in parts.items():
        rows = row.rows[part]
        own = _clusters_at(rows, items, clusters)
        measured, beside = _measured(row.right[part], own), _measured(best[rows], own)
        about = {"label": row.label, "condition": condition, "kind": row.kind, "row": row.name}
        beside = {"best": beside["accuracy"], "best_low": beside["low"],
                  "best_high": beside["high"]}  # fmt: skip
        reaches = bool(measured["high"] >= beside["best_low"])
        found.append(about | measured | beside | {"reaches": reaches})
    return found


def verdict(table: pd.DataFrame, label: str, facts: Mapping[str, Any]) -> str:
    """Which rows could explain a label's result, in words."""
    own = table[(table["label"] == label) & (table["row"] != "the run's own input")]
    best = f"layer {facts['layer']} head {facts['head']}"
    ends = f"{facts['best_accuracy']:.3f} [{facts['best_low']:.3f}, {facts['best_high']:.3f}]"
    said = f"{label}: the best head ({best}) tells {ends} of the test samples"
    if facts["best_low"] <= facts["chance"]:
        return f"{said}, which is not above chance ({facts['chance']:.3f}): nothing to explain."
    reached = own[own["reaches"]]
    other = reached[~reached["kind"].isin(("format", "design"))]
    form, design = (reached[reached["kind"] == kind] for kind in ("format", "design"))
    parts = [f"{said}."]
    parts.append(
        f"Confounded by format: {_listed(form)}." if len(form) else "Not confounded by format rows."
    )
    if len(design):
        parts.append(f"The design decides it: {_listed(design)}.")
    parts.append(
        f"Could explain the result as well: {_listed(other)}."
        if len(other)
        else "No other row reaches it."
    )
    return " ".join(parts)


def _listed(rows: pd.DataFrame) -> str:
    return "; ".join(
        f"{row['row']} {row['accuracy']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
        + (f" in {row['condition']}" if row["condition"] != ALL else "")
        for _, row in rows.iterrows()
    )


def print_audit(
    console: Console, table: pd.DataFrame, spoken: str, said: str, facts: Mapping[str, Any]
) -> None:
    """One label's rows, and its verdict."""
    shown = Table(title=f"{spoken}: accuracy of what should not suffice", title_justify="left")
    shown.add_column("row")
    for name in ("accuracy", "95 %", "best head", "samples", "could explain"):
        shown.add_column(name, justify="right", no_wrap=name == "95 %")
    # Within one condition, only what reaches; all is in the table that is saved.
    for _, row in table[(table["condition"] == ALL) | table["reaches"]].iterrows():
        where = "" if row["condition"] == ALL else f", in {row['condition']}"
        shown.add_row(
            escape(f"{row['kind']}: {row['row']}{where}"),
            f"{row['accuracy']:.3f}",
            f"{row['low']:.3f} to {row['high']:.3f}",
            "" if row["kind"] == "content" else f"{row['best']:.3f}",
            str(row["samples"]),
            "yes" if row["reaches"] and row["row"] != "the run's own input" else "",
        )
    console.print(shown)
    if (cosine := facts.get("cosine_with_direct_logit")) is not None:
        console.print(f"cosine of the best probe with its head's direct logit: {cosine:.3f}")
    console.print(f"[bold]{escape(said)}[/bold]")


def audit(folder: Path | str, **options: Any) -> pd.DataFrame:
    """:func:`run` in a notebook: ``sa.audit("runs/...")``; options as of the command."""
    return run(AuditConfig(run=Path(folder), **options), Console(quiet=True))


main = command("sally-anne audit", AuditConfig, run)


if __name__ == "__main__":
    main()
