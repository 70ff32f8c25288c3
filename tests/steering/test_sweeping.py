"""Every point of a sweep is what the plain one-by-one evaluation gives."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from sally_anne.core import processes
from sally_anne.core.errors import OutOfMemoryError, SteeringError
from sally_anne.core.folder import Journal
from sally_anne.core.processes import BatchSize
from sally_anne.data.gridtom.stories import generated
from sally_anne.data.items import Question, Setting
from sally_anne.figures.sweep import curves
from sally_anne.harness import model as asking
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.evaluate import dry_run as evaluation_dry_run
from sally_anne.harness.evaluate import evaluate
from sally_anne.harness.gridtom import Wording, items
from sally_anne.harness.model import Prompt, SteeredModel, prefill_prompts
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.estimate import row_bytes_by_device
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prefix import State, extend
from sally_anne.probing.config import ProbeConfig
from sally_anne.probing.pipeline import run as probe
from sally_anne.steering import questions as module
from sally_anne.steering import sweep
from sally_anne.steering.config import SweepConfig
from sally_anne.steering.fit import fit_vector
from sally_anne.steering.points import Measure, SweepPoint, grid_of, vectors_of
from sally_anne.steering.questions import answer_points
from sally_anne.steering.sweep import Sweep, dry_run
from tests.steering.made_sweep import (
    BELIEFS,
    BEST,
    CHOSEN,
    CONTROLS,
    DRAWS,
    INITIAL,
    REALITY,
    STORIES,
    percent,
    vector,
    without,
)

pytestmark = pytest.mark.integration


def questions(setting: Setting) -> list[Question]:
    splits = {3: "validation", 77: "validation"}
    return list(items(generated(stories=splits), splits, "1", Wording(setting)))


GRID = grid_of((2, 6), (-20.0, 0.0, 20.0), ("logistic", "random"))


@pytest.mark.parametrize(
    ("setting", "rows", "together"),
    [
        # Nine settings of three items, then of the one that is left.
        ("text", 2, [*[2, 1] * 9, *[1] * 9]),  # a setting's items do not fit
        ("text", 7, [*[6] * 4, 3, *[2] * 4, 1]),  # two settings
        ("multimodal", "auto", [27, 9]),  # all of them
    ],
)
def test_cells_equal_one_by_one(
    lively: LoadedModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    setting: Setting,
    rows: BatchSize,
    together: list[int],
) -> None:
    asked = questions(setting)
    vectors = vectors_of(GRID, vector)
    sizes: list[int] = []

    def counted(loaded: LoadedModel, state: State, numbers: list[int], endings: list) -> State:
        sizes.append(len(numbers))
        return extend(loaded, state, numbers, endings)

    monkeypatch.setattr(module, "extend", counted)
    with Journal(tmp_path / "sweep.jsonl", {}) as journal:
        table = answer_points(lively, asked, vectors, journal, 3, rows, 4)
    assert sizes == together
    assert len(table) == len(asked) * len(GRID)
    for point, chosen in vectors.items():
        model = SteeredModel(lively, chosen)
        replies = table[table["point"] == point.name].set_index("item_id")["reply"]
        for item in asked:
            prompt = Prompt(item.text, item.clip() if item.clip else None)
            assert replies[item.item_id] == model.generate([prompt], 4)[0]
    assert table.groupby("item_id")["reply"].nunique().max() > 1


def test_rows_follow_from_memory_and_its_end_is_told(
    lively: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Free memory for so many rows beside the batch; then a machine that promised too much."""
    asked = questions("text")
    vectors = vectors_of(GRID, vector)
    (text,) = (item.text for item in [max(asked, key=lambda item: len(item.text))])
    state, (ending,) = prefill_prompts(lively, [Prompt(text)])
    tokens = state.mask.shape[1] + len(ending) + 4
    size = sum(row_bytes_by_device(lively.model, tokens).values())
    sizes: list[int] = []

    def crowded(loaded: LoadedModel, state: State, numbers: list[int], endings: list) -> State:
        if len(sizes) == 3:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate")
        sizes.append(len(numbers))
        return extend(loaded, state, numbers, endings)

    monkeypatch.setattr(processes, "free_memory", lambda device: (8 + 3) * size / 0.75)
    monkeypatch.setattr(module, "extend", crowded)
    with (
        Journal(tmp_path / "sweep.jsonl", {}) as journal,
        pytest.raises(
            OutOfMemoryError, match="smaller --decode-batch-size, then .* --batch-size, .*; what"
        ),
    ):
        answer_points(lively, asked, vectors, journal, 3, "auto", 4)
    assert sizes == [6, 6, 6]
    with Journal(tmp_path / "sweep.jsonl", {}) as journal:
        assert len(journal.answers) == 18
        monkeypatch.setattr(module, "extend", extend)
        resumed = answer_points(lively, asked, vectors, journal, 3, 5, 4)
    with Journal(tmp_path / "whole.jsonl", {}) as journal:
        whole = answer_points(lively, asked, vectors, journal, 3, "auto", 4)
    pd.testing.assert_frame_equal(resumed, whole)


