"""``evaluate --steer`` answers what plain transformers answers while the vector is on."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import torch

from sally_anne.cli import main
from sally_anne.data.gridtom.release import open_stories
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.gridtom import items_of
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.prompts import encode, reply_prompt

pytestmark = pytest.mark.integration

NEW = 6


@pytest.fixture(scope="module")
def loaded(model_folder: Path) -> LoadedModel:
    return load_model(str(model_folder))


def said(loaded: LoadedModel, vector: Path, alpha: float | None) -> dict[str, str]:
    """Replies of transformers' own ``generate`` under the hooks, one item at a time."""
    asked = EvalConfig(model=loaded.name, setting="text", limit=3)
    found = {}
    for item in items_of(asked, open_stories(None, asked.data_seed)):
        inputs = encode(loaded, [reply_prompt(loaded, item.text, False)], None)
        with torch.inference_mode(), SteeringVector.load(vector).apply(loaded.model, alpha):
            tokens = loaded.model.generate(**inputs, max_new_tokens=NEW, do_sample=False)
        reply = tokens[0, inputs["input_ids"].shape[1] :]
        found[item.item_id] = loaded.processor.decode(reply, skip_special_tokens=True)
    return found


def test_the_vector_is_used_at_the_strength_that_is_recorded(
    loaded: LoadedModel, steering_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[float | None, dict[str, str]] = {}
    for alpha in (0.0, None, -20.0):
        out = tmp_path / f"alpha{alpha}"
        words = ["--model", loaded.name, "--setting", "text", "--limit", "3", "--out", str(out)]
        words += ["--steer", str(steering_folder), "--max-new-tokens", str(NEW)]
        words += [] if alpha is None else ["--alpha", str(alpha)]
        main(["evaluate", *words])
        table = pd.read_parquet(out / "answers.parquet")
        told[alpha] = dict(zip(table["item_id"], table["reply"], strict=True))
        assert told[alpha] == said(loaded, steering_folder, alpha)
        about = json.loads((out / "results.json").read_text())["about"]
        assert about["alpha"] == alpha
        vector = json.loads(json.dumps(SteeringVector.load(steering_folder).describe()))
        assert about["steering"] == vector and vector["alpha"] == 50.0
    # Its own strength, another one and none are three different things to say.
    assert told[0.0] != told[None] != told[-20.0] != told[0.0]
