"""Prompts that go on from a shared beginning equal prompts read whole."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sally_anne.core.errors import ModelError
from sally_anne.models.decoding import extend, prefill, read_side_by_side, split_common_prefix
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prompts import encode, open_prompt, reply_prompt

pytestmark = pytest.mark.integration

STORIES = (
    "At first the red agent is in the corridor. Belief: The red agent is now in the {} room.",
    "The video ends here. Belief: The white agent is now in the {} room.",
)
ROOMS = ("blue", "purple", "green")


def prompts(loaded: LoadedModel, video: bool) -> list[list[str]]:
    return [[open_prompt(loaded, s.format(r), video) for r in ROOMS] for s in STORIES]


@pytest.mark.parametrize("text", ["Hello", "\u4f60\u597d"])
def test_texts_without_a_space_are_cut_behind_the_frames(loaded: LoadedModel, text: str) -> None:
    (prompt,) = [reply_prompt(loaded, text, video=True)]
    system = f"a b {prompt}"
    for whole in (prompt, system):
        shared = split_common_prefix(loaded, [whole])
        assert loaded.processor.video_token in shared.beginning
        tokens = loaded.processor.tokenizer(shared.beginning, add_special_tokens=False)["input_ids"]
        rest = loaded.processor.tokenizer(whole, add_special_tokens=False)["input_ids"]
        assert [*tokens, *shared.endings[0]] == rest


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_tokens_side_by_side_do_not_see_each_other(
    fresh: LoadedModel, clips: list[np.ndarray], attention: str
) -> None:
    loaded = fresh
    loaded.model.set_attn_implementation(attention)
    first = [group[0] for group in prompts(loaded, True)]
    shared = [split_common_prefix(loaded, [prompt]) for prompt in first]
    with torch.no_grad():
        expected = loaded.model(**encode(loaded, first, clips), logits_to_keep=1).logits[:, -1]
        # Of unequal length, so that one is padded.
        state = prefill(loaded, encode(loaded, [s.beginning for s in shared], clips))
        state = extend(loaded, state, [0, 1], [s.endings[0][:-1] for s in shared])
        before = [layer.keys.clone() for layer in state.cache.layers]
        for row, cut in enumerate(shared):
            found = read_side_by_side(loaded, state, [row], cut.endings[0][-1:], 3)[0]
            torch.testing.assert_close(found, expected[row].expand(3, -1), atol=2e-5, rtol=1e-4)
    for layer, keys in zip(state.cache.layers, before, strict=True):
        assert torch.equal(layer.keys, keys)


def test_attention_that_takes_no_mask_is_refused(fresh: LoadedModel) -> None:
    loaded = fresh
    (prompt,) = (reply_prompt(loaded, "The white agent is in the blue room.", False),)
    with torch.no_grad():
        state = prefill(loaded, encode(loaded, [prompt], None))
        config = loaded.model.config.get_text_config()
        config.sliding_window, config.layer_types = 4, ["sliding_attention"]
        with pytest.raises(ModelError, match=r"looks back 4 tokens and the prompt has \d+"):
            read_side_by_side(loaded, state, [0], [5], 2)
        config._attn_implementation = "flash_attention_2"
        with pytest.raises(ModelError, match="flash_attention_2.*--attn-implementation sdpa"):
            read_side_by_side(loaded, state, [0], [5], 2)
