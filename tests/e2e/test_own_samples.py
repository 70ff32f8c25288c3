"""Sentences of one's own, from their file to heatmap, densities and vector, by commands alone."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from sally_anne.core.run import Run
from sally_anne.hooks.vector import SteeringVector
from tests.e2e.test_readme import command

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
SENTENCES = ROOT / "docs" / "examples" / "sentences.jsonl"


def said(folder: Path, *words: str | Path) -> str:
    done = command("-m", *map(str, words), cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_sentences_become_a_heatmap_densities_and_a_vector(tmp_path: Path) -> None:
    printed = said(tmp_path, "sally_anne.probing.run", "--samples", SENTENCES, "--out", "run")
    assert "40 groups, 80 samples" in printed
    assert "does not know" not in printed
    words = " ".join(printed.split())
    assert "room: best head L" in words and "chance 0.1" in words
    run = Run.open(tmp_path / "run")
    assert run.labels == ("fits", "room")
    assert run.saved["labels"]["fits"] == [False, True] and "red" in run.saved["labels"]["room"]
    assert run.title[1] == "samples sentences.jsonl"
    splits = run.samples.groupby("group")["split"].nunique()
    assert (splits == 1).all() and len(splits) == 40
    heads = run.heads
    # At its end a sentence still says which room it named.
    assert heads.loc[heads["room_rank"] == 1, "room_test_accuracy"].item() > 0.5
    drawn = {path.name for path in (tmp_path / "run" / "figures").iterdir()}
    assert {"heatmap.png", "kde.png", "kde_room.png"} <= drawn
    assert list(pd.read_parquet(tmp_path / "run" / "figures" / "kde.parquet"))[-3] == "fits"
    options = ("--run", "run", "--label", "fits", "--K", "4", "--alpha", "2", "--out", "vector")
    said(tmp_path, "sally_anne", "steer", *options)
    vector = SteeringVector.load(tmp_path / "vector")
    assert vector.k == 4 and vector.alpha == 2 and vector.fitted["label"] == "fits"
