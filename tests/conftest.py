"""Tiny untrained models of both families, saved as a user would save them."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from sally_anne.models.tiny import (
    FAMILIES,
    Family,
    build_model,
    build_processor,
    build_tokenizer,
    decoder_config,
)

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
