"""The commands from end to end with the smallest sizes."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest
import torch

from bench import extraction, machine, scaling, share, sweep
from bench.__main__ import PerfConfig, run
from bench.errors import PerfError
from bench.extraction import ExtractionPerfConfig, check, peak_of
from bench.memory import in_fresh_process
from bench.plan import PlanConfig, plan
from bench.scaling import Grid, ScalingConfig
from bench.scaling import run as scale
from bench.sweep import SweepPerfConfig
from bench.tables import sweep_table
from bench.untrained import Shape, save_untrained
from sally_anne.core.errors import OptionError

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
SMALLEST = Grid(
    stories=(1,),
    layers=(),
    heads=(),
    widths=(),
    longer=(),
    probe_samples=(16, 32),
    probe_heads=(),
    probe_widths=(),
    shape_samples=(),
    cells=(2,),
    k=(),
    processes=(),
    base_stories=1,
    base_layers=1,
    base_heads=2,
    base_width=16,
    base_probe_heads=4,
    base_probe_width=8,
    sweep_stories=1,
)


@pytest.fixture(autouse=True)
def no_confining(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' own process keeps its cores."""
    monkeypatch.setattr(machine, "confine", lambda threads: None)


def test_all_comparisons_into_one_folder(model_folder: Path, tmp_path: Path) -> None:
    model = str(model_folder)
    found = run(
        PerfConfig(
            out=tmp_path / "perf",
            models=(model,),
            setting="text",
            stories=2,
            part_stories=1,
            batches=2,
            repeats=2,
            memory_repeats=0,
            only=("extraction", "probes"),
            batch_size=4,
            threads=1,
            contenders=("capture", "gridtom"),
            probe_layers=1,
            probe_heads=2,
            probe_samples=16,
            permutations=2,
        )
    )
    saved = json.loads((tmp_path / "perf" / "results.json").read_text())
    assert saved["extraction"] == json.loads(json.dumps(found["extraction"]))
    assert {"machine", "config", "extraction", "probes"} <= set(saved)
    assert saved["machine"]["versions"]["torch"] == metadata.version("torch")
    contenders = saved["extraction"][model]["contenders"]
    for name in ("bare forwards", "ours", "released GridToM procedure"):
        assert len(contenders[name]["whole"]["seconds"]) == 2
    assert contenders["released GridToM procedure"]["whole"]["samples"] == 4
    assert contenders["capture on equal forwards"]["largest difference"] == 0
    text = (tmp_path / "perf" / "table.md").read_text()
    turns = zip(
        contenders["ours"]["whole"]["seconds"],
        contenders["bare forwards"]["whole"]["seconds"],
        strict=True,
    )
    ratio = statistics.median(a / b for a, b in turns)
    shown = f"{ratio:.3f}" if ratio < 2 else f"{ratio:.2f}"
    assert f"| ours / bare forwards, time, whole procedure | {shown} |" in text
    assert "### Probes" in text
    for name in ("extraction.png", "extraction.pdf", "extraction.parquet"):
        assert (tmp_path / "perf" / name).stat().st_size > 500
    figures = plan(PlanConfig(stories=10, results=tmp_path / "perf"))
    assert figures["seconds a sample s"].source == "measured"


def test_a_sweep_alone(model_folder: Path) -> None:
    found = sweep.measure(
        SweepPerfConfig(str(model_folder), "text", stories=1, repeats=1, batch_size=2)
    )
    seconds = {name: times[0] for name, times in found["raw seconds"].items()}
    for name in ("one pass", "sweep, 15 cells", "sweep, 45 cells"):
        assert found["seconds"][name] == seconds[name] > 0
        ratio = found["ratio to one pass"][name]
        assert ratio == pytest.approx(seconds[name] / seconds["one pass"])
    released = found["seconds"]["released procedure, 15 cells (extrapolated)"]
    assert released == pytest.approx(15 * seconds["released procedure, one cell"])
    assert "| one pass |" in sweep_table(found)


def test_the_memory_of_an_extraction_is_that_of_all_its_processes(model_folder: Path) -> None:
    peak, processes = in_fresh_process(peak_of, "ours", "whole", str(model_folder), "text", 4, 1)
    assert processes > 1
    assert peak > 0


def test_scaling_with_a_small_grid(model_folder: Path, tmp_path: Path) -> None:
    config = ScalingConfig(
        out=tmp_path / "scaling", model=str(model_folder), repeats=1, threads=1, batch_size=4
    )
    found = scale(config, SMALLEST)
    points = found["points"]
    lines = {(p["study"], p["axis"], p["contender"]) for p in points}
    assert lines == {
        ("extraction", "samples", "ours"),
        ("extraction", "samples", "bare"),
        ("probes", "samples", "batched"),
        ("probes", "samples", "loop"),
        ("sweep", "cells", "sweep"),
    }
    assert all(p["peak"] >= 0 and len(p["seconds"]) == 1 for p in points)
    assert [p["samples"] for p in points if p["contender"] == "ours"] == [4]
    assert "exponent of time" in (tmp_path / "scaling" / "table.md").read_text()
    assert (tmp_path / "scaling" / "scaling-seconds.pdf").exists()
    for width, source in ((SMALLEST.base_probe_width, "measured"), (128, "extrapolated")):
        costs = PlanConfig(seconds_per_sample=1.0, scaling=tmp_path / "scaling", width=width)
        assert plan(costs)["seconds a probe t"].source == source


def test_one_process_alone_can_be_timed(
    model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    share.main([str(model_folder), "1", "text", "4", str(tmp_path / "activations")])
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["samples"] == 4 and said["seconds"] > 0
    assert (tmp_path / "activations" / "manifest.json").exists()


def test_an_untrained_model_has_the_shape_asked_for(tmp_path: Path) -> None:
    from sally_anne.hooks.geometry import find_geometry
    from sally_anne.models.loading import load_model

    save_untrained(tmp_path, Shape(3, 4, 2, 16, 48, 1, 32))
    geometry = find_geometry(load_model(str(tmp_path)).skeleton)
    assert (geometry.n_layers, geometry.n_heads, geometry.head_dim) == (3, 4, 16)


def test_the_default_untrained_model_is_of_about_a_hundred_million() -> None:
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    from bench.untrained import ABOUT_100M, config_of

    with torch.device("meta"):
        model = Qwen2VLForConditionalGeneration(Qwen2VLConfig(**config_of(ABOUT_100M)))
    assert 95e6 < sum(p.numel() for p in model.parameters()) < 115e6


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"stories": 0}, "--stories"),
        ({"repeats": 0}, "--repeats"),
        ({"memory_repeats": -1}, "--memory-repeats"),
        ({"threads": 10_000}, "--threads"),
        ({"only": ("nobody",)}, "--only"),
    ],
)
def test_wrong_options_are_named(options: dict[str, object], said: str) -> None:
    with pytest.raises((PerfError, OptionError), match=said):
        check(ExtractionPerfConfig(**options))  # type: ignore[arg-type]


def test_a_command_says_what_is_wrong_in_one_line() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "bench.plan", "--seconds-per-sample", "-1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1
    assert ran.stderr.strip() == "error: --seconds-per-sample must be positive, got -1.0"


@pytest.mark.parametrize("module", [extraction, scaling])
def test_wrong_options_of_long_commands_end_before_any_work(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["perf", "--batch-size", "0"])
    with pytest.raises(SystemExit, match="^error: .*--batch-size.* must be at least 1, got 0$"):
        module.main()