QUIET = Console(quiet=True)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Tokens that the model is given, padding aside, pass by pass."""
    seen: list[int] = []
    own_prefill, own_extend = asking.prefill, asking.extend

    def reading(loaded: Any, inputs: Any, **how: Any) -> Any:
        seen.append(int(inputs["attention_mask"].sum()))
        return own_prefill(loaded, inputs, **how)

    def going_on(loaded: Any, state: Any, rows: Any, endings: Any) -> Any:
        seen.append(sum(len(ending) for ending in endings))
        return own_extend(loaded, state, rows, endings)

    monkeypatch.setattr(asking, "prefill", reading)
    for place in (asking, module):
        monkeypatch.setattr(place, "extend", going_on)
    return seen


def test_an_evaluation_reads_what_was_said(tmp_path: Path, read: list[int]) -> None:
    config = EvalConfig(model="tiny-llava-next-video", limit=3, batch_size=4, out=tmp_path / "run")
    figures = evaluation_dry_run(config, QUIET)
    assert not config.folder.exists() and not read
    with pytest.raises(SteeringError, match="nowhere"):
        evaluation_dry_run(replace(config, steer=tmp_path / "nowhere"), QUIET)
    table = evaluate(config, console=QUIET)
    assert figures["items"].value == len(table) == 6
    assert figures["batches"].value == 2
    assert figures["tokens read"].value == sum(read)
    assert figures["tokens written"].value == len(table) * config.reply_tokens


def test_a_sweep_asks_and_reads_what_was_said(
    tmp_path: Path, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Steering by half a deviation gains nothing on two stories.
    monkeypatch.setattr(Measure, "nothing_to_choose", lambda *_: "")
    probes = ProbeConfig(
        setting="text",
        stories=20,
        figures=False,
        permutations=19,
        patching=False,
        out=tmp_path / "probes",
    )
    probe(probes, QUIET)
    config = SweepConfig(
        setting="text",
        run=probes.folder,
        limit=2,
        k=(2,),
        alpha=(0.0, 0.5),
        # No choice drops so far: the first is taken.
        max_initial_drop=2.0,
        max_reality_drop=2.0,
        random_controls=2,
        batch_size=3,
        decode_batch_size=8,
        out=tmp_path / "sweep",
    )
    figures = sweep.dry_run(config, QUIET)
    assert not config.folder.exists()
    read.clear()
    sweep.run(config, QUIET)
    journals = sorted(config.folder.glob("*.jsonl"))
    answers = sum('"reply"' in line for path in journals for line in path.open())
    assert figures["points"].value == 1 + 3
    assert figures["answers"].value == answers
    assert figures["tokens read"].value == sum(read)


def test_what_is_saved_and_drawn(
    sweep: Callable[..., Sweep], config: SweepConfig, probed: Path
) -> None:
    found = sweep()
    folder = config.folder
    table = pd.read_parquet(folder / "sweep.parquet").set_index(["split", "point", "measure"])
    for split, plans in BELIEFS.items():
        for point in plans:
            for measure, share in zip(
                ("TB", "FB", "Both", "invalid"), percent(split, point), strict=True
            ):
                row = table.loc[(split, point, measure)]
                assert row["value"] == pytest.approx(share / 100)
                assert row["low"] <= row["value"] <= row["high"]
                assert row["n"] == (2 * STORIES if measure == "invalid" else STORIES)
    heads = fit_vector(probed, 3).heads[:2]
    rests = {f"logistic without L{layer}H{head}/K2/alpha1" for layer, head in heads}
    tested = set(table.loc["test"].index.get_level_values("point"))
    assert tested == set(BELIEFS["test"]) | rests

    saved = json.loads((folder / "results.json").read_text())
    assert saved["chosen"]["name"] == CHOSEN and saved["config"]["k"] == [2, 3, 4]
    both = {name: points["difference"]["Both"]["value"] for name, points in saved["test"].items()}
    assert both == pytest.approx({CHOSEN: 0.5})
    specific = saved["control_rank"]
    assert (specific["rank"], specific["of"], specific["beats_controls"]) == (1, 5, False)
    assert specific["p"] == pytest.approx(1 / 3)
    gains = dict(zip(DRAWS, (0.1, 0, -0.1, 0.4), strict=True))
    assert specific["controls"] == pytest.approx(gains)
    assert specific["kinds"]["random_heads"] == pytest.approx(
        {"value": 0.15, "low": -0.1, "high": 0.4, "n": 2}
    )
    assert saved["worse"]["value"] == pytest.approx(0.2)
    assert [(row["layer"], row["head"]) for row in saved["left_out"]] == list(heads)
    for row in saved["left_out"]:
        assert row["value"] == pytest.approx((7 - without(row["head"])) / 10)
    # Five stories gained, none lost: twice the chance of five heads in five throws.
    for task, gained, tried in (("initial", -0.2, (0.7, 0.9)), ("reality", -0.15, (0.8, 0.9))):
        gains = {split: gain["value"] for split, gain in saved[task].items()}
        assert gains == pytest.approx({"validation": 0.1, "test": gained})
        shares = table.xs(task, level="measure")["value"]
        # What was tried for the choice, and the choice's controls.
        assert set(shares["validation"].index) == {"baseline", BEST, CHOSEN, *CONTROLS}
        assert set(shares["test"].index) == {"baseline", CHOSEN, *DRAWS}
        assert tuple(shares["validation"][[BEST, CHOSEN]]) == pytest.approx(tried)
    assert saved["run"] == str(probed)

    vector = SteeringVector.load(folder / saved["vector"])
    again = fit_vector(probed, 3, 1.0)
    assert (vector.heads, vector.alpha, vector.direction) == (again.heads, 1.0, "logistic")
    assert vector.delta().equal(again.delta()) and bool(vector.delta().any())
    assert saved["vector"].startswith("order1-text-logistic-K3-alpha1-")
    assert found.vector == folder / saved["vector"]
    assert SteeringVector.load(folder).delta().equal(vector.delta())
    assert (folder / "report.html").exists()


def test_what_is_tried_for_comparison_and_on_test_stories_chooses_nothing(
    sweep: Callable[..., Sweep], config: SweepConfig, tmp_path: Path
) -> None:
    plain, found = sweep(), sweep(also=("y_o",), curves="test", out=tmp_path / "more")
    assert (found.chosen, found.control_rank) == (plain.chosen, plain.control_rank)
    table = curves(
        pd.read_parquet(tmp_path / "more" / "sweep.parquet"), {"config": {"curves": "test"}}
    )
    assert set(table["panel"]) == {"logistic", "y_o"} and set(table["split"]) == {"test"}
    assert not table.duplicated(["panel", "k", "direction", "measure", "alpha"]).any()


def test_heads_by_patching_next_to_heads_by_probe(
    sweep: Callable[..., Sweep],
    config: SweepConfig,
    probed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Heads by patching are planned as the best of all, and have controls of their own."""
    by_patching = "logistic/patching/K2/alpha1"
    controls = [f"{kind}/patching/seed0/K2/alpha1" for kind in ("random", "random_heads")]
    for split, right in (("validation", 10), ("test", 8)):
        monkeypatch.setitem(BELIEFS[split], by_patching, (right, 10, 0))
        for plan in (INITIAL, REALITY):
            monkeypatch.setitem(plan[split], by_patching, plan[split]["baseline"])
        for name, count in zip(controls, (4, 5), strict=True):
            monkeypatch.setitem(BELIEFS[split], name, (count, 10, 0))
    both = ("probe_accuracy", "patching")
    with pytest.raises(SteeringError, match="sally-anne patch"):
        dry_run(replace(config, rank_by=both))
    # Most is carried by the heads whose probes are the worst.
    folder = Path(shutil.copytree(probed, tmp_path / "patched"))
    table = pd.read_parquet(folder / "heads.parquet")
    effect = table["y_p_rank"] / len(table)
    table.assign(question_effect_validation=effect).to_parquet(folder / "heads.parquet")
    options: dict[str, Any] = {"random_controls": 1, "leave_out": 0, "max_reality_drop": None}
    found = sweep(run=folder, rank_by=both, **options)
    assert found.chosen == SweepPoint("logistic", 2, 1.0, 0, "patching")
    assert [p.name for p in found.random_controls] == controls
    saved = pd.read_parquet(config.folder / "sweep.parquet")
    shares = saved.set_index(["split", "point", "measure"])["value"]
    for split, point in (("test", by_patching), ("validation", BEST)):
        expected = percent(split, point)[2] / 100
        assert shares[split, point, "Both"] == pytest.approx(expected)
