"""Paired differences of finished evaluations: every number of a run against the first run's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from sally_anne.core.errors import HarnessError
from sally_anne.harness.compare.runs import Finished, Shared
from sally_anne.harness.metrics import Estimate, paired
from sally_anne.harness.results import JOINT, Part, parts, readers, scores
from sally_anne.harness.tasks import find_task

# Of each run, and of their difference.
ESTIMATES = ("first", "second", "difference")
ENDS = ("value", "low", "high")


def shared_readers(shared: Shared, wanted: str | None = None) -> list[str]:
    """Who read the replies of all runs, or ``wanted`` alone; a HarnessError names who did not."""
    theirs = [readers(table) for table in shared.tables]
    for run, own in zip(shared.runs, theirs, strict=True):
        if wanted is not None and wanted not in own:
            raise HarnessError(
                f"{run.folder} was not read by {wanted!r} (readers: {', '.join(own) or 'none'})"
            )
        if not set(own) & set(theirs[0]):
            raise HarnessError(
                f"{run.folder} and {shared.runs[0].folder} have no reader in common "
                f"({', '.join(own) or 'none'}; {', '.join(theirs[0]) or 'none'}); open replies "
                "need --judge"
            )
    return [r for r in theirs[0] if all(r in own for own in theirs) and wanted in (None, r)]


def compare(shared: Shared, read_by: Sequence[str]) -> pd.DataFrame:
    """The numbers of each later run against the first, on the items that all of them asked.

    Returns:
        One row a run, reader, part and measure: ``run, against`` (labels), ``reader``, ``kind`` and
        ``value`` of a tag (``cells`` and a combination; both empty of all items), ``items`` (these
        in words, as an evaluation's table has them), ``measure``
        (overall, TB, FB, Both, invalid), ``n``, value and 95 % interval of the first run, of the
        second and of the difference (``first, first_low, first_high, second, ...``), in how many
        items or pairs only one has it (``only_first, only_second``) and McNemar's ``p``. Intervals
        are over the units of the runs' own.
    """
    rows = [
        {"run": label, "against": shared.labels[0], **row, "items": part_name(row)}
        for label, other in zip(shared.labels[1:], shared.tables[1:], strict=True)
        for reader in read_by
        for row in _rows(shared, other, reader)
    ]
    return pd.DataFrame(rows)


def _rows(shared: Shared, other: pd.DataFrame, reader: str) -> Iterator[dict[str, Any]]:
    first, told = shared.tables[0], False
    # The same items, tags and all, with the other run's outcomes.
    names = [f"{reader}_{outcome}" for outcome in ("correct", "invalid")]
    second = first.assign(**{name: other[name].to_numpy() for name in names})
    both = (_parts(shared.runs[0], table, reader) for table in (first, second))
    for part, others in zip(*both, strict=True):
        found = paired(part.rows, others.rows, beliefs=part.beliefs, unit=part.unit)
        for measure, one in found.items():
            # Invalid replies are counted once, over all items.
            if measure == "invalid" and (told or part.kind):
                continue
            told |= measure == "invalid"
            yield {
                "reader": reader,
                "kind": part.kind,
                "value": part.value,
                "measure": measure,
                "n": one.difference.n,
                **{name: number for e in ESTIMATES for name, number in _flat(e, getattr(one, e))},
                "only_first": one.only_first,
                "only_second": one.only_second,
                "p": one.p,
            }


def _parts(run: Finished, table: pd.DataFrame, reader: str) -> Iterator[Part]:
    """As the run's own numbers are reported."""
    if run.order is not None:
        yield Part("", "", scores(table, reader), beliefs=run.order != "initial")
        return
    own = run.results.get(reader, {})
    cells = find_task(run.options["task"]).cells if "cells" in own else ()
    yield from parts(table, reader, list(own.get("groups", ())), cells)


def part_name(row: Mapping[str, Any]) -> str:
    """What a row of a comparison is of, as an evaluation's table has it."""
    if row["kind"] == "cells":
        return f"{row['value']}: {row['measure']}"
    if row["kind"] == JOINT:
        return f"all right: {row['value']}"
    if row["kind"]:
        return f"{row['kind']}: {row['value']}"
    return {"overall": "all"}.get(row["measure"], row["measure"])


def _flat(name: str, estimate: Estimate) -> Iterator[tuple[str, float]]:
    numbers = asdict(estimate)
    for end in ENDS:
        yield name if end == "value" else f"{name}_{end}", numbers[end]
