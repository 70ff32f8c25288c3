"""The passes of the real `generate` are told apart, or refused before a wrong token is edited."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch._dynamo import eval_frame
from transformers import DynamicCache

from sally_anne.core.errors import HookError
from sally_anne.hooks.capture import Capture
from sally_anne.hooks.edit import Edit, Gate
from sally_anne.hooks.geometry import SITES, find_geometry
from sally_anne.hooks.positions import POSITIONS
from tests.hooks.test_edit import by_hand, edited, every_hook, generation, logits_of
from tests.hooks.tiny_inputs import PROMPTS, batch_of, delta_for

pytestmark = pytest.mark.integration

UNCLEAR = ("last_prompt", "generated", "last_prompt+generated")


@pytest.mark.parametrize("positions", POSITIONS)
@torch.no_grad()
def test_prompt_lookup_is_refused(model, positions):
    """Prompts that repeat themselves, so that guesses begin in the pass of the prompt."""
    for seed in range(4):
        made = torch.Generator().manual_seed(seed)
        words = torch.randint(2, 60, (3,), generator=made).tolist()
        inputs = batch_of([words * 3])
        options = {"max_new_tokens": 1 + seed % 4, "do_sample": False}
        for block in (Edit(model, delta_for(model), positions=positions), Capture(model)):
            with block, pytest.raises(HookError, match="assisted decoding"):
                model.generate(**inputs, **options, prompt_lookup_num_tokens=1 + seed % 3)
    assert every_hook(model) == 0


@torch.no_grad()
def test_a_prompt_in_chunks_is_refused(model):
    """Also where its last chunk is a single token."""
    inputs = batch_of([PROMPTS[2]])
    for size in (2, 4):
        options = {"max_new_tokens": 3, "prefill_chunk_size": size}
        for positions in UNCLEAR:
            with (
                Edit(model, delta_for(model), positions=positions),
                pytest.raises(HookError, match="prefill_chunk_size"),
            ):
                model.generate(**inputs, **options)
        with Edit(model, delta_for(model), positions="all"):
            found = model.generate(**inputs, **options)
            assert torch.equal(found, model.generate(**inputs, max_new_tokens=3))


@torch.no_grad()
def test_the_last_token_of_a_prompt_on_a_cache(model):
    """`generate` says that this one token is prompt, not generated."""
    inputs = batch_of([PROMPTS[0]])
    cache = model(inputs["input_ids"][:, :-1], past_key_values=DynamicCache()).past_key_values
    for positions in POSITIONS[:3]:
        with Edit(model, delta_for(model), positions=positions):
            expected = generation(model, inputs)
            found = generation(model, inputs, past_key_values=copy.deepcopy(cache))
        assert torch.equal(found.sequences, expected.sequences)
        torch.testing.assert_close(
            torch.stack(found.logits), torch.stack(expected.logits), atol=1e-4, rtol=1e-4
        )


@torch.no_grad()
def test_a_callers_own_loop_without_a_cache_is_refused(model):
    short, long, delta = batch_of([[5, 9, 7]]), batch_of([[5, 9, 7, 3]]), delta_for(model)
    for positions in UNCLEAR:
        for block in (Edit(model, delta, positions=positions), Capture(model, positions=positions)):
            with block:
                model(**short, use_cache=False)
                with pytest.raises(HookError, match="new block"):
                    model(**long, use_cache=False)
    with Edit(model, delta):
        # Two prompts, as the message advises.
        model(**short)
        found = model(**long).logits
    assert torch.equal(found, by_hand(model, long, delta, [[3]]))
    with Edit(model, delta, positions="all"):
        model(**short, use_cache=False)
        found = model(**long, use_cache=False).logits
    assert torch.equal(found, by_hand(model, long, delta, [range(4)]))


@pytest.mark.parametrize("positions", ["last_prompt", "all"])
@torch.no_grad()
def test_too_much_for_float16(build, positions):
    model, inputs = build().half(), batch_of(PROMPTS)
    delta = torch.zeros_like(delta_for(model))
    delta[1, 2, 3] = 70_000.0
    with pytest.raises(HookError, match="L1H2 in float16"):
        Edit(model, delta, positions=positions)
    # Each is a float16 alone; their sum is not.
    delta[1, 2, 3] = 60_000.0
    with Edit(model, delta, positions=positions):
        assert bool(model(**inputs).logits.isfinite().any())
        with (
            Edit(model, delta, positions=positions),
            pytest.raises(HookError, match="L1H2 is not finite any more"),
        ):
            model(**inputs)
    assert every_hook(model) == 0


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
