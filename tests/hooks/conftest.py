"""A tiny random model with weights that make a difference, and a small vector."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from sally_anne.hooks.geometry import o_projs
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel, load_model
from tests.hooks.tiny_inputs import TINY
from tests.models.checkpoints import random_model

LAYERS, HEADS, WIDTH = 3, 4, 8


@pytest.fixture(scope="session")
def build() -> Callable[..., PreTrainedModel]:
    """`build(name, attn="sdpa")`: the same weights for the same name, each time a new model.

    Its heads are wider than hidden / H, and o_proj of Llama has a bias.
    """

    def make(name: str = "llama", attn: str = "sdpa") -> PreTrainedModel:
        model = random_model(name).eval()
        if name == "llama":
            for o_proj in o_projs(model):
                o_proj.bias = nn.Parameter(0.2 * torch.randn(32))
        model.generation_config.eos_token_id = None
        model.set_attn_implementation(attn)
        return model

    return make


@pytest.fixture
def model(build: Callable[..., PreTrainedModel]) -> PreTrainedModel:
    """The class on which everything is tested; test_classes has one case of each other class."""
    return build()


@pytest.fixture(scope="module", params=TINY)
def loaded(request: pytest.FixtureRequest) -> LoadedModel:
    """Each shipped model, with the step-by-step attention that TransformerLens computes, too."""
    found = load_model(request.param)
    found.model.set_attn_implementation("eager")
    return found


@pytest.fixture(scope="session")
def make() -> Callable[..., SteeringVector]:
    """`make(**changes)`: a vector of three heads with some of its parts changed."""

    def made(**changes) -> SteeringVector:
        theta = torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(0)).double()
        parts = {
            "heads": ((2, 1), (0, 3), (2, 0)),
            "theta": theta / theta.norm(dim=1, keepdim=True),
            "sigma": torch.tensor([0.5, 2.0, 0.25], dtype=torch.float64),
            "n_layers": LAYERS,
            "n_heads": HEADS,
            "alpha": 2.0,
            "fitted": {"model": "tiny-qwen2-vl", "order": 1, "stories": None, "c": 0.015},
        }
        return SteeringVector(**{**parts, **changes})

    return made


@pytest.fixture(scope="session")
def skeleton() -> Callable[..., LlamaForCausalLM]:
    """`skeleton(layers, heads, width)`: a decoder on the meta device; hidden size is 32."""

    def build(layers: int = LAYERS, heads: int = HEADS, width: int = WIDTH) -> LlamaForCausalLM:
        config = LlamaConfig(
            vocab_size=16,
            hidden_size=32,
            intermediate_size=16,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=2,
            head_dim=width,
        )
        with torch.device("meta"):
            return LlamaForCausalLM(config)

    return build
