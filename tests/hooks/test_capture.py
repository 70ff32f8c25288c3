from __future__ import annotations

import pytest
import torch

from sally_anne.core.errors import HookError
from sally_anne.hooks.capture import Capture
from tests.hooks.tiny_inputs import PROMPTS, batch_of, columns_of

pytestmark = pytest.mark.integration


def single(prompt: list[int]) -> dict[str, torch.Tensor]:
    return batch_of([prompt])


@torch.no_grad()
def captured(model, inputs, items=None, **options) -> torch.Tensor:
    with Capture(model, **options) as capture:
        model(**inputs)
        return capture.take(items=items)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("positions", ["last_prompt", "all"])
def test_padded_batch_equals_single_items(model, side, positions):
    with Capture(model, positions=positions) as capture, torch.no_grad():
        model(**batch_of(PROMPTS, side))
        together = capture.take()
        valid = capture.valid
        for row, prompt in enumerate(PROMPTS):
            model(**single(prompt))
            alone = capture.take()
            count = alone.shape[1]
            torch.testing.assert_close(together[row : row + 1, :count], alone, atol=1e-5, rtol=0)
            assert valid[row].tolist() == [c < count for c in range(together.shape[1])]
            assert not together[row, count:].any()


@pytest.mark.parametrize("positions", ["last_prompt", "generated", "last_prompt+generated", "all"])
@torch.no_grad()
def test_generate_with_and_without_cache(model, positions):
    inputs = batch_of(PROMPTS)
    steps = 5
    taken = []
    for use_cache in (True, False):
        with Capture(model, positions=positions) as capture:
            tokens = model.generate(
                **inputs, max_new_tokens=steps, do_sample=False, use_cache=use_cache
            )
            taken.append(capture.take())
    assert tokens.shape[1] == 6 + steps
    count = {"last_prompt": 1, "generated": 4, "last_prompt+generated": 5, "all": 10}[positions]
    assert taken[0].shape[:3] == (3, count, 3)
    torch.testing.assert_close(taken[0], taken[1], atol=1e-5, rtol=0)

    for row, prompt in enumerate(PROMPTS):
        text = [*prompt, *tokens[row, 6:-1].tolist()]
        whole = captured(model, single(text), positions="all")
        columns = columns_of(positions, len(prompt), len(text))
        expected = whole[0, columns]
        torch.testing.assert_close(taken[0][row, : len(expected)], expected, atol=1e-5, rtol=0)


def test_layers_and_dtype(build):
    model = build().to(torch.bfloat16)
    inputs = batch_of(PROMPTS)
    everything = captured(model, inputs)
    assert everything.dtype == torch.bfloat16
    assert not everything.requires_grad
    assert torch.equal(captured(model, inputs, layers=[2, 0]), everything[:, :, [2, 0]])


@pytest.mark.parametrize("use_cache", [True, False])
@torch.no_grad()
def test_nothing_of_a_broken_pass_is_left_for_the_next(model, use_cache):
    """Neither the columns it wanted, nor what came before it in the same generation."""
    passes = 0

    def blow(module, args):
        nonlocal passes
        passes += 1
        if passes == 3:
            raise RuntimeError("out of memory")

    options = {"max_new_tokens": 4, "do_sample": False, "use_cache": use_cache}
    inputs = batch_of(PROMPTS)
    handle = model.model.layers[1].register_forward_pre_hook(blow)
    with Capture(model, positions="last_prompt+generated") as capture:
        with pytest.raises(RuntimeError):
            model.generate(**batch_of(PROMPTS[::-1]), **options)
        model.generate(**inputs, **options)
        found = capture.take()
        model.generate(**inputs, **options)
        assert torch.equal(found, capture.take())
    handle.remove()


def test_non_finite_names_item_and_layer(model):
    inputs = batch_of(PROMPTS)
    with torch.no_grad():
        model.get_input_embeddings().weight[11] = float("nan")  # in the second prompt alone
    with pytest.raises(HookError, match="item 'b' at layer 0") as caught:
        captured(model, inputs, items=["a", "b", "c"])
    assert "'a'" not in str(caught.value) and "'c'" not in str(caught.value)
    with pytest.raises(HookError, match="row 1 at layer 2"):
        captured(model, inputs, layers=[2])


def test_batches_must_be_taken_one_by_one(model):
    with Capture(model) as capture, torch.no_grad():
        model(**single(PROMPTS[0]))
        with pytest.raises(HookError, match="take"):
            model(**single(PROMPTS[1]))
        with pytest.raises(HookError, match="2 items, but the model ran 1 rows"):
            capture.take(items=["a", "b"])
        with pytest.raises(HookError, match="0 forward passes"):
            capture.take()
    with pytest.raises(HookError, match="1 forward passes.*'generated'"):
        captured(model, single(PROMPTS[0]), positions="generated")


def test_capture_on_meta(skeleton):
    """Shapes alone, as for a full-size model without its weights."""
    model, ids = skeleton(), torch.ones(1, 6, dtype=torch.long, device="meta")
    with Capture(model) as capture:
        model(input_ids=ids)
        taken = capture.take(items=["story"])
    assert taken.shape == (1, 1, 3, 4, 8) and taken.device.type == "meta"
    # sdpa looks into a mask for padding, which meta cannot answer; eager does not.
    model.set_attn_implementation("eager")
    with Capture(model, positions="last_prompt+generated") as capture:
        model(input_ids=ids, attention_mask=torch.ones_like(ids))
        assert capture.take().shape == (1, 1, 3, 4, 8)
