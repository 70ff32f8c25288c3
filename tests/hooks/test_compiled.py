"""Compiled code does not look at hooks: an edit or a capture works all the same, or says so."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._dynamo import eval_frame

from sally_anne.core.errors import HookError
from sally_anne.hooks.capture import Capture
from sally_anne.hooks.edit import Edit, Gate
from sally_anne.hooks.geometry import SITES, find_geometry
from tests.hooks.test_edit import edited, logits_of
from tests.hooks.tiny_inputs import PROMPTS, batch_of, delta_for

pytestmark = pytest.mark.integration

EAGER = {"backend": "eager", "fullgraph": False}


def whole(model: nn.Module) -> nn.Module:
    return torch.compile(model, **EAGER)


def wrapped_layer(model: nn.Module) -> nn.Module:
    model.model.layers[0] = torch.compile(model.model.layers[0], **EAGER)
    return model


def layer_in_place(model: nn.Module) -> nn.Module:
    model.model.layers[0].compile(**EAGER)
    return model


def o_proj_in_place(model: nn.Module) -> nn.Module:
    model.model.layers[0].self_attn.o_proj.compile(**EAGER)
    return model


@pytest.fixture(autouse=True)
def fresh():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.parametrize(
    ("variant", "compiled_before"),
    [
        (whole, True),
        (whole, False),
        (wrapped_layer, True),
        (layer_in_place, True),
        (o_proj_in_place, False),
    ],
)
@torch.no_grad()
def test_hooks_run_in_a_compiled_model(build, variant, compiled_before):
    """Also where it is compiled while a block is open; nothing of the block stays in its code."""
    plain, inputs = build("llama"), batch_of(PROMPTS)
    inner = build("llama")
    model = variant(inner)
    if compiled_before:
        logits_of(model, inputs)
    for site in SITES:
        delta = delta_for(plain, site)
        expected = edited(plain, inputs, delta, site)
        # The compiled model, and the one in it that the caller may still hold.
        for given in (model, inner):
            with Edit(given, delta, site), Capture(given, site) as capture:
                assert torch.equal(model(**inputs).logits, expected)
                found = capture.take()
            with Edit(plain, delta, site), Capture(plain, site) as capture:
                plain(**inputs)
                assert torch.equal(found, capture.take())
    assert torch.equal(logits_of(model, inputs), logits_of(plain, inputs))
    assert eval_frame._stance.stance == "default"


@torch.no_grad()
@pytest.mark.parametrize("variant", [whole, layer_in_place])
def test_a_layer_that_did_not_run_is_named(build, variant):
    """Whatever else brings compiled code back: hooks are counted at the end of each pass."""
    inputs, inner = batch_of(PROMPTS), build("llama")
    model = variant(inner)
    logits_of(model, inputs)
    delta = delta_for(inner)
    gate = Gate(0, 1, torch.ones(find_geometry(inner).head_dim), 0.0)
    for gated in (None, gate):
        with (
            Edit(model, delta, gate=gated),
            torch.compiler.set_stance("default"),
            pytest.raises(HookError, match=r"(layers \[0.*\]|gate's layer 0) did not run"),
        ):
            model(**inputs)
    for positions in ("last_prompt", "generated"):
        with (
            Capture(model, positions=positions),
            torch.compiler.set_stance("default"),
            pytest.raises(HookError, match=r"layers \[0.*\] did not run"),
        ):
            model(**inputs)
    assert eval_frame._stance.stance == "default"
