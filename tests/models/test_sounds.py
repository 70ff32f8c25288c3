"""Models that hear, by tiny random ones of the very classes: heads, captures, steering, replies.

Numbers are compared with a plain forward of each whole prompt by itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.hooks.capture import Capture
from sally_anne.hooks.geometry import find_geometry
from sally_anne.models.decoding import extend
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prompts import encode, pieces_of, reply_prompt
from tests.models.checkpoints import HEADS, HEARS, LAYERS

pytestmark = pytest.mark.integration

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
