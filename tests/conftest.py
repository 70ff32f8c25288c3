"""Tiny untrained models of both families, saved as a user would save them."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import LlamaForCausalLM

from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.tiny import (
    FAMILIES,
    Family,
    build_model,
    build_processor,
    build_tokenizer,
    decoder_config,
)
from tests.models.checkpoints import save

# The longest first, so that both workers have something to do until the end.
TIERS = ("published", "e2e", "plugins", "integration", "fuzz")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def tier(item: pytest.Item) -> int:
        marks = (i for i, name in enumerate(TIERS) if item.get_closest_marker(name))
        return next(marks, len(TIERS))

    items.sort(key=tier)


def pytest_collection_finish() -> None:
    # What is loaded by now stays: no later collection of garbage looks through it again.
    gc.freeze()


def save_model(family: Family, folder: Path, change: Callable[[Any], object] = id) -> Path:
    """An untrained model of a family, its weights changed, saved as a user would save it."""
    torch.manual_seed(0)
    tokenizer = build_tokenizer()
    model = build_model(family, tokenizer, LlamaForCausalLM(decoder_config()), seed=0)
    with torch.no_grad():
        change(model)
    model.save_pretrained(folder)
    build_processor(family, tokenizer).save_pretrained(folder)
    return folder


@torch.no_grad()
def enlarge(model: torch.nn.Module) -> None:
    """Weights so large that prompts differ in their answers."""
    for name, parameter in model.named_parameters():
        if "norm" not in name:
            parameter.normal_(std=0.1)


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[Family, Path]:
    """A saved model folder of each family."""
    return {family: save_model(family, tmp_path_factory.mktemp(family)) for family in FAMILIES}


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model with weights large enough that prompts differ in their answers.

    As it is made, its activations hardly differ, and every probe stays at zero.
    """
    return save_model("qwen2-vl", tmp_path_factory.mktemp("tiny-model"), enlarge)


@pytest.fixture(scope="module", params=FAMILIES)
def lively(request: pytest.FixtureRequest, folders: dict[Family, Path]) -> LoadedModel:
    """Each family's model with weights that make replies differ from prompt to prompt."""
    loaded = load_model(str(folders[request.param]))
    torch.manual_seed(1)
    enlarge(loaded.model)
    # Tied to the embeddings, it would say the same word again and again.
    loaded.model.lm_head.weight = nn.Parameter(torch.randn_like(loaded.model.lm_head.weight))
    return loaded


@pytest.fixture(scope="session")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], LoadedModel]:
    """`opened(name)`: a checkpoint of the class, saved and opened once: do not change it."""
    return cache(lambda name: load_model(str(save(name, tmp_path_factory.mktemp(name)))))
