"""The calculator against numbers worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.errors import PerfError
from bench.plan import PlanConfig, plan, table
from sally_anne.core.errors import OptionError


def numbers(**options: Any) -> dict[str, float]:
    return {name: figure.value for name, figure in plan(PlanConfig(**options)).items()}


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def test_a_million_stories_at_the_shape_of_qwen2_vl() -> None:
    found = numbers(stories=1_000_000, seconds_per_sample=0.9, processes=50, efficiency=0.8)
    assert found["samples N"] == 4_000_000
    assert found["device-hours"] == pytest.approx(1000)
    assert found["wall time"] == pytest.approx(25)
    # 28 x 28 x 128 numbers of two bytes are 200,704 bytes.
    assert found["activations on disk"] == 4_000_000 * 200_704
    assert found["written a second"] == pytest.approx(802_816_000_000 / 90_000)
    assert found["X in memory"] == 2 * 802_816_000_000
    assert found["one layer of X"] == 57_344_000_000
    assert found["one head of X"] == 2_048_000_000
    # 64 GB less a stored layer of 28.672 GB hold 17 heads of 2.048 GB: two slices a layer.
    assert found["heads at once"] == 17
    assert found["slices to fit"] == 56


def test_a_small_run_is_fitted_in_one_slice() -> None:
    found = numbers(stories=75, seconds_per_sample=1.0, layers=2, heads=3, width=4, dtype="float32")
    assert found["activations on disk"] == 300 * 24 * 4
    assert found["heads at once"] == 6
    assert found["slices to fit"] == 1


def test_seconds_from_tokens() -> None:
    found = numbers(stories=9, tokens_per_second=4000, tokens_per_sample=1000)
    assert found["seconds a sample s"] == 0.25
    assert found["device-hours"] == pytest.approx(36 * 0.25 / 3600)


def test_fitting_grows_with_its_exponent() -> None:
    found = numbers(
        stories=100,
        seconds_per_sample=1.0,
        layers=2,
        heads=5,
        width=8,
        labels=3,
        processes=4,
        fit_seconds=0.5,
        fit_samples=100,
        fit_exponent=1.5,
    )
    assert found["seconds a probe at n"] == pytest.approx(0.5 * 4**1.5)
    assert found["fitting, process-hours"] == pytest.approx(3 * 10 * 4.0 / 3600)
    assert found["fitting by 4"] == pytest.approx(3 * 10 * 4.0 / 3600 / 4)


def test_measured_costs_are_read_from_results(tmp_path: Path) -> None:
    measured = {
        "model": "m",
        "layers": 2,
        "heads": 4,
        "head width": 8,
        "contenders": {"ours": {"whole": {"samples": 10, "seconds": [4.0, 9.0, 5.0]}}},
    }
    results = write(tmp_path / "results.json", {"extraction": {"m": measured}})
    points = [
        {"study": "processes", "axis": "processes", "contender": "ours", "value": p, "seconds": [t]}
        for p, t in ((1, 8.0), (2, 5.0))
    ] + [
        {
            "study": "probes",
            "axis": "samples",
            "contender": "batched",
            "value": n,
            "seconds": [t],
            "heads": 16,
            "options": {"width": 64, "samples": n},
        }
        for n, t in ((100, 1.6), (400, 12.8))
    ]
    shape = {"study": "shapes", "axis": "samples, m", "contender": "batched", "value": 200}
    points.append(shape | {"seconds": [4.0], "heads": 8, "options": {"width": 128, "samples": 200}})
    scaling = write(tmp_path / "scaling.json", {"points": points})
    figures = plan(PlanConfig(stories=1000, results=results, scaling=scaling, processes=2))
    assert figures["seconds a sample s"].value == 0.5
    assert figures["seconds a sample s"].source == "measured"
    assert figures["activations on disk"].value == 4000 * 2 * 4 * 8 * 2
    assert figures["efficiency E of 2"].value == pytest.approx(0.8)
    assert figures["wall time"].value == pytest.approx(2000 / 3600 / 1.6)
    # Eight times the seconds on four times the samples: an exponent of 1.5.
    assert figures["seconds a probe t"].value == pytest.approx(0.8)
    assert figures["seconds a probe at n"].value == pytest.approx(0.8 * 10**1.5)
    # Measured on heads of 64, and these have 8.
    assert figures["seconds a probe t"].source == "extrapolated"
    wide = plan(PlanConfig(seconds_per_sample=1.0, scaling=scaling))["seconds a probe t"]
    assert wide.value == pytest.approx(0.5) and wide.source == "measured"
    assert "200 samples" in wide.text and "D = 128" in wide.formula
    more = plan(PlanConfig(stories=1000, results=results, scaling=scaling, processes=8))
    assert more["efficiency E of 8"].value == pytest.approx(0.8)
    assert more["efficiency E of 8"].source == "extrapolated"


def test_an_efficiency_that_nobody_measured_is_called_assumed() -> None:
    figures = plan(PlanConfig(seconds_per_sample=1.0, processes=8))
    assert figures["efficiency E of 8"].source == "assumed"
    assert "| assumed |" in table(figures.values())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "--seconds-per-sample"),
        ({"seconds_per_sample": 1.0, "tokens_per_second": 1.0, "tokens_per_sample": 1.0}, "one of"),
        ({"seconds_per_sample": -1.0}, "--seconds-per-sample"),
        ({"seconds_per_sample": float("nan")}, "--seconds-per-sample"),
        ({"tokens_per_second": 1.0}, "--tokens-per-sample"),
        ({"seconds_per_sample": 1.0, "stories": 0}, "--stories"),
        ({"seconds_per_sample": 1.0, "efficiency": 0.0}, "--efficiency"),
        ({"seconds_per_sample": 1.0, "fit_seconds": 1.0}, "--fit-samples"),
        ({"seconds_per_sample": 1.0, "fit_gigabytes": 1.0}, "--fit-gigabytes"),
        ({"results": Path("nowhere.json")}, "cannot be read"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises((PerfError, OptionError), match=said):
        plan(PlanConfig(**options))


@pytest.mark.parametrize(
    "content",
    [
        [],
        {},
        {"extraction": {}},
        {"extraction": {"m": 3}},
        {"extraction": {"m": {"layers": 1, "heads": 1, "head width": 1}}},
        {"extraction": {"m": {"layers": "x", "heads": 1, "head width": 1, "contenders": {}}}},
        {"extraction": {"a": {}, "b": {}}},
    ],
)
def test_results_that_do_not_fit_are_named(tmp_path: Path, content: Any) -> None:
    path = write(tmp_path / "results.json", content)
    with pytest.raises(PerfError, match="results.json"):
        plan(PlanConfig(results=path))


def test_a_file_that_is_no_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("{")
    with pytest.raises(PerfError, match="no JSON"):
        plan(PlanConfig(results=tmp_path))
