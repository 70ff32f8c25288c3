"""Heads by probe and heads by cause stand side by side in one sweep."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

import sally_anne.steering.sweep
from sally_anne.core.errors import SteeringError
from sally_anne.figures import sweep as picture
from sally_anne.figures.draw import table_in
from sally_anne.steering.config import SweepConfig
from sally_anne.steering.points import SweepPoint
from sally_anne.steering.reporting import Sweep
from sally_anne.steering.sweep import dry_run
from sally_anne.steering.sweep import run as work
from tests.steering.made_sweep import BELIEFS, BEST, CHOSEN, INITIAL, REALITY, percent, rows

pytestmark = pytest.mark.integration

BY_CAUSE = "logistic/patching/K2/alpha1"
DRAWN = ("random/patching/seed0/K2/alpha1", "random_heads/patching/seed0/K2/alpha1")
BOTH: dict[str, Any] = {"rank_by": ("probe_accuracy", "patching")}


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
    options = {"random_controls": 1, "leave_out": 0, "max_reality_drop": None}
    found, printed = sweep(width=120, run=caused, **options, **BOTH)
    assert found.chosen == SweepPoint("logistic", 2, 1.0, 0, "patching")
    assert [point.name for point in (*found.controls, *found.random_controls)] == [*DRAWN, *DRAWN]
    lines = printed.splitlines()
    told = "K 2 by patching, alpha 1"
    assert f"chosen on validation stories: {told}, direction logistic, heads by patching" in lines
    assert rows(printed) == {
        ("validation", "baseline"): percent("validation", "baseline"),
        ("validation", f"{told} *"): percent("validation", BY_CAUSE),
        ("validation", "K 2, alpha 1"): percent("validation", BEST),
        ("validation", "K 3, alpha 1"): percent("validation", CHOSEN),
        ("validation", "K 4, alpha 1"): percent("validation", "logistic/K4/alpha1"),
        ("validation", "K 2, alpha 2"): percent("validation", "logistic/K2/alpha2"),
        ("validation", "random directions"): percent("validation", DRAWN[0]),
        ("validation", "random heads"): percent("validation", DRAWN[1]),
        ("test", "baseline"): percent("test", "baseline"),
        ("test", f"{told} *"): percent("test", BY_CAUSE),
        ("test", "1 random directions"): percent("test", DRAWN[0]),
        ("test", "1 random heads"): percent("test", DRAWN[1]),
    }
    table = pd.read_parquet(config.folder / "sweep.parquet")
    named = table[table["k"] > 0].groupby("rank_by")["point"].unique()
    assert len(named["probe_accuracy"]) == len(named["patching"]) == 3 * 2 * 3
    assert all("/patching/" in name for name in named["patching"])
    shown = pd.read_parquet(config.folder / "figures" / "sweep.parquet")
    at = (shown["measure"] == "Both") & (shown["k"] == 2) & (shown["alpha"] == 1)
    assert shown[at].set_index(["rank_by", "direction"])["value"].to_dict() == {
        ("probe_accuracy", "logistic"): 0.9,
        ("probe_accuracy", "random"): 0.0,
        ("probe_accuracy", "random_heads"): 0.0,
        ("patching", "logistic"): 1.0,
        ("patching", "random"): 0.4,
        ("patching", "random_heads"): 0.5,
    }
    figure = picture.sweep_figure(picture.curves(table_in(config.folder, "sweep.parquet")), ())
    by = [axis.get_title() for axis in figure.axes]
    assert by == [
        f"K = {k}, heads by {name}" for name in ("probe_accuracy", "patching") for k in (2, 3, 4)
    ]


@pytest.mark.parametrize("heads", [("patching",), ("probe_accuracy", "patching")])
def test_a_run_without_causes_is_refused_before_any_work(
    config: SweepConfig, monkeypatch: pytest.MonkeyPatch, heads: tuple[Any, ...]
) -> None:
    monkeypatch.setattr(sally_anne.steering.sweep, "load_model", lambda **_: pytest.fail("loaded"))
    for start in (lambda c: work(c, Console(file=io.StringIO())), dry_run):
        with pytest.raises(SteeringError, match=f"run `sally-anne patch {config.run}` first"):
            start(replace(config, rank_by=heads))
    assert not config.folder.exists()
