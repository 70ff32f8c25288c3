"""``report.html``: a finished run as one page to look at and share, without a network."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd
import plotly.express as px

from sally_anne.core.errors import ChoiceError, MissingRunFileError
from sally_anne.core.folder import kind_of
from sally_anne.core.run import HEADS, Run
from sally_anne.figures import heatmap, page, style, sweep
from sally_anne.figures.comparison import PARSERS
from sally_anne.figures.config import ReportConfig
from sally_anne.figures.draw import measures, results_in, table_in, title_of
from sally_anne.figures.report_probing import probing_page

NAME = "report.html"
FEW = 20  # items below which a number says little
REPLIES, LONGEST = 40, 1500  # replies of each kind that stand in a page, and characters of one
STORIES = 6  # of a sweep's, whose replies stand in its page
ENDS = ("value", "low", "high", "n")
# The command that makes each kind of run folder.
COMMANDS = {
    "a sweep": "sweep",
    "an evaluation": "evaluate",
    "a comparison of evaluations": "compare",
    "a transfer": "transfer",
    "a comparison of localisers": "localisation",
    "a measurement of side effects": "side-effects",
    "a check of distractors": "distractors",
    "a LIMP run": "limp",
    "a BIP-ALM run": "bip-alm",
}
Results = Mapping[str, Any]
Reopen = Callable[[Run], Any]
"""Gives the samples that a probing run read, in its order, or None."""


def report(config: ReportConfig, reopen: Reopen = lambda run: None) -> None:
    """Write the pages and print the path of the one to open."""
    if not config.runs:
        raise ChoiceError("give the folder of a run, as `sally-anne probe` leaves it")
    write = write_report if len(config.runs) == 1 else write_index
    print(write(config.runs[0] if len(config.runs) == 1 else config.runs, config.out, reopen))


def write_report(
    folder: Path | str, out: Path | None = None, reopen: Reopen = lambda run: None
) -> Path:
    """Write ``report.html`` of a finished run into its folder, or to ``out``; return its path.

    Raises:
        RunFolderError: the folder is not that of a finished run, or is damaged; names the file.
    """
    folder = Path(folder)
    return page_of(folder, reopen).write(out or folder / NAME)


def write_index(
    folders: Sequence[Path], out: Path | None = None, reopen: Reopen = lambda run: None
) -> Path:
    """Write the page of each run, and one over all into the folder that they share, or to ``out``.

    Raises:
        RunFolderError: as :func:`write_report`, before anything is written.
    """
    pages = {folder / NAME: page_of(folder, reopen) for folder in dict.fromkeys(folders)}
    shared = Path(os.path.commonpath([folder.resolve().parent for folder in folders]))
    path = out or shared / NAME
    if path.resolve() in {one.resolve() for one in pages}:
        raise ChoiceError(f"{path} is the page of one of these runs; give --out FILE")
    for where, one in pages.items():
        one.write(where)
    return index_page(pages, path.parent).write(path)


def page_of(folder: Path, reopen: Reopen = lambda run: None) -> page.Page:
    """The page of a run folder, by the table or the results that it holds."""
    if not folder.is_dir():
        raise MissingRunFileError(f"no run folder at {folder}; make one with `sally-anne probe`")
    if (folder / HEADS).exists():
        run = Run.open(folder)
        return probing_page(run, reopen(run))
    kind = COMMANDS.get(kind_of(folder) or "")
    if kind is None:
        raise MissingRunFileError(f"{folder} holds no finished run of which there is a page")
    results = results_in(folder)
    if kind == "sweep":
        return sweep_page(folder, results)
    return (
        evaluation_page(folder, results)
        if kind == "evaluate"
        else numbers_page(folder, results, kind)
    )


def evaluation_page(folder: Path, results: Results) -> page.Page:
    """The page of an evaluation: TB, FB and Both or accuracy by part, and replies."""
    answers, config = table_in(folder, "answers.parquet"), results["config"]
    title, table = title_of(dict(results)), measures(dict(results))
    parser = best_parser(results["results"])
    how = f"steered by {Path(config['steer']).name}" if config.get("steer") else "baseline"
    sections: dict[str, list[str]] = {}
    sentence = "Nobody has parsed these answers: open questions need --judge."
    numbers: dict[str, Any] = {}
    if len(table):
        rows = table[table["reader"] == parser]
        whole, parts = rows[rows["part"] == ""], rows[rows["part"] != ""]
        numbers = {row["measure"]: row for row in whole.to_dict("records")}
        first = next(name for name in ("Both", "overall", *numbers) if name in numbers)
        named = [name for name in ("Both", "TB", "FB", "overall") if name in numbers]
        texts = (f"{name} {page.percent(numbers[name])} %" for name in named)
        what = "pairs of TB and FB" if first == "Both" else "questions"
        text = ", ".join(texts).replace("overall", "right")
        sentence = f"{text}, over {int(numbers[first]['n'])} {what}, parsed by {parser}."
        sections["How often it is right"] = [intervals(whole.assign(part="all"), "measure")]
        parts = parts[parts["measure"] != "invalid"]
        if len(parts):
            sections["By part"] = [intervals(parts, "part")]
    sections["Replies"] = _replies(answers, parser)
    if len(table):
        sections["All numbers"] = [page.table(table, "Shares with 95 % intervals")]
    return page.Page(
        title=f"Answers of {title[0] if title else folder.resolve().name}, {how}",
        parts=title[1:],
        sentence=sentence[0].upper() + sentence[1:],
        badges=[(how, "plain"), (f"{len(answers)} answers", "plain")],
        warnings=_warnings_of_answers(results, parser),
        commands=_after_evaluation(config),
        sections=sections,
        facts=page.facts(config, about=results.get("about"), counts=results.get("counts")),
        repeat=f"sally-anne evaluate --config {shlex.quote(str(folder))}",
        numbers=numbers,
    )


def best_parser(results: Results) -> str:
    """By whose parsing a run is described: a judge's, else the first that understands replies."""
    there = [p for p in PARSERS if p in results] or list(results)
    able = (p for p in there if results[p].get("invalid", {}).get("value", 0) < 1)
    return next(able, there[0] if there else "")


