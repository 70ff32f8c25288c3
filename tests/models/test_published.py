"""The descriptions of published models: built without weights, they have the published sizes."""

from __future__ import annotations

import socket

import numpy as np
import pytest

from sally_anne.core.errors import ModelError
from sally_anne.hooks.geometry import find_geometry
from sally_anne.models.estimate import TEXT_MORE, Counter, open_published
from sally_anne.models.options import CATALOGUE
from sally_anne.models.prompts import open_prompt, process

pytestmark = pytest.mark.integration

DESCRIBED = [name for name in CATALOGUE if not name.startswith("tiny-")]
FILM = (7, 420, 294, 3)
# Tokens of seven frames of 420 x 294, worked out from the makers' rules.
FILM_TOKENS = {
    # Scaled to 420 x 280; patches of 14, of which 2 x 2 of two frames are a token.
    "qwen2-vl": 4 * 15 * 10,
    "qwen2-vl-2b": 4 * 15 * 10,
    "qwen2.5-vl": 4 * 15 * 10,
    # A square of 24 x 24 patches a frame, pooled 2 x 2.
    "llava-next-video": 7 * 12 * 12,
    # 27 x 27 patches, pooled to 14 x 14; one token ends the film.
    "llava-onevision": 7 * 14 * 14 + 1,
}


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        pytest.fail("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.parametrize("name", DESCRIBED)
def test_a_description_has_the_published_sizes(name: str) -> None:
    loaded = open_published(name)
    geometry = find_geometry(loaded.skeleton)
    assert CATALOGUE[name].note == (
        f"{geometry.n_layers} layers x {geometry.n_heads} heads x {geometry.head_dim}"
    )
    parameters = sum(p.numel() for p in loaded.skeleton.parameters())
    # The published number of parameters, as the weights' own files count them.
    assert abs(parameters / loaded.parameters - 1) < 0.001
    assert loaded.source == CATALOGUE[name].source
    with pytest.raises(ModelError, match="without its weights"):
        _ = loaded.model


@pytest.mark.parametrize("name", FILM_TOKENS)
def test_a_film_takes_the_tokens_of_the_makers_rules(name: str) -> None:
    loaded = open_published(name)
    prompt = open_prompt(loaded, "The red agent goes to the blue room.", video=True)
    inputs = process(loaded, [prompt], [np.zeros(FILM, dtype=np.uint8)])
    mark = loaded.processor.tokenizer.convert_tokens_to_ids(loaded.processor.video_token)
    assert (inputs["input_ids"] == mark).sum() == FILM_TOKENS[name]
    counter = Counter(loaded)
    tokens, _ = counter.context(prompt, FILM)
    whole = inputs["attention_mask"].sum()
    # The text's own tokens are stretched, the film's are not.
    assert whole + TEXT_MORE < tokens < whole + TEXT_MORE + 5
    assert "estimated" in counter.each("tokens", [tokens]).formula
