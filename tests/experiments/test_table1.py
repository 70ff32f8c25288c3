"""The printed table: ours with intervals, the paper's numbers beside."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from sally_anne.experiments import table1
from sally_anne.experiments.config import Table1Config
from sally_anne.experiments.table1 import print_table
from sally_anne.probing.probes import NoDirectionError
from sally_anne.steering.config import SweepConfig


def row(method: str, setting: str = "multimodal", order: int = 1) -> dict[str, object]:
    estimate = {"value": 0.25, "low": 0.2, "high": 0.3, "n": 500}
    measures = dict.fromkeys(("TB", "FB", "Both", "invalid"), estimate)
    return {"order": order, "setting": setting, "method": method, **measures}


def printed(rows: list[dict[str, object]], width: int = 80) -> list[str]:
    out = io.StringIO()
    print_table(Console(file=out, width=width), "some-model", "qwen2-vl", rows)
    return out.getvalue().splitlines()


def below(lines: list[str], name: str) -> list[str]:
    """The two lines of the row of this name: values, and their intervals."""
    (number,) = [i for i, line in enumerate(lines) if re.match(rf"{re.escape(name)} ", line)]
    return [" ".join(line.split()) for line in lines[number : number + 2]]


def test_paper_numbers_stand_below_their_own_method_alone() -> None:
    lines = printed([row("baseline"), row("+ alpha"), row("control: random")], 100)
    found = [line.split() for line in lines if line.startswith("  paper")]
    assert [line[-3:] for line in found] == [
        ["26.6", "97.0", "23.6"],
        ["60.4", "97.4", "31.2"],
    ]
    names = [line.split("  ")[0] for line in lines if "25.0 [20.0, 30.0]" in line]
    assert names == ["baseline", "+ alpha", "500 random directions"]
    order = [i for i, line in enumerate(lines) for name in names if line.startswith(name)]
    paper = [i for i, line in enumerate(lines) if line.startswith("  paper")]
    assert paper == [order[0] + 1, order[1] + 1]


def share(value: float) -> dict[str, float]:
    return {"value": value, "low": value - 0.025, "high": value + 0.025, "n": 20}


@pytest.mark.parametrize("specific", [True, False])
def test_rank_harm_and_side_conditions_stand_beside_in_80_columns(specific: bool) -> None:
    steered = row("+ alpha") | {
        "chosen": {"k": 8, "alpha": 0.8, "rank_by": "patching"},
        "control_rank": {"rank": 3, "of": 41, "beats_controls": specific},
        "worse": share(0.125),
        "initial": share(-0.02),
        "reality": share(0.07),
    }
    drawn = row("control: random_heads") | {
        "worse": share(0.3),
        "initial": share(-0.4),
        "reality": share(-0.5),
    }
    lines = printed([row("baseline"), steered, drawn])
    assert max(map(len, lines)) <= 80
    (start,) = [number for number, line in enumerate(lines) if "Controls:" in line]
    values, intervals = below(lines[start:], "K 8, alpha 0.8")
    assert values == "K 8, alpha 0.8 3 of 41 12.5 -2.0 7.0"
    verdict = "" if specific else "not specific "
    assert intervals == f"by patching {verdict}[10.0, 15.0] [-4.5, 0.5] [4.5, 9.5]"
    assert below(lines[start:], "500 random heads") == [
        "500 random heads 30.0 -40.0 -50.0",
        "[27.5, 32.5] [-42.5, -37.5] [-52.5, -47.5]",
    ]
    assert "steps of the same length" in " ".join(" ".join(lines).split())


def test_options_reach_every_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[SweepConfig] = []

    def swept(config: SweepConfig, console: Any, loaded: Any) -> Any:
        asked.append(config)
        return SimpleNamespace(test=None)

    family = SimpleNamespace(family=SimpleNamespace(name="qwen2-vl"))
    monkeypatch.setattr("sally_anne.experiments.table1.load_model", lambda **options: family)
    monkeypatch.setattr("sally_anne.experiments.table1.sweep", swept)
    config = Table1Config(
        model="m", out=tmp_path / "t", settings=("text",), orders=(1, 2), k=(3,), alpha=(0.5,),
        decode_batch_size=7, batch_size=2, limit=4, allow_mismatch=True,
        rank_by=("probe_accuracy", "patching"), random_controls=5,
        control_stories=9, leave_out=0, max_reality_drop=None, direction="lda", split_seed=3,
    )  # fmt: skip
    assert table1.run(config) == []
    assert [part.order for part in asked] == [1, 2]
    for part in asked:
        assert (part.k, part.alpha, part.limit, part.allow_mismatch) == ((3,), (0.5,), 4, True)
        assert (part.decode_batch_size, part.batch_size, part.setting) == (7, 2, "text")
        assert (part.rank_by, part.random_controls, part.control_stories) == (
            ("probe_accuracy", "patching"),
            5,
            9,
        )
        assert (part.leave_out, list(part.control_tasks), part.split_seed) == (0, ["initial"], 3)
        assert part.direction == "lda"
    assert {path.name for path in (tmp_path / "t").glob("*.json")} == {
        "config.json",
        "results.json",
        "run.json",
    }


def test_a_part_without_directions_is_named_and_the_others_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def swept(config: SweepConfig, console: Any, loaded: Any) -> Any:
        asked.append(config.setting)
        if config.setting == "video":
            raise NoDirectionError("K = 8: only 6 of 64 heads")
        return SimpleNamespace(test=None)

    family = SimpleNamespace(family=SimpleNamespace(name="qwen2-vl"))
    monkeypatch.setattr("sally_anne.experiments.table1.load_model", lambda **options: family)
    monkeypatch.setattr("sally_anne.experiments.table1.sweep", swept)
    config = Table1Config(model="m", out=tmp_path / "t", settings=("video", "text"), orders=("1",))
    table1.run(config)
    assert asked == ["video", "text"]
    said = "K = 8: only 6 of 64 heads"
    assert f"order 1, video: not steered, {said}" in capsys.readouterr().out
    kept = json.loads((tmp_path / "t" / "results.json").read_text())
    assert kept["not_steered"] == {"order 1, video": said}
    # Where none is left there is no table.
    alone = replace(config, settings=("video",), out=tmp_path / "alone")
    with pytest.raises(NoDirectionError, match="order 1, video: K = 8: only 6 of 64 heads"):
        table1.run(alone)
    assert not (tmp_path / "alone" / "results.json").exists()
