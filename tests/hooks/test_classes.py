"""Capture and steering in every class of model, with real frames through its vision tower.

What is expected comes from loops written here: attention weights times values, plain hooks on
modules named here, hidden states as the model itself gives them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sally_anne.hooks.capture import Capture
from sally_anne.hooks.geometry import SITES, find_geometry, slice_width
from sally_anne.hooks.vector import SteeringVector
from tests.hooks.builders import BUILDERS
from tests.hooks.tiny_inputs import WATCHING, watched

pytestmark = pytest.mark.integration

LAYER, HEAD = 1, 2
Built = tuple[Any, dict[str, Tensor]]


@pytest.fixture(params=list(BUILDERS))
def built(request: pytest.FixtureRequest, build: Callable[..., Any]) -> Built:
    """A model of each class, and what it is asked: with frames if it can see."""
    return build(request.param), asked(request.param)


@pytest.fixture(params=WATCHING)
def seeing(request: pytest.FixtureRequest, build: Callable[..., Any]) -> Built:
    return build(request.param), watched(request.param)


def asked(name: str) -> dict[str, Tensor]:
    if name in WATCHING:
        return watched(name)
    ids = torch.tensor([[5, 9, 7, 3, 8, 2, 12, 40], [0, 0, 0, 4, 11, 6, 33, 21]])
    return {"input_ids": ids, "attention_mask": (ids > 0).long()}


def blocks(model: Any) -> list[Any]:
    """The decoder's layers by their name, not by the search that is tested."""
    return list(getattr(model.model, "language_model", model.model).layers)


def tower(model: Any) -> nn.Module:
    return getattr(model.model, "visual", None) or model.model.vision_tower


@torch.no_grad()
def captured(model: Any, inputs: dict[str, Tensor], site: str) -> Tensor:
    """`[B, T, L, H, W]`, the real tokens of each row first."""
    with Capture(model, site=site, positions="all") as capture:
        model(**inputs)
        return capture.take()


def packed(activation: Tensor, mask: Tensor) -> Tensor:
    """`[B, T, ...]` with the real tokens of each row first, and zeros behind."""
    found = torch.zeros_like(activation)
    for row, real in enumerate(mask.bool()):
        found[row, : int(real.sum())] = activation[row, real]
    return found


