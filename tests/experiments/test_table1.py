"""The printed table: ours with intervals, the paper's numbers beside."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

import sally_anne.harness.evaluate
from sally_anne.core.errors import BenchmarkError
from sally_anne.core.folder import Journal
from sally_anne.data.gridtom.stories import StoryRecord, StorySet
from sally_anne.data.items import Question
from sally_anne.experiments import table1
from sally_anne.experiments.config import Table1Config
from sally_anne.experiments.table1 import against_prompting, print_table
from sally_anne.harness.evaluate import ask
from sally_anne.harness.gridtom import items_of
from sally_anne.harness.model import SteeredModel
from sally_anne.harness.score import score
from sally_anne.probing.config import ProbeConfig
from sally_anne.probing.probes import NoDirectionError
from sally_anne.steering.config import SteeringOptions, SweepConfig
from tests.made_stories import made_stories, made_story
from tests.steering.conftest import answered, probed  # noqa: F401  # fixtures
from tests.steering.made_sweep import STORIES, said

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
    people = [["99.9", "99.9", "99.8"]]
    assert found == [*people, ["26.6", "97.0", "23.6"], ["60.4", "97.4", "31.2"]]
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
        return None

    def alone(config: Any, **options: Any) -> pd.DataFrame:
        asked = items_of(config, made_stories())
        return score(asked, [{"reply": "Hm."}] * len(asked))

    monkeypatch.setattr(table1, "load_model", lambda **options: FAMILY)
    monkeypatch.setattr(table1, "steered_rows", lambda part, found: [])
    monkeypatch.setattr(table1, "write_index", lambda folders, path: path)
    monkeypatch.setattr(table1, "evaluate", alone)
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
    (alone,) = table1.run(config)
    assert [part.setting for part in asked] == ["video", "text"]
    # There the model as it is stands by itself.
    assert (alone["method"], alone["setting"]) == ("baseline", "video")
    assert alone["invalid"]["value"] == 1
    kept = json.loads((tmp_path / "t" / "results.json").read_text())
    assert kept["not_steered"] == {"order 1, video": "K = 8: only 6 of 64 heads"}


def test_data_without_second_order_give_the_table_of_first_order(
    tmp_path: Path, asked: list[SweepConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    def first_order(*_: Any) -> StorySet:
        def make(index: int) -> StoryRecord:
            story = made_story(index)
            return replace(story, versions=story.versions[:2])

        return StorySet(range(3), make, "", str)

    monkeypatch.setattr(table1, "open_stories", first_order)
    config = Table1Config(model="m", out=tmp_path, settings=("text",), data=tmp_path / "d")
    assert table1.run(config) == [] and [part.order for part in asked] == ["1"]
    with pytest.raises(BenchmarkError, match="no questions of order 2"):
        table1.run(replace(config, orders=("2",)))


# Of ten TB, ten FB, thirty initial-belief and twenty reality questions: how many are answered
# rightly, from the first on. The chosen point has 7 and 8, the model as it is 2, 10, 30 and 20.
PLAN = {
    "cot": {"TB": 10, "FB": 9, "initial": 15, "reality": 20},
    "few-shot": {"TB": 3, "FB": 4, "initial": 30, "reality": 10},
}


def planted(items: Sequence[Question]) -> list[dict[str, str]]:
    how = "cot" if items[0].reasons else "few-shot"
    assert items[0].text.startswith("Here are questions") == (how == "few-shot")
    counts: dict[str, int] = {}
    found = []
    for item in items:
        kind = item.item_id.split("/")[1]
        n = counts[kind] = counts.get(kind, 0) + 1
        found.append({"item_id": item.item_id, "reply": said(item, n <= PLAN[how][kind])})
    return found


@pytest.fixture
def config(
    model_folder: Path,
    probed: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Table1Config:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(probed, ProbeConfig(model=str(model_folder), setting="text").folder)
    few = {"settings": ("text",), "orders": ("1",), "limit": STORIES, "out": tmp_path / "table"}
    few["position"] = "statement"
    grid = {"k": (2, 3, 4), "alpha": (1.0, 2.0), "random_controls": 2, "leave_out": 2}
    return Table1Config(model=str(model_folder), prompting=("cot", "few-shot"), **few, **grid)


@pytest.mark.integration
def test_rows_of_prompting_stand_beside_the_steered_one(
    config: Table1Config,
    answered: Any,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def prepared(model: SteeredModel, items: Sequence[Question], journal: Journal, *rest, **named):
        journal.add(planted(items))
        return ask(model, items, journal, *rest, **named)

    monkeypatch.setattr(sally_anne.harness.evaluate, "ask", prepared)
    rows = {row["method"]: row for row in table1.run(config)}
    printed = " ".join(capsys.readouterr().out.split())

    def percents(row: dict[str, Any], *names: str) -> list[float]:
        return [pytest.approx(100 * row[name]["value"]) for name in names]

    measures = ("TB", "FB", "Both", "invalid", "worse", "initial", "reality")
    assert percents(rows["+ alpha"], "TB", "FB", "Both") == [70, 80, 70]
    assert percents(rows["prompting: cot"], *measures) == [100, 90, 90, 0, 10, -50, 0]
    assert percents(rows["prompting: few-shot"], *measures) == [30, 40, 30, 0, 60, 0, -50]
    assert percents(rows["prompting: cot"]["over_steered"], "TB", "FB", "Both") == [30, 10, 20]
    assert rows["prompting: cot"]["Both"]["n"] == STORIES
    assert "text, order 1: " in printed and "of the best prompting (cot)" in printed
    assert "less the steered model's: 20.0 [" in printed

    # What is there is not asked again.
    monkeypatch.setattr(sally_anne.harness.evaluate, "ask", ask)
    monkeypatch.setattr(SteeredModel, "replies", None)
    again = {row["method"]: row for row in table1.run(config)}
    assert json.dumps(again, default=str) == json.dumps(rows, default=str)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.02, 0.2, "prompting beats steering"),
        (-0.3, -0.1, "steering beats prompting"),
        (-0.1, 0.2, "neither is shown"),
    ],
)
def test_the_best_prompting_is_held_against_the_steered_model(low, high, verdict) -> None:
    def row(how: str, both: float) -> dict[str, Any]:
        gain = {"Both": {"value": (low + high) / 2, "low": low, "high": high}}
        row = {"setting": "video", "order": 2, "method": f"prompting: {how}", "point": how}
        return row | {"Both": {"value": both}, "over_steered": gain}

    others = {"setting": "text", "order": 1, "method": "+ alpha", "Both": {"value": 1.0}}
    (line,) = against_prompting([others, row("cot", 0.4), row("simtom", 0.5)])
    assert line.startswith(f"video, order 2: {verdict}") and "simtom" in line
