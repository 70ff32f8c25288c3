"""Side effects of a vector on tiny models."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.train_tiny.families import Family
from harness.model import Prompt, SteeredModel
from hooks.geometry import find_geometry
from models.loading import LoadedModel, load_model
from models.prompts import encode, reply_prompt
from steering.divergence import divergences, replies_of
from steering.saving import save_vector
from steering.side_effects import SideEffectsConfig, carry_out
from steering.vector import SteeringVector

PROMPTS = [Prompt("Where is the red agent now?"), Prompt("The door of the blue room is closed.")]


@pytest.fixture(scope="module")
def loaded(folders: dict[Family, Path]) -> LoadedModel:
    return load_model(str(folders["qwen2-vl"]))


@pytest.fixture(scope="module")
def vector(loaded: LoadedModel) -> SteeringVector:
    found = find_geometry(loaded.model)
    theta = torch.nn.functional.one_hot(torch.tensor([0, 1]), found.head_dim).float()
    heads = ((0, 1), (1, 0))
    return SteeringVector(heads, theta, torch.ones(2), found.n_layers, found.n_heads, alpha=30.0)


def test_divergence_is_that_of_plain_forwards(loaded: LoadedModel, vector: SteeringVector) -> None:
    plain, steered = SteeredModel(loaded), SteeredModel(loaded, vector)
    found = divergences(plain, steered, PROMPTS, 3, 2)
    for prompt, kl in zip(PROMPTS, found, strict=True):
        (reply,) = replies_of(plain, [prompt], 3)
        inputs = encode(loaded, [reply_prompt(loaded, prompt.text, False)], None)
        n = inputs["input_ids"].shape[1]
        logs = []
        for alpha in (0.0, 30.0):
            ids, rows = inputs["input_ids"], []
            with torch.no_grad(), vector.apply(loaded.model, alpha):
                cache = None
                for token in reply:
                    out = loaded.model(
                        input_ids=ids,
                        attention_mask=torch.ones(1, n + len(rows), dtype=torch.long),
                        past_key_values=cache,
                        use_cache=True,
                    )
                    cache = out.past_key_values
                    rows.append(out.logits[0, -1].double().log_softmax(-1))
                    ids = torch.tensor([[token]])
            logs.append(torch.stack(rows))
        p, q = logs
        assert kl == pytest.approx(float((p.exp() * (p - q)).sum(-1).mean()), rel=1e-3, abs=1e-6)
    assert found.min() > 0


def test_nothing_changes_at_alpha_0(loaded: LoadedModel, vector: SteeringVector) -> None:
    steered = SteeredModel(loaded, vector, 0.0)
    assert np.array_equal(divergences(SteeredModel(loaded), steered, PROMPTS, 3, 1), np.zeros(2))


def test_one_table_of_all(
    folders: dict[Family, Path],
    vector: SteeringVector,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_vector(vector, tmp_path / "vector")
    data = tmp_path / "bigtom" / "0_forward_belief_false_belief"
    data.mkdir(parents=True)
    (data / "stories.csv").write_text("Ann is in the red room.;Where is Ann?;In red.;In blue.\n")
    config = SideEffectsConfig(
        tmp_path / "vector",
        model=str(folders["qwen2-vl"]),
        tasks=("gridtom:initial", f"bigtom={tmp_path / 'bigtom'}"),
        setting="text",
        limit=2,
        out=tmp_path / "out",
        max_new_tokens=3,
    )
    found = carry_out(config)
    assert found["kl"]["value"] > 0
    assert set(found["tasks"]) == set(config.tasks)
    saved = json.loads((tmp_path / "out" / "side_effects.json").read_text())
    assert saved["kl"] == found["kl"]
    printed = capsys.readouterr().out
    assert "KL on" in printed and "gridtom:initial" in printed
    at_rest = carry_out(replace(config, alpha=0.0, out=tmp_path / "rest"))
    assert at_rest["kl"]["value"] == 0
    for measures in at_rest["tasks"].values():
        for cells in measures.values():
            assert cells["difference"]["value"] == 0
            assert cells["plain"] == cells["steered"]
