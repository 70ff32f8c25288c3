"""What carries over from one part to another: planted directions, and effects known by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import hypergeom, spearmanr

from sally_anne.core.errors import ProbingError
from sally_anne.experiments.between import (
    ALL_SEEN,
    Causes,
    Part,
    Plan,
    accuracy,
    cosine,
    overlap,
    spearman,
)
from sally_anne.experiments.transfer import carried, directions, gained
from sally_anne.hooks.identity import ModelIdentity
from sally_anne.probing.probes import Activations, HeadProbes
from tests.made_run import make_items

PLAN = Plan(k=2, draws=40)
GROUPS = {"train": 24, "validation": 12, "test": 30}


def part(
    name: str, axes: dict[int, int], sign: float = 1.0, seed: int = 0, maps: int = 6, **more: Any
) -> Part:
    """Y_p on one axis of some heads, numbered layer by layer of 3 x 4; no head knows Y_o."""
    items = make_items(GROUPS)
    items["group"] = f"{name}-" + items["group"]
    items["content"] = items["group"]
    number = items["group"].str.rsplit("-", n=1).str[1].astype(int) % maps
    items["cluster"] = items["split"] + "-map-" + number.astype(str)
    x = np.random.default_rng(seed).normal(size=(len(items), 3, 4, 6))
    for head, axis in axes.items():
        x[:, head // 4, head % 4, axis] += 3 * sign * (2.0 * items["y_p"].to_numpy() - 1)
    found = Activations(x.astype("float32"), items, ("y_p", "y_o"))
    return Part(name, found, "y_p", HeadProbes(0.1), **more)


HERE = part("here", {5: 0, 9: 0})


def test_a_direction_that_both_have_carries_over() -> None:
    other = part("other", {5: 0, 9: 0}, seed=1)
    for measure in (accuracy, spearman, overlap, cosine):
        found = measure(HERE, other, PLAN)
        assert found["above"] or measure is spearman
        assert found["low"] <= found["high"] and found["clusters"] == 6
    assert accuracy(HERE, other, PLAN)["value"] > 0.98
    assert cosine(HERE, other, PLAN)["value"] > 0.95
    assert overlap(HERE, other, PLAN)["value"] == 1.0


def with_causes(name: str, heads: list[float], of: list[float] | None = None) -> Part:
    """Twelve heads' effects: by ``heads`` on validation, by ``of`` in each of six test pairs."""
    gap, items = np.full(6, 2.0), pd.DataFrame({"content": [f"{name} {i}" for i in range(6)]})
    items["cluster"] = [f"map {i % 3}" for i in range(6)]
    effects = np.tile(np.array(of or heads) * 2.0, (6, 1))
    causes = {"question": Causes(np.array(heads), gap, effects, items)}
    return replace(HERE, name=name, causes=causes)


def test_effects_that_are_planted_equal_or_turned_round() -> None:
    up = [float(i) for i in range(12)]
    source = with_causes("source", up)
    same, turned = with_causes("same", up), with_causes("turned", up[::-1])
    found = spearman(source, same, PLAN, "question")
    assert found["value"] == found["low"] == found["high"] == pytest.approx(1.0)
    assert found["above"] and (found["n"], found["clusters"]) == (6, 3)
    found = spearman(source, turned, PLAN, "question")
    assert found["value"] == pytest.approx(-1.0) and not found["above"]
    found = overlap(source, same, PLAN, "question")
    assert (found["value"], found["above"]) == (1.0, True)
    assert found["control"] == pytest.approx(2 / 12)
    assert found["p"] == pytest.approx(1 / 66)
    assert overlap(source, turned, PLAN, "question")["value"] == 0.0


def test_effects_are_of_pairs_that_the_source_has_not_seen() -> None:
    source, target = (with_causes(name, [float(i) for i in range(12)]) for name in "ab")
    items = target.causes["question"].items.copy()
    items.loc[:1, "content"] = HERE.seen["content"].iloc[0]
    half = replace(target, causes={"question": replace(target.causes["question"], items=items)})
    assert spearman(source, half, PLAN, "question")["n"] == 4
    items = items.assign(content=HERE.seen["content"].iloc[0])
    seen = replace(target, causes={"question": replace(target.causes["question"], items=items)})
    assert "seen all test pairs" in spearman(source, seen, PLAN, "question")["why"]
    lacking = replace(target, causes={}, why={"question": "not asked"})
    assert overlap(source, lacking, PLAN, "question") == {"why": "not asked"}


def test_another_axis_is_no_better_than_the_control() -> None:
    other = part("other", {5: 3, 9: 3}, seed=1)
    for measure in (accuracy, cosine):
        found = measure(HERE, other, PLAN)
        assert not found["above"] and found["value"] < found["control_high"] + 0.05
    # The heads are the same, though.
    assert overlap(HERE, other, PLAN)["value"] == 1.0


