"""``sally-anne audit RUN``: what else than a belief could explain a run's accuracy.

Each baseline is measured next to the best head, and what follows from it is said in words.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.markup import escape
from rich.table import Table

from sally_anne.core.bootstrap import draw_groups, estimate_mean
from sally_anne.core.console import Console, stage
from sally_anne.core.errors import HookError, NonFiniteError, OutOfMemoryError, ProbingError
from sally_anne.core.files import write_atomic, write_json
from sally_anne.core.folder import claimed
from sally_anne.core.head import Head
from sally_anne.data.pairs import PairSet, in_turn
from sally_anne.data.samples import SPLITS
from sally_anne.hooks.batch_size import within_memory
from sally_anne.models.loading import LoadedModel
from sally_anne.probing import baselines
from sally_anne.probing.baselines import Baseline, ProbeRun
from sally_anne.probing.config import AuditConfig
from sally_anne.probing.probes import Activations, HeadProbes
from sally_anne.probing.sources import display_names, reopen

TABLE, SAVED = "audit.parquet", "audit.json"
ALL = "all"
# Rows of these kinds are measured within each condition, too: they say nothing of what a statement
# names, which within one condition decides the labels.
BY_CONDITION = ("format",)
# How many groups of each split where the model reads anew, of six.
PARTS = {"train": 3, "validation": 1, "test": 2}
# Of content: one of two rooms is named.
CHANCE = 0.5
# What the rows of a part are compared with: the run's own input, read by probes of the same part.
OWN = "the run's own input"
NUMBERS = ("accuracy", "low", "high", "best", "best_low", "best_high")
EMPTY: dict[str, Any] = dict.fromkeys(NUMBERS, np.nan) | {
    "samples": 0, "clusters": 0, "reaches": False, "why": ""
}  # fmt: skip
# What may happen to one row while the others can be measured.
LEFT_OUT = (HookError, NonFiniteError, OutOfMemoryError, ProbingError)
NO_MEMORY = "this row needs more than the run", "all other rows are asked"


def run(config: AuditConfig, console: Console | None = None) -> pd.DataFrame:
    """Write and print the table.

    Returns:
        A row for each label, condition and baseline: ``label, condition, kind, row, accuracy, low,
        high, samples, clusters, chance``, the best head's ``best, best_low, best_high`` on the same
        samples, and whether the row ``reaches`` it: both are above chance, and their intervals
        overlap. Where the model read a part of the stories anew, the best head is fitted and chosen
        on that part as well. ``why`` says why a row is empty (NaN), or is not compared. Intervals
        are over maps, or over groups where there are none; of one there is none (NaN), and values
        are compared.

    Raises:
        RunFolderError, FolderError: the folder is not that of a finished run, or a run is writing.
        ProbingError: too few stories, or the samples are not those of the run.
        ModelError: the model is not the one that was probed.
    """
    console = console or Console()
    if config.stories < sum(PARTS.values()):
        raise ProbingError(f"--stories {config.stories}: the least is {sum(PARTS.values())}")
    with claimed(config.run, "a probing run"):
        opened = reopen(config.run, config.device, config.device_map)
        saved, probing, data = opened.run, opened.probing, opened.data
        x = Activations(saved.activations(), saved.samples, saved.labels, probing.site)
        probes = HeadProbes(probing.c, probing.max_iter, probing.solver)
        probed = ProbeRun(data, x, probes, probing.batch_size)
        questions = opened.pair_sets.get("question")
        how = config.stories, config.seed
        table, facts = audit_of(opened.model(), probed, questions, opened.clusters, *how, console)
        of = facts["labels"]
        conclusions = {label: conclusion(table, label, of[label]) for label in saved.labels}
        write_atomic(config.run / TABLE, table.to_parquet(None, index=False))
        options = {"stories": config.stories, "seed": config.seed}
        saved_as = {"config": options, "facts": facts, "conclusions": conclusions}
        write_json(config.run / SAVED, saved_as)
    for label in saved.labels:
        name = display_names(data).get(label, label)
        print_audit(console, table[table["label"] == label], name, conclusions[label], of[label])
    console.print(f"[dim]{escape(facts['sizes'])}[/dim]")
    console.print(f"table: {escape(str(config.run / TABLE))}", soft_wrap=True)
    again = f"sally-anne report {shlex.quote(str(config.run))}"
    console.print(f"next, the run's page with it: {escape(again)}", soft_wrap=True)
    return table


def audit(folder: Path | str, **options: Any) -> pd.DataFrame:
    """:func:`run` in a notebook: ``sa.audit("runs/...")``; options as of the command."""
    return run(AuditConfig(run=Path(folder), **options), Console(quiet=True))


def audit_of(
    loaded: LoadedModel,
    probed: ProbeRun,
    questions: PairSet | None,
    clusters: Mapping[str, str],
    stories: int,
    seed: int,
    console: Console,
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Measure every row.

    Args:
        loaded: the model.
        probed: the run.
        questions: pairs at whose last token the believed room's colour is decoded, if any.
        clusters: what is resampled for intervals, by group.
        stories: how many groups the model reads anew, at most.
        seed: of random weights, films and shuffling.
        console: where progress is shown.

    Returns:
        The table as of :func:`run`, and facts: of all ``labels`` the best head, the cosine of its
        probe with the head's direct-logit direction, and chance; how many ``stories`` of each split
        the model read anew; what ``clusters`` are; both in words.
    """
    labels, items = probed.x.labels, probed.items
    chosen, counts = choose_groups(items, clusters, stories)
    samples = [probed.data.samples[i] for i in chosen]
    facts: dict[str, dict[str, Any]] = {}
    coef: dict[str, np.ndarray] = {}
    # Which samples the best head predicts, NaN of those that it was not scored on; by label, and
    # whether it was fitted on a part of them.
    best: dict[tuple[str, bool], np.ndarray] = {}
    with stage(console, "asking the run's own heads and words"):
        for label in labels:
            probes = probed.blank.fit(probed.x.train, label=label)
            probes.rank(probed.x.validation)
            layer, head = probes.ranked_[0]
            facts[label], coef[label] = {"layer": layer, "head": head}, probes.coef_[layer, head]
            right = probes.predict(probed.x.x)[:, layer, head] == probed.x.values(label)
            best[label, False] = right.astype(float)
        rows = baselines.text_baselines(probed, seed) + baselines.embedding_rows(loaded, probed)
        again = baselines.probed_rows(probed, chosen, probed.x.at(chosen), "view", OWN)
    for row in again:
        best[row.label, True] = np.full(len(items), np.nan)
        best[row.label, True][row.rows] = row.right
    rows += again

    def add(
        doing: str,
        kind: str,
        names: Sequence[str],
        work: Callable[[], list[Baseline]],
        otherwise: str = "",
    ) -> None:
        """Rows of these names, and empty ones that say why of what ``work`` could not do."""
        made: list[Baseline] = []
        with stage(console, doing):
            try:
                with within_memory(*NO_MEMORY):
                    made = work()
            except LEFT_OUT as error:
                otherwise = str(error)
        done = {(row.label, name) for row in made for name in names if row.name.startswith(name)}
        rows.extend(made)
        rows.extend(
            Baseline(kind, name, label, why=otherwise)
            for label in labels
            for name in names
            if (label, name) not in done
        )

    directions: list[np.ndarray] = []

    def answer() -> list[Baseline]:
        words = baselines.verdict_words(loaded, samples[0])
        return baselines.answer_rows(loaded, probed, chosen, words)

    def direct() -> list[Baseline]:
        words = baselines.verdict_words(loaded, samples[0])
        made, logits = baselines.direct_rows(loaded, probed, words)
        directions.append(logits)
        return made

    def untrained() -> list[Baseline]:
        other = baselines.random_init_baseline(loaded, seed)
        names = baselines.RANDOM_INIT
        return baselines.refitted(other, probed, chosen, samples, "untrained", *names)

    binary = "it is asked of labels that are true or false"
    add("asking the model's own answer", "answer", ["verdict token"], answer, binary)
    add("asking the heads' direct logits", "answer", ["direct logit"], direct, binary)
    reads = f"reads {len(samples)} samples"
    add(f"a random-init baseline {reads}", "untrained", baselines.RANDOM_INIT, untrained)
    films = all(sample.shows for sample in samples)
    changed = baselines.film_changes(samples, seed) if films else {}
    for name in baselines.FILMS:
        if name in changed:
            add(
                f"the model {reads}: {name}",
                "view",
                [name],
                lambda name=name: baselines.refitted(  # type: ignore[misc]
                    loaded, probed, chosen, changed[name], "view", name
                ),
            )
        else:
            why = (
                "it cannot be made of each film" if films else "there is not a film of each sample"
            )
            rows += [Baseline("view", name, label, why=why) for label in labels]
    lines = lines_of(rows, probed, clusters, best)
    if questions is not None:
        first = labels[0]
        at = Head(facts[first]["layer"], facts[first]["head"])
        about = {"label": first, "condition": ALL, "kind": "content", "chance": CHANCE} | EMPTY
        with stage(console, "asking for the believed room's colour"):
            try:
                with within_memory(*NO_MEMORY):
                    content = baselines.content_rows(loaded, probed, questions, counts, first, at)
                lines += [
                    about | {"row": name} | _measured(right, [pair.cluster for pair in pairs])
                    for name, right, pairs in content
                ]
            except LEFT_OUT as error:
                lines.append(about | {"row": f"{first}'s head", "why": str(error)})
    test = probed.at("test")
    for label in labels:
        if directions and label in probed.binary_labels:
            a, b = coef[label], directions[0][facts[label]["layer"], facts[label]["head"]]
            norms = np.linalg.norm(a) * np.linalg.norm(b)
            facts[label]["cosine_with_direct_logit"] = float(a @ b / norms) if norms else 0.0
        whole = _measured(best[label, False][test], _clusters_at(test, items, clusters))
        facts[label] |= {f"best_{key}": value for key, value in whole.items()}
        facts[label]["chance"] = float(_common(probed, label)[test].mean())
    noun = "groups" if all(k == v for k, v in clusters.items()) else "maps"
    sizes = ", ".join(f"{counts[split]} {split}" for split in SPLITS)
    return pd.DataFrame(lines), {
        "labels": facts,
        "stories": counts,
        "clusters": noun,
        "sizes": f"Rows in which the model reads anew, and the best head next to them, are of "
        f"{sum(counts.values())} {probed.data.noun} ({sizes}); intervals over {noun}.",
    }


