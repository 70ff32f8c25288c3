"""The leaderboard of localisers and of steering, over models whose heads are known."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import shutil
import sys
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

from sally_anne.core.bootstrap import draw_groups, estimate_mean
from sally_anne.core.console import Bars, Console
from sally_anne.core.errors import OptionError, RunFolderError
from sally_anne.core.files import read_object, write_atomic, write_json
from sally_anne.core.folder import RESULTS, claims, save_config
from sally_anne.core.head import Head
from sally_anne.core.options import check_options
from sally_anne.core.processes import exit_with_parent
from sally_anne.data.pairs import ContrastPair
from sally_anne.experiments.config import LocalisationConfig
from sally_anne.experiments.localisation.localisers import (
    NAMES,
    PairStats,
    Scores,
    collect,
    localiser_named,
    random_swaps,
    recall_at,
    score,
    scores_by,
    scores_of,
)
from sally_anne.experiments.localisation.planted import (
    DIFFERENCE,
    TRUTH,
    attenuate,
    open_planted,
    read_truth,
)
from sally_anne.experiments.localisation.steering import steering_rows
from sally_anne.experiments.localisation.stories import control_questions_of, held_out_pairs
from sally_anne.figures import style
from sally_anne.hooks.identity import file_hash
from sally_anne.models.loading import LoadedModel

SHIPPED = Path(__file__).parent / "models"
TABLE, STEERING, RECOVERY = (
    "localisation.parquet",
    "steering.parquet",
    "recovery.parquet",
)
# What is known of single models, until all are.
PARTS = "parts"
ORDERING = ("recall", "auroc", "average_precision")
HEADINGS = {
    "recall": "recall@K*",
    "auroc": "AUROC",
    "average_precision": "AP",
    "hits": "hits",
    "false": "false",
}
STEERED = {"moved": "moved %", "kept": "kept %", "kl": "KL", "cosine": "cosine"}
STEERED |= {"rank": "rank"}
# Two standard deviations take one of two clusters to the other.
SHOWN_ALPHA = 2.0
SHOWN_DIRECTION = "mass_mean"


def shipped() -> list[Path]:
    """Folders of the models that come with this package."""
    return sorted(path.parent for path in SHIPPED.glob(f"*/{TRUTH}"))


def measure(folder: Path, config: LocalisationConfig) -> dict[str, list[dict[str, Any]]]:
    """All rows of one model by the file that they belong in.

    Raises:
        OptionError: a localiser that cannot be had.
        ModelError: the folder is not what ``sally-anne plant`` writes.
        ProbingError: a localiser returns something else than a score for every head.
    """
    own = {name: localiser_named(name) for name in config.localiser}
    every = held_out_pairs("test", config.test_pairs + config.steered)
    contrast_pairs, further = every[: config.test_pairs], every[config.test_pairs :]
    seed = zlib.crc32(f"{config.seed}/{folder.name}".encode())
    rows: list[dict[str, Any]] = []
    known = read_truth(folder)
    kinds = ("causal", "decoy") if config.decoys and known.decoys else ("causal",)
    for kind in ("hidden",) if known.hidden else kinds:
        loaded, truth = open_planted(folder, decoys=kind == "decoy")
        seen, found = _localise(loaded, contrast_pairs, config.pairs, config.draws, own, seed)
        planted = truth.mask(seen.effects.effect.shape[1:])
        for name, scores in found.items():
            row = score(scores[0], scores[1:], planted)
            if name == "random":
                # One draw for a model says little of what drawing gives.
                each = [score(one, scores[1:], planted) for one in scores]
                row |= {m: float(np.mean([one[m] for one in each])) for m in ORDERING}
            rows.append({"kind": kind, "localiser": name, **row})
    steered: list[dict[str, Any]] = []
    if config.steered:
        best = {name: best_heads(scores[0], truth.k, seed) for name, scores in found.items()}
        asked = control_questions_of(further)
        steered = steering_rows(loaded, truth, seen, best, further, asked, config.controls, seed)
    weaker = []
    for strength in config.strengths:
        loaded, truth = open_planted(folder, config.decoys and not known.hidden)
        attenuate(loaded.model, truth.heads, strength)
        fewer, pairs = contrast_pairs[: max(5, len(contrast_pairs) // 2)], max(1, config.pairs // 2)
        seen, found = _localise(loaded, fewer, pairs, 0, own, seed)
        weaker += [
            {"localiser": name, "strength": strength, "recall": recall_at(scores[0], planted)}
            for name, scores in found.items()
            if name != "random"
        ]
    about = {"model": folder.name, "base": truth.base, "k": truth.k, "failed": truth.failed}
    about["hidden"] = truth.hidden
    parts = {TABLE: rows, STEERING: steered, RECOVERY: weaker}
    return {name: [{**about, **row} for row in part] for name, part in parts.items()}


def kept_or_measured(folder: Path, config: LocalisationConfig) -> dict[str, list[dict[str, Any]]]:
    """:func:`measure`, kept in ``parts`` for a run that goes on after it was stopped."""
    options = asdict(replace(config, models=(), workers=1, out=Path()))
    own = [sys.modules.get(localiser_named(name).__module__) for name in config.localiser]
    files = [folder / TRUTH, folder / DIFFERENCE]
    files += [Path(file) for module in own if (file := getattr(module, "__file__", None))]
    asked = json.dumps([options, file_hash(files)], default=str)
    key = hashlib.sha256(asked.encode()).hexdigest()[:12]
    path = config.folder / PARTS / f"{folder.name}-{key}.json"
    if path.exists():
        return read_object(path, RunFolderError, "sally-anne localisation")
    found = measure(folder, config)
    path.parent.mkdir(exist_ok=True)
    write_atomic(path, json.dumps(found).encode())
    return found


def _localise(
    loaded: LoadedModel,
    contrast_pairs: Sequence[ContrastPair],
    pairs: int,
    draws: int,
    own: dict[str, Scores],
    seed: int,
) -> tuple[PairStats, dict[str, np.ndarray]]:
    """What built-in localisers look at, and the scores of all, ``[1 + draws, L, H]``."""
    seen, turns = (
        collect(loaded, contrast_pairs, pairs),
        random_swaps(len(contrast_pairs), draws, seed),
    )
    found = {name: scores_of(name, seen, turns, seed) for name in NAMES}
    for name, given in own.items():
        found[name] = scores_by(given, name, loaded, contrast_pairs, turns)
    return seen, found


def best_heads(scores: np.ndarray, k: int, seed: int) -> list[Head]:
    """The K* best of scores ``[L, H]``; which of those that tie is drawn."""
    ties = np.random.default_rng(seed).random(scores.size)
    order = np.lexsort((ties, -scores.ravel()))[:k]
    return [Head(*divmod(int(i), scores.shape[1])) for i in order]


def means(
    table: pd.DataFrame, by: Sequence[str], measures: Sequence[str], seed: int = 0
) -> list[dict[str, Any]]:
    """Mean of each measure over the models that hold, with 95 % intervals over models.

    Args:
        table: a row for each model and each combination of ``by``; ``model, failed`` and measures.
        by: columns that tell rows of one model apart.
        measures: columns; values of models that have none are left out.
        seed: of the intervals, for which models are drawn anew.
    """
    found = []
    for names, rows in table[~table["failed"]].groupby([*by], sort=False, dropna=False):
        each = {}
        for measure in measures:
            values = rows[measure].dropna().to_numpy(dtype=float)
            if len(values):
                times = draw_groups(len(values), seed=seed)
                each[measure] = asdict(estimate_mean(values, np.arange(len(values)), times))
        found.append({**dict(zip(by, names, strict=True)), "models": len(rows), **each})
    return found


def leaderboard(table: pd.DataFrame, seed: int = 0) -> list[dict[str, Any]]:
    """:func:`means` of the localisers' measures by kind, best recall first."""
    found = means(table, ("kind", "localiser"), [*HEADINGS], seed)
    return sorted(found, key=lambda row: (row["kind"], -row["recall"]["value"], row["localiser"]))