def test_accuracy_is_that_of_the_best_head_by_validation_on_unseen_stories() -> None:
    target = part("target", {5: 0}, seed=2)
    # Ten of the target's test stories say what the source was trained or validated on.
    items = target.x.items.copy()
    tested = items.loc[items["split"] == "test", "group"].unique()
    shared = [*HERE.seen["content"].unique()[[0, 1, 2, 3, 4, -1, -2, -3, -4, -5]]]
    items["content"] = items["content"].replace(dict(zip(tested[:10], shared, strict=True)))
    target = replace(target, x=replace(target.x, items=items))
    found = accuracy(HERE, target, PLAN)
    kept = (items["split"] == "test") & ~items["group"].isin(tested[:10])
    probes = HeadProbes(0.1).fit(HERE.x.train, label="y_p")
    table = probes.rank(HERE.x.validation).sort_values("y_p_rank")
    best = tuple(table[["layer", "head"]].iloc[0])
    scores = probes.score(target.x.x[kept], items.loc[kept, "y_p"].to_numpy())
    assert (found["value"], found["n"]) == (scores[best], 80)
    assert found["heads"] == f"{best[0]}.{best[1]}"
    seen = target.x.items.assign(content=HERE.seen["content"].iloc[0])
    same = replace(target, x=replace(target.x, items=seen))
    for measure in (accuracy, spearman, overlap):
        assert measure(HERE, same, PLAN) == {"why": ALL_SEEN}


def test_clusters_that_the_source_has_seen_are_left_out_on_demand() -> None:
    target = part("target", {5: 0}, seed=2)
    items = target.x.items.copy()
    items["cluster"] = items["cluster"].replace({"test-map-0": "train-map-0"})
    target = replace(target, x=replace(target.x, items=items))
    assert accuracy(HERE, target, PLAN)["n"] == 120
    assert accuracy(HERE, target, replace(PLAN, clusters=True))["n"] == 100


def test_rankings_agree_with_scipy_and_chance_with_the_hypergeometric() -> None:
    other = part("other", {5: 0, 2: 0, 9: 1}, seed=1)
    right = HERE.probes.score(HERE.x.validation.x, HERE.x.validation.values("y_p"))
    theirs = other.probes.score(other.x.test.x, other.x.test.values("y_p"))
    wanted = spearmanr(right.round(12).ravel(), theirs.round(12).ravel()).statistic
    assert spearman(HERE, other, PLAN)["value"] == pytest.approx(wanted, abs=1e-12)
    found = overlap(HERE, other, replace(PLAN, k=3))
    best = set(np.lexsort((other.scores(other.x.test)[1].mean(0), -theirs.ravel()))[:3])
    own = {4 * layer + head for layer, head in HERE.probes.ranked_[:3]}
    assert found["value"] == len(best & own) / 3 and found["control"] == pytest.approx(3 / 12)
    assert found["p"] == pytest.approx(hypergeom.sf(len(best & own) - 1, 12, 3, 3))


def test_two_models_are_compared_where_that_means_something() -> None:
    other = part("other", {5: 3, 9: 3}, seed=1, identity=ModelIdentity(fingerprint="b"))
    source = replace(HERE, identity=ModelIdentity(fingerprint="a"))
    assert "no common axes: two models" in cosine(source, other, PLAN)["why"]
    found = accuracy(source, other, PLAN)
    assert found["note"].startswith("refitted: two models") and found["value"] > 0.98
    own = other.probes.score(other.x.test.x, other.x.test.values("y_p"))
    assert found["value"] == own[source.top[0]]
    small = replace(other, x=replace(other.x, x=other.x.x[:, :2]))
    for measure in (spearman, overlap):
        assert measure(source, small, PLAN) == {"why": "3 x 4 heads against 2 x 4"}
        assert "value" in measure(source, other, PLAN)


def test_shares_by_hand() -> None:
    gap, own = np.array([4.0, 2.0, 2.0]), np.array([2.0, 2.0, 0.0])
    random = np.array([[0.0, 0.4], [0.0, 0.2], [0.0, 0.2]])
    found = carried(gap, own, random, ["a", "b", "b"], PLAN)
    assert (found["value"], found["clusters"], found["n"]) == (0.5, 2, 3)
    assert found["control"] == pytest.approx(0.05) and found["above"]
    assert (found["low"], found["high"]) == (0.5, 0.5)
    few = carried(np.array([4.0, -1.0, 2.0]), own, random, ["a", "b", "b"], PLAN)
    assert found["note"] == "" and few["note"] == "only 67% of pairs answered rightly"
    assert "does not tell" in carried(-gap, own, random, ["a", "b", "b"], PLAN)["why"]


