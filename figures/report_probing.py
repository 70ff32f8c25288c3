"""The page of a probing run: every head, what its probe reads, and whether that is used."""

from __future__ import annotations

import html
import itertools
import re
import shlex
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.colors import Normalize, to_hex

from sally_anne.core import run as saved_run
from sally_anne.core.bootstrap import too_few
from sally_anne.core.console import number
from sally_anne.core.errors import SallyAnneError
from sally_anne.core.run import LEVEL, USED, Head, Run, best, heads_of, select, symbol
from sally_anne.data.gridtom.samples import Scene
from sally_anne.data.items import KINDS
from sally_anne.data.samples import Sample
from sally_anne.figures import heatmap, kde, page, style

HEADS, LISTED = 3, 3  # best heads of each label that are opened, samples in each of their lists
FACTS = ("config", "model", "data", "nulls", "versions")
NONE = pd.Series(dtype=float)
SPLITS = ("validation", "test", "train")
ENDINGS = ("_rank", "_validation_accuracy", "_test_accuracy", "_p_fwer", "_effect", "_conclusion")


def probing_page(run: Run, samples: Sequence[Sample] | None = None) -> page.Page:
    """The page of a run; of ``samples``, what it read in its order, frames are shown."""
    kinds, folder = heatmap.kinds_of(run.heads), shlex.quote(str(run.folder))
    with style.look():
        looks = _looks(run, samples)
        sections = {
            "Where heads look": looks,
            "The best heads": _best_heads(run, samples),
            "Readable against used": [_used(run)] if kinds else [],
            "Every head": [_heads_table(run)],
            "Controls": _controls(run),
        }
    made = page.Page(f"sally-anne probe --config {folder}", f"Heads of {run.title[0]}")
    made.parts, made.first, made.heads = run.title[1:], _maps(run, kinds, bool(looks)), run.heads
    made.sentence = " ".join(_sentence(run, label) for label in run.labels[:2])
    untested = "Readable is not used: whether the model's answer needs these heads was not tested."
    found = [run.patching[kind]["conclusion"] for kind in KINDS if kind in run.patching]
    made.conclusions, made.badges = found or [untested], _badges(run, kinds)
    made.warnings, made.commands = _warnings(run), _commands(run, folder, kinds)
    made.sections = {heading: parts for heading, parts in sections.items() if parts}
    made.facts = {name: run.saved.get(name) for name in FACTS}
    tests = {n: run.ranked(n)[f"{n}_test_accuracy"].iloc[0] for n in run.labels}
    made.numbers = {f"best head of {symbol(n)}, test": {"value": one} for n, one in tests.items()}
    return made


def _maps(run: Run, kinds: Sequence[str], linked: bool) -> str:
    """Maps of all heads: accuracies and effects; if ``linked`` each leads to where it looks."""
    heads = run.heads.sort_values(["layer", "head"]).reset_index(drop=True)
    words = {f"{n}_{s}_accuracy": f"{symbol(n)}, {s}" for s in SPLITS for n in run.labels}
    words |= {f"{kind}_effect": f"effect on the {run.asks(kind)}" for kind in kinds}
    words = {name: text for name, text in words.items() if heads.get(name, NONE).notna().any()}
    says = pd.Series(list(map(str, heads_of(heads))))
    for name, text in words.items():
        says += f"\n{text}: " + heads[name].map(lambda value: number(value, 3))
    views: dict[str, str] = defaultdict(str)
    for split, label in itertools.product(SPLITS, run.labels):
        if f"{label}_{split}_accuracy" in words:
            cells = heatmap.accuracy_table(heads, [label], split).assign(says=says)
            top, ends = next(cells[cells["best"]].itertuples()), heatmap.colour_limits(cells)
            cells["mark"] = np.where(cells["above"], "●", "")
            title = f"{symbol(label)}: best on validation {Head(top.layer, top.head)}, here "
            title += f"{top.accuracy:.2f}; chance {top.chance:.2f}, null {number(top.threshold)}"
            cells = cells.rename(columns={"accuracy": "value"})
            views[f"{split} accuracy"] += _map(title, ends, cells, linked)
    for kind in kinds:
        cells = heads[["layer", "head"]].assign(value=heads[f"{kind}_effect"], says=says, best=0)
        cells["mark"] = heads[f"{kind}_used"].map({USED: "●", saved_run.AGAINST: "○"}).fillna("")
        reach = max(0.1, float(cells["value"].abs().max()))
        title = f"on the {run.asks(kind)}: from {number(-reach)} to {number(reach)}"
        views["normalised effect"] += _map(title, (-reach, reach), cells, linked)
    note = page.words(
        "A row a layer, a column a head. Colours part at chance, or at zero: orange below, purple "
        "above. Ring: best on validation. Dot: validation accuracy above the null, or used by "
        "patching; circle: used against." + " A click on a head: where it looks." * linked
    )
    return page.tabs("map", views) + note