def print_leaderboard(console: Console, rows: Sequence[dict[str, Any]]) -> None:
    """A table for each kind of models."""
    for kind in dict.fromkeys(row["kind"] for row in rows):
        own = [row for row in rows if row["kind"] == kind]
        title = (
            f"{kind}: {_models(own)}, means (recall with 95 % intervals over models); "
            "heads claimed at a family-wise 5 %: planted (hits) and others (false)"
        )
        _print_table(console, title, own, {"localiser": "localiser"}, HEADINGS)


def print_steering(console: Console, rows: Sequence[dict[str, Any]]) -> None:
    """What two standard deviations along class means do, by heads; of planted ones all ways."""
    left = {"heads": "heads", "direction": "direction"}
    shown = [
        {**row, **{m: {k: 100 * v for k, v in row[m].items()} for m in ("moved", "kept")}}
        for row in rows
        if row["alpha"] == SHOWN_ALPHA
        and (row["heads"] == "planted" or row["direction"] == SHOWN_DIRECTION)
    ]
    for hidden in dict.fromkeys(row["hidden"] for row in shown):
        own = [row for row in shown if row["hidden"] == hidden]
        title = (
            f"steering by {SHOWN_ALPHA:g} standard deviations, {_models(own)}"
            f"{' with a hidden belief' if hidden else ''}: answers that flip, side "
            "questions still right; cosine to what exchanging adds, rank among random directions "
            "of equal steps"
        )
        _print_table(console, title, own, left, STEERED)


