"""The tiny random models, each with weights that make a difference."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from transformers import PreTrainedModel

from tests.hooks.builders import BUILDERS
from tests.made_run import make_run, run  # noqa: F401

# Their decoders are those of llava_onevision and gemma3; once is enough for the long tests.
_INSIDE_OTHERS = ("qwen2", "gemma3_text")


@pytest.fixture(scope="session")
def build() -> Callable[..., PreTrainedModel]:
    """`build(name, attn="sdpa")`: the same weights for the same name, each time a new model."""

    def make(name: str, attn: str = "sdpa") -> PreTrainedModel:
        torch.manual_seed(0)
        model = BUILDERS[name]().eval()
        with torch.no_grad():
            for parameter_name, parameter in model.named_parameters():
                # The default init leaves biases zero and logits nearly flat.
                if "norm" not in parameter_name:
                    parameter.normal_(std=0.3)
        model.set_attn_implementation(attn)
        return model

    return make


@pytest.fixture(params=[name for name in BUILDERS if name not in _INSIDE_OTHERS])
def model(request, build) -> PreTrainedModel:
    return build(request.param)
