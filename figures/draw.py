"""What `sally-anne figures` and `sally-anne table` do: a run as pictures, or as a table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from sally_anne.core import run as saved_run
from sally_anne.core.errors import FigureError, RunFolderError
from sally_anne.core.folder import record_of
from sally_anne.core.hub import short_name
from sally_anne.core.run import HEADS, Head, Run, heads_of, select
from sally_anne.figures import comparison, heatmap, kde, style, sweep
from sally_anne.figures.config import FiguresConfig, TableConfig

RESULTS, SWEEP, ANSWERS = "results.json", "sweep.parquet", "answers.parquet"
# The table of each kind of run, and the command that makes it.
TABLES = {HEADS: "sally-anne probe", SWEEP: "sally-anne sweep", ANSWERS: "sally-anne evaluate"}
TABLES |= {f"{name}.parquet": f"sally-anne {name}" for name in ("transfer", "localisation")}
TITLE_WORDS = ("task", "order", "setting", "view", "window", "prompting", "style")
# A figure, the parts of its file's name, and its numbers.
Drawing = tuple[Any, tuple[str | None, ...], pd.DataFrame]


def table_name(folder: Path) -> str:
    """The file of a run folder that says of what kind it is; RunFolderError without one."""
    for name in TABLES:
        if (folder / name).exists():
            return name
    raise RunFolderError(f"{folder} holds no table of a finished run: {', '.join(TABLES)}")


def table_in(folder: Path, name: str) -> pd.DataFrame:
    return saved_run.read_table(folder / name, TABLES.get(name, "sally-anne evaluate"))


def results_in(folder: Path) -> dict[str, Any]:
    return saved_run.saved_results(folder / RESULTS, "sally-anne", {"config": ()})


def title_of(results: dict[str, Any]) -> list[str]:
    """Whose answers they are: model, task, order and what else is set."""
    config, about = results.get("config", {}), results.get("about") or {}
    # Views and windows that were not chosen are the benchmark's default, which `about` names.
    known = config | {word: about[word] for word in ("view", "window") if word in about}
    if "task" in known:
        known["task"] = Path(known.get("samples") or known["task"]).name
    if known.get("task", saved_run.FIRST_TASK) != saved_run.FIRST_TASK:
        known |= dict.fromkeys(("order", "setting", "style"))
    parts = [short_name(known["model"])] if known.get("model") else []
    return parts + [f"{word} {known[word]}" for word in TITLE_WORDS if known.get(word) is not None]


def run(config: FiguresConfig) -> None:
    """Draw, and print the paths."""
    print(*draw(config), sep="\n")


def draw(config: FiguresConfig) -> list[Path]:
    """Draw and save figures of a finished run; return the paths written.

    A FigureError if the run has no such figure, label, head or split.
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
                stem = re.sub(r"[^\w.-]+", "-", "_".join(filter(None, (kind, *parts))))
                paths += style.save(figure, config.out or config.run / "figures", stem, table)
            if config.kind and len(paths) == before:
                raise FigureError(f"{config.run} has no figure of kind {kind}")
    return paths


def _heatmaps(run: Run, config: FiguresConfig) -> Iterator[Drawing]:
    labels = run.labels if config.label is None else (config.label,)
    of, every = config.condition, run.samples
    known = [*sorted(set(every["condition"].dropna())), "worst"] if "condition" in every else []
    if of not in (None, *known):
        raise FigureError(f"{config.run} has no condition {of}: {', '.join(known) or 'none'}")
    # The worst condition is another one for each head.
    chosen = every if of in (None, "worst") else every[every["condition"] == of]
    for split in saved_run.SPLITS[config.split]:
        if count := int((chosen["split"] == split).sum()):
            table = heatmap.accuracy_table(run.heads, labels, split, condition=of)
            shown = f"{split} {of}" if of else split
            figure = heatmap.heatmap_figure(table, shown, count, run.title)
            yield figure, (config.label, _named(split, "validation"), of), table


def _densities(run: Run, config: FiguresConfig) -> Iterator[Drawing]:
    chosen, along = _chosen(run, config), config.directions == "probe"
    where, split = str(chosen) if chosen else None, _named(config.split, "held-out")
    for label in run.labels if config.label is None else (config.label,):
        head = chosen or saved_run.best(run.heads, label)
        subject = f"{'chosen' if chosen else 'best on validation'}, {config.split} samples"
        figure, table = kde.density(run, label, head, config.split, subject, along)
        parts = _named(label, run.labels[0]), where, _named(config.directions, "probe"), split
        yield figure, parts, table


def _named(value: str, usual: str) -> str | None:
    """A part of a file's name, if it is not as usual."""
    return value if value != usual else None


