"""``report.html``: a finished run as one page to look at and share, without a network."""

from __future__ import annotations

import html
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd

from sally_anne.core.console import many
from sally_anne.core.errors import FigureError, RunFolderError
from sally_anne.core.folder import record_of
from sally_anne.core.run import HEADS, Run, labels_of
from sally_anne.figures import draw, heatmap, page, style, sweep
from sally_anne.figures.comparison import first_parser
from sally_anne.figures.config import ReportConfig
from sally_anne.figures.report_probing import probing_page

NAME = "report.html"
FEW = 20  # items below which a number says little
# Items of an evaluation whose replies stand in its page, those with frames, characters of a reply.
ITEMS_SHOWN, FRAMED, LONGEST = 120, 40, 1500
STORIES = 6  # of a sweep's, whose replies stand in its page
ITEMS = "items.parquet"  # what an evaluation asked
# Options that may differ between a steered run and the same without steering.
FREE = {"steer", "alpha", "out", "batch_size", "device", "device_map", "allow_mismatch", "dry_run"}
# The command that makes each kind of run folder of which there is a page.
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


def report(config: ReportConfig, reopen: Reopen | None = None) -> None:
    """Write the pages and print the path of the one to open."""
    if not config.runs:
        raise FigureError("give the folder of a run, as `sally-anne probe` leaves it")
    if len(config.runs) == 1:
        print(write_report(config.runs[0], config.out, reopen))
    else:
        print(write_index(config.runs, config.out, reopen))


def write_report(folder: Path | str, out: Path | None = None, reopen: Reopen | None = None) -> Path:
    """Write ``report.html`` of a finished run into its folder, or to ``out``; return its path.

    A RunFolderError if the folder is not that of a finished run, or is damaged, names the file.
    """
    return page_of(Path(folder), reopen).write(out or Path(folder) / NAME)


def write_index(
    folders: Sequence[Path], out: Path | None = None, reopen: Reopen | None = None
) -> Path:
    """Write the page of each run, and one over all into the folder that they share, or to ``out``.

    Errors as of :func:`write_report`, before anything is written.
    """
    pages = {folder / NAME: page_of(folder, reopen) for folder in dict.fromkeys(folders)}
    path = out or Path(os.path.commonpath([f.resolve().parent for f in folders])) / NAME
    if path.resolve() in {one.resolve() for one in pages}:
        raise FigureError(f"{path} is the page of one of these runs; give --out FILE")
    for where, one in pages.items():
        one.write(where)
    return index_page(pages, path.parent).write(path)


def page_of(folder: Path, reopen: Reopen | None = None) -> page.Page:
    """The page of a run folder, by the table or the results that it holds."""
    if (folder / HEADS).exists():
        run = Run.open(folder)
        return probing_page(run, reopen(run) if reopen else None)
    kind = COMMANDS.get(record_of(folder).get("kind", "")) if folder.is_dir() else None
    if kind is None or not (results := draw.results_in(folder)):
        raise RunFolderError(f"{folder} holds no finished run; `sally-anne probe` makes one")
    make = {"sweep": sweep_page, "evaluate": evaluation_page}.get(kind, numbers_page)
    made = page.Page(f"sally-anne {kind} --config {shlex.quote(str(folder))}")
    made.facts = {name: results.get(name) for name in ("config", "about", "counts", "run")}
    make(made, folder, results)
    return made