def _map(title: str, ends: tuple[float, float], table: pd.DataFrame, linked: bool) -> str:
    colours = colormaps[style.DIVERGING](Normalize(*ends)(table["value"].to_numpy()))
    size = table[["layer", "head"]].to_numpy().max() + 1
    rows: dict[int, str] = {}
    for cell, colour in zip(table.itertuples(), colours, strict=True):
        ink = "#000" if colour[:3] @ (0.3, 0.6, 0.1) > 0.45 else "#fff"
        look = f'style="background:{to_hex(colour)};color:{ink}" title="{html.escape(cell.says)}"'
        shown = f"{number(cell.value) if size <= style.NUMBERS_UP_TO else ''}<sup>{cell.mark}</sup>"
        shown = f'<a href="#{Head(cell.layer, cell.head)}">{shown}</a>' if linked else shown
        ring = ' class="ring"' if cell.best else ""
        rows[cell.layer] = f"{rows.get(cell.layer, '')}<td {look}{ring}>{shown}</td>"
    lines = "".join(f"<tr><th>{layer}</th>{cells}</tr>" for layer, cells in rows.items())
    lines += "".join(["<tr><th></th>", *(f"<th>{h}</th>" for h in sorted(set(table["head"])))])
    caption = f"<caption>{html.escape(title)}</caption>"
    body = f'<table class="map" style="--most:{size}">{caption}{lines}</tr></table>'
    return f'<div class="scroll">{body}</div>'


def _looks(run: Run, samples: Sequence[Sample] | None) -> list[str]:
    """Where each head looks, as `sally-anne looks` found, below the frames of a film of each side.

    Of the heads the one clicked at is shown.
    """
    kind = next((k for k in KINDS if (run.folder / f"looks/{k}.parquet").exists()), None)
    if kind is None:
        return []
    table = pd.read_parquet(run.folder / f"looks/{kind}.parquet")
    sides = [*dict.fromkeys(table["side"])][:2]
    shares = table.pivot_table("share", ["heads", "part"], "side", sort=False)[sides]
    of, films = list(run.samples.get("condition", [None])), []
    for side in sides if set(sides) <= set(of) else ["any"]:
        row = next((n for n, one in enumerate(of) if side in (one, "any")), 0)
        if samples is not None and samples[row].shows:
            with suppress(SallyAnneError):
                film = samples[row].frames()
                films.append(page.picture(page.strip(film, len(film)), f"a film, {side}"))
    frames = [part for part in dict.fromkeys(table["part"]) if part.startswith("frame")]
    heads = [*dict.fromkeys(table["heads"])]
    blocks = []
    for head in heads[:-1]:  # the last are random sets
        own = shares.loc[head]
        keys = "".join(f"<i></i> {html.escape(side)} " for side in sides)
        if head == heads[0]:
            own = own.assign(random=shares.loc[heads[-1]].mean(axis=1))
            keys += "<i></i> random"
        rest = own.drop(frames)
        rest = rest[(rest[sides] >= 0.02).any(axis=1)]
        more = "; ".join(f"{part} {' '.join(map(number, row))}" for part, *row in rest.itertuples())
        bars = _bars(own.loc[frames]) + page.words(more) if frames else _bars(rest)
        name = f'id="{head}" class="look"' if head != heads[0] else 'class="look set"'
        blocks.append(f"<div {name}><h3>{head} {keys}</h3>{bars}</div>")
    note = page.words(f"Shares of attention from the token where heads are exchanged ({kind}).")
    return [note, f'<div class="looks">{"".join([*films, *blocks])}</div>']


def _bars(shares: pd.DataFrame) -> str:
    """A bar for each column of the parts in the rows; steps of several frames are wider."""
    cells = []
    for part, row in shares.iterrows():
        ends = [int(n) for n in re.findall(r"\d+", str(part))] or [0]
        wide = ends[-1] - ends[0] + 1
        bars = "".join(f'<i style="height:{100 * share:.0f}%"></i>' for share in row)
        numbers = " ".join(map(number, row))
        words = f"<span>{bars}</span>{html.escape(str(part))}<br>{numbers}"
        cells.append(f'<div style="flex-grow:{wide}">{words}</div>')
    return f'<div class="shares">{"".join(cells)}</div>'


