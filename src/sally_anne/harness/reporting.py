"""The printed table of an evaluation, in the shape of the paper's table 1."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sally_anne.core.files import write_atomic, write_json
from sally_anne.core.folder import RESULTS
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.endpoint.options import named
from sally_anne.harness.items import Item
from sally_anne.harness.official import OFFICIAL
from sally_anne.harness.tasks import short_name
from sally_anne.models.loading import LoadedModel
from sally_anne.models.processor import unknown_words

BELIEF = ("TB", "FB", "Both", "invalid")
INITIAL = ("overall", "invalid")
# Without edges and wide gaps rows with intervals have room.
TIGHT: dict[str, Any] = {
    "box": SIMPLE_HEAD,
    "show_edge": False,
    "pad_edge": False,
    "padding": (0, 1, 0, 0),
}


def percent(estimate: Mapping[str, float], gap: str = " ") -> str:
    """A share and its interval in %, as rich's markup; with a sign if it is ``signed``."""
    # Rounded first, so that nothing is written as minus zero.
    value, low, high = (round(100 * estimate[name], 1) + 0.0 for name in ("value", "low", "high"))
    sign = "+" if estimate.get("signed") else ""
    return rf"{value:{sign}.1f}{gap}\[{low:.1f}, {high:.1f}]"


def print_table(
    console: Console,
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    caption: str | None = None,
    **style: Any,
) -> None:
    """A table whose first column stands left; rows hold texts, numbers and estimates (in %).

    Where the console has no room for them, intervals stand below their values.
    """
    rows = list(rows)

    def made(gap: str) -> Table:
        table = Table(title=escape(title), caption=caption, **style)
        for number, name in enumerate(columns):
            table.add_column(name, justify="right" if number else "left", overflow="fold")
        for row in rows:
            cells = (percent(c, gap) if isinstance(c, Mapping) else escape(str(c)) for c in row)
            table.add_row(*cells)
        return table

    table, unbounded = made(" "), console.options.update(max_width=10_000)
    fits = console.measure(table, options=unbounded).maximum <= console.width
    console.print(table if fits else made("\n"))


def save(
    console: Console,
    file: Path,
    table: pd.DataFrame,
    saved: Mapping[str, Any],
    loaded: LoadedModel | None,
    texts: Iterable[str],
) -> None:
    """Write a run's table and what else is saved; say which words of texts the model lacks.

    Without ``loaded``, behind an endpoint, nobody knows that.
    """
    unknown = None if loaded is None else unknown_words(loaded, texts)
    write_atomic(file, table.to_parquet(None, index=False))
    saved = {**saved, "unknown_words": unknown and asdict(unknown)}
    write_json(file.with_name(RESULTS), saved)
    if loaded and unknown and (warning := unknown.warning(loaded.name)):
        console.print(escape(warning), soft_wrap=True)


def asked_readers(results: Mapping[str, Any], items: Iterable[Item]) -> dict[str, Any]:
    """Results without those of the authors' reader, where no prompt asked for its form."""
    if len(results) < 2 or any(map(_asked_for, items)):
        return dict(results)
    return {reader: found for reader, found in results.items() if reader != "official"}


def _asked_for(item: Item) -> bool:
    """Whether the prompt asks for the form that the authors' reader expects."""
    return bool(OFFICIAL[item.official].asks.search(f"{item.system}\n{item.text}"))


def doubts(
    results: Mapping[str, Any], counts: Mapping[str, int], reply_tokens: int
) -> Iterator[str]:
    """What a reader should know before the figures: cut replies, and that none was understood."""
    if cut := counts["cut"]:
        yield (
            f"warning: {cut} of {counts['asked']} replies were cut after {reply_tokens} tokens; "
            "--max-new-tokens gives them more"
        )
    if short := counts.get("perspectives_cut"):
        yield (
            f"warning: {short} of {counts['asked']} perspectives, simtom's first step, were cut; "
            "--max-new-tokens gives both steps more"
        )
    if results and all(found["invalid"]["value"] == 1 for found in results.values()):
        yield (
            "warning: no reply names one of the answers, so the figures say nothing of what the "
            "model knows: read column reply of answers.parquet, and try another --template or "
            "--style, or --options, which needs no reply"
        )


def steered_by(config: Any) -> str:
    """What steers a run, for a title."""
    if getattr(config, "endpoint", None) is not None:
        return "behind an endpoint"
    return "not steered" if config.steer is None else f"steered by {config.steer.name}"


def print_results(console: Console, results: Mapping[str, Any], config: EvalConfig) -> None:
    """GridToM: one row a reader, with 95 % intervals."""
    columns = INITIAL if config.order == "initial" else BELIEF
    words = {"initial": "initial belief", "reality": "reality"}
    what = words.get(config.order, f"belief of order {config.order}")
    over_maps = any("over_stories" in metrics for metrics in results.values())
    print_table(
        console,
        f"{named(config)}, {what}, {config.setting}, {steered_by(config)} (%)",
        ["read by", *columns],
        [[reader, *(found[name] for name in columns)] for reader, found in results.items()],
        "95 % intervals over maps" if over_maps else None,
    )


def print_breakdown(
    console: Console,
    results: Mapping[str, Any],
    counts: Mapping[str, int],
    config: EvalConfig,
    missing: Sequence[str],
) -> None:
    """Accuracy overall and by tags, one column a reader, and what was not scored."""
    rows: dict[str, dict[str, Mapping[str, Any]]] = {}
    for reader, found in results.items():
        cells = {"all": found["overall"]}
        for kind, values in found["groups"].items():
            cells |= {f"{kind}: {value}": cell for value, cell in values.items()}
        cells |= {f"all right: {name}": cell for name, cell in found.get("joint", {}).items()}
        cells |= {f"belief: {name}": found["belief"][name] for name in BELIEF if "belief" in found}
        cells["invalid"] = found["invalid"]
        for name, cell in cells.items():
            rows.setdefault(name, {})[reader] = cell
    if results:
        print_table(
            console,
            f"{named(config)}, {short_name(config.task)}, {steered_by(config)} (% right)",
            ["items", "n", *(f"read by {reader}" for reader in results)],
            [
                [name, next(iter(cells.values()))["n"], *(cells.get(r, "") for r in results)]
                for name, cells in rows.items()
            ],
        )
    unscored = counts["asked"] if not results else counts["hidden"]
    if not results and counts["hidden"] < counts["asked"]:
        console.print("replies to open questions are kept; --judge scores them")
    elif unscored:
        console.print(f"{unscored} of {counts['asked']} items have a hidden key: not scored")
    if missing:
        why = f"their films or words are not here: {', '.join(missing[:3])}"
        console.print(escape(f"{len(missing)} items not asked, {why}"))


def print_cells(console: Console, results: Mapping[str, Any], kinds: Sequence[str]) -> None:
    """TB, FB and both of each combination of tags, one row a reader; nothing where there is none.

    n counts the pairs of a TB and an FB question on one story.
    """
    shown = [name for name in BELIEF if name != "invalid"]
    rows = [
        [cell, reader, found["cells"][cell]["Both"]["n"], *map(found["cells"][cell].get, shown)]
        for reader, found in results.items()
        for cell in found.get("cells", ())
    ]
    if rows:
        what = ", ".join(kind.replace("_", " ") for kind in kinds)
        print_table(console, f"by {what} (% right)", [what, "read by", "n", *shown], rows)
