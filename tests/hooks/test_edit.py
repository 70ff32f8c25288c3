"""Edits equal what a plain hook written for one case does, in every way a model is run."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from sally_anne.core.errors import HookError
from sally_anne.hooks.capture import Capture, Looks
from sally_anne.hooks.edit import Edit, Gate, Redirect
from sally_anne.hooks.geometry import SITES, find_geometry, o_projs, slice_width
from sally_anne.hooks.positions import POSITIONS
from tests.hooks.tiny_inputs import PROMPTS, batch_of, columns_of, delta_for

pytestmark = pytest.mark.integration

STEPS = 5


def last_columns(side: str) -> list[list[int]]:
    """The last prompt column of each row of the batch of PROMPTS."""
    width = max(map(len, PROMPTS))
    return [[width - 1 if side == "left" else len(prompt) - 1] for prompt in PROMPTS]


def every_hook(model: nn.Module) -> int:
    return sum(
        len(hooks)
        for module in model.modules()
        for hooks in (
            module._forward_hooks,
            module._forward_pre_hooks,
            module._forward_hooks_with_kwargs,
            module._forward_hooks_always_called,
            module._forward_pre_hooks_with_kwargs,
        )
    )


@torch.no_grad()
def logits_of(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    return model(**inputs).logits


@torch.no_grad()
def edited(model: nn.Module, inputs: dict[str, Tensor], *args, **options) -> Tensor:
    with Edit(model, *args, **options):
        return model(**inputs).logits


def by_hand(
    model: nn.Module,
    inputs: dict[str, Tensor],
    delta: Tensor,
    columns: Sequence[Sequence[int]],
    site: str = "head_out",
    heads: Tensor | None = None,
) -> Tensor:
    """Logits with `delta [L, H, W]` added by a loop over rows, columns and heads.

    With `heads [L, H]`, `delta [B, L, H, W]` is put in the place of those heads instead.
    """
    found, handles = find_geometry(model), []
    width = slice_width(found, site)
    blocks = model.get_decoder().layers
    for number, (block, o_proj) in enumerate(zip(blocks, o_projs(model), strict=True)):

        def changed(activation: Tensor, number: int = number) -> Tensor:
            activation = activation.clone()
            for row, chosen in enumerate(columns):
                for column, head in itertools.product(chosen, range(found.n_heads)):
                    part = slice(head * width, (head + 1) * width)
                    if heads is None:
                        activation[row, column, part] += delta[number, head].to(activation.dtype)
                    elif heads[number, head]:
                        activation[row, column, part] = delta[row, number, head]
            return activation

        if site == "head_out":
            hook = o_proj.register_forward_pre_hook(lambda m, args, c=changed: (c(args[0]),))
        else:
            place = o_proj if site == "attn_out" else block
            hook = place.register_forward_hook(lambda m, args, out, c=changed: c(out))
        handles.append(hook)
    try:
        return logits_of(model, inputs)
    finally:
        for handle in handles:
            handle.remove()


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("site", SITES)
def test_equals_a_plain_hook(model, site, side):
    inputs, delta = batch_of(PROMPTS, side), delta_for(model, site)
    expected = by_hand(model, inputs, delta, last_columns(side), site)
    found = edited(model, inputs, delta, site, "last_prompt")
    assert torch.equal(found, expected)
    assert not torch.allclose(found, logits_of(model, inputs), atol=1e-2)
    assert torch.equal(edited(model, inputs, delta, site), expected)
    real = [row.nonzero().flatten().tolist() for row in inputs["attention_mask"]]
    expected = by_hand(model, inputs, delta, real, site)
    assert torch.equal(edited(model, inputs, delta, site, "all"), expected)


@pytest.mark.parametrize("site", SITES)
def test_zero_is_no_edit_at_all(model, site):
    inputs, before = batch_of(PROMPTS), every_hook(model)
    zero = torch.zeros_like(delta_for(model, site))
    expected = logits_of(model, inputs)
    with Edit(model, zero, site, "all"), torch.no_grad():
        assert every_hook(model) == before
        assert torch.equal(model(**inputs).logits, expected)
    rows = delta_for(model, site, rows=3)
    rows[1] = 0
    found = edited(model, inputs, rows, site, "all")
    assert torch.equal(found[1], expected[1])
    for row in (0, 2):
        alone = edited(model, inputs, rows[row], site, "all")
        assert torch.equal(found[row], alone[row]) and not torch.equal(alone[row], expected[row])


def test_no_hook_is_left(model):
    inputs, delta, before = batch_of(PROMPTS), delta_for(model), every_hook(model)
    functions, unsteered = [*ALL_ATTENTION_FUNCTIONS.values()], logits_of(model, inputs)
    gate = Gate(0, 0, torch.ones(find_geometry(model).head_dim), 0.0)
    away = inputs["attention_mask"] > 9
    blocks = Edit(model, delta, gate=gate), Capture(model, "resid"), Looks(model)
    for block in (*blocks, Redirect(model, some_heads(model), away)):
        with block:
            assert every_hook(model) > before
        assert every_hook(model) == before
        with pytest.raises(RuntimeError, match="mine"), block:
            raise RuntimeError("mine")
        assert every_hook(model) == before
        with pytest.raises(HookError), block:
            model(**{**inputs, "attention_mask": torch.ones(3, 9)})
        assert every_hook(model) == before
        assert [*ALL_ATTENTION_FUNCTIONS.values()] == functions
    assert torch.equal(logits_of(model, inputs), unsteered)


def test_opens_again_but_not_twice(model):
    inputs, delta = batch_of(PROMPTS), delta_for(model)
    edit = Edit(model, delta)
    found = []
    for _ in range(2):
        with edit, torch.no_grad():
            found.append(model(**inputs).logits)
            with pytest.raises(HookError, match="already open"):
                edit.__enter__()
            assert torch.equal(model(**inputs).logits, found[0])
    assert torch.equal(*found)
    assert every_hook(model) == 0


@torch.no_grad()
def generation(model, inputs=None, **options):
    """Tokens and logits of a greedy generation."""
    return model.generate(
        **(batch_of(PROMPTS) if inputs is None else inputs),
        max_new_tokens=STEPS,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
        **options,
    )


@pytest.mark.parametrize("positions", POSITIONS)
def test_generate_with_and_without_cache(model, positions):
    delta = delta_for(model)
    plain = generation(model)
    with Edit(model, delta, positions=positions):
        cached, uncached = generation(model), generation(model, use_cache=False)
        again = generation(model)
    assert torch.equal(cached.sequences, uncached.sequences)
    assert torch.equal(cached.sequences, again.sequences)
    found = torch.stack(cached.logits, dim=1)  # [B, STEPS, V]
    torch.testing.assert_close(found, torch.stack(uncached.logits, dim=1), atol=1e-4, rtol=1e-4)
    assert torch.equal(cached.logits[0], plain.logits[0]) == (positions == "generated")
    assert not torch.allclose(found[:, 1], plain.logits[1], atol=1e-2)

    for row, prompt in enumerate(PROMPTS):
        text = [*prompt, *cached.sequences[row, 6:-1].tolist()]
        columns = columns_of(positions, len(prompt), len(text))
        whole = by_hand(model, batch_of([text]), delta, [columns])
        expected = whole[0, len(prompt) - 1 :]
        torch.testing.assert_close(found[row], expected, atol=1e-4, rtol=1e-4)


def gate_for(model: nn.Module, layer: int = 0) -> tuple[Gate, list[bool]]:
    """A probe on head 1 that fires for some rows of the batch alone, and for which."""
    with Capture(model, layers=[layer]) as capture:
        logits_of(model, batch_of(PROMPTS))
        z = capture.take()[:, 0, 0, 1]
    weight = torch.randn(z.shape[1], generator=torch.Generator().manual_seed(4))
    score = z @ weight
    middle = score.sort().values[:2].mean()
    return Gate(layer, 1, weight, -float(middle)), (score > middle).tolist()


@pytest.mark.parametrize("site", SITES)
def test_gate_edits_the_rows_at_which_its_probe_fires(model, site):
    inputs, delta = batch_of(PROMPTS), delta_for(model, site)
    gate, fires = gate_for(model)
    assert sorted(fires) == [False, True, True]
    plain, everywhere = logits_of(model, inputs), edited(model, inputs, delta, site)
    for above in (True, False):
        found = edited(model, inputs, delta, site, gate=replace(gate, above=above))
        for row, fired in enumerate(fires):
            expected = everywhere if fired == above else plain
            assert torch.equal(found[row], expected[row])


def test_gate_decides_anew_at_each_token(model):
    gate, _ = gate_for(model)
    delta = delta_for(model)
    for positions in ("last_prompt", "last_prompt+generated", "all"):
        with Edit(model, delta, positions=positions, gate=gate):
            cached, uncached = generation(model), generation(model, use_cache=False)
        assert torch.equal(cached.sequences, uncached.sequences)
        torch.testing.assert_close(
            torch.stack(cached.logits), torch.stack(uncached.logits), atol=1e-4, rtol=1e-4
        )


@torch.no_grad()
def test_gate_in_an_all_edit_by_hand(model):
    inputs, delta = batch_of(PROMPTS), delta_for(model)
    gate, _ = gate_for(model)
    with Capture(model, positions="all", layers=[0]) as capture:
        model(**inputs)
        fires = capture.take()[:, :, 0, 1] @ gate.weight + gate.bias > 0
    width = max(map(len, PROMPTS))
    columns = [
        [width - len(prompt) + place for place in range(len(prompt)) if fires[row, place]]
        for row, prompt in enumerate(PROMPTS)
    ]
    assert 0 < sum(map(len, columns)) < sum(map(len, PROMPTS))
    found = edited(model, inputs, delta, positions="all", gate=gate)
    assert torch.equal(found, by_hand(model, inputs, delta, columns))


def test_gate_may_read_any_layer_up_to_the_first_edited(model):
    delta = delta_for(model)
    delta[0] = 0
    for layer in (0, 2):
        gate, fires = gate_for(model, layer)
        found = edited(model, batch_of(PROMPTS), delta, gate=gate)
        everywhere = edited(model, batch_of(PROMPTS), delta)
        assert [torch.equal(*pair) for pair in zip(found, everywhere, strict=True)] == fires
    delta[1, 0] = 1.0
    with pytest.raises(HookError, match="reads layer 2, but layer 1 is edited"):
        Edit(model, delta, gate=gate)


@pytest.mark.parametrize("site", SITES)
def test_bfloat16(model, site):
    model = model.to(torch.bfloat16)
    inputs, delta = batch_of(PROMPTS), delta_for(model, site)
    found = edited(model, inputs, delta, site)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, by_hand(model, inputs, delta, last_columns("left"), site))
    gate = Gate(0, 1, torch.ones(find_geometry(model).head_dim), 0.0)
    with Edit(model, delta, site, gate=gate):
        assert generation(model).sequences.shape == (3, 6 + STEPS)


def captured(model: nn.Module, inputs: dict[str, Tensor], site: str, positions: str) -> Tensor:
    """`[B, P, L, H, D]`."""
    with torch.no_grad(), Capture(model, site, positions) as capture:
        model(**inputs)
        return capture.take()


def some_heads(model: nn.Module) -> Tensor:
    found = find_geometry(model)
    heads = torch.zeros(found.n_layers, found.n_heads, dtype=torch.bool)
    for layer, head in ((0, 1), (0, 3), (2, 2)):
        heads[layer, head] = True
    return heads


@pytest.mark.parametrize("positions", ["last_prompt", "all"])
@pytest.mark.parametrize("site", SITES)
def test_replacing_a_run_by_itself_keeps_every_bit(model, site, positions):
    inputs = batch_of(PROMPTS)
    values = captured(model, inputs, site, positions)
    found = edited(model, inputs, values, site, positions, how="replace")
    assert torch.equal(found, logits_of(model, inputs))


@pytest.mark.parametrize("site", SITES)
def test_patching_equals_a_plain_hook(model, site):
    inputs, heads = batch_of(PROMPTS), some_heads(model)
    before = captured(model, inputs, site, "last_prompt")[:, 0]
    values = before.flip(0)
    found = edited(model, inputs, values, site, "last_prompt", how="replace", heads=heads)
    expected = by_hand(model, inputs, values, last_columns("left"), site, heads)
    assert torch.equal(found, expected)
    assert not torch.equal(found, edited(model, inputs, before, site, how="replace"))


@torch.no_grad()
def test_nothing_is_left_along_a_direction(model):
    inputs, heads = batch_of(PROMPTS), some_heads(model)
    directions = delta_for(model, rows=len(PROMPTS))
    before = captured(model, inputs, "head_out", "last_prompt")[:, 0, 0]
    with (
        Edit(model, directions, positions="last_prompt", how="project_out"),
        Capture(model, layers=[0]) as capture,
    ):
        model(**inputs)
        after = capture.take()[:, 0, 0]
    for head in range(heads.shape[1]):
        u = directions[:, 0, head]
        if not bool(heads[0, head]):
            assert torch.equal(after[:, head], before[:, head])
            continue
        u = u / u.norm(dim=-1, keepdim=True)
        # What is at right angles to the direction stays.
        close(after[:, head], before[:, head] - (before[:, head] * u).sum(-1, keepdim=True) * u)


@pytest.mark.parametrize("factor", [0.0, 0.5, 2.0])
def test_scaling_is_replacing_by_so_much_of_itself(model, factor):
    inputs, heads = batch_of(PROMPTS), some_heads(model)
    heads[1:] = False  # later ones hold something else then
    values = captured(model, inputs, "head_out", "last_prompt")[:, 0]
    factors = torch.full_like(values[0], factor)
    found = edited(model, inputs, factors, how="scale", heads=heads)
    assert torch.equal(found, edited(model, inputs, factor * values, how="replace", heads=heads))


def test_rows_with_heads_of_their_own(model):
    inputs, found = batch_of(PROMPTS), find_geometry(model)
    chosen = torch.zeros(len(PROMPTS), found.n_layers, found.n_heads, dtype=torch.bool)
    chosen[1, 2, 3] = True
    zeros = torch.zeros(found.n_layers, found.n_heads, found.head_dim)
    logits = edited(model, inputs, zeros, how="replace", heads=chosen)
    plain = logits_of(model, inputs)
    assert torch.equal(logits[[0, 2]], plain[[0, 2]])
    alone = edited(model, inputs, zeros, how="replace", heads=chosen[1])
    assert torch.equal(logits[1], alone[1])
    assert not torch.equal(logits[1], plain[1])


def test_gradients_of_the_values_are_those_of_the_activations(model):
    inputs = batch_of(PROMPTS)
    found = find_geometry(model)
    leaf = torch.zeros(3, found.n_layers, found.n_heads, found.head_dim, requires_grad=True)
    everywhere = torch.ones(found.n_layers, found.n_heads, dtype=torch.bool)
    with Edit(model, leaf, positions="last_prompt", heads=everywhere):
        (gradient,) = torch.autograd.grad(model(**inputs).logits[:, -1, 7].sum(), leaf)
    step = torch.zeros_like(leaf)
    step[1, 1, 2, 4] = 1e-2
    ends = [edited(model, inputs, s, heads=everywhere)[1, -1, 7] for s in (step, -step)]
    torch.testing.assert_close(
        gradient[1, 1, 2, 4], (ends[0] - ends[1]) / 2e-2, atol=1e-3, rtol=1e-2
    )
