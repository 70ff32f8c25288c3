"""``python -m bench.scaling``: how costs grow, axis by axis.

- extraction (ours, and bare forwards) against samples, layers, heads, head width, tokens;
- probes (batched solver, scikit-learn loop) against samples, heads, head width, and at the shapes
  of the 7B models;
- a sweep against cells and K;
- an extraction shared by several processes.

Each point is measured in a process of its own. An exponent is the slope of seconds over the axis
where both are logarithms: 1 is proportional. What does not grow with the axis (starting processes,
reading a model) flattens it, so exponents hold for the range measured.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from bench import machine
from bench.errors import PerfError
from sally_anne.core.commands import command
from sally_anne.core.options import check_options
from sally_anne.data.items import Setting
from sally_anne.models.options import DEFAULT_MODEL

Study = Literal["extraction", "probes", "shapes", "sweep", "processes"]
STUDIES: tuple[Study, ...] = ("extraction", "probes", "shapes", "sweep", "processes")
# Layers, heads, head width of the catalogue's 7B models.
SHAPES_7B = {"qwen2-vl": (28, 28, 128), "llava-next-video": (32, 32, 128)}


@dataclass(frozen=True)
class Grid:
    """The values of every axis; one axis varies, the others stay at their base.

    Attributes:
        stories: of the extraction, four samples each.
        layers, heads, widths: of the model that extracts; heads x width is its width.
        longer: how many times each context is told.
        probe_samples, probe_heads, probe_widths: of the probes.
        shape_samples: training samples at the 7B shapes; 444 is the paper's 111 stories.
        cells, k: of the sweep.
        processes: that share an extraction.
        base_stories, base_layers, base_heads, base_width: of the extraction.
        base_samples, base_probe_heads, base_probe_width: of the probes.
        sweep_stories: two items each.
    """

    stories: tuple[int, ...] = (4, 8, 16, 32)
    layers: tuple[int, ...] = (2, 4, 8)
    heads: tuple[int, ...] = (2, 4, 8)
    widths: tuple[int, ...] = (16, 32, 64)
    longer: tuple[int, ...] = (1, 2, 4)
    probe_samples: tuple[int, ...] = (112, 224, 448, 896)
    probe_heads: tuple[int, ...] = (16, 64, 256)
    probe_widths: tuple[int, ...] = (32, 64, 128)
    shape_samples: tuple[int, ...] = (444,)
    cells: tuple[int, ...] = (5, 15, 45)
    k: tuple[int, ...] = (2, 8, 32)
    processes: tuple[int, ...] = (1, 2)
    base_stories: int = 8
    base_layers: int = 4
    base_heads: int = 4
    base_width: int = 32
    base_samples: int = 224
    base_probe_heads: int = 64
    base_probe_width: int = 64
    sweep_stories: int = 4


QUICK = Grid()
FULL = Grid(
    stories=(8, 16, 32, 64, 128),
    layers=(2, 4, 8, 16, 28),
    heads=(2, 4, 8, 16, 28),
    widths=(16, 32, 64, 128),
    longer=(1, 2, 4, 8),
    probe_samples=(112, 224, 448, 896, 1792, 3584),
    probe_heads=(16, 64, 256, 784, 1024),
    probe_widths=(16, 32, 64, 128),
    shape_samples=(444, 1776),
    cells=(5, 15, 45, 90),
    k=(1, 4, 16, 64),
    processes=(1, 2, 4, 8),
    base_stories=16,
    sweep_stories=12,
)


@dataclass(frozen=True)
class ScalingConfig:
    """Measure how costs grow.

    Attributes:
        out: folder for results.json, table.md and the figures.
        only: studies to run; all by default.
        full: the large grid; hours rather than minutes.
        model: for the sweep and for several processes.
        setting: what the models are given.
        batch_size: prompts that go through the model together.
        rows: answers of the sweep that are given together.
        repeats: timed runs of each point.
        threads: of every point, but for several processes; all cores by default.
    """

    out: Path = Path("runs") / "scaling"
    only: tuple[Study, ...] = STUDIES
    full: bool = False
    model: str = DEFAULT_MODEL
    setting: Setting = "text"
    batch_size: int = 8
    rows: int = 64
    repeats: int = 3
    threads: int | None = None


@dataclass(frozen=True)
class Job:
    """One point.

    Attributes:
        study, axis, value, contender: where it stands.
        function: of `bench.points`.
        options: of that function.
    """

    study: Study
    axis: str
    value: int
    contender: str
    function: Callable[..., dict[str, Any]]
    options: dict[str, Any]


def jobs(config: ScalingConfig, grid: Grid) -> list[Job]:
    """All points, axis by axis."""
    threads = config.threads or machine.cores()
    found: list[Job] = []
    if "extraction" in config.only:
        found += _extraction_jobs(config, grid, threads)
    if "probes" in config.only or "shapes" in config.only:
        found += [job for job in _probe_jobs(config, grid, threads) if job.study in config.only]
    if "sweep" in config.only:
        found += _sweep_jobs(config, grid, threads)
    if "processes" in config.only:
        found += _process_jobs(config, grid)
    return found


def _extraction_jobs(config: ScalingConfig, grid: Grid, threads: int) -> list[Job]:
    from bench import points

    axes: dict[str, tuple[int, ...]] = {
        "samples": grid.stories,
        "layers": grid.layers,
        "heads": grid.heads,
        "head width": grid.widths,
        "times the context": grid.longer,
    }
    found = []
    for axis, values in axes.items():
        for value in values:
            layers = value if axis == "layers" else grid.base_layers
            heads = value if axis == "heads" else grid.base_heads
            width = value if axis == "head width" else grid.base_width
            stories = value if axis == "samples" else grid.base_stories
            shape = {
                "layers": layers,
                "heads": heads,
                "kv_heads": max(1, heads // 2),
                "width": width,
                "mlp": 3 * heads * width,
                "vision_layers": 1,
                "vision_width": 64,
            }
            options = {
                "shape": shape,
                "stories": stories,
                "longer": value if axis == "times the context" else 1,
                "setting": config.setting,
                "batch_size": config.batch_size,
                "repeats": config.repeats,
                "threads": threads,
            }
            shown = 4 * value if axis == "samples" else value
            found += [
                Job(
                    "extraction",
                    axis,
                    shown,
                    name,
                    points.extraction,
                    {"contender": name} | options,
                )
                for name in ("ours", "bare")
            ]
    return found


def _probe_jobs(config: ScalingConfig, grid: Grid, threads: int) -> list[Job]:
    from bench import points

    common = {"repeats": config.repeats, "threads": threads}
    base = {
        "samples": grid.base_samples,
        "layers": 1,
        "heads": grid.base_probe_heads,
        "width": grid.base_probe_width,
    }
    axes = {
        "samples": ("samples", grid.probe_samples),
        "heads in all": ("heads", grid.probe_heads),
        "head width": ("width", grid.probe_widths),
    }
    found = []
    for axis, (option, values) in axes.items():
        for value in values:
            for name in ("batched", "loop"):
                options = {"contender": name} | base | common | {option: value}
                found.append(Job("probes", axis, value, name, points.probes, options))
    for model, (layers, heads, width) in SHAPES_7B.items():
        for samples in grid.shape_samples:
            for name in ("batched", "loop"):
                options = {"contender": name, "samples": samples, "layers": layers}
                options |= {"heads": heads, "width": width} | common
                axis = f"samples, {model} ({layers} x {heads} x {width})"
                found.append(Job("shapes", axis, samples, name, points.probes, options))
    return found


def _sweep_jobs(config: ScalingConfig, grid: Grid, threads: int) -> list[Job]:
    from bench import points

    common = {
        "model": config.model,
        "setting": config.setting,
        "stories": grid.sweep_stories,
        "batch_size": config.batch_size,
        "rows": config.rows,
        "repeats": config.repeats,
        "threads": threads,
    }
    middle = {"cells": _middle(grid.cells), "k": _middle(grid.k)}
    found = []
    for axis, option, values in (("cells", "cells", grid.cells), ("K", "k", grid.k)):
        for value in values:
            options = common | middle | {option: value}
            found.append(Job("sweep", axis, value, "sweep", points.sweep, options))
    return found


def _middle(values: Sequence[int]) -> int:
    """The middle one, at which an axis stays while another varies; 2 if the axis is left out."""
    return values[len(values) // 2] if values else 2


def _process_jobs(config: ScalingConfig, grid: Grid) -> list[Job]:
    from bench import points

    return [
        Job(
            "processes",
            "processes",
            count,
            "ours",
            points.together,
            {
                "model": config.model,
                "setting": config.setting,
                "stories": max(grid.stories),
                "processes": count,
                "batch_size": config.batch_size,
                "repeats": config.repeats,
            },
        )
        for count in grid.processes
        if count <= machine.cores()
    ]


def measure(
    config: ScalingConfig,
    grid: Grid,
    on_point: Callable[[list[dict[str, Any]]], None] = lambda points: None,
    say: Callable[[str], None] = print,
) -> list[dict[str, Any]]:
    """Every point; ``on_point`` is given all so far after each.

    Raises:
        PerfError: a point cannot be measured.
    """
    from bench.memory import in_fresh_process

    found: list[dict[str, Any]] = []
    for job in jobs(config, grid):
        if job.study == "processes":
            # It only starts processes; they need no further one around them.
            point = job.function(**job.options)
        else:
            point = in_fresh_process(_call, job.function, job.options)
        found.append(
            {
                "study": job.study,
                "axis": job.axis,
                "value": job.value,
                "contender": job.contender,
                **point,
                "options": job.options,
            }
        )
        on_point(found)
        say(
            f"{job.study}, {job.axis} {job.value}, {job.contender}: "
            f"{statistics.median(point['seconds']):.2f} s"
        )
    return found


def _call(function: Callable[..., dict[str, Any]], options: dict[str, Any]) -> dict[str, Any]:
    return function(**options)


def axis_values(points: Sequence[dict[str, Any]]) -> list[float]:
    """Where points stand on their axis: measured tokens rather than repetitions of a context."""
    return [p["tokens"] if p["axis"] == "times the context" else p["value"] for p in points]


def exponent(values: Sequence[float], results: Sequence[float]) -> float | None:
    """Slope of log results over log values by least squares; None below two different values."""
    pairs = [(math.log(v), math.log(r)) for v, r in zip(values, results, strict=True) if r > 0]
    if len({x for x, _ in pairs}) < 2:
        return None
    centre = statistics.fmean(x for x, _ in pairs), statistics.fmean(y for _, y in pairs)
    above = sum((x - centre[0]) * (y - centre[1]) for x, y in pairs)
    return above / sum((x - centre[0]) ** 2 for x, _ in pairs)


def lines_of(points: Sequence[dict[str, Any]]) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    """Points of each study, axis and contender, in the order measured."""
    found: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for point in points:
        key = (point["study"], point["axis"], point["contender"])
        found.setdefault(key, []).append(point)
    return found


def table(points: Sequence[dict[str, Any]]) -> str:
    """Markdown: each line of points with its seconds, peaks and exponents."""
    rows = [
        "| study | axis | contender | at | seconds (median) | peak, MiB | exponent of time "
        "| exponent of memory |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (study, axis, contender), line in lines_of(points).items():
        values = axis_values(line)
        seconds = [statistics.median(p["seconds"]) for p in line]
        peaks = [p["peak"] for p in line if p["peak"] is not None]
        multiplied = any(p.get("fitted heads", 0) < p.get("heads", 0) for p in line)
        rows.append(
            f"| {study} | {'tokens' if axis == 'times the context' else axis} "
            f"| {contender}{' (multiplied)' if multiplied else ''} "
            f"| {', '.join(f'{v:g}' for v in values)} "
            f"| {', '.join(f'{s:.3g}' for s in seconds)} "
            f"| {', '.join(f'{p / 2**20:.0f}' for p in peaks)} "
            f"| {_shown(exponent(values, seconds))} "
            f"| {_shown(exponent(values, peaks) if len(peaks) == len(line) else None)} |"
        )
    text = "\n".join(rows)
    efficient = efficiencies(points)
    if efficient:
        text += "\n\nSeveral processes, one thread and one core each: " + "; ".join(
            f"{count} processes {seconds:.2f} s, efficiency {share:.2f}"
            for count, seconds, share in efficient
        )
    return text


def efficiencies(points: Sequence[dict[str, Any]]) -> list[tuple[int, float, float]]:
    """For each number P of processes: P, its seconds t_P, and t_1 / (P t_P)."""
    found = {
        p["value"]: statistics.median(p["seconds"]) for p in points if p["study"] == "processes"
    }
    if 1 not in found:
        return []
    return [(count, t, found[1] / (count * t)) for count, t in sorted(found.items())]


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def run(config: ScalingConfig, grid: Grid | None = None) -> dict[str, Any]:
    """Measure, write, draw and print.

    Raises:
        PerfError: an option is wrong, or a point cannot be measured.
    """
    from bench.growth import draw
    from bench.results import Results

    check_options(config)
    if not config.only:
        raise PerfError("--only is empty: nothing to measure")
    machine.check_threads(config.threads)
    threads = config.threads or machine.cores()
    described = machine.describe(threads)
    results = Results(config.out, {"machine": described, "config": asdict(config)})

    def keep(points: list[dict[str, Any]]) -> None:
        results.put("points", points)
        results.table(f"{machine.line(described)}.\n\n{table(points)}")

    points = measure(config, grid or (FULL if config.full else QUICK), keep)
    draw(points, config.out)
    print(f"\n{(config.out / 'table.md').read_text()}\n{config.out}")
    return results.values


main = command("python -m bench.scaling", ScalingConfig, run)


if __name__ == "__main__":
    main()
