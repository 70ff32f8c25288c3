"""``python -m bench.plan``: what a large run needs, from what was measured.

Nothing is run. Each figure is worked out by a formula that is printed beside it, from costs that
were measured (a ``results.json``) or are given; what carries a measurement beyond where it was
taken is marked as extrapolated. See docs/scaling.md.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bench.errors import PerfError
from bench.results import read_results
from bench.scaling import SHAPES_7B, efficiencies, exponent
from sally_anne.core.commands import command
from sally_anne.core.options import check_options
from sally_anne.models.estimate import DTYPE_BYTES, Figure, Source, disk, in_bytes

# Probes are fitted on float32, whatever the store holds.
FIT_BYTES = 4


@dataclass(frozen=True)
class PlanConfig:
    """Reckon what a run over many stories needs.

    Attributes:
        stories: how many.
        samples_per_story: 4 in first order, 8 in second.
        seconds_per_sample: of one device, measured; or from --results, or from tokens.
        tokens_per_second: of one device that reads prompts; used with --tokens-per-sample.
        tokens_per_sample: that the model really reads for one sample, shared beginnings counted
            by their share.
        results: folder or results.json of python -m bench (seconds a sample of ours).
        model: which model of the results; the only one if there is one.
        shape: layers x heads x head width of the 7B models; that of the measured model with
            --results, else qwen2-vl.
        layers: instead of the shape's.
        heads: instead of the shape's.
        width: instead of the shape's.
        dtype: of the stored activations.
        processes: that share the run, each with a device.
        efficiency: of so many processes, t_1 / (P t_P); or from --scaling; 1 is assumed otherwise.
        scaling: folder or results.json of python -m bench.scaling.
        probe_samples: samples on which probes are fitted; all by default.
        labels: label vectors that are fitted on every head: Y_p, Y_o and the four-way one.
        fit_seconds: of one probe, measured on --fit-samples samples; or from --scaling.
        fit_samples: see --fit-seconds.
        fit_exponent: growth of a fit with the samples; or from --scaling; 1 is assumed otherwise.
        fit_gigabytes: memory that one fitting process may fill.
    """

    stories: int = 1_000_000
    samples_per_story: int = 4
    seconds_per_sample: float | None = None
    tokens_per_second: float | None = None
    tokens_per_sample: float | None = None
    results: Path | None = None
    model: str | None = None
    shape: Literal["qwen2-vl", "llava-next-video"] | None = None
    layers: int | None = None
    heads: int | None = None
    width: int | None = None
    dtype: Literal["float32", "bfloat16", "float16"] = "float16"
    processes: int = 1
    efficiency: float | None = None
    scaling: Path | None = None
    probe_samples: int | None = None
    labels: int = 3
    fit_seconds: float | None = None
    fit_samples: int | None = None
    fit_exponent: float | None = None
    fit_gigabytes: float = 64.0


def plan(config: PlanConfig) -> dict[str, Figure]:
    """Every figure, by name.

    Raises:
        PerfError: an option is wrong, or a cost is missing.
    """
    _check(config)
    layers, heads, width = _shape(config)
    item = DTYPE_BYTES[config.dtype]
    found: dict[str, Figure] = {}

    def put(name: str, value: float, shown: str, formula: str, source: Source) -> float:
        found[name] = Figure(name, value, shown, formula, source)
        return value

    samples = config.stories * config.samples_per_story
    put("samples N", samples, f"{samples:,}", "stories x samples a story", "exact")

    seconds, how, source = _seconds_per_sample(config)
    put("seconds a sample s", seconds, f"{seconds:.4g} s", how, source)
    hours = samples * seconds / 3600
    put("device-hours", hours, _hours(hours), "N s / 3600", "extrapolated")
    efficiency, how, source = _efficiency(config)
    put(f"efficiency E of {config.processes}", efficiency, f"{efficiency:.2f}", how, source)
    wall = hours / (config.processes * efficiency)
    put("wall time", wall, _hours(wall), "device-hours / (P E)", "extrapolated")

    on_disk = disk(samples, layers, heads, width, config.dtype)
    found[on_disk.name], stored = on_disk, on_disk.value
    rate = stored / (wall * 3600)
    put("written a second", rate, f"{in_bytes(rate)}/s", "activations / wall time", "extrapolated")

    rows = config.probe_samples or samples
    put("samples fitted on n", rows, f"{rows:,}", "--probe-samples, or N", "given")
    whole = rows * layers * heads * width * FIT_BYTES
    put("X in memory", whole, in_bytes(whole), "n x L x H x D x 4", "exact")
    layer = rows * heads * width * FIT_BYTES
    put("one layer of X", layer, in_bytes(layer), "n x H x D x 4", "exact")
    head = rows * width * FIT_BYTES
    put("one head of X", head, in_bytes(head), "n x D x 4", "exact")
    room = config.fit_gigabytes * 1e9
    stored_layer = samples * heads * width * item
    if whole + stored <= room:
        together, slices = layers * heads, 1
        how = "all: X and what is stored of it fit into --fit-gigabytes"
    else:
        together = min(heads, int((room - stored_layer) // head))
        if together < 1:
            raise PerfError(
                f"one layer as it is stored ({in_bytes(stored_layer)}) and one head of it in "
                f"float32 ({in_bytes(head)}) do not fit into --fit-gigabytes "
                f"{config.fit_gigabytes:g}: give more memory"
            )
        slices = layers * math.ceil(heads / together)
        how = (
            f"min(H, (memory - N x H x D x item) / (n x D x 4)), N x ... = {in_bytes(stored_layer)}"
        )
    put("heads at once", together, f"{together:,}", how, "exact")
    put("slices to fit", slices, f"{slices:,}", "L x ceil(H / heads at once), or 1", "exact")

    fit = _fit(config, width)
    if fit is not None:
        base, at, power, how, source = fit
        put("seconds a probe t", base, f"{base:.3g} s at {at:,} samples", how, source)
        one = base * (rows / at) ** power
        put(
            "seconds a probe at n",
            one,
            f"{one:.3g} s",
            f"t (n / {at:,})^{power:.2f}",
            "extrapolated",
        )
        all_hours = config.labels * layers * heads * one / 3600
        put(
            "fitting, process-hours",
            all_hours,
            _hours(all_hours),
            f"labels x L x H x seconds a probe = {config.labels} x {layers} x {heads} x ...",
            "extrapolated",
        )
        each = all_hours / config.processes
        put(
            f"fitting by {config.processes}",
            each,
            _hours(each),
            "process-hours / P; slices of heads do not depend on each other",
            "extrapolated",
        )
    return found


def _check(config: PlanConfig) -> None:
    check_options(config)
    positive: tuple[str, ...] = (
        "seconds_per_sample",
        "tokens_per_second",
        "tokens_per_sample",
        "layers",
        "heads",
    )
    positive += ("width", "fit_seconds", "fit_samples", "fit_exponent", "fit_gigabytes")
    for option in (*positive, "probe_samples"):
        value = getattr(config, option)
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise PerfError(f"--{option.replace('_', '-')} must be positive, got {value}")
    if config.efficiency is not None and not 0 < config.efficiency <= 2:
        raise PerfError(f"--efficiency must be above 0 and at most 2, got {config.efficiency}")
    if (config.tokens_per_second is None) != (config.tokens_per_sample is None):
        raise PerfError("--tokens-per-second and --tokens-per-sample belong together")
    if (config.fit_seconds is None) != (config.fit_samples is None):
        raise PerfError("--fit-seconds and --fit-samples belong together")


def _shape(config: PlanConfig) -> tuple[int, int, int]:
    """L, H, D."""
    shape = SHAPES_7B[config.shape or "qwen2-vl"]
    if config.results is not None and config.shape is None:
        entry = _measured(config, config.results)
        try:
            shape = (int(entry["layers"]), int(entry["heads"]), int(entry["head width"]))
        except (KeyError, TypeError, ValueError) as error:
            raise PerfError(f"{config.results}: the model's shape cannot be read") from error
    layers, heads, width = shape
    return config.layers or layers, config.heads or heads, config.width or width


def _measured(config: PlanConfig, path: Path) -> dict[str, Any]:
    models = _entry(read_results(path), "extraction", dict, path)
    name = config.model or (next(iter(models)) if len(models) == 1 else None)
    if not isinstance(models.get(name), dict):
        raise PerfError(f"--model: choose one of those in {path}: {', '.join(models)}")
    return models[name]


def _seconds_per_sample(config: PlanConfig) -> tuple[float, str, Source]:
    ways = (config.seconds_per_sample, config.tokens_per_second, config.results)
    if sum(way is not None for way in ways) != 1:
        raise PerfError(
            "give one of --seconds-per-sample, --tokens-per-second with --tokens-per-sample, and "
            "--results"
        )
    if config.seconds_per_sample is not None:
        return config.seconds_per_sample, "--seconds-per-sample", "given"
    if config.tokens_per_second is not None and config.tokens_per_sample is not None:
        seconds = config.tokens_per_sample / config.tokens_per_second
        return seconds, "tokens a sample / tokens a second", "given"
    assert config.results is not None
    entry = _measured(config, config.results)
    try:
        whole = entry["contenders"]["ours"]["whole"]
        seconds = statistics.median(float(s) for s in whole["seconds"]) / int(whole["samples"])
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise PerfError(
            f"{config.results} has no seconds of the whole procedure of ours"
        ) from error
    return seconds, f"median seconds / samples: {entry.get('model')}, ours, whole", "measured"


def _efficiency(config: PlanConfig) -> tuple[float, str, Source]:
    if config.efficiency is not None:
        return config.efficiency, "--efficiency", "given"
    if config.processes == 1:
        return 1.0, "one process", "exact"
    if config.scaling is not None:
        measured = {count: share for count, _, share in efficiencies(_points(config.scaling))}
        if config.processes in measured:
            return measured[config.processes], "t_1 / (P t_P)", "measured"
        if len(measured) > 1:
            most = max(measured)
            how = f"as of {most} processes, the most that were measured"
            return measured[most], how, "extrapolated"
    return 1.0, "assumed, as none was measured: batches are shared, nothing is exchanged", "assumed"


def _fit(config: PlanConfig, width: int) -> tuple[float, int, float, str, Source] | None:
    """Seconds of a probe, at how many samples, exponent in the samples, and where from."""
    power = config.fit_exponent
    if config.fit_seconds is not None and config.fit_samples is not None:
        return config.fit_seconds, config.fit_samples, power or 1.0, "--fit-seconds", "given"
    if config.scaling is None:
        return None
    fits = [
        p
        for p in _points(config.scaling)
        if p["study"] in ("probes", "shapes") and p.get("contender") == "batched"
    ]
    if not fits:
        return None
    try:
        line = [p for p in fits if (p["study"], p["axis"]) == ("probes", "samples")]
        if power is None and len(line) > 1:
            seconds = [statistics.median(p["seconds"]) for p in line]
            power = exponent([p["value"] for p in line], seconds)

        def rank(point: dict[str, Any]) -> tuple[int, int, int]:
            options = point["options"]
            return (-abs(options["width"] - width), options["samples"], point["heads"])

        best = max(fits, key=rank)
        there, samples = best["options"]["width"], int(best["options"]["samples"])
        one = statistics.median(best["seconds"]) / int(best["heads"])
    except (KeyError, TypeError, ValueError) as error:
        raise PerfError(f"{config.scaling}: a point of the probes cannot be read") from error
    how = f"batched solver, D = {there}, --scaling"
    return one, samples, power or 1.0, how, "measured" if there == width else "extrapolated"


def _points(path: Path) -> list[dict[str, Any]]:
    points = _entry(read_results(path), "points", list, path)
    if not all(isinstance(p, dict) and {"study", "value", "seconds"} <= set(p) for p in points):
        raise PerfError(f"{path}: a point lacks study, value or seconds")
    return points


def _entry(found: dict[str, Any], name: str, kind: type, path: Path) -> Any:
    if not isinstance(found.get(name), kind) or not found[name]:
        raise PerfError(f"{path} has no {name!r}; was it made by another command?")
    return found[name]


def _hours(hours: float) -> str:
    if hours < 1 / 60:
        return f"{hours * 3600:.3g} s"
    if hours < 1:
        return f"{hours * 60:.3g} min"
    if hours < 48:
        return f"{hours:.3g} h"
    return f"{hours:,.0f} h ({hours / 24:,.1f} days)"


def table(figures: Iterable[Figure]) -> str:
    """A plan as Markdown."""
    lines = ["| figure | value | formula | from |", "|---|---|---|---|"]
    lines += [f"| {f.name} | {f.text} | {f.formula} | {f.source} |" for f in figures]
    return "\n".join(lines)


def run(config: PlanConfig) -> None:
    """Print the plan."""
    print(table(plan(config).values()))


main = command("python -m bench.plan", PlanConfig, run)


if __name__ == "__main__":
    main()