def intervals(table: pd.DataFrame, across: str) -> str:
    """Estimates with their intervals, a line each, in colours by measure."""
    table = table.assign(
        above=table["high"] - table["value"],
        below=table["value"] - table["low"],
        line=[page.literal(f"{row[across]} ({int(row['n'])})") for row in table.to_dict("records")],
    )
    figure = px.scatter(
        table,
        x="value",
        y="line",
        color="measure",
        symbol="measure",
        error_x="above",
        error_x_minus="below",
        color_discrete_map=sweep.COLOURS,
        range_x=[-0.03, 1.03],
        labels={"value": "share (95 % intervals)", "line": ""},
    )
    figure.update_traces(marker_size=11)
    figure.update_xaxes(tickformat=".0%")
    figure.update_yaxes(autorange="reversed", automargin=True)
    return page.plot(figure, 130 + 28 * table["line"].nunique())


def _warnings_of_answers(results: Results, parser: str) -> list[str]:
    counts, parsed = results.get("counts", {}), results["results"]
    invalid = parsed.get(parser, {}).get("invalid", {}).get("value", 0.0)
    unknown = results.get("unknown_words") or {}
    texts = {
        f"{counts.get('cut')} of {counts.get('asked')} replies were cut; --max-new-tokens gives "
        "more.": counts.get("cut"),
        f"{counts.get('missing')} items could not be put to the model.": counts.get("missing"),
        f"{counts.get('hidden')} items have a hidden key and are not scored.": counts.get("hidden"),
        f"{100 * invalid:.0f} % of the replies name no answer and count as wrong.": invalid > 0.05,
        f"{counts.get('asked')} questions are too few to say much.": (
            0 < counts.get("asked", 0) < FEW
        ),
        f"{unknown.get('prompts')} of {unknown.get('of')} prompts hold unknown words.": (
            unknown.get("prompts")
        ),
        str(results.get("forced")): results.get("forced"),
    }
    warnings = [text for text, applies in texts.items() if applies]
    for other, one in parsed.items():
        if other != parser and one.get("invalid", {}).get("value") == 1:
            warnings.append(f"The parser {other} understands no reply: the prompt lacks its form.")
    return warnings


