"""The leaderboard of localisers and of steering, over models whose heads are known."""

from __future__ import annotations

import multiprocessing
import sys
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from sally_anne.core.bootstrap import draw_groups, estimate_mean
from sally_anne.core.console import Bars, Console, many, print_table
from sally_anne.core.files import write_atomic, write_json
from sally_anne.core.folder import RESULTS, Journal, claims, save_config
from sally_anne.core.options import check_options
from sally_anne.core.processes import exit_with_parent
from sally_anne.core.run import Head
from sally_anne.data.pairs import ContrastPair
from sally_anne.experiments.config import LocalisationConfig
from sally_anne.experiments.localisation import localisers, planted
from sally_anne.experiments.localisation.localisers import NAMES, PairStats, localiser_named, score
from sally_anne.figures import style
from sally_anne.hooks.identity import file_hash
from sally_anne.models.loading import LoadedModel

# What one model gives, and all: rows by the file that they belong in.
Rows = dict[str, list[dict[str, Any]]]
SHIPPED = Path(__file__).parent / "models"
TABLE, STEERING, RECOVERY = "localisation.parquet", "steering.parquet", "recovery.parquet"
# What is known of single models, until all are.
PARTS = "parts.jsonl"
ORDERING = ("recall", "auroc", "average_precision")
MEASURES = (*ORDERING, "hits", "false")
STEERED = ("moved", "kept", "kl", "cosine", "rank")
# Of a table of results: the columns that tell rows of one model apart, and its measures.
COLUMNS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    TABLE: (("kind", "localiser"), MEASURES),
    STEERING: (("hidden", "heads", "direction", "alpha"), STEERED),
    RECOVERY: (("hidden", "localiser", "strength"), ("recall",)),
}
# Test pairs that localisers are given; of these, so many in which every head is exchanged; further
# stories that are steered, and asked side questions; random directions of each direction's steps.
TEST_PAIRS, PAIRS, STEERED_PAIRS, CONTROLS = 64, 16, 24, 20
# To which the output of planted heads is weakened, for the curve of recovery.
STRENGTHS = (1.0, 0.3, 0.1, 0.03)
# Two standard deviations take one of two clusters to the other.
SHOWN_ALPHA, SHOWN_DIRECTION = 2.0, "mass_mean"
# Of the kinds of models: how their marks are filled, and how far they stand to the right.
KINDS = {"causal": ("none", -0.2), "decoy": ("full", 0.0), "hidden": ("bottom", 0.2)}


def shipped() -> list[Path]:
    return sorted(path.parent for path in SHIPPED.glob(f"*/{planted.TRUTH}"))


