"""Capture and steering in every class of model, with real frames through its vision tower.

What is expected comes from loops written here: attention weights times values, plain hooks on
modules named here, hidden states as the model itself gives them.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sally_anne.hooks.capture import Capture
from sally_anne.hooks.geometry import SITES, find_geometry
from sally_anne.models.loading import load_model
from tests.hooks.tiny_inputs import asked, vector_on
from tests.models.checkpoints import FILMS, HEARS, NAMES, save

pytestmark = pytest.mark.integration

LAYER, HEAD = 1, 2
Built = tuple[Any, dict[str, Tensor]]


@pytest.fixture(scope="module", params=[name for name in NAMES if name not in HEARS])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A model of each class, and what it is asked: with frames if it can see."""
    loaded = load_model(str(save(request.param, tmp_path_factory.mktemp("model"))))
    loaded.model.set_attn_implementation("eager")
    loaded.model.generation_config.eos_token_id = None
    return loaded.model, asked(loaded, request.param in FILMS)


def blocks(model: Any) -> list[Any]:
    """The decoder's layers by their name, not by the search that is tested."""
    return list(getattr(model.model, "language_model", model.model).layers)


def packed(activation: Tensor, mask: Tensor) -> Tensor:
    """`[B, T, ...]` with the real tokens of each row first, and zeros behind."""
    found = torch.zeros_like(activation)
    for row, real in enumerate(mask.bool()):
        found[row, : int(real.sum())] = activation[row, real]
    return found[:, : int(mask.sum(1).max())]


@torch.no_grad()
def test_sites_are_what_the_model_computes(built: Built) -> None:
    """z_h = A_h V; the sum of z_h W_o,h (+ bias) is what attention puts out."""
    model, inputs = built
    mask = inputs["attention_mask"]
    seen: dict[str, list[Tensor]] = {"values": [], **{site: [] for site in SITES}}
    hooks = []
    for block in blocks(model):
        own = block.self_attn
        hooks += [
            own.v_proj.register_forward_hook(lambda m, a, out: seen["values"].append(out)),
            own.o_proj.register_forward_pre_hook(lambda m, a: seen["head_out"].append(a[0])),
            own.o_proj.register_forward_hook(lambda m, a, out: seen["attn_out"].append(out)),
            block.register_forward_hook(
                lambda m, a, out: seen["resid"].append(out[0] if isinstance(out, tuple) else out)
            ),
        ]
    plain = model(**inputs, output_attentions=True, output_hidden_states=True)
    for hook in hooks:
        hook.remove()
    # What the hooks saw is what the model reports; the last entry has gone through the norm.
    assert all(torch.equal(seen["resid"][n], plain.hidden_states[n + 1]) for n in range(2))
    taken = {}
    for site in SITES:
        for positions in ("last_prompt", "all"):
            with Capture(model, site, positions) as capture:
                assert torch.equal(model(**inputs).logits, plain.logits)
                taken[site] = capture.take()
            expected = torch.stack(seen[site], dim=2)
            expected = packed(expected, mask) if positions == "all" else expected[:, -1:]
            assert torch.equal(taken[site].flatten(-2), expected)

    z, width = taken["head_out"], find_geometry(model).head_dim
    real = torch.arange(z.shape[1]) < mask.sum(1)[:, None]
    for layer, block in enumerate(blocks(model)):
        o_proj = block.self_attn.o_proj
        total = torch.zeros(1) if o_proj.bias is None else o_proj.bias
        for head in range(4):
            group = head // 2  # four heads share two of keys and values
            values = seen["values"][layer][..., group * width : (group + 1) * width]
            expected = packed(plain.attentions[layer][:, head] @ values, mask)
            torch.testing.assert_close(z[:, :, layer, head], expected, atol=1e-5, rtol=1e-4)
            columns = o_proj.weight[:, head * width : (head + 1) * width]
            total = total + z[:, :, layer, head] @ columns.T
        output = taken["attn_out"][:, :, layer].flatten(-2)
        torch.testing.assert_close(total[real], output[real], atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_generation_is_steered_at_each_step_and_the_tower_left_alone(built: Built) -> None:
    """Each pass of a cached generation, with the addition made by a plain hook."""
    model, inputs = built
    found = find_geometry(model)
    vector = vector_on(model, ((LAYER, HEAD),), [3.0], 2, alpha=2.0)
    tower: nn.Module | None = getattr(model.model, "visual", None)
    tower = tower or getattr(model.model, "vision_tower", None)
    pictures: list[Tensor] = []
    inside = set() if tower is None else set(tower.modules())
    assert not inside & {model.get_submodule(name) for name in found.o_proj_names}
    hooks = []
    if tower is not None:
        hooks += [tower.register_forward_hook(lambda m, a, out: pictures.append(out[0].clone()))]

    def generated() -> tuple[Tensor, Tensor]:
        options: dict[str, Any] = {"output_logits": True, "return_dict_in_generate": True}
        reply = model.generate(**inputs, **options, max_new_tokens=4, do_sample=False)
        return reply.sequences, torch.stack(reply.logits)

    plain = generated()
    with vector.apply(model, 0.0):
        assert all(map(torch.equal, generated(), plain))
    with vector.apply(model):
        steered = generated()
    part = slice(HEAD * vector.width, (HEAD + 1) * vector.width)

    def add(module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor]:
        changed = args[0].clone()
        changed[:, -1, part] += vector.alpha * vector.sigma[0] * vector.theta[0]
        return (changed,)

    hooks += [blocks(model)[LAYER].self_attn.o_proj.register_forward_pre_hook(add)]
    expected = generated()
    for hook in hooks:
        hook.remove()
    assert all(map(torch.equal, steered, expected))
    assert not torch.equal(steered[1], plain[1])
    assert all(torch.equal(picture, pictures[0]) for picture in pictures)
