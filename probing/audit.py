"""``sally-anne audit RUN``: what else than a belief could explain a run's accuracy."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.markup import escape
from sklearn.base import clone

from sally_anne.core.bootstrap import draw_groups, estimate_mean
from sally_anne.core.console import Console, in_python, percent, print_lines, print_table, stage
from sally_anne.core.errors import ProbingError
from sally_anne.core.files import write_atomic, write_json
from sally_anne.core.folder import claimed
from sally_anne.core.processes import within_memory
from sally_anne.core.run import Head, symbol
from sally_anne.data.pairs import PairSet, in_turn
from sally_anne.data.samples import SPLITS
from sally_anne.models.loading import LoadedModel
from sally_anne.probing import baselines
from sally_anne.probing.activations import reopen
from sally_anne.probing.baselines import OWN, Control, ProbeRun
from sally_anne.probing.config import AuditConfig
from sally_anne.probing.interchange import outputs_of
from sally_anne.probing.probes import HeadProbes, chance

TABLE, SAVED = "audit.parquet", "audit.json"
ALL = "all"
# How many groups of each split where the model reads anew, of six.
PARTS = {"train": 3, "validation": 1, "test": 2}
NUMBERS = ("chance", "accuracy", "low", "high", "best", "best_low", "best_high")
EMPTY = dict.fromkeys(NUMBERS, np.nan) | {"samples": 0, "clusters": 0, "reaches": False, "why": ""}


def run(config: AuditConfig, console: Console | None = None) -> pd.DataFrame:
    """Write and print the table: a row for each label, condition and control.

    ``accuracy, low, high, samples, clusters`` and ``chance`` are its own, ``best, best_low,
    best_high`` those of the best head on the same samples; a row ``reaches`` it if both are above
    chance and their intervals overlap. Where the model read a part of the stories anew, the best
    head is fitted and chosen on that part as well. ``why`` says why a row is empty (NaN), or is not
    compared. Intervals are over maps, or groups; of one there is none. ProbingError for too few
    stories; other errors as of :func:`reopen` and of the model, which must be that of the run.
    """
    console = console or Console()
    if config.stories < sum(PARTS.values()):
        raise ProbingError(f"--stories {config.stories}: the least is {sum(PARTS.values())}")
    with claimed(config.run, "a probing run"):
        opened = reopen(config.run, config.device, config.device_map)
        probing, data, clusters = opened.probing, opened.data, opened.clusters
        probes = HeadProbes(probing.c, probing.max_iter, probing.solver, probing.normalise)
        probed = ProbeRun(data, opened.x, probes, probing.batch_size, probing.position)
        chosen, counts = choose_groups(probed.x.items, clusters, config.stories)
        loaded = opened.model()
        controls = list(baselines.controls_of(loaded, probed, chosen, config.seed, console))
        with stage(console, "next to the best head"):
            table, facts = measure(probed, controls, clusters)
        if questions := opened.pair_sets.get("question"):
            rows = content(loaded, probed, questions, counts, facts[probed.x.labels[0]]["head"])
            table = pd.concat([table, rows], ignore_index=True)
        said = {label: conclusion(table, label, of) for label, of in facts.items()}
        write_atomic(config.run / TABLE, table.to_parquet(None, index=False))
        options = {"stories": config.stories, "seed": config.seed, "groups": counts}
        write_json(config.run / SAVED, {"config": options, "facts": facts, "conclusions": said})
    for label, words in said.items():
        _print(console, table[table["label"] == label], words)
    parts = ", ".join(f"{counts[split]} {split}" for split in SPLITS)
    line = f"the model read {sum(counts.values())} {data.noun} anew: {parts}"
    end = f"next: sally-anne report {shlex.quote(str(config.run))}"
    print_lines(console, [line, f"table: {config.run / TABLE}", end])
    return table


def audit(folder: Path | str, **options: Any) -> pd.DataFrame:
    """:func:`run` in a notebook: ``sa.audit("runs/...")``; options as of the command."""
    return run(AuditConfig(run=Path(folder), **options), in_python())


def choose_groups(
    items: pd.DataFrame, clusters: Mapping[str, str], most: int
) -> tuple[np.ndarray, dict[str, int]]:
    """Places ``[n]`` of samples of so many groups at most, from all clusters in turn; counts."""
    chosen: dict[str, list[str]] = {}
    for split, part in PARTS.items():
        groups = items.loc[items["split"] == split, "group"].unique()
        turns = in_turn(groups, lambda group: clusters[group], str)
        chosen[split] = turns[: most * part // sum(PARTS.values())]
    places = np.flatnonzero(items["group"].isin(sum(chosen.values(), [])).to_numpy())
    return places, {split: len(own) for split, own in chosen.items()}


def measure(
    run: ProbeRun, controls: Iterable[Control], clusters: Mapping[str, str]
) -> tuple[pd.DataFrame, dict[str, dict[str, Any]]]:
    """The table as of :func:`run`; of each label the best ``head``, its interval and ``chance``."""
    items, split, every = run.x.items, run.split, np.arange(len(run.x))
    member = np.array([clusters[group] for group in items["group"]])
    lines, facts, test = [], {}, split == "test"
    tagged = "condition" in items.columns.difference(run.x.labels)

    def score(control: Control, y: np.ndarray) -> tuple[np.ndarray, str]:
        """Which samples ``[N]`` are predicted, NaN of those that are not test samples of it."""
        if control.why or control.predict is None:
            raise ProbingError(control.why)
        at = every if control.at is None else control.at
        predicted, which = control.predict(control.values, y[at], split[at])
        right = np.full(len(every), np.nan)
        right[at] = np.where(test[at], predicted == y[at], np.nan)
        return right, which

    for label in run.x.labels:
        y = run.x.values(label)
        trained = y[split == "train"]
        whole, head = score(Control("", "", run.x.x, partial(baselines.by_heads, run.probes)), y)
        facts[label] = {"head": head, **_interval(whole[test], member[test])}
        facts[label]["chance"] = chance(trained, y[test])
        part = np.full(len(every), np.nan)
        for control in controls:
            line: dict[str, Any] = {"label": label, "kind": control.kind, "condition": ALL}
            try:
                right, which = score(control, y)
            except ProbingError as error:
                lines.append(line | {"row": control.name.replace(" ({})", ""), "why": str(error)})
                continue
            part = right if control.name == OWN else part
            line["row"] = control.name.replace("{}", which)
            best, own = whole if control.at is None else part, ~np.isnan(right)
            parts = {ALL: own}
            # They say nothing of what a statement names, which within a condition decides labels.
            if control.kind == "format" and tagged:
                of = items["condition"]
                parts |= {
                    str(name): own & (of == name).to_numpy() for name in of[own].dropna().unique()
                }
            for condition, at in parts.items():
                guessed, cluster = chance(trained, y[at]), member[at]
                measured, head_of = _interval(right[at], cluster), _interval(best[at], cluster)
                # With few samples the interval of what predicts nothing is wide, too.
                above, predicts = (_end(one, "low") > guessed for one in (head_of, measured))
                overlap = _end(measured, "high") >= _end(head_of, "low")
                row = {**line, "condition": condition, "chance": guessed, **measured}
                row |= zip(("best", "best_low", "best_high"), head_of.values(), strict=False)
                row["why"] = "" if above else "the best head is not above chance on these samples"
                lines.append({**row, "reaches": above and predicts and overlap})
    return _table(lines), facts


def _table(lines: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    table = pd.DataFrame([EMPTY | dict(line) for line in lines])
    return table[["label", "kind", "row", "condition", *EMPTY]]


def _interval(right: np.ndarray, clusters: np.ndarray) -> dict[str, Any]:
    """Accuracy with its interval over clusters; of one cluster NaN."""
    names, group = np.unique(clusters, return_inverse=True)
    mean, one = estimate_mean(right, group, draw_groups(len(names))), len(names) < 2
    low, high = (np.nan if one else end for end in (mean.low, mean.high))
    found = {"accuracy": mean.value, "low": low, "high": high}
    return found | {"samples": mean.n, "clusters": len(names)}


def _end(measured: Mapping[str, Any], which: str) -> float:
    return measured["accuracy"] if np.isnan(measured[which]) else measured[which]


def content(
    loaded: LoadedModel, run: ProbeRun, pair_set: PairSet, counts: Mapping[str, int], head: str
) -> pd.DataFrame:
    """Whether heads tell a prompt's own answer from the other one, at the question's last token.

    Multinomial probes of the answer are fitted on all prompts and scored on both of a pair; always
    naming the same gets half right. Rows: the first label's ``head``, and the best for it.
    """
    label = run.x.labels[0]
    about = {"label": label, "condition": ALL, "kind": "content", "chance": 0.5}
    every = [pair for split in SPLITS for pair in pair_set.choose(split, counts[split])]
    answers = np.array([pair.answers for pair in every])
    train, validation, test = (np.array([p.split == s for p in every]) for s in SPLITS)
    try:
        if not (train.any() and validation.any() and test.any()):
            raise ProbingError(f"there are no {pair_set.kind} pairs in one of the splits")
        with within_memory(*baselines.NO_MEMORY):
            x = np.stack(list(outputs_of(loaded, every, pair_set.reply, run.x.site)))
        probes = clone(run.probes).fit(x[train].reshape(-1, *x.shape[2:]), answers[train].ravel())
    except baselines.LEFT_OUT as error:
        return _table([about | {"row": f"{symbol(label)}'s head", "why": str(error)}])
    odds = probes.predict_proba(x.reshape(-1, *x.shape[2:])).reshape(*x.shape[:4], -1)
    # A word that no training pair has is given no odds.
    known = (answers[..., None] == probes.classes_)[:, None, :, None, None]
    first, second = np.moveaxis((odds[:, :, None] * known).sum(-1), 2, 0)
    right = np.heaviside((first - second) * np.array([1, -1])[:, None, None], 0.5).mean(1)
    held, cluster = right[validation].mean(0), np.array([pair.cluster for pair in every])[test]
    best = Head(*map(int, np.unravel_index(held.argmax(), held.shape)))
    chosen = {f"{symbol(label)}'s head": Head.parse(head), "best head for it": best}
    return _table(
        about | {"row": f"{name} ({at})"} | _interval(right[test][:, *at], cluster)
        for name, at in chosen.items()
    )


def conclusion(table: pd.DataFrame, label: str, facts: Mapping[str, Any]) -> str:
    """Which rows could explain a label's result, in words; ``facts`` are the label's own."""
    own = table[(table["label"] == label) & (table["row"] != OWN)]
    begin = f"{symbol(label)}: the best head ({facts['head']}) tells {_ends(facts)} of the test "
    begin += "samples"
    if np.isnan(facts["low"]):
        begin += ", which are of one map, so that values alone are compared"
    if not _end(facts, "low") > facts["chance"]:
        begin += f", which is not above chance ({facts['chance']:.3f}): nothing to explain."
        return " ".join([begin, *_not_compared(own[own["accuracy"].isna()])])
    kind, parts = own["kind"].where(own["kind"].isin(["format", "design"]), "other"), []
    for which, words, none in (
        ("format", "Confounded by format", "Not confounded by format rows."),
        ("design", "The design decides it", ""),
        ("other", "Could explain the result as well", "No other row reaches it."),
    ):
        rows = own[own["reaches"] & (kind == which)].to_dict("records")
        found = [f"{row['row']} {_ends(row)}{_where(row['condition'])}" for row in rows]
        parts.append(f"{words}: {'; '.join(found)}." if found else none)
    return " ".join(filter(None, [f"{begin}.", *parts, *_not_compared(own)]))


def _not_compared(rows: pd.DataFrame) -> list[str]:
    """Which rows are empty, or stand next to a head at chance; a sentence for each reason."""
    rows = rows.assign(name=rows["row"] + rows["condition"].map(_where))
    left = rows[rows["why"] != ""].groupby("why", sort=False)["name"].agg(", ".join)
    return [f"Not compared: {names} ({str(why).rstrip('.')})." for why, names in left.items()]


def _where(condition: str) -> str:
    return "" if condition == ALL else f" in {condition}"


def _ends(row: Mapping[str, Any]) -> str:
    said = percent({**row, "value": row["accuracy"]}, scale=1, digits=3)
    return said + " (no interval)" * bool(np.isnan(row["low"]))


def _print(console: Console, table: pd.DataFrame, words: str) -> None:
    """One label's rows, within a condition only what reaches, and its conclusion in ``words``."""
    label, found, rows = table["label"].iloc[0], table[table["accuracy"].notna()], []
    for row in found[(found["condition"] == ALL) | found["reaches"]].to_dict("records"):
        name = f"{row['kind']}: {row['row']}{_where(row['condition'])}"
        others = ("" if np.isnan(row[key]) else f"{row[key]:.3f}" for key in ("chance", "best"))
        explains = "yes" if row["reaches"] and row["row"] != OWN else ""
        rows.append([name, _ends(row), *others, explains])
    columns = ("row", "accuracy [95 %]", "chance", "best head", "explains")
    print_table(console, f"{symbol(label)}: accuracy of what should not suffice", columns, rows)
    console.print(f"[bold]{escape(words)}[/bold]")
