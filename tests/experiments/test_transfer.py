"""What carries over from one part to another: planted directions, and effects known by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sally_anne.core.console import Console
from sally_anne.core.errors import ProbingError
from sally_anne.experiments.config import TransferConfig
from sally_anne.experiments.transfer import ALL_SEEN, EmptyError, Part, carried, compare, run
from sally_anne.figures.comparison import PANELS
from sally_anne.hooks.identity import ModelIdentity
from sally_anne.probing.config import PatchingConfig, ProbeConfig
from sally_anne.probing.patching import run as patch
from sally_anne.probing.pipeline import run as probe
from sally_anne.probing.probes import Activations, HeadProbes
from tests.made_run import make_items

CONFIG = TransferConfig((), k=2, draws=40)
GROUPS = {"train": 24, "validation": 12, "test": 30}


def part(name: str, axes: dict[int, int], seed: int = 0, **more: Any) -> Part:
    """Y_p on one axis of some heads, numbered layer by layer of 3 x 4; no head knows Y_o."""
    items = make_items(GROUPS)
    items["group"] = f"{name}-" + items["group"]
    items["_content"] = items["group"]
    number = items["group"].str.rsplit("-", n=1).str[1].astype(int) % 6
    items["_cluster"] = items["split"] + "-map-" + number.astype(str)
    x = np.random.default_rng(seed).normal(size=(len(items), 3, 4, 6))
    for head, axis in axes.items():
        x[:, head // 4, head % 4, axis] += 3 * (2.0 * items["y_p"].to_numpy() - 1)
    found = Activations(x.astype("float32"), items, ("y_p", "y_o"))
    return Part(name, found, "y_p", HeadProbes(0.1), **more)


HERE = part("here", {5: 0, 9: 0})


@pytest.mark.parametrize("axis", [0, 3])
def test_a_direction_that_both_have_carries_over_and_another_axis_does_not(axis: int) -> None:
    found = compare(HERE, part("other", {5: axis, 9: axis}, seed=1), CONFIG)
    for name, least in {"accuracy": 0.98, "cosine": 0.95}.items():
        assert found[name]["above"] == (axis == 0) and found[name]["clusters"] == 6
        most = found[name]["control_high"] + 0.05
        assert found[name]["value"] > least if axis == 0 else found[name]["value"] < most


def test_a_threshold_that_is_elsewhere_leaves_the_direction() -> None:
    other = part("other", {5: 0, 9: 0}, seed=1)
    moved = replace(other, x=replace(other.x, x=other.x.x + 20 * np.eye(6, dtype="f4")[0]))
    found = compare(HERE, moved, CONFIG)
    assert (found["accuracy"]["value"], found["accuracy"]["above"]) == (0.5, False)
    assert found["centred"]["value"] > 0.98 and found["centred"]["above"]


def test_accuracy_is_that_of_the_best_head_by_validation_on_unseen_stories() -> None:
    target = part("target", {5: 0}, seed=2)
    # Ten of the target's test stories say what the source was trained or validated on.
    items = target.x.items.copy()
    tested = items.loc[items["split"] == "test", "group"].unique()
    seen = HERE.x.items.loc[HERE.x.items["split"] != "test", "_content"].unique()
    shared = [*seen[:5], *seen[-5:]]
    items["_content"] = items["_content"].replace(dict(zip(tested[:10], shared, strict=True)))
    target = replace(target, x=replace(target.x, items=items))
    found = compare(HERE, target, CONFIG)["accuracy"]
    kept = (items["split"] == "test") & ~items["group"].isin(tested[:10])
    probes = HeadProbes(0.1).fit(HERE.x.train, label="y_p")
    table = probes.rank(HERE.x.validation).sort_values("y_p_rank")
    best = tuple(table[["layer", "head"]].iloc[0])
    scores = probes.score(target.x.x[kept], items.loc[kept, "y_p"].to_numpy())
    assert (found["value"], found["n"]) == (scores[best], 80)
    assert found["heads"] == f"{best[0]}.{best[1]}"
    same = replace(target, x=replace(target.x, items=items.assign(_content=seen[0])))
    found = compare(HERE, same, CONFIG)
    assert found["accuracy"] == {"why": ALL_SEEN}


def test_a_part_without_two_classes_in_training_has_no_probes() -> None:
    whole = part("whole", {0: 1})
    for x in (whole.x[whole.x.values("y_p")], whole.x.test):
        with pytest.raises(ProbingError):
            _ = replace(whole, x=x).probes


def test_draws_that_lack_a_class_are_left_out() -> None:
    """Few groups are true, and each has one label."""
    rare = part("rare", {5: 0, 9: 0})
    few = rare.x.items.groupby("split")["group"].transform(lambda g: g.isin(g.unique()[:2]))
    rare.x.items["y_p"] = few.to_numpy()
    for source in (rare, part("other", {5: 0, 9: 0}, seed=1)):
        found = compare(source, rare, CONFIG)["cosine"]
        assert 0 <= found["low"] <= found["high"] <= 1


def test_classes_of_other_names_are_not_compared() -> None:
    named = part("named", {5: 0, 9: 0}, seed=1)
    named.x.items["y_p"] = np.where(named.x.items["y_p"], "yes", "no")
    for cell in compare(HERE, named, CONFIG).values():
        assert cell["why"] == "y_p has other classes"


def test_two_models_are_compared_where_that_means_something() -> None:
    other = part("other", {5: 3, 9: 3}, seed=1, identity=ModelIdentity(fingerprint="b"))
    source = replace(HERE, identity=ModelIdentity(fingerprint="a"))
    found = compare(source, other, CONFIG)
    assert "no common axes: two models" in found["cosine"]["why"]
    assert found["accuracy"]["note"].startswith("refitted: two models")
    own = other.probes.score(other.x.test.x, other.x.test.values("y_p"))
    assert found["accuracy"]["value"] == own[source.top[0]] > 0.98


def test_shares_by_hand() -> None:
    gap, own, clusters = np.array([4.0, 2.0, 2.0]), np.array([2.0, 2.0, 0.0]), ["a", "b", "b"]
    random = np.array([[0.0, 0.4], [0.0, 0.2], [0.0, 0.2]])
    found = carried(gap, own, random, clusters)
    assert (found["value"], found["low"], found["high"]) == (0.5, 0.5, 0.5)
    assert (found["clusters"], found["n"], found["note"]) == (2, 3, "")
    assert found["control"] == pytest.approx(0.05) and found["above"]
    few = carried(np.array([4.0, -1.0, 2.0]), own, random, clusters)
    assert few["note"] == "only 67% of pairs answered rightly"
    with pytest.raises(EmptyError, match="does not tell"):
        carried(-gap, own, random, clusters)


@pytest.mark.integration
def test_runs_of_a_tiny_model(model_folder: Path, tmp_path: Path) -> None:
    quiet = Console(quiet=True)
    folders = [tmp_path / f"split{seed}" for seed in (0, 1)]
    make = partial(ProbeConfig, setting="text", stories=60, figures=False, permutations=0)
    for seed, folder in enumerate(folders):
        probe(make(model=str(model_folder), split_seed=seed, patching=False, out=folder), quiet)
        scan: dict[str, Any] = {"pairs": 6, "validation_pairs": 3, "sizes": (2,)}
        patch(PatchingConfig(folder, random_sets=5, **scan), quiet)
    config = TransferConfig(
        tuple(folders), k=2, pairs=6, random_sets=5, draws=5, out=tmp_path / "found"
    )
    table = run(config, quiet)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "found" / "transfer.parquet"), table)
    assert len(table) == len(PANELS) * 4
    assert table["fitted_on"].unique().tolist() == [str(folder) for folder in folders]
    assert (table["value"].notna() | (table["why"] != "")).all()
    cells = table.set_index(["measure", "fitted_on", "tested_on"])
    for folder in folders:
        own = (str(folder),) * 2
        # The same heads on the same pairs of one run as the scan itself.
        sets = json.loads((folder / "patching.json").read_text())["question"]["sets"]
        (expected,) = (row for row in sets if row["by"] == "patching")
        for name, value in {"value": "effect", "low": "low"}.items():
            assert cells.loc[("share", *own), name] == pytest.approx(expected[value], rel=1e-4)
    by = run(replace(config, runs=(folders[0],), by="condition", out=tmp_path / "by"), quiet)
    assert by["fitted_on"].unique().tolist() == ["FB", "TB"]
    assert by.loc[by["measure"] == "share", "why"].unique().tolist() == [
        "pairs of questions join the parts of one run"
    ]
    for wrong in ({"by": "mood"}, {"label": "y_q"}, {"k": 65}, {"runs": (folders[0],)}):
        with pytest.raises(ProbingError):
            run(replace(config, **wrong), quiet)  # type: ignore[arg-type]
