"""The audit: what else than a belief could explain a run's accuracy."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import sally_anne as sa
from sally_anne.core.console import Console
from sally_anne.core.errors import ProbingError
from sally_anne.data.gridtom.samples import sample_set
from sally_anne.data.gridtom.stories import generated
from sally_anne.data.samples import Sample
from sally_anne.probing.audit import ALL, choose_groups, conclusion, run
from sally_anne.probing.baselines import FILMS, ProbeRun, film_changes, text_baselines
from sally_anne.probing.config import AuditConfig
from sally_anne.probing.probes import Activations, HeadProbes, items_table


def accuracies(contrast: str) -> dict[tuple[str, str, str], Any]:
    """Of words, form and tags: accuracy on false-belief and on all samples, or why it is empty."""
    data = sample_set(generated(), 1, contrast, "text", 120)  # type: ignore[arg-type]
    items = items_table(data.samples)
    x = Activations(np.zeros((len(items), 1, 1, 1)), items, ("y_p", "y_o"))
    probed = ProbeRun(data, x, HeadProbes(1, 400))
    found: dict[tuple[str, str, str], Any] = {}
    for row in text_baselines(probed, 0):
        name = "perspective" if row.name.startswith("perspective") else row.name
        if row.why:
            found[row.kind, name, row.label] = row.why
            continue
        false = (items["condition"].iloc[row.rows] == "FB").to_numpy()
        assert (items["split"].iloc[row.rows] == "test").all()
        found[row.kind, name, row.label] = row.right[false].mean(), row.right.mean()
    return found


def test_form_gives_released_samples_away_and_matched_ones_not() -> None:
    released, matched = accuracies("released"), accuracies("matched")
    for label in ("y_p", "y_o"):
        assert matched["format", "length in words", label] == (0.5, 0.5)
        for name in ("marks and line breaks", "perspective"):
            assert matched["format", name, label] == "training samples do not differ in it"
        assert released["format", "perspective", label][0] == 1.0
        assert released["format", "marks and line breaks", label][0] == 1.0
        assert released["format", "length in words", label][0] == 1.0
        assert released["words", "bag of words", label][0] == 1.0
    # Reality is tied to the last room; the belief takes the condition as well.
    room = "room named by the statement (first or last)"
    assert matched["design", room, "y_o"] == (1.0, 1.0)
    assert matched["design", room, "y_p"][1] == 0.5
    assert matched["design", "tags in pairs: condition x room", "y_p"] == (1.0, 1.0)
    assert matched["words", "bag of words", "y_p"][1] < 0.7


def test_films_are_changed_for_whole_contexts() -> None:
    samples = [
        Sample(
            f"{group}{end}",
            f"words {end}",
            video=np.full((6, 2, 2, 3), 10 * group + 1, dtype=np.uint8)
            + np.arange(6, dtype=np.uint8)[:, None, None, None],
            labels={"y": bool(end)},
            group=f"g{group}",
            split="train" if group < 3 else "test",
            context="one",
        )
        for group in range(6)
        for end in (0, 1)
    ]
    found = film_changes(samples, 0)
    assert list(found) == ["text alone", "blank film", "shuffled film", "another story's film"]
    assert not any(s.shows for s in found["text alone"])
    for i, sample in enumerate(samples):
        own = sample.frames()
        assert not found["blank film"][i].frames().any()
        shuffled, other = (found[n][i] for n in ("shuffled film", "another story's film"))
        assert sorted(shuffled.frames()[:, 0, 0, 0]) == sorted(own[:, 0, 0, 0])
        assert shuffled.shape() == sample.shape()
        assert (other.frames() != own).any()
        # Of the same split.
        assert (other.frames()[0, 0, 0, 0] > 30) == (sample.split == "test")
        assert (other.item_id, other.text, other.labels) == (
            sample.item_id, sample.text, sample.labels,
        )  # fmt: skip
    for name in ("shuffled film", "another story's film"):
        for one, two in zip(found[name][::2], found[name][1::2], strict=True):
            assert one.video is two.video
    assert any(
        (a.frames() != b.frames()).any()
        for a, b in zip(samples, found["shuffled film"], strict=True)
    )


def test_groups_are_chosen_from_all_clusters_in_turn() -> None:
    splits = ["train"] * 12 + ["validation"] * 6 + ["test"] * 8
    items = pd.DataFrame({"group": [f"g{i}" for i in range(26)], "split": splits})
    clusters = {f"g{i}": f"map-{i % 4}" for i in range(26)}
    rows, counts = choose_groups(items, clusters, 12)
    assert counts == {"train": 6, "validation": 2, "test": 4}
    assert {clusters[g] for g in items["group"].iloc[rows[-4:]]} == set(clusters.values())
    assert len(rows) == 12 and (np.diff(rows) > 0).all()


FACTS = {
    "layer": 4, "head": 2, "best_accuracy": 0.98, "best_low": 0.96, "best_high": 1.0, "chance": 0.5
}  # fmt: skip


def made(*lines: tuple[str, str, str, bool], why: str = "") -> pd.DataFrame:
    names = ["kind", "row", "condition", "reaches"]
    numbers = {"accuracy": 0.97, "low": 0.9, "high": 1.0}
    return pd.DataFrame(lines, columns=names).assign(label="y", why=why, **numbers)


def test_conclusions() -> None:
    lines = [
        ("view", "the run's own input", ALL, True),
        ("format", "line breaks", "FB", False),
        ("answer", "verdict token", ALL, False),
    ]
    words = conclusion(made(*lines), "y", FACTS)
    assert "(L4H2) tells 0.980 [0.960, 1.000]" in words
    assert "Not confounded by format rows. No other row reaches it." in words
    words = conclusion(made(*lines, why="not here"), "y", FACTS)
    assert words.endswith("Not compared: line breaks in FB, verdict token (not here).")
    lines = [(kind, row, where, True) for kind, row, where, _ in lines]
    words = conclusion(made(*lines, ("design", "room", ALL, True)), "y", FACTS)
    assert "Confounded by format: line breaks 0.970 [0.900, 1.000] in FB." in words
    assert "The design decides it: room 0.970" in words and "as well: verdict token" in words
    assert conclusion(made(*lines), "y", FACTS | {"best_low": 0.49}).endswith("nothing to explain.")
    one = FACTS | {"best_low": np.nan, "best_high": np.nan}
    assert "0.980 (no interval)" in conclusion(made(*lines), "y", one)
    chance = conclusion(made(*lines), "y", one | {"best_accuracy": 0.5})
    assert chance.endswith("nothing to explain.")


def test_too_few_stories(tmp_path: Path) -> None:
    with pytest.raises(ProbingError, match="--stories 5"):
        run(AuditConfig(run=tmp_path, stories=5))


@pytest.mark.integration
def test_a_run_is_audited(finished: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    printed = io.StringIO()
    table = run(AuditConfig(run=folder, stories=12), Console(file=printed, width=250))
    pd.testing.assert_frame_equal(pd.read_parquet(folder / "audit.parquet"), table)
    saved = json.loads((folder / "audit.json").read_text())
    assert saved["facts"].keys() == {"labels", "stories", "clusters", "sizes"}
    said = " ".join(printed.getvalue().split())
    assert said.endswith(f"sally-anne report {folder}")
    for label in ("y_p", "y_o"):
        own = table[table["label"] == label]
        assert {
            "verdict token", "random-init baseline", "random-init baseline, standardised",
            "bag of words"
        } <= set(own["row"])  # fmt: skip
        asked = own[own["samples"] > 0]
        assert asked["accuracy"].notna().all()
        # So few stories are tested on one map.
        assert (asked["clusters"] == 1).all() and asked[["low", "high"]].isna().all(axis=None)
        assert f"{asked['accuracy'].iloc[0]:.3f} (no interval)" in said
        assert "which are of one cluster" in saved["conclusions"][label]
        assert saved["conclusions"][label] in said
        films = own[own["why"] == "there is not a film of each sample"]
        assert list(films["row"]) == list(FILMS) and (films["samples"] == 0).all()
    assert set(table.loc[table["kind"] == "format", "condition"]) == {ALL, "TB", "FB"}
    content = table[table["kind"] == "content"]
    assert len(content) == 2 and (content["chance"] == 0.5).all()
    # Again, in a notebook: the same numbers.
    pd.testing.assert_frame_equal(sa.audit(folder, stories=12), table)


@pytest.mark.integration
def test_a_model_that_does_not_fit_costs_its_own_rows_alone(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("sally_anne.probing.baselines.dispatch_model", full)
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    printed = io.StringIO()
    table = run(AuditConfig(run=folder, stories=12), Console(file=printed, width=250))
    pairs = table[table["kind"] == "untrained"]
    assert len(pairs) == 4 and pairs["accuracy"].isna().all()
    assert pairs["why"].str.contains("out of memory: it does not fit next to the model").all()
    assert table[table["row"].isin(("verdict token", "bag of words"))]["accuracy"].notna().all()
    said = " ".join(printed.getvalue().split())
    assert (
        "Not compared: random-init baseline, random-init baseline, standardised (out of memory: it"
        in said
    )
