"""What an evaluation prints: its figures, what to know before them, and published ones.

Published figures are data (``baselines.json``): in %, as printed there; null is one that cannot be
read there or is not given.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from sally_anne.core.console import print_lines, print_table
from sally_anne.core.files import write_atomic, write_json
from sally_anne.core.folder import RESULTS
from sally_anne.data.items import Question
from sally_anne.figures import page
from sally_anne.figures.comparison import first_parser
from sally_anne.figures.draw import part_name
from sally_anne.figures.report import FRAMED, ITEMS, kinds_of_replies, some_of_each
from sally_anne.harness.config import EvalConfig, model_name
from sally_anne.harness.parse import OFFICIAL
from sally_anne.harness.protocols import FRAMES_MARK, MARKS
from sally_anne.harness.score import over
from sally_anne.harness.tasks import TaskItems
from sally_anne.models.loading import LoadedModel
from sally_anne.models.processor import unknown_words

BELIEF = ("TB", "FB", "Both", "invalid")
FILE = "baselines.json"


def save(
    console: Console,
    file: Path,
    table: pd.DataFrame,
    saved: Mapping[str, Any],
    loaded: LoadedModel | None,
    texts: Iterable[str],
) -> None:
    """Write a run's table and results; print which words of texts the model lacks."""
    unknown = None if loaded is None else unknown_words(loaded, texts)
    write_atomic(file, table.to_parquet(None, index=False))
    saved = {**saved, "unknown_words": unknown and asdict(unknown)}
    write_json(file.with_name(RESULTS), saved)
    if loaded and unknown and (warning := unknown.warning(loaded.name)):
        print_lines(console, [warning])


def save_items(folder: Path, items: Sequence[Question], table: pd.DataFrame) -> None:
    """Write what was asked, for a run's page: ``items.parquet``, of some items with frames."""
    kept = folder / ITEMS
    ids = [item.item_id for item in items]
    if kept.exists() and pd.read_parquet(kept, columns=["item_id"])["item_id"].tolist() == ids:
        return
    right = [name for name in table if str(name).endswith("_correct")]
    parser = first_parser([str(name).removesuffix("_correct") for name in right])
    framed = set(some_of_each(kinds_of_replies(table, parser), FRAMED))
    bare = dict.fromkeys((FRAMES_MARK, *MARKS.values()), "")
    rows = [
        {
            "item_id": item.item_id,
            "question": item.question,
            "options": ", ".join(
                o.text if o.label == o.text else f"{o.label}: {o.text}" for o in item.options
            ),
            "text": item.first_prompt(bare),
            "frames": page.strip(item.clip()) if item.clip and place in framed else None,
        }
        for place, item in enumerate(items)
    ]
    write_atomic(kept, pd.DataFrame(rows).to_parquet(None, index=False))


def print_evaluation(
    console: Console,
    config: EvalConfig,
    work: TaskItems,
    saved: Mapping[str, Any],
    table: pd.DataFrame,
) -> None:
    """What a run of ``results.json`` found, with what a reader should know before and after."""
    counts, results = saved["counts"], expected(saved["results"], work.items)
    asked, hidden = counts["asked"], counts["hidden"]
    print_lines(console, warnings_for(results, counts, config.reply_tokens, table))
    if work.departs:
        print_lines(console, [f"not as in the authors' protocol: {work.departs}"])
    lines = []
    if results:
        rows: dict[str, dict[str, Any]] = {}
        for row in results:
            name = part_name(row["part"], row["measure"])
            rows.setdefault(name, {"n": row["n"]})[row["parser"]] = row
        read = list(dict.fromkeys(row["parser"] for row in results))
        cells = [[name, row["n"], *(row.get(p, "") for p in read)] for name, row in rows.items()]
        title = f"{model_name(config)}, {work.title}, {steered_by(config)} (%)"
        caption = "95 % intervals over maps" if over(table) == "map" else ""
        print_table(console, title, ["items", "n", *read], cells, caption)
    elif hidden < asked:
        lines.append("replies to open questions are kept; --judge scores them")
    if hidden:
        lines.append(f"{hidden} of {asked} items have a hidden key: not scored")
    print_lines(console, lines)
    if results:
        print_published(config, saved["about"], asked - hidden, console)
    lines = [f"run folder: {config.folder}"]
    if agreed := saved["agreement"]:
        share, kappa = f"{100 * agreed['agreement']:.1f} %", f"kappa {agreed['kappa']:.2f}"
        lines.insert(0, f"judge and people agree on {share} of {agreed['n']} replies ({kappa})")
    print_lines(console, lines)