def evaluation_page(made: page.Page, folder: Path, results: dict[str, Any]) -> None:
    """An evaluation: TB, FB and Both or accuracy by part, and replies."""
    if not isinstance(results["results"], list):
        raise RunFolderError(f"{folder} is of an earlier version; evaluate again")
    answers, config = draw.table_in(folder, draw.ANSWERS), results["config"]
    title, table = draw.title_of(results), pd.DataFrame(results["results"])
    unread = {r["parser"]: r["value"] for r in results["results"] if r["measure"] == "invalid"}
    # Where no prompt asks for the form that a parser reads, its figures say nothing.
    able = [name for name, share in unread.items() if share < 1] or list(unread)
    parser = first_parser(able)
    how = f"steered by {Path(config['steer']).name}" if config.get("steer") else "baseline"
    plain, where = _unsteered(folder, config), shlex.quote(str(folder))
    made.title = f"Answers of {title[0] if title else folder.resolve().name}, {how}"
    made.parts, made.badges = title[1:], [(how, "plain"), (many(len(answers), "answers"), "plain")]
    made.sections["Replies"] = _items(folder, answers, parser, plain)
    if plain is not None:
        line = f"sally-anne compare {shlex.quote(str(plain))} {where}"
        made.commands["what steering changes"] = line
    elif config.get("steer"):
        again = f"sally-anne evaluate --config {where} --steer None --alpha None --out"
        line = f"{again} {shlex.quote(f'{folder}-unsteered')} && sally-anne report {where}"
        made.commands["the same without steering, so that both replies stand here"] = line
    made.sentence = "Nobody has parsed these answers: open questions need --judge."
    if len(table):
        rows = table[table["parser"] == parser]
        made.numbers = {r["measure"]: r for r in rows[rows["part"] == ""].to_dict("records")}
        named = [name for name in ("Both", "TB", "FB", "overall") if name in made.numbers]
        text = ", ".join(f"{name} {page.percent(made.numbers[name])} %" for name in named)
        what = "pairs of TB and FB" if named[0] == "Both" else "questions"
        text += f", over {made.numbers[named[0]]['n']:.0f} {what}, parsed by {parser}."
        made.sentence = text.replace("overall", "Right")
        lines = map(draw.part_name, rows["part"], rows["measure"])
        made.first = page.bars(rows.assign(line=list(lines)), "How often it is right")
        every = table[table["parser"].isin(able)].drop(columns="kind")
        made.sections["All numbers"] = [page.table(every, "Shares with 95 % intervals")]
    counts, unknown = results.get("counts", {}), results.get("unknown_words") or {}
    invalid = unread.get(parser, 0.0)
    known = {
        "Replies cut: {cut} of {asked}; --max-new-tokens gives more.": counts.get("cut"),
        "Items that could not be put to the model: {missing}.": counts.get("missing"),
        "Items with a hidden key, not scored: {hidden}.": counts.get("hidden"),
        "Too few questions to say much: {asked}.": 0 < counts.get("asked", 0) < FEW,
        f"{100 * invalid:.0f} % of the replies name no answer and count as wrong.": invalid > 0.05,
        "Prompts with unknown words: {prompts} of {of}.": unknown.get("prompts"),
    }
    made.warnings = [t.format(**{**counts, **unknown}) for t, applies in known.items() if applies]
    made.warnings += filter(None, [results.get("mismatch")])


def kinds_of_replies(answers: pd.DataFrame, parser: str) -> pd.Series:
    """Of each answer right, wrong or invalid, as a parser reads it; else unparsed."""
    if f"{parser}_correct" not in answers:
        return pd.Series("unparsed", answers.index)
    kinds = answers[f"{parser}_correct"].astype(bool).map({True: "right", False: "wrong"})
    unclear = answers.get(f"{parser}_invalid", pd.Series(False, answers.index))
    return kinds.mask(unclear.astype(bool), "invalid")


