"""Models and vectors for the lm-eval plug-in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from sally_anne.hooks.geometry import find_geometry
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.tiny import (
    FAMILIES,
    Family,
    build_model,
    build_processor,
    build_tokenizer,
    decoder_config,
)


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[Family, Path]:
    """A saved model of each family, with weights that make replies differ."""
    found = {}
    for family in FAMILIES:
        torch.manual_seed(0)
        tokenizer = build_tokenizer()
        model = build_model(family, tokenizer, LlamaForCausalLM(decoder_config()), seed=0)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "norm" not in name:
                    parameter.normal_(std=0.1)
            # Tied to small embeddings, it would say the same word again and again.
            model.get_input_embeddings().weight.normal_(std=0.5)
        found[family] = tmp_path_factory.mktemp(family)
        model.save_pretrained(found[family])
        build_processor(family, tokenizer).save_pretrained(found[family])
    return found


@pytest.fixture(scope="module", params=FAMILIES)
def loaded(request: pytest.FixtureRequest, folders: dict[Family, Path]) -> LoadedModel:
    """Each family's model."""
    return load_model(str(folders[request.param]))


def vector_for(model: torch.nn.Module, positions: str = "last_prompt+generated") -> SteeringVector:
    """Three heads, directions drawn at random, and strong enough to change what is said."""
    found = find_geometry(model)
    theta = torch.randn(3, found.head_dim, generator=torch.Generator().manual_seed(2))
    return SteeringVector(
        heads=((1, 2), (1, 5), (4, 0)),
        theta=theta / theta.norm(dim=1, keepdim=True),
        sigma=torch.tensor([1.0, 0.5, 2.0]),
        n_layers=found.n_layers,
        n_heads=found.n_heads,
        alpha=8.0,
        positions=positions,
    )


@pytest.fixture(scope="session")
def make_vector() -> Callable[..., SteeringVector]:
    """Makes a vector for a model."""
    return vector_for


@pytest.fixture(scope="module")
def vector(loaded: LoadedModel) -> SteeringVector:
    """A vector for the model."""
    return vector_for(loaded.skeleton)
