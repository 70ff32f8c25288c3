"""A model under evaluation says what plain generation says, and scores as a plain forward does."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.hooks.positions import POSITIONS
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.decoding import end_tokens
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prompts import encode, reply_prompt
from tests.hooks.tiny_inputs import added, vector_on

pytestmark = pytest.mark.integration
TEXTS = (
    "At first the red agent is in the corridor. The door is closed. Where is the red agent now?",
    "Where is the white agent?",
)
OPTIONS = (["blue room", "the green room", "red"], ["in the purple room .", "blue"])
TOKENS = 6


@pytest.fixture(scope="module")
def loaded(lively: LoadedModel) -> LoadedModel:
    return lively


@pytest.fixture(scope="module")
def clips() -> list[np.ndarray]:
    """Two clips of four small frames."""
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (4, 84, 84, 3), dtype=np.uint8) for _ in range(2)]


@pytest.fixture(scope="module")
def vector(loaded: LoadedModel) -> SteeringVector:
    return vector_on(loaded.model, ((1, 2), (1, 5), (4, 0)), [1.0, 0.5, 2.0], 2, alpha=8.0)


def asked(clips: Sequence[np.ndarray] | None) -> list[Prompt]:
    if clips is None:
        return [Prompt(text) for text in TEXTS]
    return [Prompt(*pair) for pair in zip(TEXTS, clips, strict=True)]


def encoded(loaded: LoadedModel, prompts: Sequence[Prompt], more: str = "") -> dict[str, Tensor]:
    """Inputs of whole prompts, with `more` at the end."""
    clips = [p.clip for p in prompts if p.clip is not None]
    texts = [reply_prompt(loaded, p.text, bool(clips)) + more for p in prompts]
    return encode(loaded, texts, clips or None)


@torch.inference_mode()
def plainly(loaded: LoadedModel, prompts: Sequence[Prompt], **options) -> Tensor:
    """The new tokens of the model's own generation."""
    inputs = encoded(loaded, prompts)
    options = {"max_new_tokens": TOKENS, "do_sample": False, **options}
    return loaded.model.generate(**inputs, **options)[:, inputs["input_ids"].shape[1] :]


def texts_of(loaded: LoadedModel, tokens: Tensor) -> list[str]:
    return loaded.processor.tokenizer.batch_decode(tokens, skip_special_tokens=True)


@torch.inference_mode()
def log_prob_by_hand(
    loaded: LoadedModel, prompt: Prompt, option: str, delta: Tensor | None, everywhere: bool
) -> float:
    """Log-probability of an option from one forward over prompt and option."""
    gap = {"qwen2-vl": "", "llava-next-video": " "}[loaded.family.name]
    before = encoded(loaded, [prompt])["input_ids"][0]
    inputs = encoded(loaded, [prompt], gap + option)
    ids = inputs["input_ids"][0]
    assert torch.equal(ids[: len(before)], before) and len(ids) > len(before)
    start = 0 if everywhere else len(before) - 1
    with nullcontext() if delta is None else added(loaded.model, delta, slice(start, None)):
        logits = loaded.model(**inputs, use_cache=False).logits[0]
    total = 0.0
    for column in range(len(before), len(ids)):
        total += float(logits[column - 1].double().log_softmax(-1)[ids[column]])
    return total


with_clips = pytest.mark.parametrize("video", [True, False])


@with_clips
def test_generate_is_the_models_own(loaded, clips, video: bool) -> None:
    prompts = asked(clips if video else None)
    replies = SteeredModel(loaded).generate(prompts, TOKENS)
    assert replies == texts_of(loaded, plainly(loaded, prompts))
    assert replies[0] != replies[1] and all(replies)


@with_clips
def test_a_reply_ends_at_the_end_token(loaded, clips, video: bool, monkeypatch) -> None:
    prompts = asked(clips if video else None)
    tokens = plainly(loaded, prompts)
    end = int(tokens[0, 2])
    before = tokens[0].tolist().index(end)
    config = loaded.model.generation_config
    monkeypatch.setattr(config, "eos_token_id", [config.eos_token_id, end])
    assert end in end_tokens(loaded)
    replies = SteeredModel(loaded).generate(prompts, TOKENS)
    for reply, row in zip(replies, plainly(loaded, prompts).tolist(), strict=True):
        stop = row.index(end) if end in row else len(row)
        assert reply == loaded.processor.tokenizer.decode(row[:stop], skip_special_tokens=True)
    assert replies[0] == texts_of(loaded, tokens[:1, :before])[0]
    assert replies[1]