def choose_groups(
    items: pd.DataFrame, clusters: Mapping[str, str], most: int
) -> tuple[np.ndarray, dict[str, int]]:
    """Places of the samples of at most so many groups, from all clusters in turn; always the same.

    Returns:
        Places ``[n]`` in order, and how many groups of each split.
    """
    chosen: set[str] = set()
    counts = {}
    for split, part in PARTS.items():
        groups = items.loc[items["split"] == split, "group"].unique()
        turns = in_turn(groups, lambda group: clusters[group], str)
        own = turns[: most * part // sum(PARTS.values())]
        counts[split] = len(own)
        chosen |= set(own)
    return np.flatnonzero(items["group"].isin(chosen).to_numpy()), counts


def _clusters_at(rows: np.ndarray, items: pd.DataFrame, clusters: Mapping[str, str]) -> list[str]:
    return [clusters[group] for group in items["group"].iloc[rows]]


def _measured(right: np.ndarray, clusters: Sequence[str]) -> dict[str, Any]:
    """Accuracy with its interval over clusters; of one cluster NaN."""
    names, group = np.unique(clusters, return_inverse=True)
    mean = estimate_mean(right, group, draw_groups(len(names)))
    low, high = (mean.low, mean.high) if len(names) > 1 else (np.nan, np.nan)
    interval = {"accuracy": mean.value, "low": low, "high": high}
    return interval | {"samples": mean.n, "clusters": len(names)}


def lines_of(
    rows: Sequence[Baseline],
    probed: ProbeRun,
    clusters: Mapping[str, str],
    best: Mapping[tuple[str, bool], np.ndarray],
) -> list[dict[str, Any]]:
    """Lines of the table: each row over all samples, and within each condition where that counts.

    ``best`` has for each label, and for whether a part of the samples trained it, which samples
    ``[N]`` the best head predicts.
    """
    items = probed.items
    lines = []
    for row in rows:
        about = {"label": row.label, "kind": row.kind, "row": row.name}
        if row.why:
            lines.append(about | {"condition": ALL, "chance": np.nan, **EMPTY, "why": row.why})
            continue
        parts = {ALL: np.ones(len(row.rows), dtype=bool)}
        if row.kind in BY_CONDITION and "condition" in items:
            of = items["condition"].to_numpy()[row.rows]
            parts |= {str(name): of == name for name in dict.fromkeys(of)}
        for condition, part in parts.items():
            at = row.rows[part]
            own = _clusters_at(at, items, clusters)
            measured = _measured(row.right[part], own)
            head = _measured(best[row.label, row.part][at], own)
            chance = float(_common(probed, row.label)[at].mean())
            # With few samples the interval of what predicts nothing is wide, too.
            above, predicts = (_end(one, "low") > chance for one in (head, measured))
            overlap = _end(measured, "high") >= _end(head, "low")
            lines.append(
                about
                | {"condition": condition, "chance": chance, **EMPTY, **measured}
                | {"best": head["accuracy"], "best_low": head["low"], "best_high": head["high"]}
                | {"reaches": bool(above and predicts and overlap)}
                | {"why": "" if above else "the best head is not above chance on these samples"}
            )
    return lines


def _common(probed: ProbeRun, label: str) -> np.ndarray:
    """Which samples ``[N]`` have the value that most training samples have."""
    y = probed.x.values(label)
    return (y == pd.Series(y[probed.at("train")]).mode()[0]).astype(float)


def _end(measured: Mapping[str, Any], which: str) -> float:
    """An end of an interval; the value itself where there is none."""
    return measured["accuracy"] if np.isnan(measured[which]) else measured[which]


def conclusion(table: pd.DataFrame, label: str, facts: Mapping[str, Any]) -> str:
    """Which rows could explain a label's result, in words; ``facts`` are the label's own."""
    own = table[(table["label"] == label) & (table["row"] != OWN)]
    best = {end: facts[f"best_{end}"] for end in ("accuracy", "low", "high")}
    begin = (
        f"{label}: the best head ({Head(facts['layer'], facts['head'])}) tells "
        f"{_ends(best)} of the test samples"
    )
    if np.isnan(best["low"]):
        begin += ", which are of one cluster, so that values alone are compared"
    if not _end(best, "low") > facts["chance"]:
        begin += f", which is not above chance ({facts['chance']:.3f}): nothing to explain."
        return " ".join([begin, *_not_compared(own[own["accuracy"].isna()])])
    reached = own[own["reaches"]]
    form, design = (reached[reached["kind"] == kind] for kind in ("format", "design"))
    other = reached[~reached["kind"].isin(("format", "design"))]
    parts = [
        f"{begin}.",
        f"Confounded by format: {_listed(form)}."
        if len(form)
        else "Not confounded by format rows.",
        f"The design decides it: {_listed(design)}." if len(design) else "",
        f"Could explain the result as well: {_listed(other)}."
        if len(other)
        else "No other row reaches it.",
        *_not_compared(own),
    ]
    return " ".join(filter(None, parts))


def _not_compared(rows: pd.DataFrame) -> list[str]:
    """Which rows are empty, or stand next to a head at chance; a sentence for each reason."""
    return [
        f"Not compared: {', '.join(part['row'] + part['condition'].map(_where))} "
        f"({str(why).rstrip('.')})."
        for why, part in rows[rows["why"] != ""].groupby("why", sort=False)
    ]


def _where(condition: str) -> str:
    return "" if condition == ALL else f" in {condition}"


def _ends(row: Mapping[str, Any]) -> str:
    if np.isnan(row["accuracy"]):
        return "none"
    if np.isnan(row["low"]):
        return f"{row['accuracy']:.3f} (no interval)"
    return f"{row['accuracy']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"


def _listed(rows: pd.DataFrame) -> str:
    return "; ".join(
        f"{row['row']} {_ends(row)}{_where(row['condition'])}" for row in rows.to_dict("records")
    )


def print_audit(
    console: Console, table: pd.DataFrame, name: str, words: str, facts: Mapping[str, Any]
) -> None:
    """One label's rows, and its conclusion in ``words``."""
    shown = Table(title=f"{name}: accuracy of what should not suffice", title_justify="left")
    shown.add_column("row")
    for column in ("accuracy [95 %]", "chance", "best head", "could explain"):
        shown.add_column(column, justify="right", no_wrap=column in ("accuracy [95 %]", "chance"))
    # Within one condition, only what reaches; all is in the table that is saved.
    own = table[(table["condition"] == ALL) | table["reaches"]]
    for row in own.to_dict("records"):
        shown.add_row(
            escape(f"{row['kind']}: {row['row']}{_where(row['condition'])}"),
            escape(_ends(row)),
            *("" if np.isnan(row[key]) else f"{row[key]:.3f}" for key in ("chance", "best")),
            "yes" if row["reaches"] and row["row"] != OWN else "",
        )
    console.print(shown)
    if (cosine := facts.get("cosine_with_direct_logit")) is not None:
        console.print(f"cosine of the best probe with its head's direct logit: {cosine:.3f}")
    console.print(f"[bold]{escape(words)}[/bold]")
