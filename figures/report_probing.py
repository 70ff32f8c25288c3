"""The page of a probing run: every head, what its probe reads, and whether that is used."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.express as px
import plotly.graph_objects as go

from sally_anne.core.errors import SallyAnneError
from sally_anne.core.head import Head, best, heads_of, row_of, select
from sally_anne.core.run import LEVEL, Run, confounded
from sally_anne.data.gridtom.samples import Scene
from sally_anne.data.samples import Sample
from sally_anne.figures import heatmap, kde, page, patching, style
from sally_anne.figures.draw import classes_in, plane_of
from sally_anne.figures.story import seen_by

FEW = 5  # clusters below which an interval says little
# Best heads that are opened, samples in each of their lists, samples with frames, points of a plot.
HEADS, LISTED, FILMS, POINTS = 8, 4, 60, 2000
SPLITS = ("validation", "test", "train")


def probing_page(run: Run, samples: Sequence[Sample] | None = None) -> page.Page:
    """The page of a run; of ``samples``, what it read in its order, frames are shown."""
    kinds, folder = patching.kinds_of(run.heads), shlex.quote(str(run.folder))
    sections = {
        "Every head": [_map(run, kinds), _heads_table(run)],
        "The best heads": _best_heads(run, samples),
        "Readable against used": [_used(run)] if kinds else [],
        "Controls": _controls(run),
    }
    test = {label: f"{label}_test_accuracy" for label in run.labels}
    known = {name: run.saved.get(name) for name in ("data", "nulls", "versions")}
    untested = "Readable is not used: whether the model's answer needs these heads was not tested."
    return page.Page(
        title=f"Heads of {run.title[0]}",
        parts=run.title[1:],
        sentence=" ".join(_sentence(run, label) for label in run.labels[:2]),
        conclusions=[
            run.patching[kind]["conclusion"] for kind in patching.KINDS if kind in run.patching
        ]
        or [untested],
        badges=_badges(run, kinds),
        warnings=_warnings(run),
        commands=_commands(run, folder, kinds),
        sections={heading: parts for heading, parts in sections.items() if parts},
        facts=page.facts(run.config, model_read=run.saved.get("model"), **known),
        repeat=f"sally-anne probe --config {folder}",
        numbers={
            f"best head of {plain(label)}, test": {"value": _best_row(run, label)[column]}
            for label, column in test.items()
        },
        heads=run.heads,
    )


def _best_row(run: Run, label: str) -> pd.Series:
    return row_of(run.heads, best(run.heads, label))


def plain(label: str) -> str:
    """A label as a page writes it: GridToM's with the perspective."""
    symbol = {"y_p": "Y_p", "y_o": "Y_o"}.get(label, label)
    return f"{symbol} ({style.PERSPECTIVES[label]})" if label in style.PERSPECTIVES else symbol


