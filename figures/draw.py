"""What `sally-anne figures` and `sally-anne table` do: a run as pictures, or as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from sally_anne.core.errors import ChoiceError, MissingRunFileError
from sally_anne.core.run import HEADS, Run, read_table, saved_results
from sally_anne.figures import correlations, heatmap, kde, patching, style, sweep
from sally_anne.figures.choose import SPLITS, best, insensitive, row_of, select, sensitive
from sally_anne.figures.comparison import first_parser
from sally_anne.figures.config import FiguresConfig, TableConfig
from sally_anne.hooks.geometry import Head

RESULTS = "results.json"
# The table of each kind of run, and the command that makes it.
TABLES = {
    HEADS: "sally-anne probe",
    "sweep.parquet": "sally-anne sweep",
    "answers.parquet": "sally-anne evaluate",
    "transfer.parquet": "sally-anne transfer",
    "localisation.parquet": "sally-anne localisation",
}
TITLE_WORDS = ("task", "order", "setting", "view", "window", "prompting", "style")
MEASURES = ("TB", "FB", "Both", "overall", "invalid")


def table_name(folder: Path) -> str:
    """The file of a run folder that says of what kind it is.

    Raises:
        MissingRunFileError: it holds no finished run.
    """
    for name in TABLES:
        if (folder / name).exists():
            return name
    kinds = ", ".join(f"{name} (`{made_by}`)" for name, made_by in TABLES.items())
    raise MissingRunFileError(f"{folder} holds no finished run: none of {kinds}")


def table_in(folder: Path, name: str) -> pd.DataFrame:
    """A table of a run folder; raises RunFolderError if it is damaged."""
    return read_table(folder / name, TABLES[name])


def results_in(folder: Path) -> dict[str, Any]:
    """What ``results.json`` of a sweep, an evaluation or the like holds; empty without it."""
    return saved_results(folder / RESULTS, "sally-anne") or {}


def title_of(results: dict[str, Any]) -> list[str]:
    """Whose answers they are: model, task, order and what else is set."""
    config, about = results.get("config", {}), results.get("about") or {}
    # Views and windows that were not chosen are the benchmark's default, which `about` names.
    known = config | {word: about[word] for word in ("view", "window") if word in about}
    parts = [str(known["model"])] if known.get("model") else []
    return parts + [f"{word} {known[word]}" for word in TITLE_WORDS if known.get(word) is not None]


def draw_all(run: Path | str, out: Path | None = None) -> list[Path]:
    """All figures of a finished run, as `sally-anne probe` draws them at its end."""
    return draw(FiguresConfig(Path(run), out=out))


def run(config: FiguresConfig) -> None:
    """Draw, and print the paths."""
    print(*draw(config), sep="\n")


def draw(config: FiguresConfig) -> list[Path]:
    """Draw and save figures of a finished run; return the paths written.

    Raises:
        ChoiceError: the run has no such figure, label, head or split.
        RunFolderError: its folder is damaged.
    """
    if (config.layer is None) != (config.head is None):
        raise ChoiceError("give --layer and --head together, or neither for the best head")
    name = table_name(config.run)
    offered: dict[str, Callable[[], Iterator[list[Path]]]]
    if name == HEADS:
        run = Run.open(config.run)
        if config.label is not None and config.label not in run.labels:
            there = ", ".join(run.labels)
            raise ChoiceError(f"{run.folder} ranks no heads by {config.label} (labels: {there})")
        offered = {
            "heatmap": lambda: _heatmaps(run, config),
            "kde": lambda: _densities(run, config),
        }
        if pair_of(run):
            offered["clusters"] = lambda: _clusters(run, config)
        if patching.kinds_of(run.heads):
            offered["patching"] = lambda: _patching(run, config)
    elif name == "sweep.parquet":
        offered = {"sweep": lambda: _sweep(config)}
    else:
        offered = {"correlations": lambda: _correlations(config)}
    if missing := [kind for kind in config.kind if kind not in offered]:
        there = ", ".join(offered)
        raise ChoiceError(f"{config.run} has no figure of kind {missing[0]} (it has {there})")
    paths: list[Path] = []
    with style.look():
        for kind in config.kind or offered:
            for saved in offered[kind]():
                paths += saved
    return paths


def _heatmaps(run: Run, config: FiguresConfig) -> Iterator[list[Path]]:
    labels = run.labels if config.label is None else (config.label,)
    for split in SPLITS[config.split]:
        count = int((run.samples["split"] == split).sum())
        if count:
            table = heatmap.accuracy_table(run.heads, labels, split)
            figure = heatmap.heatmap_figure(table, split, count, run.title)
            name = ["heatmap", config.label, split if split != "validation" else None]
            yield style.save(figure, config.folder, "_".join(filter(None, name)), table)


def _densities(run: Run, config: FiguresConfig) -> Iterator[list[Path]]:
    for label in run.labels if config.label is None else (config.label,):
        head, why = best(run.heads, label), "best on validation"
        place = None
        if config.layer is not None and config.head is not None:
            head, why = Head(config.layer, config.head), "chosen by hand"
            row_of(run.heads, head)
            place = str(head)
        z, values = run.head_activations(*head), run.samples[label]
        train, shown = select(run.samples, "train"), select(run.samples, config.split)
        plane, boundary = plane_of(run, label, head, z, train, config.directions == "probe")
        table = plane.table(z[shown], run.samples[shown], label)
        logits = kde.logits_of(run.probes, label, head, z, values, classes_in(run, label))
        subject = f"{head} ({why}), {config.split} samples"
        title = [kde.scores_of(logits[shown], values[shown]), *run.title]
        directions = "pca" if boundary is None else "probe"
        text = kde.AXIS_TEXT[directions]
        figure = kde.kde_figure(table, label, subject, title, text, boundary)
        name = ["kde", label if label != run.labels[0] else None, place]
        name += ["pca" if config.directions == "pca" else None]
        name += [config.split if config.split != "held-out" else None]
        yield style.save(figure, config.folder, "_".join(filter(None, name)), table)


def plane_of(
    run: Run, label: str, head: Head, z: Any, train: Any, along_probe: bool = True
) -> tuple[kde.Plane, float | None]:
    """The plane of a head's density, and the x at which its probe says 0.5.

    Probes of more than two classes have no one direction: their plane is of principal components.
    """
    values = run.samples[label]
    truth = (values == kde.classes_of(values)[0]).to_numpy()
    if not along_probe or run.probes[f"{label}.coef"].ndim != 3:
        return kde.pca_plane(z[train], truth[train]), None
    coef, intercept = run.probe(label, *head)
    plane = kde.probe_plane(coef, z[train], truth[train])
    slope, _, offset = plane.line(coef, intercept)
    return plane, -offset / slope if slope else None


def classes_in(run: Run, label: str) -> list[Any]:
    """The classes of a label in the order of its probe."""
    return run.saved.get("labels", {}).get(label, [])


def pair_of(run: Run) -> tuple[str, str] | None:
    """The first two labels of a run if both are true or false, else None."""
    pair = run.labels[:2]
    if len(pair) < 2 or any(run.samples[label].dtype != bool for label in pair):
        return None
    return pair[0], pair[1]


def _clusters(run: Run, config: FiguresConfig) -> Iterator[list[Path]]:
    labels = pair_of(run)
    assert labels is not None
    name, train = "clusters", select(run.samples, "train")
    shown = select(run.samples, config.split)
    if config.layer is not None and config.head is not None:
        chosen = {"": Head(config.layer, config.head)}
        name += f"_{chosen['']}"
    else:
        left = sensitive(run.heads, labels)

        def has_weights(head: Head) -> bool:
            return all(run.probe(label, *head)[0].any() for label in labels)

        right = insensitive(run.heads, labels, left, has_weights)
        chosen = {"sensitive": left, "insensitive": right}
    panels = []
    for role, head in chosen.items():
        row = row_of(run.heads, head)
        accuracies = [float(row[f"{label}_validation_accuracy"]) for label in labels]
        why = {
            "": "",
            "sensitive": f"worse label is best of all heads (validation {min(accuracies):.2f})",
            "insensitive": f"better label is worst of all heads (validation {max(accuracies):.2f})",
        }[role]
        probes = {label: run.probe(label, *head) for label in labels}
        z = run.head_activations(*head)
        seen = z[train], z[shown], run.samples[shown]
        panels.append(kde.Panel.of(role, head, *seen, probes, why))
    figure = kde.clusters_figure(panels, config.split, run.title)
    name += f"_{config.split}" if config.split != "held-out" else ""
    yield style.save(figure, config.folder, name, pd.concat([p.table() for p in panels]))


def _patching(run: Run, config: FiguresConfig) -> Iterator[list[Path]]:
    label = config.label or run.labels[0]
    table = patching.patching_table(run.heads, label)
    figure = patching.patching_figure(table, label, best(run.heads, label), run.title)
    name = "patching" if config.label is None else f"patching_{label}"
    yield style.save(figure, config.folder, name, table)


def _sweep(config: FiguresConfig) -> Iterator[list[Path]]:
    table, results = sweep.curves(table_in(config.run, "sweep.parquet")), results_in(config.run)
    figure = sweep.sweep_figure(table, title_of(results), sweep.Choice.of(results))
    yield style.save(figure, config.folder, "sweep", table)


def _correlations(config: FiguresConfig) -> Iterator[list[Path]]:
    answers = table_in(config.run, "answers.parquet")
    there = [str(c).removesuffix("_correct") for c in answers if str(c).endswith("_correct")]
    parser = config.parser or first_parser(there)
    if parser not in there or f"tag_{config.tag}" not in answers:
        tags = [str(c).removeprefix("tag_") for c in answers if str(c).startswith("tag_")]
        raise ChoiceError(
            f"{config.run}: no answers of parser {parser or 'any'} with tag {config.tag} (parsers: "
            f"{', '.join(there) or 'none'}; tags: {', '.join(tags) or 'none'})"
        )
    table = correlations.category_correlations(answers, parser, config.tag)
    title = [*title_of(results_in(config.run)), f"answers parsed by {parser}"]
    figure = correlations.correlations_figure(table, title, config.tag)
    name = ["correlations", config.parser, config.tag if config.tag != "category" else None]
    yield style.save(figure, config.folder, "_".join(filter(None, name)), table)


def measures(results: dict[str, Any]) -> pd.DataFrame:
    """All numbers of an evaluation: ``reader, part, measure, value, low, high, n``.

    ``part`` is empty of all items, else the kind and value of a tag, or a cell.
    """
    rows: list[dict[str, Any]] = []
    for parser, numbers in results.get("results", {}).items():
        parts = {"": numbers | numbers.get("belief", {})} | numbers.get("cells", {})
        named = [(part, name, one.get(name)) for part, one in parts.items() for name in MEASURES]
        for kind, values in numbers.get("groups", {}).items():
            named += [(f"{kind}: {value}", "overall", one) for value, one in values.items()]
        for value, one in numbers.get("joint", {}).items():
            named.append((f"all right: {value}", "overall", one))
        for part, name, one in named:
            if isinstance(one, dict) and "value" in one:
                rows.append({"reader": parser, "part": part, "measure": name, **one})
    return pd.DataFrame(rows)


def table_of(folder: Path) -> pd.DataFrame:
    """The table of a run folder, a row a head (best first), measure, setting or cell.

    Raises:
        RunFolderError: it holds no finished run, or is damaged.
    """
    if (folder / HEADS).exists():
        run = Run.open(folder)
        return run.ranked(run.labels[0]) if run.labels else run.heads
    results = results_in(folder)
    if isinstance(results.get("rows"), list) and not (folder / "localisation.parquet").exists():
        return pd.json_normalize(results["rows"])  # of table1
    name = table_name(folder)
    return measures(results) if name == "answers.parquet" else table_in(folder, name)


def text_of(table: pd.DataFrame, config: TableConfig) -> str:
    """The rows and columns to print; a ChoiceError names a column that is not there."""
    if missing := [name for name in config.columns if name not in table]:
        there = ", ".join(map(str, table))
        raise ChoiceError(f"{config.run} has no column {missing[0]!r}; it has {there}")
    table = table[list(config.columns) or list(table)].head(config.rows or len(table))
    form = f".{config.digits}f"
    if config.format == "csv":
        return table.to_csv(index=False)
    if config.format == "latex":
        return table.to_latex(index=False, escape=True, float_format=f"%{form}")
    # Whole numbers stay whole next to others.
    return table.astype(object).to_markdown(index=False, floatfmt=form) + "\n"


def print_table(config: TableConfig) -> None:
    """Print the table of a run."""
    print(text_of(table_of(config.run), config), end="")
