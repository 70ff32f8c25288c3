"""``sally-anne transfer RUN RUN ...``: what is fitted on one run, tested on another.

Matrices, rows fitted on and columns tested on: accuracy of the best head's probe, |cos| of
directions, rank correlation and overlap of heads by probes and by what they carry within pairs,
and the share of the answer's gap that causal heads carry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from rich.markup import escape
from rich.table import Table
from torch import Tensor

from sally_anne.core.bootstrap import draw_groups, estimate_mean, estimate_shares
from sally_anne.core.console import Bars, Console, stage
from sally_anne.core.errors import ProbingError
from sally_anne.core.files import write_json
from sally_anne.core.folder import RESULTS, claims, save_config
from sally_anne.data.pairs import ContrastPair
from sally_anne.experiments.between import (
    KINDS,
    MEASURES,
    Causes,
    Part,
    Plan,
    cell,
    codes,
    control_of,
    note_on,
)
from sally_anne.experiments.config import TransferConfig
from sally_anne.figures import style
from sally_anne.figures.comparison import PANELS, transfer_figure
from sally_anne.hooks.edit import Edit
from sally_anne.hooks.identity import ModelIdentity
from sally_anne.hooks.positions import ALL
from sally_anne.models.loading import LoadedModel
from sally_anne.probing.interchange import COLUMNS, Prompt, read_pair
from sally_anne.probing.patching import FOLDER, kept_effects
from sally_anne.probing.probes import Activations, HeadProbes
from sally_anne.probing.sources import Reopened, reopen

# Options by which runs are named, where they differ; these by their values alone.
NAMED_BY = (
    *("model", "samples", "task", "setting", "order", "contrast", "site"),
    *("split_seed", "data_seed", "data", "stories", "c"),
)
# What every cell has; in an empty one, NaN.
NUMBERS = ("value", "low", "high", "control", "control_high", "clusters", "n", "p")
EMPTY: dict[str, Any] = {**dict.fromkeys(NUMBERS, float("nan")), "above": False}
PLAIN = ("model", "samples", "task", "setting", "contrast", "site")


@claims("a transfer")
def run(config: TransferConfig, console: Console | None = None) -> pd.DataFrame:
    """Measure, print, draw and write the matrices.

    Returns:
        A row a cell: ``measure`` (accuracy, spearman, overlap, cosine, question_spearman,
        question_overlap, statement_spearman, statement_overlap, share, steered),
        ``fitted_on``, ``tested_on``, ``value, low, high`` (95 % over the target's ``clusters``),
        ``control`` and ``control_high`` (mean and 97.5 % quantile), ``above`` (whether it is above
        its control), ``n`` (samples or pairs), ``p``, ``heads``, ``note``; of an empty cell
        ``why``.

    Raises:
        ProbingError: fewer than two parts, or one that cannot be fitted or tested; names it.
        RunFolderError: a folder is not that of a finished run.
        ModelError: a model is not the one that was probed.
    """
    console = console or Console()
    if len(config.runs) < 2 and not config.by:
        raise ProbingError("give two runs or more, or one and a tag that parts its samples: --by")
    if len({folder.resolve() for folder in config.runs}) < len(config.runs):
        raise ProbingError("a run is given twice; --by TAG parts the samples of one")
    plan = Plan(config.k, config.draws, config.seed, config.unseen == "clusters")
    opened = [open_run(folder, config) for folder in config.runs]
    parted = [parts_of(*one, config) for one in zip(opened, names_of(opened), strict=True)]
    parts = sum(parted, [])
    if len(parts) < 2:
        raise ProbingError(f"--by {config.by}: all samples have the same; there is one part alone")
    for part in parts:
        if plan.k > (heads := part.shape[0] * part.shape[1]):
            raise ProbingError(f"--K {plan.k}: {part.name} has {heads} heads")
    found = []
    for name, measure in MEASURES.items():
        with stage(console, name):
            found += [
                {"measure": name, "fitted_on": a.name, "tested_on": b.name, **measure(a, b, plan)}
                for a, b in product(parts, parts)
            ]
    for one, targets in zip(opened, parted, strict=True):
        found += with_model(one, targets, parts, config, plan, console)
    words = {"why": "", "note": "", "heads": ""}
    table = pd.DataFrame([EMPTY | words | cell for cell in found])
    place = {measure: i for i, measure in enumerate(PANELS)}
    row = {part.name: i for i, part in enumerate(parts)}
    keys = [table["measure"].map(place), table["fitted_on"].map(row), table["tested_on"].map(row)]
    table = table.iloc[pd.MultiIndex.from_arrays(keys).argsort()].reset_index(drop=True)
    print_matrices(console, table)
    save_config(config.folder, asdict(config), parts=list(row))
    with style.look():
        titles = [one.run.title for one in opened]
        alike = [part for part in titles[0] if all(part in title for title in titles)]
        label = style.symbol(parts[0].label)
        figure = transfer_figure(table, [*alike, label, f"K {config.k}"])
        paths = style.save(figure, config.folder, "transfer", table)
    cells = table.astype(object).where(table.notna(), None).to_dict("records")
    write_json(config.folder / RESULTS, {"config": asdict(config), "cells": cells})
    console.print(f"matrices: {escape(str(paths[-1]))}", soft_wrap=True)
    return table


def open_run(folder: Path, config: TransferConfig) -> Reopened:
    """A finished run with its samples, as they are now.

    Raises:
        ProbingError: they are not those that the run read.
    """
    opened = reopen(folder, config.device, config.device_map)
    saved = opened.run
    label = config.label or saved.labels[0]
    if label not in saved.labels:
        labels = ", ".join(saved.labels)
        raise ProbingError(f"--label {label}: {folder} has the labels {labels}")
    if config.by is not None and config.by not in saved.samples:
        tags = (
            ", ".join(dict.fromkeys(name for s in opened.data.samples for name in s.tags)) or "none"
        )
        raise ProbingError(f"--by {config.by}: the samples of {folder} have the tags {tags}")
    return opened


def names_of(opened: Sequence[Reopened]) -> list[str]:
    """What tells runs apart: options in which they differ, or their folders."""
    options = [vars(one.probing) for one in opened]
    differ = [name for name in NAMED_BY if len({str(each[name]) for each in options}) > 1]

    def word(name: str, value: Any) -> str:
        value = Path(value).name if isinstance(value, Path) or name == "model" else value
        return str(value) if name in PLAIN else f"{name.replace('_', ' ')} {value}"

    names = [
        ", ".join(word(name, each[name]) for name in differ if each[name] is not None)
        for each in options
    ]
    if len(set(names)) < len(names) or (len(names) > 1 and not all(names)):
        names = [one.run.folder.resolve().name for one in opened]
    return names if len(set(names)) == len(names) else [str(one.run.folder) for one in opened]


def parts_of(opened: Reopened, name: str, config: TransferConfig) -> list[Part]:
    """All samples of a run, or with ``--by`` those of each value of a tag."""
    saved, probing = opened.run, opened.probing
    items = saved.samples
    items["content"] = items["group"].map(opened.data.identities)
    items["cluster"] = items["group"].map(opened.clusters)
    x = Activations(saved.activations(), items, saved.labels, probing.site)
    causes, why = causes_of(opened)
    if config.by is not None:
        causes, why = {}, dict.fromkeys(KINDS, "causal heads are of whole runs, not of one tag")
    part = Part(
        name,
        x,
        config.label or saved.labels[0],
        HeadProbes(probing.c, probing.max_iter, probing.solver),
        ModelIdentity.of_run(saved.saved["model"]),
        causes,
        why,
    )
    if config.by is None:
        return [part]
    values = items[config.by].dropna().unique().tolist()
    rows = {value: (items[config.by] == value).to_numpy() for value in sorted(values, key=str)}
    return [
        replace(
            part,
            name=", ".join(filter(None, (name if len(config.runs) > 1 else "", str(value)))),
            x=replace(x, x=x.x[own], items=items[own].reset_index(drop=True)),
        )
        for value, own in rows.items()
    ]


def causes_of(opened: Reopened) -> tuple[dict[str, Causes], dict[str, str]]:
    """What `sally-anne patch` found of a run's heads, by kind of pairs, or why that is lacking.

    Raises:
        RunFolderError: what it kept is damaged.
    """
    folder, causes, why = opened.run.folder, {}, {}
    heads, patched = opened.run.heads.sort_values(["layer", "head"]), opened.run.patching
    for kind in KINDS:
        pair_set, facts = opened.pair_sets.get(kind), patched.get(kind, {})
        column = f"{kind}_effect_validation"
        if pair_set is None:
            why[kind] = f"the samples of {folder} have no {kind} pairs"
        elif (
            column not in heads
            or facts.get("pair_set") != pair_set.fingerprint
            or "kept" not in facts
        ):
            why[kind] = f"`sally-anne patch {folder}` has not been run, or by an earlier version"
        else:
            gap, carried = kept_effects(folder / FOLDER, facts)
            stories = stories_of(opened, pair_set.choose("test", facts["scan"]["pairs"]))
            ranked_by = heads[column].to_numpy()
            causes[kind] = Causes(ranked_by, gap, carried.reshape(len(gap), -1), stories)
    return causes, why


def stories_of(opened: Reopened, pairs: Sequence[ContrastPair]) -> pd.DataFrame:
    """Of each pair which story it is, ``content``, and its ``cluster``."""
    content = [opened.data.identities[pair.samples[0].group] for pair in pairs]
    return pd.DataFrame({"content": content, "cluster": [pair.cluster for pair in pairs]})


def with_model(
    opened: Reopened,
    targets: Sequence[Part],
    sources: Sequence[Part],
    config: TransferConfig,
    plan: Plan,
    console: Console,
) -> list[dict[str, Any]]:
    """The cells of a run's columns for which its model is opened: heads exchanged, and steered."""
    measures = [*(["share"] if config.carried else []), *(["steered"] if config.alpha else [])]
    pair_set = opened.pair_sets.get("question")
    pairs = pair_set.choose("test", config.pairs) if pair_set else []
    items = stories_of(opened, pairs)
    cells: list[dict[str, Any]] = []
    asked: list[tuple[dict[str, Any], Part]] = []
    for measure, source, target in product(measures, sources, targets):
        why = why_not(measure, source, target, plan)
        if not pairs:
            why = "the target has no test pairs of questions"
        elif config.by is not None:
            why = "pairs of questions join the parts of one run"
        elif not why and not plan.unseen(source, items).any():
            why = "the source has seen all test pairs of the target"
        about = {"measure": measure, "fitted_on": source.name, "tested_on": target.name}
        if why:
            cells.append({**about, "why": why})
        else:
            asked.append((about, source))
    if not asked or pair_set is None:
        return cells
    loaded = opened.model()
    kept = [plan.unseen(source, items) for _, source in asked]
    with Bars(console) as bar:
        task = bar.add_task(f"exchanging heads ({targets[0].name})", total=len(pairs))
        found = measured(
            loaded,
            pairs,
            pair_set.reply,
            opened.probing.site,
            [(about["measure"], source) for about, source in asked],
            kept,
            plan,
            config.alpha or 0.0,
            config.random_sets,
            lambda: bar.advance(task),
        )
    return cells + [about | cell for (about, _), cell in zip(asked, found, strict=True)]


def print_matrices(console: Console, table: pd.DataFrame) -> None:
    """A table a measure: value, interval and control of each cell, and why others are empty."""
    names = list(dict.fromkeys(table["fitted_on"]))
    for measure, part in table.groupby("measure", sort=False):
        title = f"{PANELS[measure][0]} (97.5 % of its control)"
        shown = Table(title=title, title_justify="left", caption_justify="left")
        shown.add_column("fitted on")
        for name in names:
            shown.add_column(escape(f"tested on {name}"), justify="right")
        cells = part.set_index(["fitted_on", "tested_on"])
        for row in names:
            shown.add_row(escape(row), *(in_words(cells.loc[(row, name)]) for name in names))
        console.print(shown)
        for why, rows in part[part["why"] != ""].groupby("why", sort=False):
            console.print(escape(f"  empty ({len(rows)} of {len(part)}): {why}"), soft_wrap=True)


def in_words(cell: Mapping[str, Any]) -> str:
    """A cell as it is printed."""
    if cell["why"]:
        return "-"
    text = (
        f"{cell['value']:.2f} [{cell['low']:.2f}, {cell['high']:.2f}] ({cell['control_high']:.2f})"
    )
    notes = [str(cell["note"]).partition(":")[0], "" if cell["above"] else "not specific"]
    return "\n".join([text, *filter(None, notes)])


def transfer(*folders: Path | str, **options: Any) -> pd.DataFrame:
    """:func:`run` in a notebook: ``transfer("runs/a", "runs/b", k=4)``; options of the command.

    Returns:
        The table of cells.
    """
    config = TransferConfig(runs=tuple(map(Path, folders)), **options)
    return run(config, Console(quiet=True))


def why_not(measure: str, source: Part, target: Part, plan: Plan) -> str:
    """Why ``share`` or ``steered`` cannot be measured between two parts; empty if it can."""
    if why := source.unlike(target):
        return f"heads and directions are of one model and site: {why}"
    if measure == "share":
        return source.lacks("question")
    if not source.probes.binary:
        return f"{source.label} has more than two classes, and a vector leads to one"
    if len(source.top) < plan.k:
        return f"only {len(source.top)} heads of the source have a direction"
    return ""


def measured(
    loaded: LoadedModel,
    pairs: Sequence[ContrastPair],
    reply: bool,
    site: str,
    asked: Sequence[tuple[str, Part]],
    kept: Sequence[np.ndarray],
    plan: Plan,
    alpha: float,
    random_sets: int,
    on_pair: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Cells of one target.

    Args:
        loaded: its model.
        pairs: its test pairs.
        reply: as of `sally_anne.data.pairs.PairSet`.
        site: where heads are exchanged and steered.
        asked: measure and source of each cell.
        kept: for each, which pairs the source has not seen, bool ``[P]``, some of them.
        plan: how.
        alpha: strength of vectors.
        random_sets: of heads, and random directions of a vector's heads and lengths.
        on_pair: called when a pair is done.
    """
    shape, random = asked[0][1].shape, np.random.default_rng(plan.seed)
    count = shape[0] * shape[1]
    sets = [s.causes["question"].ranked[: plan.k] for measure, s in asked if measure == "share"]
    if sets:
        sets += [random.choice(count, plan.k, replace=False).tolist() for _ in range(random_sets)]
    chosen = torch.zeros(len(sets), count, dtype=torch.bool)
    for row, members in zip(chosen, sets, strict=True):
        row[members] = True
    deltas = [
        directions(s.probes.to_vector(plan.k, alpha).delta(), random_sets, plan.seed)
        for measure, s in asked
        if measure == "steered"
    ]
    gaps, along, both = [], [], []
    for pair in pairs:
        a, b = read_pair(loaded, pair, reply, site)
        gaps.append((a.logit_diff, b.logit_diff))
        swapped = chosen.unflatten(1, shape)
        to_b, to_a = a.replaced(b.heads, swapped), b.replaced(a.heads, swapped)
        along.append((a.logit_diff - to_b + to_a - b.logit_diff) / 2)
        if deltas:
            first, second = (steered(side, torch.cat(deltas)) for side in (a, b))
            both.append((first > 0) & (second < 0))
        on_pair()
    gap, plain = np.array([a - b for a, b in gaps]), np.array([a > 0 > b for a, b in gaps])
    every = np.stack(along)
    own, drawn = np.split(every, [every.shape[1] - random_sets if sets else 0], axis=1)
    right = iter(np.stack(both).T.reshape(len(deltas), -1, len(pairs)) if deltas else ())
    carried_by, found = iter(own.T), []
    for (measure, _), rows in zip(asked, kept, strict=True):
        clusters = [pair.cluster for pair, keep in zip(pairs, rows, strict=True) if keep]
        if measure == "share":
            found.append(carried(gap[rows], next(carried_by)[rows], drawn[rows], clusters, plan))
        else:
            found.append(gained(plain[rows], next(right)[:, rows], clusters, plan))
    return found


def steered(side: Prompt, values: Tensor, columns: int = COLUMNS) -> np.ndarray:
    """Gaps ``[C]`` of one of a pair with values ``[C, L, H, D]`` added at its last token."""
    found = []
    for part in values.split(columns):
        edit = Edit(side.loaded.model, part[None], side.site, ALL)
        with torch.no_grad(), edit:
            found.append(side.logit_diffs(len(part)).cpu())
    return torch.cat(found).numpy()


def directions(delta: Tensor, count: int, seed: int) -> Tensor:
    """A vector, and C random ones that have its length in each head, ``[1 + C, L, H, D]``."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(count, *delta.shape, generator=generator)
    drawn = drawn / drawn.norm(dim=-1, keepdim=True) * delta.norm(dim=-1, keepdim=True)
    return torch.cat([delta[None], drawn])


def carried(
    gap: np.ndarray, own: np.ndarray, random: np.ndarray, clusters: Sequence[str], plan: Plan
) -> dict[str, Any]:
    """Share of the gap that a set of heads carries within pairs; the control: random sets.

    Args:
        gap: between the two of each pair, ``[P]``, in logits.
        own: of it what goes along with the set, ``[P]``.
        random: with random sets, ``[P, R]``.
        clusters: of each pair.
        plan: how.
    """
    if gap.mean() <= 0:
        return {"why": "the model does not tell the target's pairs apart: no gap to be carried"}
    number, count = codes(clusters)
    times = draw_groups(count, seed=plan.seed)
    share, *ends = (float(each) for each in estimate_shares(own, gap, number, times))
    control = control_of(random.sum(0) / gap.sum())
    return cell(share, ends, control, count, n=len(gap), note=note_on(gap))


def gained(
    plain: np.ndarray, steered: np.ndarray, clusters: Sequence[str], plan: Plan
) -> dict[str, Any]:
    """Share of pairs that a vector sets right in both inputs of a pair, less what it spoils.

    Args:
        plain: whether both are right without it, ``[P]``.
        steered: likewise with the vector, and with random ones of its length, ``[1 + R, P]``.
        clusters: of each pair.
        plan: how.
    """
    gains = steered.astype(float) - plain
    number, count = codes(clusters)
    found = estimate_mean(gains[0], number, draw_groups(count, seed=plan.seed))
    more = {"n": len(plain), "note": f"without {plain.mean():.2f}"}
    return cell(found.value, (found.low, found.high), control_of(gains[1:].mean(1)), count, **more)
