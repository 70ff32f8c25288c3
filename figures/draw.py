"""What `sally-anne figures` and `sally-anne table` do: a run as pictures, or as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sally_anne.core import run as saved_run
from sally_anne.core.errors import FigureError, RunFolderError
from sally_anne.core.hub import short_name
from sally_anne.core.run import HEADS, Head, Run, heads_of, select
from sally_anne.figures import comparison, heatmap, kde, style, sweep
from sally_anne.figures.config import FiguresConfig, TableConfig

RESULTS, SWEEP, ANSWERS = "results.json", "sweep.parquet", "answers.parquet"
# The table of each kind of run, and the command that makes it.
TABLES = {HEADS: "sally-anne probe", SWEEP: "sally-anne sweep", ANSWERS: "sally-anne evaluate"}
TABLES |= {f"{name}.parquet": f"sally-anne {name}" for name in ("transfer", "localisation")}
# What is said of GridToM's stories alone.
ITS_WORDS = ("order", "setting", "style")
TITLE_WORDS = ("task", "order", "setting", "view", "window", "prompting", "style")
MEASURES = ("TB", "FB", "Both", "overall", "invalid")
# A figure, the parts of its file's name, and its numbers.
Drawing = tuple[Any, tuple[str | None, ...], pd.DataFrame]


def table_name(folder: Path) -> str:
    """The file of a run folder that says of what kind it is; RunFolderError without one."""
    for name in TABLES:
        if (folder / name).exists():
            return name
    raise RunFolderError(f"{folder} holds no table of a finished run: {', '.join(TABLES)}")


def table_in(folder: Path, name: str) -> pd.DataFrame:
    """A table of a run folder; raises RunFolderError if it is damaged."""
    return saved_run.read_table(folder / name, TABLES.get(name, "sally-anne evaluate"))


def results_in(folder: Path) -> dict[str, Any]:
    """What ``results.json`` of a sweep, an evaluation or the like holds; empty without it."""
    return saved_run.saved_results(folder / RESULTS, "sally-anne", {"config": ()})


def title_of(results: dict[str, Any]) -> list[str]:
    """Whose answers they are: model, task, order and what else is set."""
    config, about = results.get("config", {}), results.get("about") or {}
    # Views and windows that were not chosen are the benchmark's default, which `about` names.
    known = config | {word: about[word] for word in ("view", "window") if word in about}
    if "task" in known:
        known["task"] = Path(known.get("samples") or known["task"]).name
    if known.get("task", saved_run.FIRST_TASK) != saved_run.FIRST_TASK:
        known |= dict.fromkeys(ITS_WORDS)
    parts = [short_name(known["model"])] if known.get("model") else []
    return parts + [f"{word} {known[word]}" for word in TITLE_WORDS if known.get(word) is not None]


def run(config: FiguresConfig) -> None:
    """Draw, and print the paths."""
    print(*draw(config), sep="\n")


def draw(config: FiguresConfig) -> list[Path]:
    """Draw and save figures of a finished run; return the paths written.

    Raises:
        FigureError: the run has no such figure, label, head or split.
        RunFolderError: its folder is damaged.
    """
    if (config.layer is None) != (config.head is None):
        raise FigureError("give --layer and --head together, or neither for the best head")
    name = table_name(config.run)
    source: Any = Run.open(config.run) if name == HEADS else config.run
    if name == HEADS and config.label not in (None, *source.labels):
        raise FigureError(f"{config.run} ranks no heads by {config.label}: {source.labels}")
    kinds = DRAWN.get(name, {})
    paths: list[Path] = []
    with style.look():
        for kind in config.kind or kinds:
            before = len(paths)
            for figure, parts, table in kinds[kind](source, config) if kind in kinds else ():
                stem = "_".join(filter(None, (kind, *parts)))
                paths += style.save(figure, config.out or config.run / "figures", stem, table)
            if config.kind and len(paths) == before:
                raise FigureError(f"{config.run} has no figure of kind {kind}")
    return paths


def _heatmaps(run: Run, config: FiguresConfig) -> Iterator[Drawing]:
    labels = run.labels if config.label is None else (config.label,)
    of, every = config.condition, run.samples
    known = [*sorted(set(every["condition"].dropna())), "worst"] if "condition" in every else []
    if of not in (None, *known):
        raise FigureError(
            f"{config.run} has no condition {of}: {', '.join(known) or 'none at all'}"
        )
    # The worst condition is another one for each head.
    chosen = every if of in (None, "worst") else every[every["condition"] == of]
    for split in saved_run.SPLITS[config.split]:
        if count := int((chosen["split"] == split).sum()):
            table = heatmap.accuracy_table(run.heads, labels, split, condition=of)
            shown = f"{split} {of}" if of else split
            figure = heatmap.heatmap_figure(table, shown, count, run.title)
            yield figure, (config.label, None if split == "validation" else split, of), table


def _densities(run: Run, config: FiguresConfig) -> Iterator[Drawing]:
    train, shown = select(run.samples, "train"), select(run.samples, config.split)
    for label in run.labels if config.label is None else (config.label,):
        head = _chosen(run, config) or saved_run.best(run.heads, label)
        where = str(head) if config.layer is not None else None
        subject = f"{'chosen' if where else 'best on validation'}, {config.split} samples"
        along = config.directions == "probe"
        figure, table = kde.density(run, label, head, shown, train, subject, along)
        changed = (config.directions, "probe"), (config.split, "held-out"), (label, run.labels[0])
        pca, split, label_part = (one if one != usual else None for one, usual in changed)
        yield figure, (label_part, where, pca, split), table


def _chosen(run: Run, config: FiguresConfig) -> Head | None:
    """The head that the options name."""
    if config.layer is None or config.head is None:
        return None
    saved_run.row_of(run.heads, head := Head(config.layer, config.head))
    return head


def _clusters(run: Run, config: FiguresConfig) -> Iterator[Drawing]:
    labels = run.labels[:2]
    if len(labels) < 2 or any(run.samples[label].dtype != bool for label in labels):
        return

    def probes(head: Head) -> dict[str, tuple[np.ndarray, float]]:
        return {label: run.probe(label, *head) for label in labels}

    def has_weights(head: Head) -> bool:
        return all(coef.any() for coef, _ in probes(head).values())

    if head := _chosen(run, config):
        chosen = {"chosen": head}
    else:
        pair = extremes(run.heads, labels, has_weights)
        chosen = dict(zip(("worse label is best", "better label is worst"), pair, strict=True))
    train, shown = select(run.samples, "train"), select(run.samples, config.split)
    panels = {}
    for why, one in chosen.items():
        row, z = saved_run.row_of(run.heads, one), run.head_activations(*one)
        scores = [f"{saved_run.symbol(n)} {row[f'{n}_validation_accuracy']:.2f}" for n in labels]
        title = f"{one}: {why}\nvalidation accuracy: {', '.join(scores)}"
        panels[title] = kde.cluster_table(one, probes(one), z[train], z[shown], run.samples[shown])
    figure = kde.clusters_figure(panels, labels, config.split, run.title)
    split = config.split if config.split != "held-out" else None
    yield figure, (str(head) if head else None, split), pd.concat(panels.values())


def _patching(run: Run, config: FiguresConfig) -> Iterator[Drawing]:
    label = config.label or run.labels[0]
    if heatmap.kinds_of(run.heads):
        table = heatmap.patching_table(run.heads, label)
        best = saved_run.best(run.heads, label)
        figure = heatmap.patching_figure(table, label, best, run.title, run.asks)
        yield figure, (config.label,), table


def _sweep(folder: Path, config: FiguresConfig) -> Iterator[Drawing]:
    results = results_in(folder)
    table = sweep.curves(table_in(folder, SWEEP), sweep.split_of(results))
    yield sweep.sweep_figure(table, title_of(results), results), (), table


def _correlations(folder: Path, config: FiguresConfig) -> Iterator[Drawing]:
    answers = table_in(folder, ANSWERS)
    there = [str(c).removesuffix("_correct") for c in answers if str(c).endswith("_correct")]
    parser = config.parser or comparison.first_parser(there)
    if parser not in there or f"tag_{config.tag}" not in answers:
        tags = [str(c).removeprefix("tag_") for c in answers if str(c).startswith("tag_")]
        raise FigureError(f"{folder} has parsers {there} and tags {tags}; choose of these")
    table = comparison.category_correlations(answers, parser, config.tag)
    title = [*title_of(results_in(folder)), f"answers parsed by {parser}"]
    figure = comparison.correlations_figure(table, title, config.tag)
    yield figure, (config.parser, config.tag if config.tag != "category" else None), table


# Of each kind of run its figures; what a run does not have is drawn by none.
DRAWN: dict[str, dict[str, Callable[[Any, FiguresConfig], Iterator[Drawing]]]] = {
    HEADS: {"heatmap": _heatmaps, "kde": _densities, "clusters": _clusters, "patching": _patching},
    SWEEP: {"sweep": _sweep},
    ANSWERS: {"correlations": _correlations},
}


def measures(results: dict[str, Any]) -> pd.DataFrame:
    """All numbers of an evaluation: ``parser, part, measure, value, low, high, n``.

    ``part`` is empty of all items, else the kind and value of a tag, or a cell.
    """
    rows: list[dict[str, Any]] = []
    for parser, numbers in results.get("results", {}).items():
        parts = {"": numbers.get("belief", {}) | numbers} | numbers.get("cells", {})
        named = [(part, name, one.get(name)) for part, one in parts.items() for name in MEASURES]
        groups = numbers.get("groups", {}) | {"all right": numbers.get("joint", {})}
        for kind, values in groups.items():
            named += [(f"{kind}: {value}", "overall", one) for value, one in values.items()]
        for part, name, one in named:
            if isinstance(one, dict) and "value" in one:
                rows.append({"parser": parser, "part": part, "measure": name, **one})
    return pd.DataFrame(rows)


def part_name(part: str, measure: str) -> str:
    """A row of such a table in words: of which items, and which measure of them."""
    if measure == "overall":
        return part or "all"
    return f"{part}: {measure}" if part else measure


def table_of(folder: Path) -> pd.DataFrame:
    """The table of a run folder, a row a head (best first), measure, setting or cell.

    A RunFolderError says that it holds no finished run, or is damaged.
    """
    if (folder / HEADS).exists():
        run = Run.open(folder)
        return run.ranked(run.labels[0]) if run.labels else run.heads
    results = results_in(folder)
    if isinstance(results.get("rows"), list) and not (folder / "localisation.parquet").exists():
        return pd.json_normalize(results["rows"])  # of table1
    name = table_name(folder)
    return measures(results) if name == ANSWERS else table_in(folder, name)


def print_table(config: TableConfig) -> None:
    """Print rows and columns of a run's table; a FigureError names a column that is not there."""
    table = table_of(config.run)
    if missing := [name for name in config.columns if name not in table]:
        there = ", ".join(map(str, table))
        raise FigureError(f"{config.run} has no column {missing[0]!r}; it has {there}")
    table = table[list(config.columns) or list(table)].head(config.rows or len(table))
    if config.format == "csv":
        print(table.to_csv(index=False), end="")
    elif config.format == "latex":
        print(table.to_latex(index=False, escape=True, float_format="%.3f"), end="")
    else:  # whole numbers stay whole next to others
        print(table.astype(object).to_markdown(index=False, floatfmt=".3f"))


def extremes(
    heads: pd.DataFrame, labels: Sequence[str], has_weights: Callable[[Head], bool]
) -> tuple[Head, Head]:
    """The head whose worse label is best, and another one whose better label is worst.

    By validation accuracy; ties go by the sum over labels. A probe that has stayed at zero has no
    boundary to show: the second head is one with ``has_weights``, unless there is none.
    """
    columns = [f"{label}_validation_accuracy" for label in labels]
    scores = heads.dropna(subset=columns)
    scores = scores.assign(**scores[columns].agg(["min", "max", "sum"], axis=1))
    up, down = [True, True], [False, False]
    first = heads_of(scores.sort_values(["min", "sum", "layer", "head"], ascending=down + up))[0]
    worst = scores.sort_values(["max", "sum", "layer", "head"], ascending=up + down)
    others = [head for head in heads_of(worst) if head != first] or [first]
    return first, next(filter(has_weights, others), others[0])