def measure(folder: Path, config: LocalisationConfig) -> Rows:
    """All rows of one model, by the table that they belong in."""
    own = {name: localiser_named(name) for name in config.localiser}
    every = planted.held_out_pairs("test", TEST_PAIRS + STEERED_PAIRS)
    contrast_pairs, further = every[:TEST_PAIRS], every[TEST_PAIRS:]
    seed = zlib.crc32(f"{config.seed}/{folder.name}".encode())

    def localise(
        loaded: LoadedModel, given: Sequence[ContrastPair], pairs: int, draws: int
    ) -> tuple[PairStats, dict[str, np.ndarray]]:
        """What built-in localisers look at, and the scores of all, ``[1 + draws, L, H]``."""
        turns = localisers.random_swaps(len(given), draws, seed)
        found = {n: localisers.scores_by(one, n, loaded, given, turns) for n, one in own.items()}
        seen = localisers.collect(loaded, given, pairs)
        return seen, {n: localisers.scores_of(n, seen, turns, seed) for n in NAMES} | found

    rows: Rows = {name: [] for name in COLUMNS}
    known = planted.read_truth(folder)
    kinds = ("causal", "decoy") if known.decoys else ("causal",)
    for kind in ("hidden",) if known.hidden else kinds:
        loaded, truth = planted.open_planted(folder, decoys=kind == "decoy")
        seen, found = localise(loaded, contrast_pairs, PAIRS, config.draws)
        mask = truth.mask(seen.effects.effect.shape[1:])
        for name, scores in found.items():
            row = score(scores[0], scores[1:], mask)
            if name == "random":
                # One draw for a model says little of what drawing gives.
                each = pd.DataFrame([score(one, scores[1:], mask) for one in scores])
                row |= each[[*ORDERING]].mean().to_dict()
            rows[TABLE].append({"kind": kind, "localiser": name, **row})
    k = len(truth.heads)
    best = {name: best_heads(scores[0], k, seed) for name, scores in found.items()}
    asked = further, planted.control_questions_of(further), CONTROLS, seed
    rows[STEERING] = planted.steering_rows(loaded, truth, seen, best, *asked)
    fewer, pairs = contrast_pairs[: TEST_PAIRS // 2], PAIRS // 2
    for strength in STRENGTHS:
        loaded, truth = planted.open_planted(folder, not known.hidden)
        planted.attenuate(loaded.model, truth.heads, strength)
        for name, scores in localise(loaded, fewer, pairs, 0)[1].items():
            if name != "random":
                recall = localisers.recall_at(scores[0], mask)
                cells = {"localiser": name, "strength": strength, "recall": recall}
                rows[RECOVERY].append(cells)
    about = {"model": folder.name, "base": truth.base, "k": len(truth.heads)}
    about |= {"failed": truth.failed, "hidden": truth.hidden}
    return {name: [{**about, **row} for row in part] for name, part in rows.items()}


def best_heads(scores: np.ndarray, k: int, seed: int) -> list[Head]:
    """The K* best of scores ``[L, H]``; which of those that tie is drawn."""
    ties = np.random.default_rng(seed).random(scores.size)
    order = np.lexsort((ties, -scores.ravel()))[:k]
    return [Head(*divmod(int(i), scores.shape[1])) for i in order]


def means(table: pd.DataFrame, name: str, seed: int = 0) -> list[dict[str, Any]]:
    """Mean of each measure of a table (:data:`COLUMNS`) over models that hold, with intervals."""
    by, measures = COLUMNS[name]
    found = []
    for names, rows in table[~table["failed"]].groupby([*by], sort=False, dropna=False):
        each: dict[str, Any] = dict(zip(by, names, strict=True)) | {"models": len(rows)}
        for measure in measures:
            if n := len(own := rows[measure].dropna().to_numpy(dtype=float)):
                mean = estimate_mean(own, np.arange(n), draw_groups(n, seed=seed))
                each[measure] = asdict(mean)
        found.append(each)
    if name != TABLE:
        return found
    return sorted(found, key=lambda row: (row["kind"], -row["recall"]["value"], row["localiser"]))


def print_results(console: Console, results: Mapping[str, Any]) -> None:
    """Localisers by kind of models, and steering at :data:`SHOWN_ALPHA`."""
    steered = [row for row in results["steering"] if row["alpha"] == SHOWN_ALPHA]
    steered = [r for r in steered if r["heads"] == "planted" or r["direction"] == SHOWN_DIRECTION]
    for name, rows in ((TABLE, results["rows"]), (STEERING, steered)):
        by, (first, *others) = COLUMNS[name]
        cells = []
        for row in rows:
            numbers = (f"{row[other]['value']:.2f}" if other in row else "" for other in others)
            cells.append([*(str(row[own]) for own in by), row[first], *numbers])
        title = f"{many(max(row['models'] for row in rows), 'models')}; {first} in %"
        print_table(console, title, [*by, first, *others], cells)


@claims("a comparison of localisers")
def run(config: LocalisationConfig, console: Console | None = None) -> pd.DataFrame:
    """Score all localisers on all models, steer these, and draw it; prints the leaderboards.

    Returns a row a model, kind and localiser, with :data:`MEASURES`. An OptionError says that a
    localiser cannot be had.
    """
    console = console or Console()
    check_options(config)
    folders = [*config.models] or shipped()
    truths = {folder: planted.read_truth(folder) for folder in folders}
    save_config(config.folder, asdict(config))
    modules = [sys.modules.get(localiser_named(name).__module__) for name in config.localiser]
    files = [Path(file) for module in modules if (file := getattr(module, "__file__", None))]
    about = asdict(replace(config, models=(), workers=1, out=Path())) | {"files": file_hash(files)}
    kept = planted.TRUTH, planted.DIFFERENCE
    names = {f"{f.name} {file_hash([f / name for name in kept])}": f for f in folders}
    one, several = partial(measure, config=config), min(config.workers, len(folders)) > 1
    context = multiprocessing.get_context("spawn")
    threads = max(1, torch.get_num_threads() // config.workers)
    with (
        Journal(config.folder / PARTS, about) as journal,
        Bars(console) as bar,
        ProcessPoolExecutor(config.workers, context, _begin, (threads,)) as p,
    ):
        todo = {name: folder for name, folder in names.items() if name not in journal.answers}
        task = bar.add_task("models", total=len(todo))
        for name, found in zip(todo, (p.map if several else map)(one, todo.values()), strict=True):
            journal.add([{"item_id": name, **found}])
            bar.advance(task)
    each = [journal.answers[name] for name in names]
    rows = {table: [row for found in each for row in found[table]] for table in COLUMNS}
    tables = {name: pd.DataFrame(part) for name, part in rows.items()}
    content: dict[str, Any] = {"config": asdict(config)}
    content["models"] = {folder.name: asdict(truth) for folder, truth in truths.items()}
    for name, table in tables.items():
        part = "rows" if name == TABLE else Path(name).stem
        content[part] = means(table, name, config.seed)
        write_atomic(config.folder / name, table.to_parquet(None, index=False))
    write_json(config.folder / RESULTS, content)
    (config.folder / PARTS).unlink()
    if failed := [folder.name for folder, truth in truths.items() if truth.failed]:
        console.print(f"not counted, since their truth does not hold: {', '.join(failed)}")
    if content["rows"]:
        print_results(console, content)
        figure = localisation_figure(content)
        style.save(figure, config.folder / "figures", "localisation", tables[TABLE])
    console.print(f"leaderboard: {config.folder / RESULTS}", soft_wrap=True)
    return tables[TABLE]


def _begin(threads: int) -> None:
    exit_with_parent()
    torch.set_num_threads(threads)


def localisation(*models: Path | str, **options: Any) -> pd.DataFrame:
    """:func:`run` in a notebook; options as of ``sally-anne localisation``."""
    config = LocalisationConfig(models=tuple(map(Path, models)), **options)
    return run(config, Console(quiet=True))


def localisation_figure(results: Mapping[str, Any]) -> Figure:
    """Recall of localisers, steering's effect against its cost, and recall where heads write less.

    Of what ``results.json`` holds; lines leave out models that hide the belief, unless all do.
    """
    rows = results["rows"]
    names = list(dict.fromkeys(row["localiser"] for row in rows))
    short = [name.rpartition(":")[2] for name in names]
    looks: dict[str, dict[str, Any]] = {
        name: {"color": style.COLOURS[i % 8], "marker": style.MARKERS[i % 8]}
        for i, name in enumerate(names)
    }
    figure = style.new_figure(9.6, 3.6)
    panel, middle, right = figure.subplots(1, 3)
    for row in rows:
        name, recall, (filled, shift) = row["localiser"], row["recall"], KINDS[row["kind"]]
        at = names.index(name) + shift
        panel.plot(at, recall["value"], linestyle="none", fillstyle=filled, **looks[name])
        # Of two models an interval is but their two values.
        if row["models"] > 2:
            panel.vlines(at, recall["low"], recall["high"], looks[name]["color"])
    panel.set_xticks(range(len(names)), short, rotation=40, ha="right", rotation_mode="anchor")
    panel.set(ylim=(-0.04, 1.04), ylabel="recall@K*", title="planted heads among the K* best")
    handles = [
        style.sign(label, linestyle="none", **look)
        for label, look in zip(short, looks.values(), strict=True)
    ]
    for kind, label in (("causal", "open: without decoys"), ("hidden", "half: hidden")):
        mark = {"marker": "o", "fillstyle": KINDS[kind][0], "linestyle": "none"}
        handles += [style.sign(label, "0.3", **mark)] if kind in {r["kind"] for r in rows} else []
    heads = {"planted": {"color": "black"}, "decoys": {"color": "0.6"}}
    handles += [style.sign(name, **look) for name, look in heads.items()]
    tables = []
    for part in ("steering", "recovery"):
        shown = [row for row in results[part] if not row["hidden"]] or results[part]
        tables.append(pd.json_normalize(shown).rename(columns=lambda n: n.removesuffix(".value")))
    steered, recovered = tables
    steered = steered[steered["direction"] == SHOWN_DIRECTION].sort_values("alpha")
    lines = heads | {name: look | {"linestyle": ":"} for name, look in looks.items()}
    for name, line in steered[steered["heads"].isin(lines)].groupby("heads"):
        # Steering begins where nothing is added.
        middle.plot([1, *line["kept"]], [0, *line["moved"]], ms=4, lw=1, **lines[str(name)])
    middle.set(xlabel="side answers kept", ylabel="answers moved", ylim=(-0.04, 1.04))
    middle.set_title("steering at the heads found")
    for name, line in recovered.sort_values("strength").groupby("localiser"):
        right.plot(line["strength"], line["recall"], ms=4, lw=1, **looks[str(name)])
    right.set(xlabel="strength of the planted heads", ylabel="recall@K*", xscale="log")
    right.set(ylim=(-0.04, 1.04), title="the same as they write less")
    models = {row["kind"]: f"{row['kind']}: {many(row['models'], 'models')}" for row in rows}
    style.heading(figure, [*models.values(), "95 % over models"])
    style.legend(figure, handles, columns=5)
    return figure
