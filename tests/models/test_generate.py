"""A reply in one call is what the harness answers to the same prompt, also steered."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel
from tests.hooks.tiny_inputs import vector_on

TEXT = "At first the red agent is in the corridor. Where is the red agent now?"


@pytest.fixture(scope="module")
def clip() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (4, 84, 84, 3), dtype=np.uint8)


def vector(loaded: LoadedModel, positions: str) -> SteeringVector:
    heads = ((1, 2), (4, 0))
    return vector_on(loaded.skeleton, heads, [1.0, 2.0], 2, alpha=8.0, positions=positions)


@pytest.mark.integration
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


@pytest.mark.integration
def test_a_clip_is_shown_in_any_form(lively: LoadedModel, clip: np.ndarray, tmp_path: Path) -> None:
    said = lively.generate(TEXT, video=clip, max_new_tokens=4)
    assert lively.generate(TEXT, images=list(clip), max_new_tokens=4) == said
    pictures = [Image.fromarray(frame) for frame in clip]
    assert lively.generate(TEXT, video=pictures, max_new_tokens=4) == said