@torch.no_grad()
@pytest.mark.parametrize("name", BUILDERS)
def test_head_out_is_attention_times_values(name: str, build: Callable[..., Any]):
    """z_h = A_h V, with the weights that the model itself reports."""
    model, inputs = build(name, "eager"), asked(name)
    found = find_geometry(model)
    values: list[Tensor] = []
    hooks = [
        block.self_attn.v_proj.register_forward_hook(lambda m, a, out: values.append(out))
        for block in blocks(model)
    ]
    attentions = model(**inputs, output_attentions=True).attentions
    for hook in hooks:
        hook.remove()
    z = captured(model, inputs, "head_out")
    mask = inputs["attention_mask"]
    assert z.shape == (2, int(mask.sum(1).max()), 3, 4, found.head_dim)
    for layer in range(3):
        for head in range(4):
            group = head // 2  # four heads share two of keys and values
            v = values[layer][..., group * found.head_dim : (group + 1) * found.head_dim]
            expected = packed(attentions[layer][:, head] @ v, mask)
            torch.testing.assert_close(z[:, :, layer, head], expected, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_sites_equal_plain_hooks_and_hidden_states(built: Built):
    model, inputs = built
    seen: dict[str, list[Tensor]] = {"head_out": [], "attn_out": [], "resid": []}
    hooks = []
    for block in blocks(model):
        o_proj = block.self_attn.o_proj
        hooks += [
            o_proj.register_forward_pre_hook(lambda m, a: seen["head_out"].append(a[0])),
            o_proj.register_forward_hook(lambda m, a, out: seen["attn_out"].append(out)),
            block.register_forward_hook(
                lambda m, a, out: seen["resid"].append(out[0] if isinstance(out, tuple) else out)
            ),
        ]
    states = model(**inputs, output_hidden_states=True).hidden_states
    for hook in hooks:
        hook.remove()
    mask = inputs["attention_mask"]
    for site in SITES:
        expected = packed(torch.stack(seen[site], dim=2), mask)
        assert torch.equal(captured(model, inputs, site).flatten(-2), expected)
        with Capture(model, site=site) as capture:
            model(**inputs)
            last = capture.take()[:, 0].flatten(-2)
        assert torch.equal(last, torch.stack([a[:, -1] for a in seen[site]], dim=1))
    # What the hooks saw is what the model reports; the last entry has gone through the norm.
    assert all(torch.equal(seen["resid"][layer], states[layer + 1]) for layer in range(2))


@torch.no_grad()
def test_heads_sum_to_the_output_of_attention(built: Built):
    """The per-head identity: sum over heads of z_h W_o,h (+ bias) is what the module puts out."""
    model, inputs = built
    width = find_geometry(model).head_dim
    z, output = captured(model, inputs, "head_out").double(), captured(model, inputs, "attn_out")
    real = torch.arange(z.shape[1]) < inputs["attention_mask"].sum(1)[:, None]
    for layer, block in enumerate(blocks(model)):
        o_proj = block.self_attn.o_proj
        total = torch.zeros(1, dtype=torch.double)
        for head in range(4):
            columns = o_proj.weight[:, head * width : (head + 1) * width].double()
            total = total + z[:, :, layer, head] @ columns.T
        if o_proj.bias is not None:
            total = total + o_proj.bias.double()
        torch.testing.assert_close(total[real].float(), output[:, :, layer].flatten(-2)[real])


def vector_for(model: nn.Module, site: str, positions: str) -> SteeringVector:
    width = slice_width(find_geometry(model), site)
    theta = torch.randn(1, width, generator=torch.Generator().manual_seed(2))
    return SteeringVector(
        heads=((LAYER, HEAD),),
        theta=theta / theta.norm(),
        sigma=torch.tensor([3.0]),
        n_layers=3,
        n_heads=4,
        alpha=2.0,
        site=site,
        positions=positions,
    )


@torch.no_grad()
def test_generation_is_steered_at_each_step(built: Built):
    """Each pass of a cached generation, with the addition made by a plain hook."""
    model, inputs = built
    vector = vector_for(model, "head_out", "last_prompt+generated")
    options: dict[str, Any] = {"max_new_tokens": 4, "do_sample": False, "output_logits": True}
    options |= {"return_dict_in_generate": True}
    plain = model.generate(**inputs, **options)
    with vector.apply(model, 0.0):
        unsteered = model.generate(**inputs, **options)
    assert torch.equal(torch.stack(unsteered.logits), torch.stack(plain.logits))
    with vector.apply(model):
        found = model.generate(**inputs, **options)
    part = slice(HEAD * vector.width, (HEAD + 1) * vector.width)

    def add(module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor]:
        changed = args[0].clone()
        changed[:, -1, part] += vector.alpha * vector.sigma[0] * vector.theta[0]
        return (changed,)

    hook = blocks(model)[LAYER].self_attn.o_proj.register_forward_pre_hook(add)
    expected = model.generate(**inputs, **options)
    hook.remove()
    assert torch.equal(found.sequences, expected.sequences)
    assert torch.equal(torch.stack(found.logits), torch.stack(expected.logits))
    assert not torch.equal(torch.stack(found.logits), torch.stack(plain.logits))


@torch.no_grad()
def test_the_vision_tower_is_left_alone(seeing: Built):
    model, inputs = seeing
    outputs: list[Tensor] = []

    def keep(module: nn.Module, args: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        outputs.append(output[0].clone())

    def hooks_inside() -> int:
        """Some towers carry hooks of transformers' own from their first pass on."""
        modules = tower(model).modules()
        return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in modules)

    hook = tower(model).register_forward_hook(keep)
    model(**inputs)
    before = hooks_inside()
    vector = vector_for(model, "head_out", "all")
    with vector.apply(model), Capture(model, positions="all"):
        assert hooks_inside() == before
        model(**inputs)
    hook.remove()
    assert len(outputs) == 2 and torch.equal(*outputs)
    names = find_geometry(model).o_proj_names
    inside = {id(module) for module in tower(model).modules()}
    assert not inside & {id(model.get_submodule(name)) for name in names}
