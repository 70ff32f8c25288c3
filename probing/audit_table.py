"""The audit's table: each row measured beside the best head, and what follows from it in words."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from rich.markup import escape
from rich.table import Table

from sally_anne.core.bootstrap import draw_groups, estimate_mean
from sally_anne.core.console import Console, stage
from sally_anne.core.errors import GeometryError, NonFiniteError, OutOfMemoryError, ProbingError
from sally_anne.core.head import Head
from sally_anne.data.pairs import PairSet
from sally_anne.data.samples import SPLITS
from sally_anne.hooks.batch_size import within_memory
from sally_anne.models.loading import LoadedModel
from sally_anne.probing import baselines as ask
from sally_anne.probing.surface import Baseline, ProbeRun, embedding_rows, text_baselines

ALL = "all"
# Rows of these kinds are asked within each condition, too: they say nothing of what a statement
# names, which within one condition decides the labels.
BY_CONDITION = ("format",)
# How many groups of each split where the model reads anew, of six.
PARTS = {"train": 3, "validation": 1, "test": 2}
# Of content: one of two rooms is named.
CHANCE = 0.5
ANSWERS = ("verdict token", "direct logit")
# What the rows beside it are compared with: the run's own input, read by as few probes as theirs.
OWN = "the run's own input"
NUMBERS = ("accuracy", "low", "high", "best", "best_low", "best_high")
EMPTY: dict[str, Any] = dict.fromkeys(NUMBERS, np.nan) | {
    "samples": 0, "clusters": 0, "reaches": False, "why": ""
}  # fmt: skip
# What may happen to one row while the others can be asked.
LEFT_OUT = (GeometryError, NonFiniteError, OutOfMemoryError, ProbingError)


def audit_of(
    loaded: LoadedModel,
    probed: ProbeRun,
    questions: PairSet | None,
    clusters: Mapping[str, str],
    stories: int,
    seed: int,
    console: Console,
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Ask every row.

    Args:
        loaded: the model.
        probed: the run.
        questions: pairs at whose last token the believed room's colour is asked for, if any.
        clusters: what is drawn anew for intervals, by group.
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
    said: dict[str, dict[str, Any]] = {}
    coef: dict[str, np.ndarray] = {}
    # Which samples the best head tells, NaN of those that it is not asked of; by label, and whether
    # it was fitted on a part of them.
    best: dict[tuple[str, bool], np.ndarray] = {}
    with stage(console, "asking the run's own heads and words"):
        for label in labels:
            fitted = probed.blank.fit(probed.x.train, label=label)
            fitted.rank(probed.x.validation)
            layer, number = fitted.ranked_[0]
            said[label], coef[label] = {"layer": layer, "head": number}, fitted.coef_[layer, number]
            right = fitted.predict(probed.x.x)[:, layer, number] == probed.x.values(label)
            best[label, False] = right.astype(float)
        rows = text_baselines(probed, seed) + embedding_rows(loaded, probed)
        part = items.iloc[chosen].reset_index(drop=True)
        few = replace(probed.x, x=probed.x.x[chosen], items=part)
        again = ask.probed_rows(probed, chosen, few, "view", OWN)
    for row in again:
        best[row.label, True] = np.full(len(items), np.nan)
        best[row.label, True][row.rows] = row.right
    rows += again
    words = ask.verdict_words(loaded, samples[0])
    direct = None
    with stage(console, "asking the model's own answer"):
        if words is None:
            why = "right and wrong begin with the same token"
            rows += [
                Baseline("answer", name, label, why=why) for label in labels for name in ANSWERS
            ]
        else:
            why = "it is asked of labels that are true or false"
            token, logit = ANSWERS
            asked = partial(ask.answer_rows, loaded, probed, chosen, words)
            rows += _tried(asked, "answer", [token], labels, why)

            def heads_alone() -> list[Baseline]:
                nonlocal direct
                found, direct = ask.direct_rows(loaded, probed, words)
                return found

            rows += _tried(heads_alone, "answer", [logit], labels, why)
    with stage(console, f"a random-init baseline reads {len(samples)} samples"):

        def untrained() -> list[Baseline]:
            pair = ask.random_init_baseline(loaded, seed)
            return ask.refitted(pair, probed, chosen, samples, "untrained", *ask.RANDOM_INIT)

        rows += _tried(untrained, "untrained", ask.RANDOM_INIT, labels)
    seen = all(sample.shows for sample in samples)
    changed = ask.film_changes(samples, seed) if seen else {}
    for name in ask.FILMS:
        if name not in changed:
            why = "it cannot be made of each film" if seen else "there is not a film of each sample"
            rows += [Baseline("view", name, label, why=why) for label in labels]
            continue
        with stage(console, f"the model reads {len(samples)} samples: {name}"):
            asked = partial(ask.refitted, loaded, probed, chosen, changed[name], "view", name)
            rows += _tried(asked, "view", [name], labels)
    lines = lines_of(rows, probed, clusters, best)
    if questions is not None:
        first = labels[0]
        head = Head(said[first]["layer"], said[first]["head"])
        about = {"label": first, "condition": ALL, "kind": "content", "chance": CHANCE}
        with stage(console, "asking for the believed room's colour"):
            try:
                with within_memory("this row needs more than the run", "all other rows are asked"):
                    told = ask.content_rows(loaded, probed, questions, counts, first, head)
            except LEFT_OUT as error:
                lines.append(about | {"row": f"{first}'s head", **EMPTY, "why": str(error)})
            else:
                for name, right, pairs in told:
                    measured = _measured(right, [t.cluster for t in pairs])
                    lines.append(about | {"row": name, **EMPTY, **measured})
    test = probed.at("test")
    for label in labels:
        if direct is not None and label in ask.binary_labels(probed):
            a, b = coef[label], direct[said[label]["layer"], said[label]["head"]]
            norms = np.linalg.norm(a) * np.linalg.norm(b)
            said[label]["cosine_with_direct_logit"] = float(a @ b / norms) if norms else 0.0
        whole = _measured(best[label, False][test], _clusters_at(test, items, clusters))
        said[label] |= {f"best_{key}": value for key, value in whole.items()}
        said[label]["chance"] = float(_common(probed, label)[test].mean())
    noun = "groups" if all(k == v for k, v in clusters.items()) else "maps"
    sizes = ", ".join(f"{counts[split]} {split}" for split in SPLITS)
    facts = {
        "labels": said,
        "stories": counts,
        "clusters": noun,
        "sizes": f"Rows in which the model reads anew, and the best head beside them, are of "
        f"{sum(counts.values())} {probed.data.noun} ({sizes}); intervals over {noun}.",
    }
    return pd.DataFrame(lines), facts


def _tried(
    work: Callable[[], list[Baseline]],
    kind: str,
    names: Sequence[str],
    labels: Sequence[str],
    otherwise: str = "",
) -> list[Baseline]:
    """The rows, and empty ones that say why of what it could not do, or ``otherwise`` did not."""
    rows = []
    try:
        with within_memory("this row needs more than the run", "all other rows are asked"):
            rows = work()
    except LEFT_OUT as error:
        otherwise = str(error)
    found = {(row.label, name) for row in rows for name in names if row.name.startswith(name)}
    return rows + [
        Baseline(kind, name, label, why=otherwise)
        for label in labels
        for name in names
        if (label, name) not in found
    ]


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
    """Accuracy of one thing with its interval over clusters; of one cluster NaN."""
    names, group = np.unique(clusters, return_inverse=True)
    found = estimate_mean(right, group, draw_groups(len(names)))
    low, high = (found.low, found.high) if len(names) > 1 else (np.nan, np.nan)
    interval = {"accuracy": found.value, "low": low, "high": high}
    return interval | {"samples": found.n, "clusters": len(names)}


def lines_of(
    rows: Sequence[Baseline],
    probed: ProbeRun,
    clusters: Mapping[str, str],
    best: Mapping[tuple[str, bool], np.ndarray],
) -> list[dict[str, Any]]:
    """Lines of the table: each row over all samples, and within each condition where that counts.

    ``best`` says for each label, and for whether a part of the samples trained it, which samples
    ``[N]`` the best head tells.
    """
    items = probed.items
    found = []
    for row in rows:
        about = {"label": row.label, "kind": row.kind, "row": row.name}
        if row.why:
            found.append(about | {"condition": ALL, "chance": np.nan, **EMPTY, "why": row.why})
            continue
        parts = {ALL: np.ones(len(row.rows), dtype=bool)}
        if row.kind in BY_CONDITION and "condition" in items:
            of = items["condition"].to_numpy()[row.rows]
            parts |= {str(name): of == name for name in dict.fromkeys(of)}
        for condition, part in parts.items():
            at = row.rows[part]
            own = _clusters_at(at, items, clusters)
            measured = _measured(row.right[part], own)
            beside = _measured(best[row.label, row.part][at], own)
            chance = float(_common(probed, row.label)[at].mean())
            # With few samples the interval of what tells nothing is wide, too.
            above, tells = (_end(one, "low") > chance for one in (beside, measured))
            overlap = _end(measured, "high") >= _end(beside, "low")
            found.append(
                about
                | {"condition": condition, "chance": chance, **EMPTY, **measured}
                | {"best": beside["accuracy"]}
                | {f"best_{end}": beside[end] for end in ("low", "high")}
                | {"reaches": bool(above and tells and overlap)}
                | {"why": "" if above else "the best head is not above chance on these samples"}
            )
    return found


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
    said = (
        f"{label}: the best head ({Head(facts['layer'], facts['head'])}) tells "
        f"{_ends(best)} of the test samples"
    )
    if np.isnan(best["low"]):
        said += ", which are of one cluster, so that values alone are compared"
    if not _end(best, "low") > facts["chance"]:
        said += f", which is not above chance ({facts['chance']:.3f}): nothing to explain."
        return " ".join([said, *_not_compared(own[own["accuracy"].isna()])])
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
    return " ".join(parts + _not_compared(own))


def _not_compared(rows: pd.DataFrame) -> list[str]:
    """Which rows are empty, or stand beside a head at chance; a sentence for each reason."""
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
    console: Console, table: pd.DataFrame, spoken: str, said: str, facts: Mapping[str, Any]
) -> None:
    """One label's rows, and its verdict."""
    shown = Table(title=f"{spoken}: accuracy of what should not suffice", title_justify="left")
    shown.add_column("row")
    for name in ("accuracy [95 %]", "chance", "best head", "could explain"):
        shown.add_column(name, justify="right", no_wrap=name in ("accuracy [95 %]", "chance"))
    # Within one condition, only what reaches; all is in the table that is saved.
    own = table[(table["condition"] == ALL) | table["reaches"]]
    for row in own.to_dict("records"):
        shown.add_row(
            escape(f"{row['kind']}: {row['row']}{_where(row['condition'])}"),
            escape(_ends(row)),
            *("" if np.isnan(row[name]) else f"{row[name]:.3f}" for name in ("chance", "best")),
            "yes" if row["reaches"] and row["row"] != OWN else "",
        )
    console.print(shown)
    if (cosine := facts.get("cosine_with_direct_logit")) is not None:
        console.print(f"cosine of the best probe with its head's direct logit: {cosine:.3f}")
    console.print(f"[bold]{escape(said)}[/bold]")