def _after_evaluation(config: Results) -> dict[str, str]:
    if config.get("task", "gridtom") != "gridtom" or config.get("steer"):
        return {}
    model = shlex.quote(str(config.get("model")))
    commands = {"probe its heads": f"sally-anne probe --model {model}"}
    if config.get("prompting", "direct") == "direct":
        ask = f"sally-anne evaluate --model {model} --order {config.get('order', '1')} --prompting"
        commands |= {"let it think first": f"{ask} cot", "ask in two steps": f"{ask} simtom"}
    return commands


def _replies(answers: pd.DataFrame, parser: str) -> list[str]:
    """Some replies of each kind, evenly."""
    right = answers.get(f"{parser}_correct")
    kinds = pd.Series("not parsed", answers.index)
    if right is not None:
        kinds = pd.Series(np.where(right.astype(bool), "right", "wrong"), answers.index)
        if f"{parser}_invalid" in answers:
            kinds = kinds.mask(answers[f"{parser}_invalid"].astype(bool), "invalid")
    columns = [c for c in ("item_id", "condition", "answer", "reference", "reply") if c in answers]
    parts = []
    for kind in ("wrong", "invalid", "right", "not parsed"):
        rows = answers.loc[kinds == kind, columns]
        if len(rows):
            places = np.linspace(0, len(rows), min(REPLIES, len(rows)), endpoint=False).astype(int)
            shown = rows.iloc[places].assign(reply=rows["reply"].str.slice(0, LONGEST))
            summary = f"{kind}: {len(rows)} replies"
            parts.append(page.details(summary, page.table(shown, f"{len(shown)} of {summary}")))
    return parts


def sweep_page(folder: Path, results: Results) -> page.Page:
    """The page of a sweep: every K and alpha, the chosen one with its controls, what it costs."""
    whole = table_in(folder, "sweep.parquet")
    table, choice = sweep.curves(whole), sweep.Choice.of(results)
    config, chosen = results.get("config", {}), results.get("chosen") or {}
    title = title_of(dict(results)) or [folder.resolve().name]
    rank = results.get("specificity")
    tested = _tested(chosen, whole)
    conclusions = []
    if rank:
        kinds = "; ".join(
            f"{one['n']} {sweep.CONTROLS[name]}: {page.percent(one)}"
            for name, one in rank["kinds"].items()
        )
        conclusions.append(
            f"Both minus baseline on {rank['stories']} test stories: {100 * rank['gain']:.1f} "
            f"points; with steps of the same length {kinds} (mean, lowest to highest)."
        )
    for side, words in sweep.SIDES.items():
        for split, gain in results.get(side, {}).items():
            conclusions.append(f"Cost, {words} on {split} stories: {page.percent(gain)} points.")
    if worse := results.get("worse"):
        conclusions.append(f"Made worse: {page.percent(worse)} % of the test stories.")
    gain = results.get("test", {}).get(chosen.get("name"), {}).get("difference", {}).get("Both")
    sentence, badges = "This sweep chose nothing.", [("no controls on test stories", "bad")]
    if rank:
        words = "specific" if rank["specific"] else "not specific"
        tone = "good" if rank["specific"] else "bad"
        badges = [(f"rank {rank['rank']} of {rank['of']} among its controls: {words}", tone)]
    if choice is not None:
        sentence = f"Chosen: {choice.panel.k} heads by {choice.alpha:g} standard deviations"
        if {"baseline", "chosen"} <= tested.keys():
            before, after = (tested[name]["Both"] for name in ("baseline", "chosen"))
            sentence += f"; Both goes from {page.percent(before)} to {page.percent(after)} % of "
            sentence += f"{int(after['n'])} test stories"
    if gain:
        sentence += f", a paired difference of {page.percent(gain)} points"
        clear = gain["low"] > 0
        badges.append(("gains" if clear else "no gain beyond chance", "good" if clear else "bad"))
    rows = [
        {"setting": name} | {measure: page.percent(one) for measure, one in numbers.items()}
        for name, numbers in tested.items()
    ]
    left_out = [
        {"head": f"L{row['layer']}H{row['head']}", "loss of Both (points)": page.percent(row)}
        for row in results.get("left_out") or ()
    ]
    sections = {"Every strength": [_curves(table, choice)]}
    if rows:
        caption = "Test stories (%): 95 % intervals; of controls mean, lowest and highest"
        sections["Test stories"] = [page.table(pd.DataFrame(rows), caption)]
    if left_out:
        table_of_losses = page.table(pd.DataFrame(left_out), "One head left out")
        sections["One head left out"] = [table_of_losses]
    if chosen and (folder / "answers.parquet").exists():
        sections["Replies"] = _replies_by_alpha(folder, chosen)
    sections["All points"] = [page.table(whole, "Every point of the sweep", most=100)]
    return page.Page(
        title=f"Steering {title[0]}",
        parts=[*title[1:], f"label {config.get('label', 'not recorded')}"],
        sentence=f"{sentence}.".replace("..", "."),
        badges=badges,
        conclusions=conclusions,
        warnings=_warnings_of_sweep(results),
        commands=_after_sweep(folder, results),
        sections=sections,
        facts=page.facts(config, about=results.get("about"), probing_run=results.get("run")),
        repeat=f"sally-anne sweep --config {shlex.quote(str(folder))}",
        numbers={
            m: one for m, one in tested.get("chosen", {}).items() if m in ("TB", "FB", "Both")
        },
    )


