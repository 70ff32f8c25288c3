"""A sweep whose every reply is made up: each number that it saves is known."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sally_anne.core.errors import SteeringError
from sally_anne.hooks.vector import SteeringVector
from sally_anne.steering.config import SweepConfig
from sally_anne.steering.fit import fit_vector
from sally_anne.steering.points import SweepPoint
from sally_anne.steering.reporting import Sweep
from sally_anne.steering.sweep import dry_run
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
    without,
)

pytestmark = pytest.mark.integration


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
    assert saved["test"][CHOSEN]["mcnemar_both"] == pytest.approx(2 / 2**5)
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
    assert (folder / "report.html").exists()


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
    assert [p.name for p in (*found.controls, *found.random_controls)] == 2 * controls
    saved = pd.read_parquet(config.folder / "sweep.parquet")
    shares = saved.set_index(["split", "point", "measure"])["value"]
    for split, point in (("test", by_patching), ("validation", BEST)):
        expected = percent(split, point)[2] / 100
        assert shares[split, point, "Both"] == pytest.approx(expected)
