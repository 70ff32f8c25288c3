"""Tiny untrained models of both families, saved as a user would save them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from experiments.train_tiny.decoder import decoder_config
from experiments.train_tiny.families import FAMILIES, Family, build_model, build_processor
from experiments.train_tiny.vocabulary import build_tokenizer
from models.loading import LoadedModel, load_model


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[Family, Path]:
    """A saved model folder of each family."""
    found = {}
    for family in FAMILIES:
        torch.manual_seed(0)
        tokenizer = build_tokenizer()
        model = build_model(family, tokenizer, LlamaForCausalLM(decoder_config()), seed=0)
        found[family] = tmp_path_factory.mktemp(family)
        model.save_pretrained(found[family])
        build_processor(family, tokenizer).save_pretrained(found[family])
    return found


@pytest.fixture(scope="session", params=FAMILIES)
def loaded(request: pytest.FixtureRequest, folders: dict[Family, Path]) -> LoadedModel:
    """Each family's model, opened once: do not change it."""
    return load_model(str(folders[request.param]))


@pytest.fixture(params=FAMILIES)
def fresh(request: pytest.FixtureRequest, folders: dict[Family, Path]) -> LoadedModel:
    """Each family's model, opened for one test."""
    return load_model(str(folders[request.param]))


@pytest.fixture
def copy(folders: dict[Family, Path], tmp_path: Path) -> Callable[[Family], Path]:
    """A model folder that a test may damage."""

    def make(family: Family = "qwen2-vl") -> Path:
        return Path(shutil.copytree(folders[family], tmp_path / "copy" / family))

    return make


@pytest.fixture(scope="session")
def clips() -> list[np.ndarray]:
    """Two clips of seven frames."""
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (7, 420, 294, 3), dtype=np.uint8) for _ in range(2)]
