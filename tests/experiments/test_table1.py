"""The printed table: ours with intervals, the paper's numbers beside."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from experiments import table1
from experiments.table1 import PAPER, Table1Config, print_table
from hooks.saved_run import CONFIG as FINISHED_RUN
from probing.config import ProbeConfig
from steering.prepare import probing_of
from steering.sweep import SweepConfig


def row(method: str, setting: str = "multimodal", order: int = 1) -> dict[str, object]:
    estimate = {"value": 0.25, "low": 0.2, "high": 0.3, "n": 500}
    measures = dict.fromkeys(("TB", "FB", "Both", "invalid"), estimate)
    return {"order": order, "setting": setting, "method": method, **measures}


def test_paper_numbers_stand_beside_their_own_method_alone() -> None:
    printed = io.StringIO()
    rows = [row("baseline"), row("+ alpha"), row("control: random")]
    print_table(Console(file=printed, width=200), "some-model", "qwen2-vl", rows)
    lines = [line for line in printed.getvalue().splitlines() if "multimodal" in line]
    assert "26.6 / 97.0 / 23.6" in lines[0]
    assert "60.4 / 97.4 / 31.2" in lines[1]
    assert "/" not in lines[2]
    assert all("25.0 [20.0, 30.0]" in line for line in lines)


def test_rank_and_side_conditions_stand_beside() -> None:
    share = {"value": 0.125, "low": 0.1, "high": 0.15, "n": 500}
    steered = row("+ alpha") | {"worse": share, "initial": {**share, "value": -0.02}}
    for specific, said in ((True, "3 of 41 "), (False, "3 of 41, not specific")):
        printed = io.StringIO()
        found = {"rank": 3, "of": 41, "specific": specific}
        rows = [row("baseline"), steered | {"specificity": found}]
        print_table(Console(file=printed, width=250), "m", "qwen2-vl", rows)
        plain, line = [line for line in printed.getvalue().splitlines() if "multimodal" in line]
        assert said in line and "12.5 [10.0, 15.0]" in line and "-2.0 [10.0, 15.0]" in line
        assert " of 41" not in plain and "12.5" not in plain
        assert ("not specific" in printed.getvalue()) == (not specific)
        assert "steps of the same length" in printed.getvalue()


def test_settings_that_the_paper_did_not_steer_stay_empty() -> None:
    printed = io.StringIO()
    print_table(Console(file=printed, width=200), "m", "qwen2-vl", [row("+ alpha", setting="text")])
    assert "/" not in next(line for line in printed.getvalue().splitlines() if " text " in line)


def test_both_is_never_more_than_either() -> None:
    for tb, fb, both in (numbers for pair in PAPER.values() for numbers in pair if numbers):
        assert both <= min(fb, tb if tb is not None else 100)


@pytest.mark.parametrize(
    ("limit", "stories", "wanted"), [(None, 648, None), (2, 648, 20), (20, 648, 60), (20, 30, 30)]
)
def test_a_limit_reaches_the_probing_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, stories: int, wanted: int
) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = SweepConfig(model="m", limit=limit, setting="text")
    found = probing_of(sweep, stories)
    alone = {"permutations": 0, "causal": False}
    assert found == ProbeConfig(model="m", setting="text", stories=wanted, **alone)
    # A finished run of all stories is better, and there already.
    whole = ProbeConfig(model="m", setting="text", **alone)
    whole.folder.mkdir(parents=True)
    (whole.folder / FINISHED_RUN).touch()
    assert probing_of(sweep, stories) == whole


def test_options_reach_every_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[SweepConfig] = []

    def swept(config: SweepConfig, console: Any, loaded: Any) -> Any:
        asked.append(config)
        return SimpleNamespace(test=None)

    family = SimpleNamespace(family=SimpleNamespace(name="qwen2-vl"))
    monkeypatch.setattr("sally_anne.models.loading.load_model", lambda **options: family)
    monkeypatch.setattr("steering.pipeline.run", swept)
    config = Table1Config(
        model="m", out=tmp_path / "t", settings=("text",), orders=(1, 2), k=(3,), alpha=(0.5,),
        decode_batch_size=7, batch_size=2, limit=4, force=True,
    )  # fmt: skip
    assert table1.run(config) == []
    assert [part.order for part in asked] == [1, 2]
    for part in asked:
        assert (part.k, part.alpha, part.limit, part.force) == ((3,), (0.5,), 4, True)
        assert (part.decode_batch_size, part.batch_size, part.setting) == (7, 2, "text")
    assert {path.name for path in (tmp_path / "t").glob("*.json")} == {
        "config.json",
        "results.json",
    }