def _curves(table: pd.DataFrame, choice: sweep.Choice | None) -> str:
    """Accuracy against alpha, a panel for each K and direction, with the chosen point."""
    is_control = table["direction"] != table["panel"]
    table = table.assign(
        curve=table["measure"].mask(is_control, table["direction"]),
        place=[f"K = {row.k}, {row.panel}, heads by {row.heads}" for row in table.itertuples()],
        strength=[f"{alpha:g}" for alpha in table["alpha"]],
        above=table["high"] - table["value"],
        below=table["value"] - table["low"],
    )
    order = [f"{alpha:g}" for alpha in sorted(table["alpha"].unique())]
    panels = list(dict.fromkeys(table["place"]))
    names = {name: sweep.TEXTS.get(name, name) for name in dict.fromkeys(table["curve"])}
    figure = px.line(
        table.assign(curve=table["curve"].map(names)),
        x="strength",
        y="value",
        color="curve",
        facet_col="place",
        facet_col_wrap=min(2, len(panels)),
        error_y="above",
        error_y_minus="below",
        markers=True,
        category_orders={"strength": order, "place": panels},
        color_discrete_map={text: sweep.COLOURS[name] for name, text in names.items()},
        labels={"strength": "alpha (standard deviations)", "value": "share", "curve": ""},
    )
    figure.update_traces(error_y={"thickness": 1, "width": 2})
    figure.for_each_annotation(lambda note: note.update(text=note.text.removeprefix("place=")))
    if choice is not None:
        both = table[(table["curve"] == "Both") & (table["alpha"] == choice.alpha)]
        mark = both[(both[sweep.KEYS] == list(choice.panel)).all(axis=1)]
        for subplot in figure.select_traces({"name": names["Both"]}):
            if len(mark) and subplot.legendgroup == names["Both"]:
                place = mark["place"].iloc[0]
                if place in (subplot.hovertemplate or ""):
                    figure.add_scatter(
                        x=mark["strength"],
                        y=mark["value"],
                        mode="markers",
                        name="chosen",
                        marker={"symbol": "star", "size": 16, "color": "black"},
                        xaxis=subplot.xaxis,
                        yaxis=subplot.yaxis,
                    )
    note = page.words("Validation stories, on which K and alpha were chosen; 95 % intervals.")
    return note + page.plot(figure, 120 + 320 * -(-len(panels) // 2))


def _tested(chosen: Results, table: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Test stories, by measure: baseline, chosen, and of random controls the mean and the ends."""
    test = table[table["split"] == "test"]
    if test.empty or not chosen:
        return {}
    rows = {
        name: test[test["cell"] == cell].groupby("measure", sort=False)[list(ENDS)].first()
        for name, cell in (("baseline", "baseline"), ("chosen", chosen["name"]))
    }
    for control, words in sweep.CONTROLS.items():
        randoms = test[test["direction"] == control]
        if len(randoms) and control != chosen["direction"]:
            ends = randoms.groupby("measure", sort=False)["value"].agg(
                ["mean", "min", "max", "count"]
            )
            count = randoms["cell"].nunique()
            rows[f"{count} {words}"] = ends.set_axis(ENDS, axis=1)
    return {name: one.to_dict("index") for name, one in rows.items()}


def _warnings_of_sweep(results: Results) -> list[str]:
    warnings = [
        f"The model can but guess the {sweep.SIDES[side]} ({page.percent(right)} %, chance "
        f"{100 * right['chance']:.1f} %): it does not say what steering costs."
        for side, right in results.get("guessed", {}).items()
    ]
    if not results.get("test"):
        warnings.append("No test stories: the choice was made on the stories shown.")
    if (rank := results.get("specificity")) and not rank["specific"]:
        warnings.append("Random directions or heads with steps of this length may do as well.")
    if (seen := results.get("unseen")) and not seen.get("known", True):
        warnings.append("What the vector's run was trained on is not known.")
    return warnings


def _after_sweep(folder: Path, results: Results) -> dict[str, str]:
    if not results.get("vector"):
        return {}
    vector, config = shlex.quote(str(folder / results["vector"])), results["config"]
    model = f"--model {shlex.quote(str(config.get('model')))}"
    evaluate = f"sally-anne evaluate {model} --order {config.get('order', '1')} --steer {vector}"
    return {
        "put all test questions to the steered model": evaluate,
        "see what else the vector changes": f"sally-anne side-effects {model} --vector {vector}",
        "write a checkpoint with it": f"sally-anne bake {model} --vector {vector} --out steered",
    }


def _replies_by_alpha(folder: Path, chosen: Results) -> list[str]:
    """Replies to some validation stories at every strength of the chosen heads and direction."""
    answers = table_in(folder, "answers.parquet")
    answers = answers[answers["split"] == sweep.SPLIT]
    same = (answers[["direction", "k"]] == [chosen["direction"], chosen["k"]]).all(axis=1)
    same &= answers["heads"] == chosen["heads"]
    answers = answers[same | (answers["k"] == 0)].sort_values("alpha")
    stories = answers["story"].unique()
    places = np.linspace(0, len(stories), min(STORIES, len(stories)), endpoint=False).astype(int)
    answers = answers[answers["story"].isin(stories[places])]
    wide = answers.assign(alpha=[f"alpha {a:g}" for a in answers["alpha"]]).pivot_table(
        "reply", ["item_id", "answer"], "alpha", aggfunc="first", sort=False
    )
    return [page.table(wide.rename_axis(columns=None).reset_index(), "Replies at every strength")]


def numbers_page(folder: Path, results: Results, command: str) -> page.Page:
    """The page of comparisons, transfers, benches and the like: their figures and their tables."""
    if not results:
        raise MissingRunFileError(f"{folder} holds no results.json of a finished run")
    config = results.get("config", {})
    pictures = sorted([*folder.glob("*.png"), *folder.glob("figures/*.png")])
    tables = {"estimates": pd.DataFrame(list(_estimates(results)))}
    for name, rows in results.items():
        if isinstance(rows, list) and rows and all(isinstance(row, Mapping) for row in rows):
            table = pd.DataFrame([dict(_flat(row)) for row in rows])
            tables[name] = table.loc[:, (table.notna() & (table != "")).any()]
    tables = {name: table for name, table in tables.items() if len(table)}
    sections = {f"Figure: {p.stem}": [page.picture(p.read_bytes(), p.stem)] for p in pictures}
    sections["Numbers"] = [page.table(table, name) for name, table in tables.items()]
    what = [str(config[name]) for name in ("model", "task", "data") if config.get(name)]
    return page.Page(
        title=f"Results of {command}",
        parts=what or [folder.resolve().name],
        sentence=f"{sum(map(len, tables.values()))} numbers in {len(tables)} tables.",
        conclusions=[*_differences(results), *map(str, results.get("left_out") or [])],
        sections=sections,
        facts=page.facts(config, about=results.get("about"), counts=results.get("counts")),
        repeat=f"sally-anne {command} --config {shlex.quote(str(folder))}",
    )


def _differences(results: Results) -> list[str]:
    """What a comparison of evaluations comes to."""
    rows = results["results"] if isinstance(results.get("results"), list) else []
    whole = [r for r in rows if not r["kind"] and r["measure"] in ("Both", "overall")]
    lines = []
    for row in whole:
        first, second, gain = (
            {end: row[name + tail] for end, tail in zip(ENDS, ("", "_low", "_high"), strict=False)}
            for name in ("first", "second", "difference")
        )
        lines.append(
            f"{row['measure']}, parsed by {row['reader']}: {row['run']} {page.percent(second)} %, "
            f"{row['against']} {page.percent(first)} %, a paired difference of "
            f"{page.percent(gain, '+')} points over {row['n']} (p {row['p']:.2g})."
        )
    return lines


def _estimates(results: Any, path: tuple[str, ...] = ()) -> Iterator[dict[str, Any]]:
    """Every number with an interval, by where it stands: ``of, value, low, high, n``."""
    if isinstance(results, Mapping) and {"value", "low", "high"} <= results.keys():
        yield {"of": ", ".join(path), **{end: results.get(end) for end in ENDS}}
    elif isinstance(results, Mapping):
        for name, one in results.items():
            if path or name not in ("config", "about", "files", "models"):
                yield from _estimates(one, (*path, str(name)))


def _flat(row: Results) -> Iterator[tuple[str, Any]]:
    """A record's columns; of an estimate its value, ``_low`` and ``_high``."""
    for name, one in row.items():
        if isinstance(one, Mapping) and "value" in one:
            yield name, one["value"]
            yield from ((f"{name}_{end}", one[end]) for end in ("low", "high") if end in one)
        else:
            yield name, ", ".join(map(str, one)) if isinstance(one, list) else one


def index_page(pages: Mapping[Path, page.Page], where: Path) -> page.Page:
    """The index of runs whose pages lie at the paths given; it will lie in ``where``."""
    rows, numbers, maps = [], [], []
    for path, one in pages.items():
        name = path.parent.resolve().name
        link = quote(Path(os.path.relpath(path.resolve(), where.resolve())).as_posix())
        badges = "; ".join(words for words, _ in one.badges)
        texts = {measure: page.percent(estimate) for measure, estimate in one.numbers.items()}
        rows.append({"run": name, "of": " · ".join([one.title, *one.parts]), "conclusion": badges})
        rows[-1] |= {"page": link, **texts}
        for measure in ("TB", "FB", "Both", "overall"):
            if measure in one.numbers:
                estimate = {end: one.numbers[measure].get(end, np.nan) for end in ENDS}
                numbers.append({"run": name, "measure": measure, **estimate})
        if one.heads is not None:
            maps.append((name, one.heads))
    sections = {"All runs": [_links(rows), page.table(pd.DataFrame(rows), "Runs")]}
    if numbers:
        sections["Answers"] = [intervals(pd.DataFrame(numbers).fillna({"n": 0}), "run")]
    if len(maps) > 1:
        sections["Maps"] = [_maps(maps)]
    folders = " ".join(shlex.quote(str(path.parent)) for path in pages)
    return page.Page(
        title=f"{len(pages)} runs",
        parts=[],
        sentence="Each run has a page of its own; what is compared here was measured apart.",
        warnings=[
            f"{path.parent.name}: {words}" for path, one in pages.items() for words in one.warnings
        ],
        sections=sections,
        repeat=f"sally-anne report {folders}",
    )


def _links(rows: Sequence[Mapping[str, str]]) -> str:
    anchors = (f'<a href="{row["page"]}">{page.literal(row["run"])}</a>' for row in rows)
    return f"<p>{' · '.join(anchors)}</p>"


def _maps(maps: Sequence[tuple[str, pd.DataFrame]]) -> str:
    """Validation accuracy of the first label of each run; below, its difference to the first's."""
    parts, first = [], None
    for name, heads in maps:
        label = next(str(c) for c in heads if str(c).endswith("_rank")).removesuffix("_rank")
        table = heatmap.accuracy_table(heads, [label], "validation")
        cells = heatmap.grid(table)
        first = cells if first is None else first
        shown = {f"{name}: validation accuracy, {label}": (cells, heatmap.colour_limits(table))}
        if cells is not first and cells.shape == first.shape:
            reach = max(0.05, float(np.nanmax(np.abs(cells - first))))
            shown[f"{name} minus {maps[0][0]}"] = cells - first, (-reach, reach)
        for title, (values, (low, high)) in shown.items():
            figure = px.imshow(
                values,
                zmin=low,
                zmax=high,
                color_continuous_scale=style.DIVERGING,
                aspect="auto",
                labels={"x": "head", "y": "layer"},
                title=page.literal(title),
            )
            parts.append(page.plot(figure, 140 + 30 * len(values), 520))
    return f'<div class="row">{"".join(parts)}</div>'
