"""Prompts that go on from a shared beginning equal prompts read whole; a reply in one call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from sally_anne.core.errors import ContextError, ModelError
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.hooks.capture import Capture
from sally_anne.hooks.geometry import find_geometry
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prefix import extend, prefill, read_side_by_side, split_common_prefix
from sally_anne.models.prompts import encode, open_prompt, pieces_of, reply_prompt
from tests.hooks.tiny_inputs import vector_on
from tests.models.checkpoints import HEADS, HEARS, LAYERS

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
    # Without a new line, too.
    tight = f"{loaded.processor.video_token}the.red.agent{text}"
    for whole in (prompt, system, tight):
        shared = split_common_prefix(loaded, [whole])
        assert loaded.processor.video_token in shared.beginning
        tokens = loaded.processor.tokenizer(shared.beginning, add_special_tokens=False)["input_ids"]
        rest = loaded.processor.tokenizer(whole, add_special_tokens=False)["input_ids"]
        assert [*tokens, *shared.endings[0]] == rest
    with pytest.raises(ModelError, match="too short"):
        split_common_prefix(loaded, [loaded.processor.video_token])


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


def test_prompt_and_reply_fit_the_context(fresh: LoadedModel) -> None:
    tokens = encode(fresh, [reply_prompt(fresh, TEXT, False)], None)["input_ids"].shape[1]
    fresh.config.get_text_config().max_position_embeddings = tokens + 4
    assert fresh.generate(TEXT, max_new_tokens=4)
    with pytest.raises(ContextError, match="max_new_tokens"):
        fresh.generate(TEXT, max_new_tokens=5)


def test_a_clip_is_shown_in_any_form(lively: LoadedModel, clip: np.ndarray, tmp_path: Path) -> None:
    said = lively.generate(TEXT, video=clip, max_new_tokens=4)
    assert lively.generate(TEXT, images=list(clip), max_new_tokens=4) == said
    pictures = [Image.fromarray(frame) for frame in clip]
    assert lively.generate(TEXT, video=pictures, max_new_tokens=4) == said


RATE = 16_000
QUESTIONS = ("where is the red agent ?", "where does the white agent believe the red agent is ?")


def noise(seconds: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(0, 0.1, round(seconds * RATE)).astype(np.float32)


# Of unequal lengths, so that one of a batch is padded.
SOUNDS = (noise(2.0), noise(3.5, 1))
ASKED = [Prompt(text, sound=sound) for text, sound in zip(QUESTIONS, SOUNDS, strict=True)]


def whole(loaded: LoadedModel, prompt: Prompt) -> dict[str, Any]:
    assert prompt.sound is not None
    pieces = pieces_of(loaded, prompt.sound)
    text = reply_prompt(loaded, prompt.text, False, len(pieces))
    return encode(loaded, [text], None, [pieces])


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()


@pytest.mark.parametrize("name", HEARS)
@torch.inference_mode()
def test_heads_are_captured_as_in_a_plain_forward(opened, name: str) -> None:
    loaded = opened(name)
    found = find_geometry(loaded.model)
    assert not any("audio" in place or "visual" in place for place in found.o_proj_names)
    seen = []
    with Capture(loaded.model) as capture:
        with SteeredModel(loaded).prefilled(ASKED) as (begun, ends):
            capture.take()
            state = extend(loaded, begun, range(len(ends)), ends)
        batch = capture.take()[:, 0]
    for row, prompt in enumerate(ASKED):
        inputs = whole(loaded, prompt)
        with Capture(loaded.model) as capture:
            logits = loaded.model(**inputs, use_cache=False).logits[0, -1]
            alone = capture.take()[0, 0]
        close(batch[row], alone)
        close(state.logits[row], logits)
        seen.append(alone)
    assert batch.shape == (2, LAYERS, HEADS, found.head_dim)
    assert not torch.allclose(seen[0], seen[1])


@pytest.mark.parametrize("name", HEARS)
def test_what_is_heard_matters(opened, name: str) -> None:
    model = SteeredModel(opened(name))
    options = [["blue room", "the green room", "red"]] * 3
    same = [Prompt(QUESTIONS[0], sound=sound) for sound in (SOUNDS[0], SOUNDS[0], SOUNDS[1])]
    one, again, other = model.option_log_probs(same, options)
    assert one == pytest.approx(again, abs=1e-5) and one != pytest.approx(other, abs=1e-3)
    # The model's own way to generate says the same.
    loaded = opened(name)
    inputs = whole(loaded, ASKED[0])
    own = loaded.model.generate(**inputs, max_new_tokens=6, do_sample=False)
    words = loaded.processor.tokenizer.decode(
        own[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True
    )
    said = loaded.generate(QUESTIONS[0], sound=SOUNDS[0], max_new_tokens=6)
    assert said == words.strip() == model.generate([ASKED[0]], 6)[0]


def test_a_long_sound_is_heard_to_its_end(opened) -> None:
    loaded = opened("qwen2-audio")
    sound = noise(31.0)
    pieces = pieces_of(loaded, sound)
    assert [len(piece) for piece in pieces] == [30 * RATE, RATE]
    prompt = Prompt(QUESTIONS[0], sound=sound)
    changed = sound.copy()
    changed[-RATE // 2 :] *= -3
    options = [["red", "blue room"]] * 2
    one, other = SteeredModel(loaded).option_log_probs(
        [prompt, Prompt(QUESTIONS[0], sound=changed)], options
    )
    assert one != pytest.approx(other, abs=1e-4)
    # Six hundredths more than thirty seconds: silence makes the last piece long enough.
    assert [len(p) for p in pieces_of(loaded, noise(30.06))] == [30 * RATE, 1600]
