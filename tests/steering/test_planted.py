"""A vector that undoes a planted harm, and one that does nothing, each through a sweep of a model.

A last layer's head of the shipped model is made to put out a large constant beside what it attends
to. Nothing reads that layer but the model's own answer, so that steering by its opposite at the
last tokens gives the unharmed model's replies, and nothing else does.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from sally_anne.core.errors import SteeringError
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.hooks.geometry import find_geometry
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.steering.bake import bake_model
from sally_anne.steering.config import SweepConfig
from sally_anne.steering.fit import fit_vector
from sally_anne.steering.reporting import Sweep
from sally_anne.steering.sweep import Questions
from sally_anne.steering.sweep import run as sweep
from tests.made_run import make_items
from tests.steering.conftest import Made

pytestmark = pytest.mark.integration

HARMED, ELSEWHERE = (-1, 2), (1, 5)
ALPHA, STORIES = 200.0, 6


@pytest.fixture(autouse=True)
def stories_of_one_map(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first so many, of which the unharmed model answers most."""
    monkeypatch.setattr(
        "sally_anne.harness.gridtom.sample_groups",
        lambda rows, kinds, limit, seed: {name for name, _ in rows[:limit]},
    )


@pytest.fixture(scope="module")
def whole() -> LoadedModel:
    """By itself it answers more true-belief questions than the one that sees."""
    return load_model("tiny-qwen2-vl-text")


@pytest.fixture(scope="module")
def planted(whole: LoadedModel, write: Callable[..., Made]) -> Callable[..., Path]:
    """``planted(layer, head)``: a probing run by which that head alone tells the label."""

    def make(layer: int, head: int) -> Path:
        shape = find_geometry(whole.skeleton)
        items = make_items({"train": 12, "validation": 10, "test": 4})
        draw = np.random.default_rng(3)
        x = draw.normal(size=(len(items), shape.n_layers, shape.n_heads, shape.head_dim))
        x[:, layer, head, 0] += 8.0 * items["y_p"].to_numpy()
        return write(x.astype(np.float32), items).folder

    return make


@pytest.fixture(scope="module")
def harmed(whole: LoadedModel, planted: Callable[..., Path]) -> LoadedModel:
    """Minus the vector of the last layer's planted head, in the weights."""
    delta = fit_vector(planted(*HARMED), 1).delta(ALPHA)
    loaded = load_model("tiny-qwen2-vl-text")
    vars(loaded)["model"] = bake_model(whole.model, -delta)
    return loaded


def swept(
    run: Path, loaded: LoadedModel, out: Path, draws: int
) -> tuple[Sweep, list[str], SweepConfig]:
    config = SweepConfig(
        random_controls=draws,
        k=(1,),
        alpha=(ALPHA,),
        run=run,
        setting="text",
        limit=STORIES,
        max_initial_drop=None,
        max_new_tokens=4,
        out=out,
        # The run says that it is of another model.
        allow_mismatch=True,
    )
    printed = io.StringIO()
    found = sweep(config, Console(file=printed, width=120), loaded)
    return found, printed.getvalue().splitlines(), config


def test_a_vector_that_undoes_the_harm_is_above_all_its_controls(
    whole: LoadedModel, harmed: LoadedModel, planted: Callable[..., Path], tmp_path: Path
) -> None:
    found, lines, config = swept(planted(*HARMED), harmed, tmp_path / "sweep", 20)
    assert found.test is not None and found.control_rank is not None
    items = Questions(config).items("test")
    replies = SteeredModel(whole).generate([Prompt(item.text) for item in items], 4)
    own = found.test[found.test["point"] == found.chosen.name].set_index("item_id")["reply"]
    assert [own[item.item_id] for item in items] == replies
    right = [item.key[0] in reply for item, reply in zip(items, replies, strict=True)]
    pairs = [tb and fb for tb, fb in zip(right[::2], right[1::2], strict=True)]
    assert sum(pairs) > 0
    assert "rank 1 of 41, above all its controls" in lines
    (line,) = [line for line in lines if line.startswith("Both, less")]
    assert line.split("baseline's: ")[1].startswith(f"{100 * sum(pairs) / STORIES:.1f} ")
    # Reality, too, is told only when the harm is undone.
    (line,) = [line for line in lines if line.startswith("reality, less")]
    assert float(line.split("baseline's: ")[1].split()[0]) > 50


def test_a_vector_elsewhere_is_not_specific(
    harmed: LoadedModel,
    planted: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(SteeringError, match="nothing to choose"):
        swept(planted(*ELSEWHERE), harmed, tmp_path / "sweep", 4)
    assert not list((tmp_path / "sweep").glob("*/vector.safetensors"))
    table = pd.read_parquet(tmp_path / "sweep" / "sweep.parquet")
    assert (table.loc[table["measure"] == "Both", "value"] == 0).all()
    monkeypatch.setattr("sally_anne.steering.sweep.nothing_to_choose", lambda *_: "")
    found, lines, _ = swept(planted(*ELSEWHERE), harmed, tmp_path / "sweep", 4)
    assert found.control_rank is not None and not found.control_rank["beats_controls"]
    verdict = "not specific: random controls with steps of the same length do as well"
    assert f"rank 9 of 9, {verdict}" in lines
    assert not any("above all its controls" in line for line in lines)
