"""The page of an evaluation: what was asked and answered, with intervals, and the replies."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sally_anne.core.errors import MissingRunFileError
from sally_anne.core.run_folder import RESULTS
from sally_anne.figures.command import run_title
from sally_anne.figures.correlations import MADE_BY, READERS, read_answers
from sally_anne.figures.report.page import Page, Table, facts, percent
from sally_anne.hooks.saved_run import saved_results

TITLE_WORDS = ("task", "order", "setting", "view", "window", "prompting", "style")
# In the order in which they are shown.
MEASURES = ("TB", "FB", "Both", "overall", "invalid")
# Replies that stand in the page, of each reading, and characters of one.
REPLIES, LONGEST = 40, 1500
# Characters of all replies up to which they can be taken from the page.
CSV = 4_000_000
FEW = 20  # items below which a number says little


def page(folder: Path) -> Page:
    """The page of a finished evaluation.

    Raises:
        RunFolderError: it is damaged, or not as the command left it.
    """
    saved = saved_results(folder / RESULTS, MADE_BY)
    if saved is None:
        raise MissingRunFileError(f"{folder / RESULTS} is missing; `{MADE_BY}` makes it")
    answers, config = read_answers(folder), saved["config"]
    title = run_title(folder, MADE_BY, TITLE_WORDS)
    results: Mapping[str, Any] = saved.get("results", {})
    measured = list(measures(results))
    reader = best_reader(results)
    steered = config.get("steer")
    how = f"steered by {Path(steered).name}" if steered else "as it is"
    return Page(
        kind="evaluation",
        title=f"Answers of {title[0] if title else folder.resolve().name}, {how}",
        parts=title[1:],
        sentence=_sentence(measured, reader),
        badges=[(how, "plain"), (f"{len(answers)} answers", "plain")],
        warnings=_warnings(saved, results, reader),
        commands=_commands(folder, config),
        data={
            "measures": measured,
            "reader": reader,
            "replies": _replies(answers, reader),
            "answers": answers if answers["reply"].str.len().sum() < CSV else None,
        },
        tables=[_table(measured)] if measured else [],
        provenance=facts(config, about=saved.get("about"), counts=saved.get("counts")),
        repeat=f"sally-anne evaluate --config {shlex.quote(str(folder))}",
    )


def measures(results: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All numbers of a run's results, flat: ``reader, part, measure, value, low, high, n``.

    ``part`` is empty of all items, else the kind and value of a tag, or a cell.
    """
    for reader, found in results.items():
        parts = {"": found | found.get("belief", {})} | found.get("cells", {})
        for part, numbers in parts.items():
            for name in MEASURES:
                if isinstance(numbers.get(name), Mapping) and "value" in numbers[name]:
                    yield {"reader": reader, "part": part, "measure": name, **numbers[name]}
        for kind, values in found.get("groups", {}).items():
            for value, one in values.items():
                yield {"reader": reader, "part": f"{kind}: {value}", "measure": "overall", **one}
        for value, one in found.get("joint", {}).items():
            yield {"reader": reader, "part": f"all right: {value}", "measure": "overall", **one}


def best_reader(results: Mapping[str, Any]) -> str:
    """By whose reading a run is told: a judge's, else the first that understands replies."""
    there = [r for r in READERS if r in results] or list(results)
    understood = (r for r in there if results[r].get("invalid", {}).get("value", 0) < 1)
    return next(understood, there[0] if there else "")


def _sentence(measured: list[dict[str, Any]], reader: str) -> str:
    own = {m["measure"]: m for m in measured if m["reader"] == reader and not m["part"]}
    told = [name for name in ("Both", "TB", "FB", "overall") if name in own]
    if not told:
        return "Nobody has read these answers: open questions need --judge."
    said = ", ".join(
        f"{'right' if name == 'overall' else name} {percent(own[name])} %" for name in told
    )
    first = own[told[0]]
    what = "pairs of TB and FB" if told[0] == "Both" else "questions"
    return f"{said[0].upper() + said[1:]}, over {int(first['n'])} {what}, read by {reader}."


def _warnings(saved: Mapping[str, Any], results: Mapping[str, Any], reader: str) -> list[str]:
    counts, said = saved.get("counts", {}), []
    if cut := counts.get("cut"):
        said.append(f"{cut} of {counts['asked']} replies were cut; --max-new-tokens gives more.")
    if counts.get("missing"):
        said.append(f"{counts['missing']} items could not be asked.")
    if counts.get("hidden"):
        said.append(f"{counts['hidden']} items have a hidden key and are not scored.")
    invalid = results.get(reader, {}).get("invalid", {}).get("value", 0.0)
    if invalid > 0.05:
        said.append(f"{100 * invalid:.0f} % of the replies name no answer and count as wrong.")
    for other, found in results.items():
        if other != reader and found.get("invalid", {}).get("value") == 1:
            said.append(f"The reader {other} understands no reply: its form was not asked for.")
    if 0 < counts.get("asked", 0) < FEW:
        said.append(f"{counts['asked']} questions are too few to say much.")
    if (unknown := saved.get("unknown_words")) and unknown.get("prompts"):
        said.append(f"{unknown['prompts']} of {unknown['of']} prompts hold unknown words.")
    if saved.get("mismatch"):
        said.append(str(saved["mismatch"]))
    return said


def _commands(folder: Path, config: Mapping[str, Any]) -> list[tuple[str, str]]:
    if config.get("task", "gridtom") != "gridtom" or config.get("steer"):
        return []
    model = shlex.quote(str(config.get("model")))
    order = config.get("order", "1")
    found = [("probe its heads", f"sally-anne probe --model {model}")]
    if config.get("prompting", "direct") == "direct":
        ask = f"sally-anne evaluate --model {model} --order {order} --prompting"
        found.append(("ask with thoughts first", f"{ask} cot"))
        found.append(("ask in two steps", f"{ask} simtom"))
    return found


def _table(measured: list[dict[str, Any]]) -> Table:
    rows = [
        (m["reader"], m["part"] or "all", m["measure"], percent(m), str(int(m["n"])))
        for m in measured
    ]
    caption = "All numbers (%), with 95 % intervals"
    return Table(caption, ("reader", "part", "measure", "% [95 %]", "n"), rows)


def _replies(answers: pd.DataFrame, reader: str) -> dict[str, Any]:
    """Some replies of each reading, evenly: item, condition, answer, what was said and read."""
    right, invalid = f"{reader}_correct", f"{reader}_invalid"
    if right not in answers:
        readings = pd.Series("not read", answers.index)
    else:
        unread = answers[invalid].astype(bool) if invalid in answers else False
        readings = pd.Series(np.where(answers[right].astype(bool), "right", "wrong"), answers.index)
        readings = readings.mask(unread, "invalid")
    rows = []
    for reading in ("wrong", "invalid", "right", "not read"):
        own = np.flatnonzero(readings == reading)
        for at in own[np.linspace(0, len(own), min(REPLIES, len(own)), False).astype(int)]:
            row = answers.iloc[at]
            rows.append(
                {
                    "reading": reading,
                    "item": str(row["item_id"]),
                    "condition": str(row.get("condition", "")),
                    "answer": str(row.get("answer", row.get("reference", ""))),
                    "reply": str(row["reply"])[:LONGEST],
                }
            )
    return {"rows": rows, "counts": readings.value_counts().to_dict()}