def _map(run: Run, kinds: Sequence[str]) -> str:
    """A map of all heads, switched between labels, splits and effects."""
    heads = run.heads
    views: dict[str, tuple[np.ndarray, tuple[float, float], np.ndarray]] = {}
    for split in SPLITS:
        for label in run.labels:
            if heads.get(f"{label}_{split}_accuracy", pd.Series(dtype=float)).notna().any():
                table = heatmap.accuracy_table(heads, [label], split)
                marked, limits = heatmap.grid(table, "above") == 1, heatmap.colour_limits(table)
                views[f"{split} accuracy of {plain(label)}"] = heatmap.grid(table), limits, marked
    for kind in kinds:
        cells = heatmap.grid(heads, f"{kind}_effect")
        reach = max(0.1, float(np.nanmax(np.abs(cells))))
        used = heatmap.grid(heads, f"{kind}_effect_low") > 1 / len(heads)
        views[f"normalised effect: {patching.KINDS[kind]}"] = cells, (-reach, reach), used
    texts = np.empty(next(iter(views.values()))[0].shape, dtype=object)
    for at in np.ndindex(texts.shape):
        numbers = (f"{page.literal(name)}: {view[0][at]:.3f}" for name, view in views.items())
        texts[at] = "<br>".join([str(Head(*at)), *numbers])
    figure, buttons = go.Figure(), []
    for place, (name, (cells, (low, high), marked)) in enumerate(views.items()):
        look = {"colorscale": style.DIVERGING, "zmin": low, "zmax": high, "xgap": 1, "ygap": 1}
        hover = {"customdata": texts, "hovertemplate": "%{customdata}<extra></extra>"}
        figure.add_heatmap(z=cells, visible=place == 0, **look, **hover)
        ends = [point for side in style.sides(marked) for point in (*side, (np.nan, np.nan))]
        x, y = np.array(ends).reshape(-1, 2).T - 0.5
        line = {"mode": "lines", "line": {"color": "black", "width": 2}, "hoverinfo": "skip"}
        figure.add_scatter(x=x, y=y, visible=place == 0, showlegend=False, **line)
        visible = [i // 2 == place for i in range(2 * len(views))]
        button = {"label": page.literal(name), "method": "update", "args": [{"visible": visible}]}
        buttons.append(button)
    menu = {"buttons": buttons, "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"}
    axis: dict[str, Any] = {"showgrid": False, "zeroline": False}
    figure.update_xaxes(title="head", **axis).update_yaxes(title="layer", **axis)
    figure.update_yaxes(autorange="reversed")
    note = page.words(
        "Colours part at chance (accuracy) or zero (effect). Outlined: validation accuracy above "
        "the null of permuted labels, or an effect whose interval is above an equal part of all."
    )
    height = round(max(14, min(44, 700 / max(texts.shape))) * len(texts) + 130)
    return note + page.plot(figure, height, updatemenus=[menu])


def _heads_table(run: Run) -> str:
    table = run.ranked(run.labels[0])
    names = list(map(str, heads_of(table)))
    endings = (
        "_rank",
        "_validation_accuracy",
        "_test_accuracy",
        "_p_fwer",
        "_effect",
        "_conclusion",
    )
    columns = [column for column in table if str(column).endswith(endings)]
    table = table[columns].assign(name=names)[["name", *columns]]
    shown = page.table(table, f"Heads by {plain(run.labels[0])}", most=30)
    return page.details("The heads as a table", shown)


def _best_heads(run: Run, samples: Sequence[Sample] | None) -> list[str]:
    """Of the best heads of each label, accuracies, points in their plane, and samples."""
    show = _shower(run, samples)
    parts: list[str] = []
    for place in range(min(len(run.heads), max(1, HEADS // len(run.labels)))):
        for label in run.labels:
            row = run.ranked(label).iloc[[place]]
            (head,) = heads_of(row)
            columns = {split: f"{label}_{split}_accuracy" for split in SPLITS}
            words = ", ".join(f"{s} {row[c].item():.3f}" for s, c in columns.items() if c in row)
            summary = f"{head}: {place + 1}. of {plain(label)}, {words}"
            opened = _head(run, label, head, show)
            parts.append(page.details(summary, *opened, name="head", is_open=not parts))
    return parts


def _head(run: Run, label: str, head: Head, show: Callable[[int], str]) -> list[str]:
    items, values = run.samples, run.samples[label]
    z, train = run.head_activations(*head), select(run.samples, "train")
    rows = np.flatnonzero(train if train.all() else ~train)
    logits = kde.logits_of(run.probes, label, head, z, values, classes_in(run, label))
    names = [page.literal(kde.class_name(value)) for value in kde.classes_of(values)]
    truth = np.array([kde.classes_of(values).index(value) for value in values])
    guess = logits.argmax(axis=1)
    plane, boundary = plane_of(run, label, head, z, train)
    some = rows[np.linspace(0, len(rows), min(POINTS, len(rows)), endpoint=False).astype(int)]
    table = plane.table(z[some], items.iloc[some], label)
    table["class"] = [names[code] for code in truth[some]]
    table["item_id"] = table["item_id"].map(page.literal)
    look: dict[str, Any] = {"color": "class", "symbol": "class", "hover_name": "item_id"}
    look |= {"color_discrete_sequence": style.COLOURS, "category_orders": {"class": names}}
    look |= {"marginal_x": "violin", "marginal_y": "violin", "render_mode": "svg", "opacity": 0.6}
    figure = px.scatter(table, x="x", y="y", **look)
    across, upwards = kde.AXIS_TEXT["pca" if boundary is None else "probe"]
    figure.update_xaxes(title=across, row=1, col=1).update_yaxes(title=upwards, row=1, col=1)
    if boundary is not None:
        figure.add_vline(boundary, line_dash="dash", line_width=1, row=1, col=1)
    title = f"held-out samples: {kde.scores_of(logits[rows], values.iloc[rows])}"
    legend = page.literal(plain(label))
    parts = [page.plot(figure, 480, 760, title={"text": title}, legend_title=legend)]
    codes = {"label": truth[rows], "probe": guess[rows]}
    table = pd.DataFrame({name: [names[code] for code in one] for name, one in codes.items()})
    counts = pd.crosstab(table["label"], table["probe"]).rename_axis(columns=None).reset_index()
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
            parts.append(page.details(words, show(row)))
    return parts


def _shower(run: Run, samples: Sequence[Sample] | None) -> Callable[[int], str]:
    """What a row of the samples is shown by: its prompt, and its frames where there are some."""
    films: set[int] = set()

    def show(row: int) -> str:
        item_id = run.samples["item_id"].iloc[row]
        text = "" if run.prompts is None else str(run.prompts.get(item_id, ""))
        sample = None if samples is None else samples[row]
        if sample is None or not sample.shows or len(films | {row}) > FILMS:
            return page.words(text, "sample")
        films.add(row)
        try:
            frames = page.strip(sample.frames(), f"what the model saw of {item_id}")
            others = _other_views(sample.video) if isinstance(sample.video, Scene) else ""
        except SallyAnneError as error:
            return page.words(f"{text}\n(no frames: {error})", "sample")
        return page.words(text, "sample") + frames + others

    return show


def _other_views(scene: Scene) -> str:
    """What the other perspectives see of a story, and the command that draws all of it."""
    case = scene.case
    others = [name for name in seen_by(case) if name != scene.perspective]
    parts = [f"<h3>seen by: {name}</h3>{page.strip(case.frames(name), name)}" for name in others]
    second = f" --second {case.second}" if case.second else ""
    story = f"--index {case.story} --order {case.order} --first {case.first}{second}"
    return "".join(parts) + page.words(f"who believes what when: sally-anne story {story}")


def _used(run: Run) -> str:
    label = run.labels[0]
    table = patching.patching_table(run.heads, label)
    table["name"] = list(map(str, heads_of(table)))
    table["kind"] = table["kind"].map(patching.KINDS)
    table["up"], table["down"] = table["high"] - table["effect"], table["effect"] - table["low"]
    look: dict[str, Any] = {"color": "conclusion", "color_discrete_map": patching.COLOURS}
    look |= {"error_y": "up", "error_y_minus": "down", "facet_col": "kind", "hover_name": "name"}
    words = {"accuracy": "validation accuracy", "effect": "normalised effect", "conclusion": ""}
    figure = px.scatter(table, x="accuracy", y="effect", labels=words, render_mode="svg", **look)
    figure.update_traces(error_y={"thickness": 1, "width": 0})
    figure.add_hline(1 / len(run.heads), line_dash="dot", line_width=1)
    if math.isfinite(threshold := float(table["threshold"].iloc[0])):
        figure.add_vline(threshold, line_dash="dash", line_width=1)
    note = page.words(
        f"Readable: right of the dashed line, the null of {plain(label)}. Used: the whole interval "
        "(95 % over clusters) above the dotted line, an equal part of all heads."
    )
    return note + page.plot(figure, 480, legend={"orientation": "h", "y": -0.2})


def _sentence(run: Run, label: str) -> str:
    """The best head of a label, by validation, and how many heads stand above the null."""
    row, results = _best_row(run, label), run.results.get("results", {}).get(label, {})
    counts = run.samples["split"].value_counts()
    split = "test" if counts.get("test", 0) else "validation"
    ends = {end: results.get(f"best_{split}_{end}") for end in ("low", "high")}
    share = page.percent({"value": row[f"{label}_{split}_accuracy"], **ends})
    text = f"The probe of {best(run.heads, label)} gives {plain(label)} in {share} % of "
    text += f"{counts[split]} {split} samples"
    p = run.heads.get(f"{label}_p_fwer", pd.Series(dtype=float))
    if p.notna().any():
        text += f"; {(p <= LEVEL).sum()} of {len(p)} heads are above the null of permuted labels"
        text += f" ({row[f'{label}_threshold']:.2f} on validation)"
    return f"{text}."


def _badges(run: Run, kinds: Sequence[str]) -> list[tuple[str, str]]:
    """Of the first label's best head, in two or three words each."""
    label, tones = run.labels[0], ("bad", "good")
    row = _best_row(run, label)
    badges = [(f"best head of {plain(label)}: {best(run.heads, label)}", "plain")]
    p = row.get(f"{label}_p_fwer", np.nan)
    if np.isnan(p):
        badges.append(("no null", "bad"))
    elif not kinds:
        readable = bool(p <= LEVEL)
        badges.append(("readable" if readable else "inside the null", tones[readable]))
    for kind in kinds:
        words = str(row[f"{kind}_conclusion"])
        badges.append((f"{patching.KINDS[kind]}: {words}", tones[words == "readable and used"]))
    return badges if kinds else [*badges, ("used: not tested", "bad")]


def _warnings(run: Run) -> list[str]:
    results, heads = run.results.get("results", {}), run.heads
    warnings = [
        f"Confound ({row['condition']}): the {row['feature']} alone gives {plain(row['label'])} "
        f"with accuracy {row['accuracy']:.2f}."
        for row in confounded(run.results)
    ]
    for label in run.labels:
        p = heads.get(f"{label}_p_fwer")
        if p is None:
            warnings.append(f"{plain(label)}: no null (`sally-anne probe` with permutations).")
        elif p.isna().all():
            warnings.append(f"{plain(label)} does not vary within groups: nothing can be permuted.")
        elif math.isinf(float(heads[f"{label}_threshold"].iloc[0])):
            warnings.append(f"{plain(label)}: too few permutations for any head to stand out.")
        if stopped := results.get("unconverged_heads", {}).get(label):
            warnings.append(f"{label}: the solver stopped early at {stopped} heads (--max-iter).")
    first = results.get(run.labels[0], {})
    if (count := first.get("test_clusters", FEW)) < FEW:
        warnings.append(f"Intervals are over {count} {first.get('clusters')}: too few to say much.")
    unknown = run.saved.get("unknown_words") or {}
    if count := unknown.get("prompts"):
        warnings.append(f"{count} of {unknown['of']} prompts hold words that the model lacks.")
    return warnings


def _commands(run: Run, folder: str, kinds: Sequence[str]) -> dict[str, str]:
    commands = {} if kinds else {"test which heads are used": f"sally-anne patch {folder}"}
    if run.config.get("samples") is None and run.config.get("task", "gridtom") == "gridtom":
        options = f"--run {folder} --order {run.config.get('order', 1)}"
        sweep = f"sally-anne sweep --model {shlex.quote(str(run.config.get('model')))} {options}"
        commands["choose how many heads to steer, and how strongly"] = sweep
    if not (run.folder / "audit.parquet").exists():
        commands["see what else could explain the accuracy"] = f"sally-anne audit {folder}"
    return commands | {"draw the figures as PNG and PDF": f"sally-anne figures {folder}"}


def _controls(run: Run) -> list[str]:
    """Sets of heads with random ones, what else gives the labels, and surface features."""
    tables = []
    for kind, facts in ((k, run.patching[k]) for k in patching.KINDS if k in run.patching):
        rows = pd.DataFrame(facts["sets"]).rename(columns={"by": "heads"})
        rows["heads"] = rows["heads"].replace({"patching": "most used", "random": "random sets"})
        caption = f"Normalised effect of sets of heads: {patching.KINDS[kind]}"
        size = f"{facts['pairs']} test pairs of {facts['clusters_drawn']} {facts['clusters']}"
        tables.append(page.table(rows, f"{caption} ({size}, {facts['pair_accuracy']:.2f} right)"))
    if (path := run.folder / "audit.parquet").exists():
        caption = "Audit: what else gives the labels, with the best head"
        tables.append(page.table(pd.read_parquet(path), caption))
    if confounds := run.results.get("confounds"):
        caption = "Control: accuracy on held-out samples of surface features alone"
        tables.append(page.table(pd.DataFrame(confounds), caption))
    return tables
