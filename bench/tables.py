"""Markdown tables from raw figures; every ratio in them can be worked out again from these."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bench.clock import median_ratio
from bench.contenders import BARE, CAPTURE, OURS, SHARED
from bench.released import GridToM, HonestLlama

MIB = 2**20
RELEASED = (GridToM.name, HonestLlama.name)


def per_sample(entry: Mapping[str, Any], measure: str) -> list[float] | None:
    """Seconds a sample, turn by turn; None if it was not measured.

    Args:
        entry: of one contender.
        measure: ``whole``, ``preparation`` (within whole) or ``model``.
    """
    kind = "model" if measure == "model" else "whole"
    if kind not in entry:
        return None
    found = entry[kind]
    if kind == "model":
        pairs = zip(found["seconds a batch"], found["sizes"], strict=False)
        return [seconds / size for seconds, size in pairs] or None
    seconds = found["preparation" if measure == "preparation" else "seconds"]
    return [each / found["samples"] for each in seconds] or None


def peak(entry: Mapping[str, Any], kind: str) -> float | None:
    """Median peak bytes above the model; None if it was not measured."""
    values = entry.get("memory", {}).get(kind)
    return statistics.median(values) if values else None


def time_ratio(
    contenders: Mapping[str, Mapping[str, Any]], first: str, second: str, measure: str
) -> float | None:
    """The median over turns of seconds a sample of one contender over those of another."""
    if first not in contenders or second not in contenders:
        return None
    a, b = (per_sample(contenders[name], measure) for name in (first, second))
    if a is None or b is None or len(a) != len(b):
        return None
    return median_ratio(a, b)


def headline(contenders: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, float | None, str]]:
    """The ratios that a promise is made about: name, measured, wanted."""
    rows: list[tuple[str, float | None, str]] = []
    for first, second, measure, wanted in (
        (OURS, BARE, "whole", "≤ 0.6"),
        (SHARED, BARE, "model", "≤ 0.6"),
        *((name, OURS, "whole", "≥ 2.4") for name in RELEASED),
        *((name, SHARED, "model", "≥ 2.4") for name in RELEASED),
        (CAPTURE, BARE, "model", "≤ 1.03"),
    ):
        found = time_ratio(contenders, first, second, measure)
        what = "whole procedure" if measure == "whole" else "model's part"
        rows.append((f"{first} / {second}, time, {what}", found, wanted))
    peaks = [peak(contenders.get(name, {}), "model") for name in (CAPTURE, BARE)]
    found = peaks[0] / peaks[1] if peaks[0] is not None and peaks[1] else None
    rows.append((f"{CAPTURE} / {BARE}, peak memory above the model", found, "≤ 1.1"))
    return rows


def extraction_tables(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The tables of all models; see ``bench.extraction.measure``."""
    return "\n\n".join(_of_model(entry) for entry in found.values() if "contenders" in entry)