def _heads_table(run: Run) -> str:
    table = run.ranked(run.labels[0])
    names = {n: symbol(n) for n in run.labels} | {kind: run.asks(kind) for kind in KINDS}
    parts = itertools.product(names.items(), ENDINGS)
    columns = {f"{n}{end}": f"{text}:{end.replace('_', ' ')}" for (n, text), end in parts}
    shown = table[[c for c in table if c in columns]].rename(columns=columns)
    shown.insert(0, "head", [str(head) for head in heads_of(table)])
    return page.details("The heads as a table", page.table(shown, "Best first", most=30))


def _best_heads(run: Run, samples: Sequence[Sample] | None) -> list[str]:
    """Of the best heads of each label accuracies, the density, and samples."""
    parts: list[str] = []
    for place, label in itertools.product(range(min(len(run.heads), HEADS)), run.labels):
        row = run.ranked(label).iloc[[place]]
        (head,) = heads_of(row)
        columns = {split: f"{label}_{split}_accuracy" for split in SPLITS}
        words = ", ".join(f"{s} {row[c].item():.3f}" for s, c in columns.items() if c in row)
        summary = f"{head}: {place + 1}. of {symbol(label)}, {words}"
        opened = _head(run, label, head, samples)
        parts.append(page.details(summary, *opened, name="head", is_open=not parts))
    return parts


def _head(run: Run, label: str, head: Head, samples: Sequence[Sample] | None) -> list[str]:
    items, values = run.samples, run.samples[label]
    figure, _ = kde.density(run, label, head, "held-out", "held-out samples")
    parts = [page.picture(style.render(figure, dpi=110), f"density of {head}")]
    classes, rows = kde.classes_of(values), np.flatnonzero(select(items, "held-out"))
    names = np.array([kde.class_name(value) for value in classes])
    logits = kde.logits_of(run, label, head, run.head_activations(*head))
    truth, guess = np.array(list(map(classes.index, values))), logits.argmax(axis=1)
    counts = pd.crosstab(names[truth[rows]], names[guess[rows]], rownames=["label"])
    counts = counts.rename_axis(columns=None).reset_index()
    parts.append(page.table(counts, "Rows: label, columns: what the probe says"))
    ordered = np.sort(logits, axis=1)
    margin, right = ordered[:, -1] - ordered[:, -2], guess == truth
    surest = rows[np.argsort(-margin[rows], kind="stable")]
    lists = {"Most certain, right": surest[right[surest]]}
    lists |= {"Most certain, wrong": surest[~right[surest]], "Least certain": surest[::-1]}
    for heading, listed in lists.items():
        parts.append(f"<h3>{heading}</h3>" if len(listed) else "")
        for row in listed[:LISTED]:
            words = f"{items['item_id'].iloc[row]}: {names[truth[row]]}, margin {margin[row]:.2f}"
            parts.append(page.details(words, _sample(run, samples, row)))
    return parts


def _sample(run: Run, samples: Sequence[Sample] | None, row: int) -> str:
    name = run.samples["item_id"].iloc[row]
    text = page.words("" if run.prompts is None else str(run.prompts.get(name, "")), "sample")
    if samples is None or not samples[row].shows:
        return text
    try:
        text += page.picture(page.strip(samples[row].frames()), f"what the model saw of {name}")
    except SallyAnneError as error:
        text += page.words(f"no frames: {error}")
    if isinstance(scene := samples[row].video, Scene):
        second = f" --second {case.second}" if (case := scene.case).second else ""
        story = f"--index {case.story} --order {case.order} --first {case.first}{second}"
        text += page.words(f"what others see and believe: sally-anne story {story}")
    return text


def _used(run: Run) -> str:
    label = run.labels[0]
    table = heatmap.patching_table(run.heads, label)
    figure = heatmap.patching_figure(table, label, best(run.heads, label), run.title, run.asks)
    note = page.words(
        f"Readable: right of the dashed line, the null of {symbol(label)}. Used: above the "
        "upper dotted line, what random heads reach or the least that counts, the interval (95 % "
        "over maps or groups) above zero. Used against: below the lower one, the interval below it."
    )
    return note + page.picture(style.render(figure, dpi=130), "effects of heads and accuracy")


