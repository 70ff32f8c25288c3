"""One page over several runs: a table to sort, maps beside each other, and accuracies."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sally_anne.figures.report.page import Page
from sally_anne.figures.report.sweep import CHOSEN

NAMES = {"probing": "probing run", "sweep": "sweep", "evaluation": "evaluation", "tables": "tables"}


def page(pages: Sequence[tuple[Path, Page]], where: Path) -> Page:
    """The index of runs whose own pages lie at the paths given; it will lie in ``where``."""
    runs = [_run(path, one, where) for path, one in pages]
    folders = " ".join(shlex.quote(str(path.parent)) for path, _ in pages)
    kinds = [run["kind"] for run in runs]
    counts = [f"{kinds.count(kind)} of kind {kind}" for kind in dict.fromkeys(kinds)]
    return Page(
        kind="index",
        title=f"{len(runs)} runs",
        parts=counts,
        sentence="Each run has a page of its own; what is compared here was not asked together.",
        warnings=[
            f"{run['name']}: {words}"
            for run, (_, one) in zip(runs, pages, strict=True)
            for words in one.warnings
        ],
        data={"runs": runs},
        provenance=[(run["name"], run["folder"]) for run in runs],
        repeat=f"sally-anne report {folders}",
    )


def _run(path: Path, one: Page, where: Path) -> dict[str, Any]:
    """What the index holds of a run: words, numbers, a sweep's controls, a probing run's maps."""
    data = one.data
    found: dict[str, Any] = {
        "name": path.parent.resolve().name,
        "folder": str(path.parent),
        "kind": NAMES[one.kind],
        "link": quote(Path(os.path.relpath(path.resolve(), where.resolve())).as_posix()),
        "title": one.title,
        "what": " · ".join(one.parts),
        "verdict": "; ".join(words for words, _ in one.badges),
        "numbers": [],
        "beside": [],
    }
    if one.kind == "probing":
        heads = data["heads"]
        columns = [c for c in heads if str(c).endswith("_accuracy")]
        found["heads"] = heads[["layer", "head", *columns]]
        found["labels"] = data["labels"]
        for label in data["labels"]:
            layer, head = label["best"]
            row = heads[(heads["layer"] == layer) & (heads["head"] == head)].iloc[0]
            value = row[f"{label['name']}_test_accuracy"]
            found["numbers"].append(
                {"name": f"best head of {label['short']}, test", "value": value}
            )
    elif one.kind == "evaluation":
        own = [m for m in data["measures"] if m["reader"] == data["reader"] and not m["part"]]
        found["numbers"] = [{"name": m["measure"], **m} for m in own]
    elif one.kind == "sweep":
        for name, numbers in data["tested"].items():
            own = [{"name": m, **numbers[m]} for m in ("TB", "FB", "Both") if m in numbers]
            if name == CHOSEN:
                found["numbers"] = own
            else:
                found["beside"].append({"name": f"{found['name']}: {name}", "numbers": own})
    return found
