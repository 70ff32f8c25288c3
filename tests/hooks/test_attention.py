"""Where heads look is what step-by-step attention says of the read row, and changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from sally_anne.core.errors import HookError
from sally_anne.hooks.capture import Capture, Looks
from sally_anne.models.decoding import extend, prefill
from sally_anne.models.loading import load_model
from tests.hooks.test_edit import every_hook
from tests.hooks.test_every_type import build as of_type
from tests.hooks.tiny_inputs import PROMPTS, TINY, asked, batch_of

pytestmark = pytest.mark.integration


def rows(model: Any, inputs: Any) -> Tensor:
    """By transformers: `[B, L, H, T]` of each row's last real token, from whole matrices."""
    way = model.config.get_text_config()._attn_implementation
    model.set_attn_implementation("eager")
    full = torch.stack(model(**inputs, output_attentions=True).attentions, 1)
    model.set_attn_implementation(way)
    at = inputs["attention_mask"].cumsum(1).argmax(1)
    return full[torch.arange(len(at)), :, :, at]


@pytest.mark.parametrize("name", ["llama", "gemma3-text", "mistral", "qwen3"])
@pytest.mark.parametrize("way", ["sdpa", "eager"])
@torch.no_grad()
def test_decoders(build, name, way):
    """With padding on either side, windows that are shorter than prompts, and one on its own."""
    model = build(name, way)
    long = [list(range(2, 30)), list(range(7, 17))]
    sides = [batch_of(PROMPTS, side) for side in ("left", "right")]
    for inputs in (*sides, batch_of(long), batch_of(long[:1])):
        with Capture(model) as capture:
            plain, z = model(**inputs).logits, capture.take()
            with Looks(model) as looks:
                assert torch.equal(model(**inputs).logits, plain)
                assert torch.equal(capture.take(), z)
                found = looks.take()[:, 0]
            assert torch.equal(model(**inputs).logits, plain)
        with Capture(model) as capture:
            torch.testing.assert_close(found, rows(model, inputs), atol=1e-5, rtol=0)
            # Heads put out the same whichever way they attend.
            torch.testing.assert_close(capture.take(), z, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", TINY)
@torch.no_grad()
def test_films_and_shared_beginnings(name):
    loaded = load_model(name)
    inputs = asked(loaded, True)
    with Looks(loaded.model) as looks:
        loaded.model(**inputs)
        found = looks.take()[:, 0]
    torch.testing.assert_close(found, rows(loaded.model, inputs), atol=1e-5, rtol=0)
    torch.testing.assert_close(found.sum(-1), torch.ones(found.shape[:3]))
    assert not found.movedim(-1, 1)[inputs["attention_mask"] == 0].any()
    endings, begun = [[20, 33, 19], [40, 41], [30, 22, 25, 31]], [0, 0, 1]
    state = prefill(loaded, inputs)
    with Looks(loaded.model) as looks:
        columns = extend(loaded, state, begun, endings)
        found = looks.take()[:, 0]
    for row, ending in enumerate(endings):
        one = {key: value.chunk(2)[begun[row]] for key, value in inputs.items()}
        more = {"input_ids": torch.tensor([ending])}
        more["attention_mask"] = torch.ones_like(more["input_ids"])
        more["mm_token_type_ids"] = 0 * more["input_ids"]
        one |= {key: torch.cat([one[key], more[key]], 1) for key in more if key in one}
        expected = rows(loaded.model, one)[0][..., one["attention_mask"][0] > 0]
        real = columns.mask[row] > 0
        torch.testing.assert_close(found[row][..., real], expected, atol=1e-5, rtol=0)
        assert not found[row][..., ~real].any()


def test_who_attends_otherwise_is_refused(build):
    model = of_type("text", "bloom")
    with Looks(model), pytest.raises(HookError, match="interface"):
        model(**batch_of(PROMPTS))
    assert every_hook(model) == 0
    model = build()
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(HookError, match="sdpa"):
        Looks(model)