@pytest.mark.parametrize("positions", [None, "last_prompt+generated", "all"])
def test_batch_equals_single(loaded, vector, clips, positions) -> None:
    prompts = asked(clips)
    model = SteeredModel(loaded, positions and replace(vector, positions=positions))
    together = model.generate(prompts, TOKENS)
    assert together == [model.generate([prompt], TOKENS)[0] for prompt in prompts]
    scores = model.option_log_probs(prompts, OPTIONS)
    for prompt, options, score in zip(prompts, OPTIONS, scores, strict=True):
        alone = model.option_log_probs([prompt], [options])[0]
        assert score == pytest.approx(alone, rel=1e-5, abs=1e-4)


def test_strength_zero_is_no_steering(loaded, vector, clips) -> None:
    prompts = asked(clips)
    plain, zero = SteeredModel(loaded), SteeredModel(loaded, vector, 0.0)
    assert zero.generate(prompts, TOKENS) == plain.generate(prompts, TOKENS)
    assert zero.option_log_probs(prompts, OPTIONS) == plain.option_log_probs(prompts, OPTIONS)
    everywhere = SteeredModel(loaded, replace(vector, positions="all"), 0.0)
    assert everywhere.option_log_probs(prompts, OPTIONS) == plain.option_log_probs(prompts, OPTIONS)


@with_clips
@pytest.mark.parametrize("positions", POSITIONS)
def test_steered_generate_is_generate_under_the_vector(
    loaded, vector, clips, video: bool, positions: str
) -> None:
    prompts = asked(clips if video else None)
    vector = replace(vector, positions=positions)
    with vector.apply(loaded.model):
        expected = texts_of(loaded, plainly(loaded, prompts))
        assert texts_of(loaded, plainly(loaded, prompts, use_cache=False)) == expected
    assert SteeredModel(loaded, vector).generate(prompts, TOKENS) == expected
    assert expected != SteeredModel(loaded).generate(prompts, TOKENS)


@with_clips
@pytest.mark.parametrize("positions", [None, "last_prompt+generated", "all"])
def test_options_score_as_in_one_forward(loaded, vector, clips, video: bool, positions) -> None:
    prompts = asked(clips if video else None)
    steering = positions and replace(vector, positions=positions)
    found = SteeredModel(loaded, steering).option_log_probs(prompts, OPTIONS)
    delta = steering and steering.delta()
    for prompt, options, scores in zip(prompts, OPTIONS, found, strict=True):
        expected = [log_prob_by_hand(loaded, prompt, o, delta, positions == "all") for o in options]
        assert scores == pytest.approx(expected, rel=1e-5, abs=1e-4)
        if steering:
            plain = [log_prob_by_hand(loaded, prompt, o, None, False) for o in options]
            assert scores != pytest.approx(plain, abs=1e-2)


PROMPTS = [
    Prompt("At first the red agent is in the corridor. Where is the red agent now?"),
    Prompt("Where is the white agent?"),
    Prompt("The door is closed. Who is in the green room?"),
]


def test_replies_are_the_likeliest_along_themselves(loaded) -> None:
    model = SteeredModel(loaded)
    said = [reply.tokens for reply in model.replies(PROMPTS, TOKENS)]
    along = model.log_probs_along(PROMPTS, said)
    assert [tuple(rows.argmax(-1).tolist()) for rows in along] == said


def test_a_reply_stops_at_the_first_stop_string(loaded) -> None:
    model = SteeredModel(loaded)
    whole = model.replies(PROMPTS, TOKENS)
    stop = whole[0].text[len(whole[0].text) // 2 :][:4]
    replies = model.replies(PROMPTS, TOKENS, stops=("nowhere at all", stop))
    for before, reply in zip(whole, replies, strict=True):
        stopped = stop in before.text
        assert reply.text == (before.text[: before.text.index(stop)] if stopped else before.text)
        assert reply.ended == stopped
        assert before.tokens[: len(reply.tokens)] == reply.tokens
    assert replies[0].ended and len(replies[0].tokens) < TOKENS