def _models(rows: Sequence[dict[str, Any]]) -> str:
    number = rows[0]["models"]
    return f"{number} model{'s' if number > 1 else ''}"


def _print_table(
    console: Console,
    title: str,
    rows: Sequence[dict[str, Any]],
    left: dict[str, str],
    right: dict[str, str],
) -> None:
    table = Table(title=title, title_justify="left")
    for heading in left.values():
        table.add_column(heading)
    for heading in right.values():
        table.add_column(heading, justify="right")
    for row in rows:
        cells = []
        for i, measure in enumerate(right):
            # The first measure is the one that the table is read for.
            form = "{value:.2f}" if i else "{value:.2f} [{low:.2f}, {high:.2f}]"
            cells.append(form.format(**row[measure]) if measure in row else "")
        table.add_row(*(str(row[name]) for name in left), *cells)
    console.print(table)


@claims("a comparison of localisers")
def run(config: LocalisationConfig, console: Console | None = None) -> pd.DataFrame:
    """Score all localisers on all models, steer these, and draw it; prints the leaderboards.

    Returns:
        A row a model, kind and localiser: ``model, base, hidden, kind, k, failed, localiser`` and
        the measures of :data:`HEADINGS`.

    Raises:
        OptionError: no models, more pairs than test pairs, or a localiser that cannot be had.
        ModelError: a folder is not what ``sally-anne plant`` writes.
    """
    console = console or Console()
    check_options(config)
    if config.pairs > config.test_pairs:
        raise OptionError(f"--pairs {config.pairs} is more than --test-pairs {config.test_pairs}")
    folders = [*config.models] or shipped()
    if not folders:
        raise OptionError("no models are shipped here; give folders of `sally-anne plant`")
    if len(set(names := [folder.name for folder in folders])) < len(names):
        raise OptionError(f"two models have the same name: {', '.join(sorted(names))}")
    truths = {folder: read_truth(folder) for folder in folders}
    contrast_pairs = held_out_pairs("test", config.test_pairs + config.steered)
    if len(contrast_pairs) < config.test_pairs + config.steered:
        raise OptionError(
            f"--test-pairs {config.test_pairs} and --steered {config.steered} are more than the "
            f"{len(contrast_pairs)} test pairs"
        )
    for name in config.localiser:
        # Before long work; what it returns is looked at.
        loaded = open_planted(folders[0])[0]
        scores_by(localiser_named(name), name, loaded, contrast_pairs[:5], random_swaps(5, 0, 0))
    save_config(config.folder, asdict(config))
    rows: dict[str, list[dict[str, Any]]] = {TABLE: [], STEERING: [], RECOVERY: []}
    with Bars(console) as bar:
        task = bar.add_task("models", total=len(folders))
        for found in _of_all(folders, config):
            rows = {name: [*rows[name], *found[name]] for name in rows}
            bar.advance(task)
    tables = {name: pd.DataFrame(part) for name, part in rows.items() if part}
    content: dict[str, Any] = {"config": asdict(config)}
    content["models"] = {folder.name: asdict(truth) for folder, truth in truths.items()}
    content["rows"] = leaderboard(tables[TABLE], config.seed)
    if STEERING in tables:
        by: tuple[str, ...] = ("hidden", "heads", "direction", "alpha")
        content["steering"] = means(tables[STEERING], by, [*STEERED], config.seed)
    if RECOVERY in tables:
        by = ("hidden", "localiser", "strength")
        content["recovery"] = means(tables[RECOVERY], by, ["recall"], config.seed)
    for name, table in tables.items():
        write_atomic(config.folder / name, table.to_parquet(None, index=False))
    write_json(config.folder / RESULTS, content)
    shutil.rmtree(config.folder / PARTS)
    failed = [folder.name for folder, truth in truths.items() if truth.failed]
    if failed:
        console.print(f"not counted, since their truth does not hold: {', '.join(failed)}")
    if len(failed) < len(truths):
        print_leaderboard(console, content["rows"])
        if STEERING in tables:
            print_steering(console, content["steering"])
        figure = localisation_figure(content)
        style.save(figure, config.folder / "figures", "localisation", tables[TABLE])
    console.print(f"leaderboard: {config.folder / RESULTS}", soft_wrap=True)
    return tables[TABLE]