def _of_model(entry: Mapping[str, Any]) -> str:
    contenders = entry["contenders"]
    low, middle, high = entry["tokens of a prompt"]
    total = entry["samples"]
    lines = [
        f"### Extraction, {entry['model']}",
        "",
        f"{entry['parameters']:,} parameters, {entry['layers']} layers x {entry['heads']} heads x "
        f"{entry['head width']}; {entry['stories']} stories, {total} samples ({entry['setting']}), "
        f"prompts of {low} to {high} tokens (median {middle}), batches of {entry['batch size']}.",
        "",
        "Whole procedure, frames drawn and processed:",
        "",
        f"| contender | samples run | seconds for {total} samples: median (min - max) "
        "| of these preparation | / bare | / ours |",
        "|---|---|---|---|---|---|",
    ]
    for name, each in contenders.items():
        seconds = per_sample(each, "whole")
        if seconds is None:
            continue
        samples = each["whole"]["samples"]
        run = f"{samples}" + (", multiplied" if samples != total else "")
        waited = per_sample(each, "preparation") or [0.0]
        before = statistics.median(waited) * total
        lines.append(
            f"| {name} | {run} | {_spread([s * total for s in seconds])} "
            f"| {f'{before:.1f}' if before else 'beside the model'} "
            f"| {_ratio(time_ratio(contenders, name, BARE, 'whole'))} "
            f"| {_ratio(time_ratio(contenders, name, OURS, 'whole'))} |"
        )
    lines += [
        "",
        "The model's part alone, on inputs made before; and memory:",
        "",
        "| contender | milliseconds a sample: median (min - max) | / bare | / ours, one process "
        "| peak above the model, MiB | / bare | peak with preparation, MiB "
        "| largest difference from the native hooks |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, each in contenders.items():
        if each["status"] != "ok":
            lines.append(f"| {name} | {each['status']} | | | | | | |")
            continue
        seconds = per_sample(each, "model")
        own, bare = peak(each, "model"), peak(contenders.get(BARE, {}), "model")
        with_preparation = peak(each, "whole")
        difference = each.get("largest difference")
        lines.append(
            f"| {name} | {_spread([s * 1e3 for s in seconds]) if seconds else ''} "
            f"| {_ratio(time_ratio(contenders, name, BARE, 'model'))} "
            f"| {_ratio(time_ratio(contenders, name, SHARED, 'model'))} "
            f"| {_mib(own)} | {_ratio(own / bare if own is not None and bare else None)} "
            f"| {_mib(with_preparation)}{_together(each)} "
            f"| {'reads nothing' if difference is None else f'{difference:.0e}'} |"
        )
    lines += ["", "| ratio | measured | goal |", "|---|---|---|"]
    lines += [
        f"| {name} | {_ratio(value) or 'not measured'} | {goal} |"
        for name, value, goal in headline(contenders)
    ]
    lines.append("")
    lines += [f"- *{name}*: {each['note']}." for name, each in contenders.items() if each["note"]]
    lines.append(
        "- Ratios are medians of the ratios turn by turn. *Multiplied*: run on a part of the "
        "stories; the seconds grow with the samples, and were multiplied. The GridToM release "
        "reads slices of the residual stream, and is compared there, but for the last layer, which "
        "it takes after the last norm; all others read head outputs. Differences are over the "
        "largest activation."
    )
    return "\n".join(lines)


def probes_table(found: Mapping[str, Any]) -> str:
    """The tables of ``bench.probes.measure``."""
    lines = [
        "### Probes",
        "",
        f"{found['heads']} heads x {found['samples']} samples x {found['width']}, one label:",
        "",
        "| contender | seconds: median (min - max) | processor seconds | loop / it |",
        "|---|---|---|---|",
    ]
    loop = found["one label"][found["loop"]]["seconds"]
    for name, each in found["one label"].items():
        lines.append(
            f"| {name} | {_spread(each['seconds'])} | {statistics.median(each['processor']):.2f} "
            f"| {_ratio(median_ratio(loop, each['seconds']))} |"
        )
    if permuted := found.get("permutations"):
        lines += [
            "",
            f"{permuted['heads']} heads x {permuted['permutations']} permutations of the labels:",
            "",
            "| contender | seconds | loop / it |",
            "|---|---|---|",
            f"| scikit-learn loop, newton-cholesky (from {permuted['peer fits']} fits, multiplied) "
            f"| {permuted['loop seconds']:.0f} | 1 |",
            f"| batched solver | {permuted['batched seconds']:.1f} "
            f"| {permuted['loop seconds'] / permuted['batched seconds']:.0f} |",
        ]
    return "\n".join(lines)


def sweep_table(found: Mapping[str, Any]) -> str:
    """The table of ``bench.sweep.measure``."""
    lines = [
        "### Sweep",
        "",
        f"{found['items']} items; seconds in evaluation passes.",
        "",
        "| contender | seconds | evaluation passes |",
        "|---|---|---|",
    ]
    for name, seconds in found["seconds"].items():
        lines.append(f"| {name} | {seconds:.2f} | {found['ratio to one pass'][name]:.2f} |")
    return "\n".join([*lines, "", f"Peak memory {found['peak memory MB']:.0f} MB."])


def _spread(values: Sequence[float]) -> str:
    digits = 2 if statistics.median(values) < 10 else 1
    return (
        f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} - "
        f"{max(values):.{digits}f})"
    )


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}" if value < 2 else f"{value:.2f}"


def _mib(value: float | None) -> str:
    return "" if value is None else f"{value / MIB:.0f}"


def _together(entry: Mapping[str, Any]) -> str:
    count = entry.get("memory", {}).get("whole, processes", 1)
    return f" ({count} processes)" if count > 1 else ""