def expected(rows: Sequence[dict[str, Any]], items: Iterable[Question]) -> list[dict[str, Any]]:
    """Figures without those of the authors' parser, where no prompt asked for its form."""
    if any(OFFICIAL[i.official].asks.search(f"{i.system}\n{i.text}") for i in items):
        return list(rows)
    return [row for row in rows if row["parser"] != "official"]


def warnings_for(
    results: Iterable[Mapping[str, Any]],
    counts: Mapping[str, int],
    reply_tokens: int,
    table: pd.DataFrame,
) -> Iterator[str]:
    first_step = counts.get("perspectives_cut", 0)
    if cut := counts["cut"] + first_step:
        what = "replies or perspectives" if first_step else "replies"
        yield (
            f"warning: {cut} of {counts['asked']} {what} were cut after {reply_tokens} tokens; "
            "--max-new-tokens gives them more"
        )
    shares = {row["parser"]: row["value"] for row in results if row["measure"] == "invalid"}
    if shares and (least := min(shares.values())) > 0.5:
        parser = min(shares, key=lambda name: shares[name])
        wrong = table.loc[table[f"{parser}_invalid"].astype(bool), "reply"].drop_duplicates()
        some = "; ".join(repr(str(reply)[:80]) for reply in wrong[:3])
        yield (
            f"warning: {100 * least:.0f} % of the replies name none of the answers, so the figures "
            f"say little of what the model knows. Replies such as {some}. Try another --template "
            "or --style, or --options, which needs no reply"
        )


def steered_by(config: Any) -> str:
    if getattr(config, "endpoint", None) is not None:
        return "behind an endpoint"
    return "not steered" if config.steer is None else f"steered by {config.steer.name}"


@cache
def published() -> list[dict[str, Any]]:
    """All published tables; each row says whom it measured, how they were asked, and values in %.

    Views are named as by ``--view`` (GridToM: ``--setting``), models as in our catalogue; what a
    row leaves out is not known, or as usual (asked directly, not steered). ``questions`` and
    ``frames`` say how many were asked and shown.
    """
    tables: list[dict[str, Any]] = json.loads(
        (files("sally_anne.harness") / FILE).read_text(encoding="utf-8")
    )
    return tables


def print_published(
    config: EvalConfig, about: Mapping[str, Any], asked: int, console: Console
) -> None:
    """The figures of each source that has some for what a run shows, and how else it was asked."""
    view = about.get("view", about.get("setting"))
    how = {"view": view, "window": about.get("window"), "prompting": config.prompting}
    for table in published():
        if (table["task"], table.get("order", "")) != (config.task, about.get("order", "")):
            continue
        cells = []
        for row in table["rows"]:
            if all(row.get(name) in (None, value) for name, value in how.items()):
                words = [row.get("prompting"), "steered" if row.get("steered") else ""]
                values = ("" if value is None else str(float(value)) for value in row["values"])
                cells.append([row["who"], ", ".join(filter(None, words)), *values])
        if not cells:
            continue
        console.print()
        print_table(console, f"{table['source']} (%)", ["published", "", *table["measures"]], cells)
        notes = [table["note"]]
        if table.get("split") and config.data is None:
            notes.append("here stories are made, theirs are the release's")
        elif (theirs := table.get("questions") or asked) != asked:
            notes.append(f"here {asked:,} of their {theirs:,} questions")
        if config.protocol != "official":
            notes.append("here in this project's words (--protocol official: in theirs)")
        if config.frames and (theirs := table.get("frames") or config.frames) != config.frames:
            notes.append(f"here {config.frames} frames, theirs {theirs}")
        print_lines(console, ["; ".join(notes)])
