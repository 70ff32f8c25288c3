"""The printed table: ours with intervals, the paper's numbers beside."""

from __future__ import annotations

import io
import json
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from sally_anne.experiments import table1
from sally_anne.experiments.config import Table1Config
from sally_anne.experiments.table1 import print_table
from sally_anne.probing.probes import NoDirectionError
from sally_anne.steering.config import SteeringOptions, SweepConfig

FAMILY = SimpleNamespace(family=SimpleNamespace(name="qwen2-vl"), place="cpu", dtype="float32")


def row(method: str) -> dict[str, object]:
    estimate = {"value": 0.25, "low": 0.2, "high": 0.3, "n": 500}
    measures = dict.fromkeys(("TB", "FB", "Both", "invalid"), estimate)
    return {"order": 1, "setting": "multimodal", "method": method, **measures}


def test_paper_numbers_stand_below_their_own_method_alone() -> None:
    out = io.StringIO()
    rows = [row("baseline"), row("+ alpha"), row("control: random")]
    print_table(Console(file=out, width=100), "some-model", "qwen2-vl", rows)
    lines = out.getvalue().splitlines()
    found = [line.split()[-3:] for line in lines if line.startswith("  paper")]
    assert found == [["26.6", "97.0", "23.6"], ["60.4", "97.4", "31.2"]]
    names = [line.split("  ")[0] for line in lines if "25.0 [20.0, 30.0]" in line]
    assert names == ["baseline", "+ alpha", "500 random directions"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[SweepConfig]:
    """Sweeps that were asked for; those of films find no directions, the others nothing."""
    configs: list[SweepConfig] = []

    def swept(config: SweepConfig, console: Any, loaded: Any) -> Any:
        configs.append(config)
        if config.setting == "video":
            raise NoDirectionError("K = 8: only 6 of 64 heads")
        return SimpleNamespace(test=None)

    monkeypatch.setattr(table1, "load_model", lambda **options: FAMILY)
    monkeypatch.setattr(table1, "sweep", swept)
    return configs


def test_options_reach_every_sweep(tmp_path: Path, asked: list[SweepConfig]) -> None:
    config = Table1Config(
        model="m", out=tmp_path / "t", settings=("text",), k=(3,), alpha=(0.5,), batch_size=2,
        decode_batch_size=7, limit=4, allow_mismatch=True, rank_by=("patching",), leave_out=0,
        random_controls=5, max_reality_drop=None, direction="lda", split_seed=3,
    )  # fmt: skip
    assert table1.run(config) == []
    assert [(part.order, part.setting) for part in asked] == [("1", "text"), ("2", "text")]
    for name in {field.name for field in fields(SteeringOptions)} - {"out"}:
        assert {getattr(part, name) for part in asked} == {getattr(config, name)}


def test_a_part_without_directions_is_named(tmp_path: Path, asked: list[SweepConfig]) -> None:
    config = Table1Config(model="m", out=tmp_path / "t", settings=("video", "text"), orders=("1",))
    table1.run(config)
    assert [part.setting for part in asked] == ["video", "text"]
    kept = json.loads((tmp_path / "t" / "results.json").read_text())
    assert kept["not_steered"] == {"order 1, video": "K = 8: only 6 of 64 heads"}
    # Where none is left there is no table.
    with pytest.raises(NoDirectionError, match="order 1, video: K = 8: only 6 of 64 heads"):
        table1.run(replace(config, settings=("video",), out=tmp_path / "alone"))
    assert not (tmp_path / "alone" / "results.json").exists()