def _chosen(run: Run, config: FiguresConfig) -> Head | None:
    if config.layer is None or config.head is None:
        return None
    saved_run.row_of(run.heads, head := Head(config.layer, config.head))
    return head


def _clusters(run: Run, config: FiguresConfig) -> Iterator[Drawing]:
    labels = run.labels[:2]
    if len(labels) < 2 or any(run.samples[label].dtype != bool for label in labels):
        return

    def has_weights(head: Head) -> bool:
        return all(run.probe(label, *head)[0].any() for label in labels)

    head = _chosen(run, config)
    pair = (head,) if head else extremes(run.heads, labels, has_weights)
    reasons = ("chosen",) if head else ("worse label is best", "better label is worst")
    train, shown = select(run.samples, "train"), select(run.samples, config.split)
    panels = {}
    for why, one in zip(reasons, pair, strict=True):
        row, z = saved_run.row_of(run.heads, one), run.head_activations(*one)
        scores = [f"{saved_run.symbol(n)} {row[f'{n}_validation_accuracy']:.2f}" for n in labels]
        title = f"{one}: {why}\nvalidation accuracy: {', '.join(scores)}"
        probes = {label: run.probe(label, *one) for label in labels}
        panels[title] = kde.cluster_table(one, probes, z[train], z[shown], run.samples[shown])
    figure = kde.clusters_figure(panels, labels, config.split, run.title)
    parts = str(head) if head else None, _named(config.split, "held-out")
    yield figure, parts, pd.concat(panels.values())


def _patching(run: Run, config: FiguresConfig) -> Iterator[Drawing]:
    label = config.label or run.labels[0]
    if heatmap.kinds_of(run.heads):
        table = heatmap.patching_table(run.heads, label)
        best = saved_run.best(run.heads, label)
        figure = heatmap.patching_figure(table, label, best, run.title, run.asks)
        yield figure, (config.label,), table


def _sweep(folder: Path, config: FiguresConfig) -> Iterator[Drawing]:
    results = results_in(folder)
    table = sweep.curves(table_in(folder, SWEEP), results)
    yield sweep.sweep_figure(table, title_of(results), results), (), table


def _correlations(folder: Path, config: FiguresConfig) -> Iterator[Drawing]:
    answers = table_in(folder, ANSWERS)
    parser = comparison.first_parser(
        [c.removesuffix("_correct") for c in answers if c.endswith("_correct")]
    )
    if not parser or "tag_category" not in answers:
        raise FigureError(f"{folder} has no parsed answers in categories")
    table = comparison.category_correlations(answers, parser)
    title = [*title_of(results_in(folder)), f"answers parsed by {parser}"]
    yield comparison.correlations_figure(table, title), (), table


# Of each kind of run its figures; what a run does not have is drawn by none.
DRAWN: dict[str, dict[str, Callable[[Any, FiguresConfig], Iterator[Drawing]]]] = {
    HEADS: {"heatmap": _heatmaps, "kde": _densities, "clusters": _clusters, "patching": _patching},
    SWEEP: {"sweep": _sweep},
    ANSWERS: {"correlations": _correlations},
}


def part_name(part: str, measure: str) -> str:
    """A row of such a table in words: of which items, and which measure of them."""
    return ": ".join(filter(None, (part, measure.replace("overall", "")))) or "all"


def table_of(folder: Path) -> pd.DataFrame:
    """The table of a run folder, a row a head (best first), measure, setting or cell."""
    if (folder / HEADS).exists():
        run = Run.open(folder)
        return run.ranked(run.labels[0]) if run.labels else run.heads
    results = results_in(folder)
    if isinstance(results.get("rows"), list) and not (folder / "localisation.parquet").exists():
        return pd.json_normalize(results["rows"])  # of table1
    name = table_name(folder)
    figures = results.get("results")
    if name == ANSWERS and isinstance(figures, list):
        return pd.DataFrame(figures)
    if name == ANSWERS and record_of(folder).get("kind") == "an evaluation":
        raise RunFolderError(f"{folder} is of an earlier version; evaluate again")
    return table_in(folder, name)


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
    """The head whose worse label is best, and another whose better label is worst, on validation.

    Ties go by the sum over labels; the second head is one with ``has_weights``, if any.
    """
    columns = [f"{label}_validation_accuracy" for label in labels]
    scores = heads.dropna(subset=columns)
    scores = scores.assign(**scores[columns].agg(["min", "max", "sum"], axis=1))
    up, down = [True, True], [False, False]
    first = heads_of(scores.sort_values(["min", "sum", "layer", "head"], ascending=down + up))[0]
    worst = scores.sort_values(["max", "sum", "layer", "head"], ascending=up + down)
    others = [head for head in heads_of(worst) if head != first] or [first]
    return first, next(filter(has_weights, others), others[0])
