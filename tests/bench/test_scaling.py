"""Exponents, efficiencies, and what a grid asks for."""

from __future__ import annotations

from typing import Any

import pytest

from bench.scaling import (
    QUICK,
    ScalingConfig,
    efficiencies,
    exponent,
    jobs,
    lines_of,
    table,
)


def test_the_exponent_of_a_power() -> None:
    values = [1.0, 2.0, 5.0, 11.0]
    assert exponent(values, [3.0 * v**1.7 for v in values]) == pytest.approx(1.7)
    assert exponent([2.0, 2.0], [1.0, 3.0]) is None
    assert exponent([2.0], [1.0]) is None


def point(study: str, axis: str, value: int, seconds: list[float], **rest: Any) -> dict[str, Any]:
    base = {"study": study, "axis": axis, "value": value, "contender": "ours", "peak": 2**20}
    return base | {"seconds": seconds} | rest


def test_efficiency_is_of_the_seconds_of_one_process() -> None:
    points = [point("processes", "processes", p, [t]) for p, t in ((4, 3.0), (1, 9.0))]
    assert efficiencies(points) == [(1, 9.0, 1.0), (4, 3.0, pytest.approx(0.75))]
    assert efficiencies(points[:1]) == []


def test_tokens_are_the_axis_where_contexts_are_repeated() -> None:
    points = [
        point("extraction", "times the context", 1, [1.0, 9.0, 2.0], tokens=100),
        point("extraction", "times the context", 4, [8.0], tokens=400),
    ]
    row = table(points).splitlines()[-1]
    assert "| tokens | ours | 100, 400 | 2, 8 | 1, 1 | 1.00 | 0.00 |" in row


def test_only_one_option_changes_along_an_axis() -> None:
    found = jobs(ScalingConfig(threads=1), QUICK)
    plain = [
        {
            "study": job.study,
            "axis": job.axis,
            "contender": job.contender,
            "options": {name: str(value) for name, value in job.options.items() if name != "shape"}
            | {f"shape {n}": str(v) for n, v in job.options.get("shape", {}).items()},
        }
        for job in found
    ]
    # Along heads and widths the model's other widths grow with them.
    follow = {"shape kv_heads", "shape mlp"}
    for (_, axis, _), line in lines_of(plain).items():
        names = set(line[0]["options"])
        changing = {n for n in names if len({p["options"][n] for p in line}) > 1} - follow
        assert len(changing) == (1 if len(line) > 1 else 0), axis