def _of_all(
    folders: Sequence[Path], config: LocalisationConfig
) -> Iterator[dict[str, list[dict[str, Any]]]]:
    one = partial(kept_or_measured, config=config)
    if config.workers == 1 or len(folders) == 1:
        yield from map(one, folders)
        return
    context = multiprocessing.get_context("spawn")
    threads = max(1, torch.get_num_threads() // config.workers)
    with ProcessPoolExecutor(config.workers, context, _begin, (threads,)) as pool:
        yield from pool.map(one, folders)


def _begin(threads: int) -> None:
    exit_with_parent()
    torch.set_num_threads(threads)


def localisation(*models: Path | str, **options: Any) -> pd.DataFrame:
    """:func:`run` in a notebook; options as of ``sally-anne localisation``."""
    config = LocalisationConfig(models=tuple(map(Path, models)), **options)
    return run(config, Console(quiet=True))


COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#999999", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "x", "P", "*")
# Of the kinds of models: how their marks are filled, and how far they stand to the right.
KINDS = {"causal": ("none", -0.2), "decoy": ("full", 0.0), "hidden": ("bottom", 0.2)}


def localisation_figure(results: dict[str, Any]) -> Figure:
    """Of what ``results.json`` holds: ``rows``, and if there are ``steering`` and ``recovery``.

    Left: recall@K* of each localiser, open where there are no decoys, half filled where the heads
    hide the belief. Middle: share of answers moved against share of side answers kept, along class
    means, a line from the weakest step to the strongest. Right: recall where the planted heads
    write ever less. Both without models that hide it, unless all do.
    """
    results = results | {
        part: [row for row in results[part] if not row["hidden"]] or results[part]
        for part in ("steering", "recovery")
        if part in results
    }
    names = list(dict.fromkeys(row["localiser"] for row in results["rows"]))
    panels = 1 + ("steering" in results) + ("recovery" in results)
    figure = style.new_figure(0.6 + 3.0 * panels, 3.6)
    axes = figure.subplots(1, panels, squeeze=False)[0]
    _draw_recall(axes[0], results["rows"], names)
    if "steering" in results:
        _draw_frontier(axes[1], results["steering"], names)
    if "recovery" in results:
        _draw_recovery(axes[-1], results["recovery"], names)
    style.heading(figure, [_counted(results["rows"]), "95 % over models"])
    handles = [
        style.sign(name.rpartition(":")[2], COLOURS[i % 8], marker=MARKERS[i % 8], linestyle="none")
        for i, name in enumerate(names)
    ]
    if "steering" in results:
        handles += [style.sign("planted heads", "black"), style.sign("decoys", "0.6")]
    handles.append(style.sign("open: without decoys", "0.3", marker="o", mfc="none", ls="none"))
    if any(row["kind"] == "hidden" for row in results["rows"]):
        handles.append(style.sign("half: hidden", "0.3", marker="o", fillstyle="bottom", ls="none"))
    style.legend(figure, handles, columns=5)
    return figure


def _counted(rows: list[dict[str, Any]]) -> str:
    hidden = max((row["models"] for row in rows if row["kind"] == "hidden"), default=0)
    models = hidden + max((row["models"] for row in rows if row["kind"] != "hidden"), default=0)
    said = f"{models} model{'s' if models > 1 else ''} whose heads are known"
    return said + (f", {hidden} of them hiding the belief" if hidden else "")


def _draw_recall(panel: Axes, rows: list[dict[str, Any]], names: list[str]) -> None:
    for row in rows:
        i = names.index(row["localiser"])
        found = row["recall"]
        filled, shift = KINDS[row["kind"]]
        ends = None
        # Of two models an interval is but their two values.
        if row["models"] > 2:
            ends = [[found["value"] - found["low"]], [found["high"] - found["value"]]]
        look: Any = {"marker": MARKERS[i % 8], "color": COLOURS[i % 8], "fillstyle": filled}
        panel.errorbar([i + shift], [found["value"]], yerr=ends, linestyle="none", **look)
    short = [name.rpartition(":")[2] for name in names]
    panel.set_xticks(range(len(names)), short, rotation=40, ha="right", rotation_mode="anchor")
    panel.set(ylim=(-0.04, 1.04), ylabel="recall@K*", title="planted heads among the K* best")


def _draw_frontier(panel: Axes, rows: list[dict[str, Any]], names: list[str]) -> None:
    lines: dict[str, Any] = {"planted": {"color": "black", "zorder": 3}}
    lines["decoys"] = {"color": "0.6", "zorder": 2}
    for i, name in enumerate(names):
        look = {"color": COLOURS[i % 8], "marker": MARKERS[i % 8], "linestyle": ":"}
        lines[name] = {**look, "markersize": 4, "linewidth": 1}
    for name, look in lines.items():
        own = [r for r in rows if r["heads"] == name and r["direction"] == "mass_mean"]
        own.sort(key=lambda row: row["alpha"])
        if own:
            x = [1.0, *(row["kept"]["value"] for row in own)]
            panel.plot(x, [0.0, *(row["moved"]["value"] for row in own)], **look)
    panel.set(ylim=(-0.04, 1.04), xlabel="side answers kept", ylabel="answers moved")
    panel.set_title("steering at the heads found")


def _draw_recovery(panel: Axes, rows: list[dict[str, Any]], names: list[str]) -> None:
    for i, name in enumerate(names):
        own = sorted((r for r in rows if r["localiser"] == name), key=lambda r: r["strength"])
        x, found = [row["strength"] for row in own], [row["recall"] for row in own]
        look: Any = {"color": COLOURS[i % 8], "marker": MARKERS[i % 8], "markersize": 4}
        panel.plot(x, [one["value"] for one in found], linewidth=1, **look)
    panel.set_xscale("log")
    ticks = sorted({row["strength"] for row in rows})
    panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    panel.minorticks_off()
    panel.set(ylim=(-0.04, 1.04), xlabel="strength of the planted heads", ylabel="recall@K*")
    panel.set_title("the same as they write less")