def _sentence(run: Run, label: str) -> str:
    row, results = run.ranked(label).iloc[0], run.results.get("results", {}).get(label, {})
    counts = run.samples["split"].value_counts()
    split = "test" if counts.get("test", 0) else "validation"
    ends = {end: results.get(f"best_{split}_{end}") for end in ("low", "high")}
    share = page.percent({"value": row[f"{label}_{split}_accuracy"], **ends})
    text = f"The probe of {best(run.heads, label)} gives {symbol(label)} in {share} % of "
    text += f"{counts[split]} {split} samples"
    p = run.heads.get(f"{label}_p_fwer", NONE)
    if p.notna().any():
        text += f"; {(p <= LEVEL).sum()} of {len(p)} heads are above the null of permuted labels"
        text += f" ({row[f'{label}_threshold']:.2f} on validation)"
    return f"{text}."


def _badges(run: Run, kinds: Sequence[str]) -> list[tuple[str, str]]:
    row = run.ranked(run.labels[0]).iloc[0]
    if kinds:
        tones = {saved_run.in_words(True, USED): "good"}
        found = {kind: row[f"{kind}_conclusion"] or heatmap.UNTESTED for kind in kinds}
        head = f"best {symbol(run.labels[0])} head {best(run.heads, run.labels[0])}"
        return [(f"{head}, {run.asks(k)}: {w}", tones.get(w, "bad")) for k, w in found.items()]
    p = row.get(f"{run.labels[0]}_p_fwer", np.nan)
    readable = ("readable", "good") if p <= LEVEL else ("inside the null", "bad")
    return [("no null", "bad") if np.isnan(p) else readable, ("used: not tested", "bad")]


def _warnings(run: Run) -> list[str]:
    warnings = [
        f"Confound ({row['condition']}): the {row['feature']} alone gives "
        f"{symbol(row['label'])} with accuracy {row['accuracy']:.2f}."
        for row in saved_run.confounded(run.results)
    ]
    bare = [n for n in run.labels if run.heads.get(f"{n}_p_fwer", NONE).isna().all()]
    warnings += [f"{symbol(label)}: no null of permuted labels." for label in bare]
    first = run.results.get("results", {}).get(run.labels[0], {})
    if "test_clusters" in first and (few := too_few(first["test_clusters"], first["clusters"])):
        warnings.append(few)
    if count := (unknown := run.saved.get("unknown_words") or {}).get("prompts"):
        warnings.append(f"{count} of {unknown['of']} prompts hold words that the model lacks.")
    return warnings


def _commands(run: Run, folder: str, kinds: Sequence[str]) -> dict[str, str]:
    commands, config = {}, run.config
    if not kinds and not config.get("patching"):  # what was tried in vain is not offered again
        commands["test which heads are used"] = f"sally-anne patch {folder}"
    task = config.get("task", saved_run.FIRST_TASK)
    if config.get("samples") is None and task == saved_run.FIRST_TASK:
        names = ("order", "setting", "data", "split_seed", "data_seed")
        line = page.again("sally-anne sweep", config, names, run=run.folder)
        commands["choose how many heads to steer, and how strongly"] = line
    if not (run.folder / "audit.parquet").exists():
        commands["see what else could explain the accuracy"] = f"sally-anne audit {folder}"
    return commands | {"draw the figures as PNG and PDF": f"sally-anne figures {folder}"}


def _controls(run: Run) -> list[str]:
    tables = []
    for kind, facts in ((k, run.patching[k]) for k in KINDS if k in run.patching):
        rows = []
        for one in facts["sets"]:
            by = {"patching": "used most on validation", "random": "random sets"}.get(one["by"])
            row = {"heads": by or f"best {symbol(one['by'])} probes", "K": one["k"]}
            row["effect [95 %]"] = page.percent(one | {"value": one.get("effect")}, " ", 1, 2)
            row["random sets above, %"] = number(100 * one.get("above", np.nan), 0)
            rows.append(row | {"as a set": one.get("used", "–")})
        caption = f"Normalised effect of sets of heads: {run.asks(kind)}"
        size = f"{facts['pairs']} test pairs of {facts['clusters_drawn']} {facts['clusters']}"
        size += f", {facts['pair_accuracy']:.2f} of them right"
        tables.append(page.table(pd.DataFrame(rows), f"{caption} ({size})"))
    path = run.folder / "audit.parquet"
    audit = pd.read_parquet(path) if path.exists() else pd.DataFrame()
    confounds = pd.DataFrame(run.results.get("confounds"))
    for caption, rows in (
        ("Audit: what else gives the labels, with the best head", audit),
        ("Control: accuracy on held-out samples of surface features alone", confounds),
    ):
        if len(rows):
            tables.append(page.table(rows.assign(label=rows["label"].map(symbol)), caption))
    return tables