def some_of_each(kinds: pd.Series, most: int) -> list[int]:
    """Places of at most so many, of each kind as many as of another, evenly."""
    places = [np.flatnonzero(kinds == kind) for kind in kinds.unique()]
    return [int(p) for own in places for p in _evenly(own, most // len(places))]


def _evenly(values: np.ndarray, most: int) -> np.ndarray:
    count = len(values)
    return values[np.linspace(0, count, min(most, count), endpoint=False).astype(int)]


def _items(folder: Path, answers: pd.DataFrame, parser: str, plain: Path | None) -> list[str]:
    """Some items with what was asked and shown, and the replies; ``plain`` is a run unsteered."""
    kinds, ids = kinds_of_replies(answers, parser), answers["item_id"]
    replies = pd.Series(None, answers.index)
    if plain is not None:
        replies = ids.map(draw.table_in(plain, draw.ANSWERS).set_index("item_id")["reply"])
    changed = replies.notna() & (replies != answers["reply"])
    asked = pd.DataFrame(columns=["question", "options", "text", "frames"])
    if (folder / ITEMS).exists():
        asked = draw.table_in(folder, ITEMS).set_index("item_id")
    asked = asked.reindex(ids)
    framed = np.flatnonzero(asked["frames"].notna())
    listed = {*some_of_each(kinds, ITEMS_SHOWN), *framed}
    listed |= {*_evenly(np.flatnonzero(changed), ITEMS_SHOWN)}
    entries = []
    for place in sorted(listed):
        row, item, kind = answers.iloc[place], asked.iloc[place], kinds.iloc[place]
        facts = {"question": item["question"], "options": item["options"]}
        facts |= {"right": row["answer"] or row.get("reference"), "reply": row["reply"]}
        facts |= {"reply without steering": replies.iloc[place]}
        kind += " changed" if changed.iloc[place] else ""
        parts = [page.facts({k: str(v)[:LONGEST] for k, v in facts.items() if v and v == v})]
        if isinstance(item["frames"], bytes):
            parts.insert(0, page.picture(item["frames"], f"frames of {row['item_id']}"))
        if isinstance(item["text"], str):
            parts.append(page.details("All that was asked", page.words(item["text"], "sample")))
        summary = f"{kind}: {row['item_id']}: {str(row['reply'])[:60]}"
        entries.append((kind, page.details(summary, *parts)))
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.value_counts().items())
    note = f"{len(entries)} of {len(answers)} items, {len(framed)} of them with frames; "
    note += f"all: {counts}, {changed.sum()} changed by steering."
    return [page.words(note), page.filtered("item", entries)]


def _unsteered(folder: Path, config: Results) -> Path | None:
    """The run of the same options without a vector, in the folder that holds this run, if any."""
    for other in sorted(folder.resolve().parent.iterdir()) if config.get("steer") else ():
        with suppress(RunFolderError):
            there = draw.results_in(other).get("config", {})
            answered = (other / draw.ANSWERS).exists() and not there.get("steer")
            if answered and all(there.get(k) == config.get(k) for k in {*there, *config} - FREE):
                return other
    return None


def sweep_page(made: page.Page, folder: Path, results: dict[str, Any]) -> None:
    """A sweep: every K and alpha, the chosen one with its controls, what it costs."""
    points, chosen = draw.table_in(folder, draw.SWEEP), results.get("chosen") or {}
    title = draw.title_of(results) or [folder.resolve().name]
    test, main = sweep.tested(points, chosen), sweep.main_of(points)
    noun, unit, what = "stories", "%", main
    if main != "Both":
        noun, unit, what = "pairs", "logits", f"logit difference {sweep.aim(results)[0]}"
    made.title, made.parts = f"Steering {title[0]}", [*title[1:], *sweep.aim(results)]
    made.numbers, made.warnings = test.get("chosen", {}), sweep.cautions(results)
    if not results.get("test"):
        made.warnings.append(f"No test {noun}: the choice was made on the {noun} shown.")
    made.badges = [(f"no controls on test {noun}", "bad")]
    if rank := results.get("control_rank"):
        kinds = (f"{sweep.CONTROLS[k]} {sweep.amount(o, main)}" for k, o in rank["kinds"].items())
        gain = sweep.amount({"value": rank["gain"]}, main)
        made.conclusions.append(
            f"{what[0].upper()}{what[1:]} minus baseline on {rank[noun]} test {noun}: {gain}; "
            f"controls of the same length: {'; '.join(kinds)} (mean, lowest to highest)."
        )
        tone, words = ("good", "specific") if rank["beats_controls"] else ("bad", "not specific")
        made.badges = [(f"rank {rank['rank']} of {rank['of']} among its controls: {words}", tone)]
        if not rank["beats_controls"]:
            words = "Random directions or heads with steps of this length may do as well."
            made.warnings.append(words)
    costs = dict.fromkeys(
        sweep.lost(side, split, gain, noun)
        for side in sweep.SIDES
        for split, gain in results.get(side, {}).items()
    )
    made.conclusions += [f"Cost (what is lost): {'; '.join(costs)}."] * bool(costs)
    if worse := results.get("worse"):
        made.conclusions.append(f"Made worse: {page.percent(worse)} % of the test {noun}.")
    sentence = "This sweep chose nothing"
    if chosen:
        heads = many(chosen["k"], "heads")
        sentence = f"Chosen: {heads} by {chosen['alpha']:g} standard deviations"
    if test:
        two = [test[name][main] for name in ("baseline", "chosen")]
        ends = " to ".join(sweep.amount(one, main).rpartition(" ")[0] for one in two)
        sentence += f"; {what} goes from {ends} {unit} of {int(two[1]['n'])} test {noun}"
        rows = [
            {"setting": setting}
            | {n: sweep.amount(one, n).replace("points", "%") for n, one in own.items()}
            for setting, own in test.items()
        ]
        caption = f"Test {noun}: 95 % intervals; of controls mean, lowest and highest"
        table = pd.DataFrame(rows).rename(columns=sweep.TEXTS)
        made.sections[f"Test {noun}"] = [page.table(table, caption)]
    differences = results.get("test", {}).get(chosen.get("name"), {}).get("difference", {})
    if gain := differences.get(main):
        sentence += f", a paired difference of {sweep.amount(gain, main)}"
        clear = gain["low"] > 0
        made.badges.append(("gains", "good") if clear else ("no gain beyond chance", "bad"))
    made.sentence = f"{sentence}."
    with style.look():
        curves = sweep.curves(points, results)
        figure = style.render(sweep.sweep_figure(curves, title[1:], results), dpi=130)
    made.first = page.picture(figure, f"{main} against alpha")
    if vector := results.get("vector"):
        ask, see = "ask the steered model all test stories", "see what else the vector changes"
        line = page.after_sweep(results["config"], folder / vector)
        made.commands[ask if main == "Both" else see] = line
    if chosen and main == "Both" and (folder / draw.ANSWERS).exists():
        made.sections["Replies"] = [_replies_by_alpha(folder, chosen)]
    made.sections["All points"] = [page.table(points, "Every point of the sweep", most=100)]


def _replies_by_alpha(folder: Path, chosen: Results) -> str:
    """Replies to some validation stories at every strength of the chosen heads and direction."""
    answers = draw.table_in(folder, draw.ANSWERS)
    names = ["direction", "rank_by", "k"]
    same = (answers[names] == [chosen[name] for name in names]).all(axis=1) | (answers["k"] == 0)
    answers = answers[same & (answers["split"] == sweep.SPLIT)].sort_values("alpha")
    stories = _evenly(answers["story"].unique(), STORIES)
    answers = answers[answers["story"].isin(stories)]
    alphas, replies = answers["alpha"].map("alpha {:g}".format), answers["reply"].str.slice(0, 80)
    wide = answers.assign(alpha=alphas, reply=replies).pivot_table(
        "reply", ["item_id", "answer"], "alpha", aggfunc="first", sort=False
    )
    shown = page.table(wide.rename_axis(columns=None).reset_index(), "Replies at every strength")
    return page.details(f"Replies to {many(len(stories), 'stories')}", shown)


def numbers_page(made: page.Page, folder: Path, results: dict[str, Any]) -> None:
    """Comparisons, transfers, benches and the like: their figures and their tables."""
    config = results.get("config", {})
    tables = {"estimates": pd.DataFrame(list(_estimates(results)))}
    for name, rows in results.items():
        if isinstance(rows, list) and rows and all(isinstance(row, Mapping) for row in rows):
            table = pd.json_normalize(rows)
            tables[name] = table.loc[:, (table.notna() & (table != "")).any()]
    tables = {name: table for name, table in tables.items() if len(table)}
    pictures = sorted([*folder.glob("*.png"), *folder.glob("figures/*.png")])
    made.title = f"Results in {folder.resolve().name}"
    made.parts = [str(config[name]) for name in ("model", "task", "data") if config.get(name)]
    made.sentence = f"{sum(map(len, tables.values()))} rows in {len(tables)} tables."
    made.conclusions = list(map(str, results.get("left_out") or []))
    made.sections = {f"Figure: {p.stem}": [page.picture(p.read_bytes(), p.stem)] for p in pictures}
    made.sections["Numbers"] = [page.table(table, name) for name, table in tables.items()]


def _estimates(results: Any, path: tuple[str, ...] = ()) -> Iterator[dict[str, Any]]:
    """Every number with an interval, by where it stands: ``of, value, low, high, n``."""
    if isinstance(results, Mapping) and {"value", "low", "high"} <= results.keys():
        yield {"of": ", ".join(path), **{end: results.get(end) for end in sweep.ENDS}}
    elif isinstance(results, Mapping):
        for name, one in results.items():
            if path or name not in ("config", "about", "files", "models"):
                yield from _estimates(one, (*path, str(name)))


def index_page(pages: Mapping[Path, page.Page], where: Path) -> page.Page:
    """The index of runs whose pages lie at the paths given; it will lie in ``where``."""
    rows, links, maps = [], [], []
    runs = " ".join(shlex.quote(str(path.parent)) for path in pages)
    made = page.Page(f"sally-anne report {runs}", f"{len(pages)} runs")
    made.sentence = "Each run has a page of its own; what is compared here was measured apart."
    for path, one in pages.items():
        name = path.parent.resolve().name
        link = quote(Path(os.path.relpath(path.resolve(), where.resolve())).as_posix())
        links.append(f'<a href="{link}">{html.escape(name)}</a>')
        badges = "; ".join(words for words, _ in one.badges)
        texts = {measure: page.percent(estimate) for measure, estimate in one.numbers.items()}
        title = " · ".join([one.title, *one.parts])
        rows.append({"run": name, "of": title, "conclusion": badges, **texts})
        if one.heads is not None:
            labels = labels_of(one.heads)[:2]
            accuracies = heatmap.accuracy_table(one.heads, labels, "validation")
            with style.look():
                figure = heatmap.heatmap_figure(accuracies, "validation", None, [name])
                maps.append(page.picture(style.render(figure, dpi=110), f"map of {name}"))
        made.warnings += [f"{name}: {words}" for words in one.warnings]
    links_of_all = f"<p>{' · '.join(links)}</p>"
    made.sections["All runs"] = [links_of_all, page.table(pd.DataFrame(rows), "Runs")]
    made.sections |= {"Maps": maps} if maps else {}
    return made
