"""Heads by probe and heads by cause stand side by side in one sweep."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import sally_anne.steering.pipeline
from sally_anne.core.errors import SteeringError
from sally_anne.figures import sweep as picture
from sally_anne.figures.draw import table_in
from sally_anne.hooks.vector import SteeringVector
from sally_anne.steering.cells import Cell
from sally_anne.steering.fit import fit_vector
from sally_anne.steering.make import VectorConfig, settled
from sally_anne.steering.make import read_sweep as finished
from sally_anne.steering.pipeline import run as work
from sally_anne.steering.prepare import dry_run, probing_of
from sally_anne.steering.reporting import Sweep
from sally_anne.steering.sweep import SweepConfig
from tests.steering.made_sweep import BELIEFS, BEST, CHOSEN, INITIAL, REALITY, percent, rows

pytestmark = pytest.mark.integration

BY_CAUSE = "logistic/cause/K2/alpha1"
DRAWN = ("random/cause/seed0/K2/alpha1", "random_heads/cause/seed0/K2/alpha1")
BOTH: dict[str, Any] = {"heads": ("probe", "cause")}


@pytest.fixture
def caused(probed: Path, tmp_path: Path) -> Path:
    """The run with what each head carries: most of all the heads whose probes are the worst."""
    folder = Path(shutil.copytree(probed, tmp_path / "caused"))
    table = pd.read_parquet(folder / "heads.parquet")
    carried = table["y_p_rank"] / len(table)
    table.assign(question_effect_validation=carried).to_parquet(folder / "heads.parquet")
    return folder


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads by cause are the best of all, on validation and on test stories."""
    for split, right in (("validation", 10), ("test", 8)):
        monkeypatch.setitem(BELIEFS[split], BY_CAUSE, (right, 10, 0))
        for plan in (INITIAL, REALITY):
            monkeypatch.setitem(plan[split], BY_CAUSE, plan[split]["baseline"])
        for name, count in zip(DRAWN, (4, 5), strict=True):
            monkeypatch.setitem(BELIEFS[split], name, (count, 10, 0))


def test_the_best_of_both_is_chosen_beside_controls_of_its_own(
    sweep: Callable[..., tuple[Sweep, str]], config: SweepConfig, caused: Path, planned: None
) -> None:
    options = {"draws": 1, "leave_out": 0, "max_reality_drop": None}
    found, printed = sweep(width=120, run=caused, **options, **BOTH)
    assert found.chosen == Cell("logistic", 2, 1.0, 0, "cause")
    assert [cell.name for cell in (*found.controls, *found.draws)] == [*DRAWN, *DRAWN]
    lines = printed.splitlines()
    told = "K 2 by cause, alpha 1"
    assert f"chosen on validation stories: {told}, direction logistic, heads by cause" in lines
    assert rows(printed) == {
        ("validation", "as it is"): percent("validation", "baseline"),
        ("validation", f"{told} *"): percent("validation", BY_CAUSE),
        ("validation", "K 2, alpha 1"): percent("validation", BEST),
        ("validation", "K 3, alpha 1"): percent("validation", CHOSEN),
        ("validation", "K 4, alpha 1"): percent("validation", "logistic/K4/alpha1"),
        ("validation", "K 2, alpha 2"): percent("validation", "logistic/K2/alpha2"),
        ("validation", "random directions"): percent("validation", DRAWN[0]),
        ("validation", "random heads"): percent("validation", DRAWN[1]),
        ("test", "as it is"): percent("test", "baseline"),
        ("test", f"{told} *"): percent("test", BY_CAUSE),
        ("test", "1 random directions"): percent("test", DRAWN[0]),
        ("test", "1 random heads"): percent("test", DRAWN[1]),
    }
    table = pd.read_parquet(config.folder / "sweep.parquet")
    named = table[table["k"] > 0].groupby("heads")["cell"].unique()
    assert len(named["probe"]) == len(named["cause"]) == 3 * 2 * 3
    assert all("/cause/" in name for name in named["cause"])
    shown = pd.read_parquet(config.folder / "figures" / "sweep.parquet")
    at = (shown["measure"] == "Both") & (shown["k"] == 2) & (shown["alpha"] == 1)
    assert shown[at].set_index(["heads", "direction"])["value"].to_dict() == {
        ("probe", "logistic"): 0.9,
        ("probe", "random"): 0.0,
        ("probe", "random_heads"): 0.0,
        ("cause", "logistic"): 1.0,
        ("cause", "random"): 0.4,
        ("cause", "random_heads"): 0.5,
    }
    figure = picture.sweep_figure(picture.curves(table_in(config.folder, "sweep.parquet")), ())
    by = [axis.get_title() for axis in figure.axes]
    assert by == [f"K = {k}, heads by {name}" for name in ("probe", "cause") for k in (2, 3, 4)]


def test_vectors_are_of_the_heads_that_their_cells_name(
    sweep: Callable[..., tuple[Sweep, str]],
    config: SweepConfig,
    caused: Path,
    planned: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: dict[str, Any] = {}
    own = sally_anne.steering.pipeline.run_cells

    def noted(loaded: Any, items: Any, vectors: Any, *rest: Any) -> pd.DataFrame:
        asked.update({cell.name: vector for cell, vector in vectors.items()})
        return own(loaded, items, vectors, *rest)

    monkeypatch.setattr(sally_anne.steering.pipeline, "run_cells", noted)
    found, _ = sweep(run=caused, draws=1, leave_out=0, **BOTH)
    best = {by: fit_vector(caused, 2, heads=by) for by in ("probe", "cause")}
    assert not set(best["probe"].heads) & set(best["cause"].heads)
    assert asked[BEST].heads == best["probe"].heads
    for name in (BY_CAUSE, DRAWN[0]):
        assert asked[name].heads == best["cause"].heads
    assert not set(asked[DRAWN[1]].heads) & set(best["cause"].heads)
    np.testing.assert_allclose(asked[DRAWN[0]].sigma, best["cause"].sigma)
    assert SteeringVector.load(found.vector).heads == best["cause"].heads
    # The vector's command follows the sweep, and refuses the heads that it did not choose.
    vector = VectorConfig(sweep=config.folder)
    assert settled(vector, finished(config.folder)).heads == "cause"
    with pytest.raises(SteeringError, match="chose --heads cause, not probe"):
        settled(replace(vector, heads="probe"), finished(config.folder))


@pytest.mark.parametrize("heads", [("cause",), ("probe", "cause")])
def test_a_run_without_causes_is_refused_before_any_work(
    config: SweepConfig, monkeypatch: pytest.MonkeyPatch, heads: tuple[Any, ...]
) -> None:
    monkeypatch.setattr(
        sally_anne.steering.pipeline, "load_model", lambda **_: pytest.fail("loaded")
    )
    for start in (lambda c: work(c, Console(file=io.StringIO())), dry_run):
        with pytest.raises(SteeringError, match=f"run `sally-anne patch {config.run}` first"):
            start(replace(config, heads=heads))
    assert not config.folder.exists()


def test_a_run_that_is_made_is_made_with_causes(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert probing_of(SweepConfig(**BOTH), 648).patching
    assert not probing_of(SweepConfig(), 648).patching
    assert SweepConfig(**BOTH).folder.name.endswith("-headsprobe-cause")
    # As it was before there could be several.
    assert SweepConfig(heads=("cause",)).folder.name.endswith("-headscause")