def test_gains_by_hand() -> None:
    plain = np.array([True, False, False, False])
    after = np.array([[True, True, True, False], [False, False, False, False]])
    found = gained(plain, after, list("abcd"), PLAN)
    assert (found["value"], found["control"], found["note"]) == (0.5, -0.25, "without 0.25")
    delta = torch.zeros(3, 4, 6)
    delta[1, 2] = torch.arange(6.0)
    drawn = directions(delta, 5, seed=0)
    assert torch.equal(drawn[0], delta)
    assert torch.allclose(drawn.norm(dim=-1), delta.norm(dim=-1).expand(6, 3, 4))
    assert not torch.allclose(drawn[1], drawn[2])


def made_table() -> pd.DataFrame:
    rows = []
    for a in ("one", "two"):
        for b in ("one", "two"):
            cell = {"measure": "accuracy", "fitted_on": a, "tested_on": b, "value": 0.5}
            cell |= {"low": 0.4, "high": 0.6, "control_high": 0.55, "above": False, "why": ""}
            rows.append(cell | {"note": ""})
    rows[1] |= {"value": 0.9, "above": True}
    rows[2] |= {"value": np.nan, "why": "two models"}
    return pd.DataFrame(rows + [row | {"measure": "cosine", "value": np.nan} for row in rows])


@pytest.mark.integration
def test_runs_of_a_tiny_model(model_folder: Path, tmp_path: Path) -> None:
    from sally_anne.core.console import Console
    from sally_anne.experiments.config import TransferConfig
    from sally_anne.experiments.transfer import run
    from sally_anne.probing.config import PatchingConfig, ProbeConfig
    from sally_anne.probing.patching import run as causal
    from sally_anne.probing.pipeline import run as probe

    quiet = Console(quiet=True)
    folders = [tmp_path / f"split{seed}" for seed in (0, 1)]
    for seed, folder in enumerate(folders):
        options: dict[str, Any] = {"setting": "text", "stories": 60, "figures": False}
        options |= {"model": str(model_folder), "split_seed": seed, "out": folder}
        options |= {"permutations": 19, "patching": False}
        probe(ProbeConfig(**options), quiet)
        scan: dict[str, Any] = {"pairs": 6, "validation_pairs": 3, "sizes": (2,)}
        causal(PatchingConfig(folder, kinds=("question",), random_sets=5, **scan), quiet)
    config = TransferConfig(
        tuple(folders), k=2, pairs=6, random_sets=5, draws=5, alpha=2.0, out=tmp_path / "found"
    )
    table = run(config, quiet)
    saved = pd.read_parquet(tmp_path / "found" / "transfer.parquet")
    pd.testing.assert_frame_equal(saved, table)
    assert (tmp_path / "found" / "transfer.png").stat().st_size > 10_000
    assert len(table) == 10 * 4
    assert table["fitted_on"].unique().tolist() == ["split seed 0", "split seed 1"]
    assert (table["value"].notna() | (table["why"] != "")).all()
    # The same heads on the same pairs of one run as the scan itself.
    cells = table[table["measure"] == "share"].set_index(["fitted_on", "tested_on"])
    for seed, folder in enumerate(folders):
        sets = json.loads((folder / "patching.json").read_text())["question"]["sets"]
        (wanted,) = (row for row in sets if row["by"] == "patching")
        own = cells.loc[(f"split seed {seed}", f"split seed {seed}")]
        assert own["value"] == pytest.approx(wanted["effect"], abs=1e-5)
        assert own["low"] == pytest.approx(wanted["low"], abs=1e-5)
        # Effects of each pair are those of which the table of heads holds the sums.
        heads = pd.read_parquet(folder / "heads.parquet")
        wanted = spearmanr(heads["question_effect_validation"], heads["question_effect"]).statistic
        effects = table[table["measure"] == "question_spearman"]
        effects = effects.set_index(["fitted_on", "tested_on"])["value"]
        name = f"split seed {seed}"
        assert effects.loc[(name, name)] == pytest.approx(wanted, abs=1e-6)
    by = run(replace(config, runs=(folders[0],), by="condition", out=tmp_path / "by"), quiet)
    assert by["fitted_on"].unique().tolist() == ["FB", "TB"]
    assert by.loc[by["measure"] == "share", "why"].unique().tolist() == [
        "pairs of questions join the parts of one run"
    ]
    for wrong, words in (
        ({"by": "mood"}, "--by mood: the samples of .* have the tags condition"),
        ({"label": "y_q"}, "--label y_q: .* has the labels y_p, y_o"),
        ({"k": 65}, "--K 65: split seed 0 has"),
        ({"runs": (folders[0],)}, "--by"),
    ):
        with pytest.raises(ProbingError, match=words):
            run(replace(config, **wrong), quiet)  # type: ignore[arg-type]
