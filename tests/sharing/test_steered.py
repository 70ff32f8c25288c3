"""A vector from a hub steers as the one that was pushed, bit for bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

import sally_anne as sa
from sally_anne.cli import main
from sally_anne.hooks.geometry import find_geometry
from tests.sharing.fake_hub import Hub

pytestmark = pytest.mark.integration


def test_a_vector_of_a_hub_steers_as_the_one_pushed(
    hub: Hub, model_folder: Path, tmp_path: Path
) -> None:
    model = sa.load_model(str(model_folder))
    shape = find_geometry(model.model)
    generator = torch.Generator().manual_seed(3)
    theta = torch.randn(2, shape.head_dim, generator=generator).double()
    vector = sa.SteeringVector(
        heads=((3, 1), (1, 0)),
        theta=theta / theta.norm(dim=1, keepdim=True),
        sigma=torch.ones(2).double(),
        n_layers=shape.n_layers,
        n_heads=shape.n_heads,
        alpha=40.0,
        fitted={"model": str(model_folder), **model.identity.facts()},
    )
    commit = vector.push_to_hub("me/vector").rpartition("/")[2]
    assert not any(str(model_folder).encode() in data for data in hub.files("me/vector").values())
    inputs = model.processor(text=["the red agent goes into"], return_tensors="pt")

    def logits(steering: sa.SteeringVector | None) -> torch.Tensor:
        with torch.inference_mode():
            if steering is None:
                return model.model(**inputs).logits
            with steering.apply(model):
                return model.model(**inputs).logits

    found = sa.SteeringVector.load(f"me/vector@{commit}", model)
    assert torch.equal(logits(found), logits(vector))
    assert not torch.equal(logits(found), logits(None))

    # A new process, which knows the hub by its environment, with a cache of its own.
    told = {}
    for place in ("me/vector", str(vector.save(tmp_path / "vector"))):
        out = tmp_path / place.replace("/", "-")
        words = ["evaluate", "--model", str(model_folder), "--setting", "text", "--limit", "2"]
        words += ["--max-new-tokens", "4", "--steer", place, "--out", str(out)]
        if place == "me/vector":
            environment = os.environ | {"HF_HUB_CACHE": str(tmp_path / "another")}
            command = [sys.executable, "-m", "sally_anne", *words]
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        else:
            main(words)
        told[place] = pd.read_parquet(out / "answers.parquet")["reply"].tolist()
    there, here = told.values()
    assert there == here and len(here) == 4
