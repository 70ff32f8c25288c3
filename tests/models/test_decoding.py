"""Prompts that go on from a shared beginning equal prompts read whole; a reply in one call."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sally_anne.core.errors import ModelError
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.decoding import extend, prefill, read_side_by_side, split_common_prefix
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prompts import encode, open_prompt, reply_prompt
from tests.hooks.tiny_inputs import vector_on

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


TEXT = "At first the red agent is in the corridor. Where is the red agent now?"


@pytest.fixture(scope="module")
def clip() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (4, 84, 84, 3), dtype=np.uint8)


def vector(loaded: LoadedModel, positions: str) -> SteeringVector:
    heads = ((1, 2), (4, 0))
    return vector_on(loaded.skeleton, heads, [1.0, 2.0], 2, alpha=8.0, positions=positions)


@pytest.mark.parametrize("shown", [True, False])
def test_says_what_the_harness_answers(lively: LoadedModel, clip: np.ndarray, shown: bool) -> None:
    prompt = Prompt(TEXT, clip if shown else None)
    (plain,) = SteeredModel(lively).generate([prompt], 8)
    assert lively.generate(TEXT, video=prompt.clip, max_new_tokens=8) == plain
    for positions in ("last_prompt", "last_prompt+generated", "all"):
        steering = vector(lively, positions)
        (steered,) = SteeredModel(lively, steering).generate([prompt], 8)
        with steering.apply(lively.model):
            assert lively.generate(TEXT, video=prompt.clip, max_new_tokens=8) == steered
        assert steered != plain


def test_a_clip_is_shown_in_any_form(lively: LoadedModel, clip: np.ndarray, tmp_path: Path) -> None:
    said = lively.generate(TEXT, video=clip, max_new_tokens=4)
    assert lively.generate(TEXT, images=list(clip), max_new_tokens=4) == said
    pictures = [Image.fromarray(frame) for frame in clip]
    assert lively.generate(TEXT, video=pictures, max_new_tokens=4) == said
