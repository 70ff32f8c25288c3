"""The audit: what else than a belief could explain a run's accuracy."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sally_anne as sa
from probing.activations import Activations, items_table
from probing.audit import AuditConfig, choose_groups, run, verdict
from probing.baselines import film_changes
from probing.surface import Probed, surface_rows
from sally_anne.benchmarks.gridtom.contrasts import sample_set
from sally_anne.benchmarks.gridtom.stories import generated
from sally_anne.benchmarks.samples import Sample
from sally_anne.core.console import Console
from sally_anne.core.errors import ProbingError


def told(contrast: str) -> dict[tuple[str, str, str], tuple[float, float]]:
    """Accuracy on false-belief and on all samples, of each row of words, form and tags."""
    data = sample_set(generated(), 1, contrast, "text", 120)  # type: ignore[arg-type]
    items = items_table(data.samples)
    probed = Probed(data, Activations(np.zeros((len(items), 1, 1, 1)), items, ("y_p", "y_o")), 1, 9)
    found = {}
    for row in surface_rows(probed, 0):
        false = (items["condition"].iloc[row.rows] == "FB").to_numpy()
        assert (items["split"].iloc[row.rows] == "test").all()
        name = "perspective" if row.name.startswith("perspective") else row.name
        found[row.kind, name, row.label] = row.right[false].mean(), row.right.mean()
    return found


def test_form_gives_released_samples_away_and_matched_ones_not() -> None:
    released, matched = told("released"), told("matched")
    for label in ("y_p", "y_o"):
        for name in ("length in words", "marks and line breaks", "perspective"):
            assert matched["format", name, label] == (0.5, 0.5)
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


def made(*lines: tuple[str, str, str, bool]) -> pd.DataFrame:
    names = ["kind", "row", "condition", "reaches"]
    return pd.DataFrame(lines, columns=names).assign(label="y", accuracy=0.97, low=0.9, high=1.0)


def test_verdicts() -> None:
    lines = [
        ("view", "the run's own input", "all", True),
        ("format", "line breaks", "FB", False),
        ("answer", "verdict token", "all", False),
    ]
    said = verdict(made(*lines), "y", FACTS)
    assert said == (
        "y: the best head (layer 4 head 2) tells 0.980 [0.960, 1.000] of the test samples. "
        "Not confounded by format rows. No other row reaches it."
    )
    lines = [(kind, row, where, True) for kind, row, where, _ in lines]
    said = verdict(made(*lines, ("design", "room", "all", True)), "y", FACTS)
    assert "Confounded by format: line breaks 0.970 [0.900, 1.000] in FB." in said
    assert "The design decides it: room 0.970 [0.900, 1.000]." in said
    assert said.endswith("as well: verdict token 0.970 [0.900, 1.000].")
    assert verdict(made(*lines), "y", FACTS | {"best_low": 0.49}).endswith("nothing to explain.")


def test_too_few_stories(tmp_path: Path) -> None:
    with pytest.raises(ProbingError, match="--stories 5: the least is 6"):
        run(AuditConfig(run=tmp_path, stories=5))


@pytest.mark.integration
def test_a_run_is_audited(finished: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    printed = io.StringIO()
    table = run(AuditConfig(run=folder, stories=12), Console(file=printed, width=250))
    pd.testing.assert_frame_equal(pd.read_parquet(folder / "audit.parquet"), table)
    saved = json.loads((folder / "audit.json").read_text())
    assert saved["files"].keys() == {"audit.parquet"}
    said = " ".join(printed.getvalue().split())
    for label in ("y_p", "y_o"):
        own = table[table["label"] == label]
        assert {"verdict token", "untrained twin", "bag of words"} <= set(own["row"])
        assert ((own["low"] <= own["accuracy"]) & (own["accuracy"] <= own["high"])).all()
        assert saved["verdict"][label] in said
    assert set(table.loc[table["kind"] == "format", "condition"]) == {"all", "TB", "FB"}
    assert (table["kind"] == "content").sum() == 2
    assert saved["facts"]["left_out"] == ["films: the samples have none"]
    # Again, in a notebook: the same numbers.
    pd.testing.assert_frame_equal(sa.audit(folder, stories=12), table)


@pytest.mark.integration
def test_own_samples_with_films_are_audited(tmp_path: Path, carry: Callable[..., str]) -> None:
    from PIL import Image

    lines = []
    for i in range(14):
        for room in ("red", "blue"):
            names = []
            for n in range(2):
                names.append(f"{i}-{room}-{n}.png")
                Image.new("RGB", (56, 56), room).save(tmp_path / names[-1])
            text = f"The white agent is in a room. Story {i}. Belief: it is red."
            lines.append(
                {"text": text, "images": names, "labels": {"red": room == "red"}, "group": f"g{i}"}
            )
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    carry(tmp_path / "run", samples=path, stories=None, setting="multimodal")
    table = run(AuditConfig(run=tmp_path / "run", stories=12), Console(quiet=True))
    views = table[table["kind"] == "view"].set_index("row")["accuracy"]
    assert set(views.index) == {
        "the run's own input", "text alone", "blank film", "shuffled film", "another story's film"
    }  # fmt: skip
    # What is said is the same of both, so that nothing tells the label without the film.
    assert views["text alone"] == views["blank film"] == 0.5
    assert table.set_index("row").loc["bag of words", "accuracy"] == 0.5
