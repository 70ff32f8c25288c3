"""A tiny untrained model in a folder, and runs on it."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from transformers import LlamaForCausalLM

from experiments.train_tiny.decoder import decoder_config
from experiments.train_tiny.families import build_model, build_processor
from experiments.train_tiny.vocabulary import build_tokenizer
from models.loading import LoadedModel
from probing.config import ProbeConfig
from probing.pipeline import carry_out


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    tokenizer = build_tokenizer()
    model = build_model("qwen2-vl", tokenizer, LlamaForCausalLM(decoder_config()), seed=0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # As it is made, its activations hardly differ, and every probe stays at zero.
            if "norm" not in name:
                parameter.normal_(std=0.1)
    folder = tmp_path_factory.mktemp("tiny-model")
    model.save_pretrained(folder)
    build_processor("qwen2-vl", tokenizer).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def options(model_folder: Path) -> dict[str, Any]:
    """A quick run: text alone, few stories, no figures."""
    return {"model": str(model_folder), "setting": "text", "stories": 24, "figures": False}


@pytest.fixture(scope="session")
def carry(options: dict[str, Any]) -> Callable[..., str]:
    """``carry(out, **changes)``: do a run; gives what it printed."""

    def run(out: Path, **changes: Any) -> str:
        printed = io.StringIO()
        config = ProbeConfig(**{**options, "out": out, **changes})
        carry_out(config, Console(file=printed, width=200))
        return printed.getvalue()

    return run


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, carry: Callable[..., str]) -> Path:
    """A finished run with its figures: look, but do not touch."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    carry(folder, figures=True)
    return folder


@pytest.fixture
def no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's weights cannot be read."""

    def refuse(self: LoadedModel) -> None:
        pytest.fail("the weights were read")

    monkeypatch.setattr(LoadedModel, "model", property(refuse))
