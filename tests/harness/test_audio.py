"""--view audio and audiovisual: films are heard, by tiny random models of the very classes.

Two films of one length with other sounds, and one without any, are asked the same question.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from sally_anne.harness.config import EvalConfig
from sally_anne.harness.evaluate import evaluate, prompt_of
from sally_anne.harness.model import SteeredModel, cut_prompts, laid_out
from sally_anne.harness.tasks import load_items
from sally_anne.hooks.capture import Capture
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prefix import extend
from sally_anne.models.prompts import encode
from tests.harness import made_benchmarks as made
from tests.hooks.tiny_inputs import vector_on
from tests.models.checkpoints import HEARS

RATE, WINDOW = 16_000, 2.5
BOTH = {"view": "audiovisual", "frames": 4}
ASKED = [*((name, {"view": "audio"}) for name in HEARS), ("qwen2.5-omni", BOTH)]


def wave(seed: int) -> np.ndarray:
    """Three seconds as a film keeps them, ``int16 [S]``."""
    noise = np.random.default_rng(seed).normal(0, 3000, 3 * RATE)
    return noise.round().astype(np.int16)


@pytest.fixture
def config(tmp_path: Path) -> EvalConfig:
    data = made.moments(tmp_path / "data")
    path = data / "moments_validation_questions.json"
    records = json.loads(path.read_text())
    for number, record in enumerate(records):
        record |= {"video_url": f"https://vimeo.com/{number + 1}", "movie_title": f"FILM {number}"}
    path.write_text(json.dumps(records))
    for number in range(2):
        name = f"{number + 1}.mp4"
        made.film(data / "videos" / name, sound=wave(number), format="matroska")
        (data / "transcripts" / f"{number + 1}.srt").write_text(
            f"1\n00:00:00,200 --> 00:00:00,800\nHello {number}.\n"
        )
    (data / "videos" / "12345.mp4").rename(data / "videos" / "3.mp4")
    return EvalConfig(
        task="moments", view="audio", data=data, options=True, max_new_tokens=2, out=tmp_path / "r"
    )


def evaluated(config: EvalConfig, loaded: LoadedModel, **more: Any) -> dict[str, list[float]]:
    """Log-probabilities of the options, by item."""
    evaluate(replace(config, model=loaded.name), console=Console(quiet=True), loaded=loaded, **more)
    lines = (config.folder / "answers.jsonl").read_text().splitlines()[1:]
    return {line["item_id"]: line["option_log_probs"] for line in map(json.loads, lines)}


def vector(loaded: LoadedModel, alpha: float) -> SteeringVector:
    return vector_on(loaded.skeleton, ((1, 2),), [1.0], 3, alpha=alpha)


def test_items_hear_their_window_of_their_own_film(config: EvalConfig) -> None:
    work = load_items(config)
    assert [item.item_id for item in work.items] == ["q0", "q1"] and work.missing == ("q2",)
    for number, item in enumerate(work.items):
        assert item.clip is None and item.sound is not None and item.seconds is not None
        heard = wave(number)[: round(WINDOW * RATE)] / np.float32(32768)
        assert np.array_equal(item.sound(), heard) and item.seconds() == WINDOW
        assert "of which you hear the sound" in item.text and "Hello" not in item.text
    (focused, _) = load_items(replace(config, window="focused")).items
    assert focused.sound is not None
    assert np.array_equal(focused.sound(), wave(0)[RATE : round(2.5 * RATE)] / np.float32(32768))


def test_items_show_and_play_one_window(config: EvalConfig) -> None:
    work = load_items(replace(config, **BOTH))
    heard = load_items(config).items
    shown = load_items(replace(config, view="video", frames=4)).items
    assert [item.item_id for item in work.items] == ["q0", "q1"] and work.missing == ("q2",)
    for both, ear, eye in zip(work.items, heard, shown, strict=False):
        assert both.clip and both.sound and both.shape and ear.sound and eye.clip
        assert np.array_equal(both.sound(), ear.sound())
        assert np.array_equal(both.clip(), eye.clip()) and both.shape(True) == (4, 64, 64)
        assert "which you see and hear" in both.text and "Hello" not in both.text
    (shot,) = load_items(replace(config, **BOTH, prompting="few-shot", shots=1)).items
    assert "new story. The pictures and the sound belong to it." in shot.text


@pytest.mark.integration
@pytest.mark.parametrize(("name", "view"), ASKED)
@torch.inference_mode()
def test_what_a_film_sounds_like_changes_the_answer(opened, config, name: str, view) -> None:
    loaded, config = opened(name), replace(config, **view)
    found = evaluated(config, loaded)
    assert set(found) == {"q0", "q1"}
    saved = json.loads((config.folder / "results.json").read_text())
    assert saved["counts"]["missing"] == 1
    without = {**view, "view": "video" if view is BOTH else "none"}
    silent = evaluated(replace(config, **without, out=config.folder / "none"), loaded)
    for one, other in (("q0", "q1"), ("q1", "q0")):
        assert found[one] != pytest.approx(found[other], abs=1e-4)
        assert found[one] != pytest.approx(silent[one], abs=1e-4)

    # The model gets what its processor makes of the wave, and says what a plain forward says.
    items = load_items(config).items
    asked = [prompt_of(item) for item in items]
    inputs, _ = cut_prompts(loaded, asked)
    waves = [wave(number)[: round(WINDOW * RATE)] / np.float32(32768) for number in range(2)]
    prompts = [laid_out(loaded, prompt) for prompt in asked]
    clips = [prompt.clip for prompt in asked] if view is BOTH else None
    how = {"sampling_rate": RATE, "return_tensors": "pt"}
    how |= {"do_sample_frames": False} if clips else {}
    own = loaded.processor(text=prompts, audio=waves, videos=clips, padding=True, **how)
    whole = encode(loaded, prompts, clips, [[sound] for sound in waves])
    assert whole.keys() == own.keys() == inputs.keys()
    for key, value in own.items():
        assert torch.equal(whole[key], value)
        assert key in ("input_ids", "attention_mask") or torch.equal(inputs[key], value)
    assert not torch.equal(own["input_features"][0], own["input_features"][1])
    model = SteeredModel(loaded)
    heads = []
    for row, (prompt, item, sound) in enumerate(zip(prompts, items, waves, strict=True)):
        clip = clips[row] if clips else None
        alone = loaded.processor(text=prompt, audio=sound, videos=clip, **how)
        with Capture(loaded.model) as capture:
            logits = loaded.model(**alone, use_cache=False).logits[0, -1].log_softmax(-1)
            heads.append(capture.take()[0, 0])
        firsts = [ids[0] for ids in model.continuations(prompt_of(item), list("ABCD"))]
        assert [float(logits[i]) for i in firsts] == pytest.approx(found[item.item_id], abs=1e-4)

    # Heads are captured in the evaluation's own batch as in these forwards.
    with Capture(loaded.model) as capture:
        with model.prefilled(asked) as (begun, ends):
            capture.take()
            extend(loaded, begun, range(2), ends)
        batch = capture.take()[:, 0]
    for row, alone in zip(batch, heads, strict=True):
        assert (row - alone).abs().max() <= 1e-5 * alone.abs().max()
    assert not torch.allclose(heads[0], heads[1])

    # And steered.
    still = replace(config, out=config.folder / "still")
    moved = replace(config, out=config.folder / "moved")
    assert evaluated(still, loaded, vector=vector(loaded, 0.0)) == found
    steered = evaluated(moved, loaded, vector=vector(loaded, 20.0))
    for item in ("q0", "q1"):
        assert steered[item] != pytest.approx(found[item], abs=1e-3)


@pytest.mark.integration
@torch.inference_mode()
def test_frames_and_sound_each_change_the_answer(opened, config) -> None:
    """Also side by side with a longer prompt; and the model's own way to generate says the same."""
    loaded = opened("qwen2.5-omni")
    one = prompt_of(load_items(replace(config, **BOTH)).items[0])
    assert one.clip is not None and one.sound is not None
    prompts = [
        one,
        replace(one, sound=-one.sound[: RATE // 2]),
        replace(one, sound=one.sound[::-1].copy()),
        replace(one, clip=255 - one.clip),
    ]
    model, labels = SteeredModel(loaded), list("ABCD")
    found = model.option_log_probs(prompts, [labels] * 4)
    for prompt, scores in zip(prompts, found, strict=True):
        assert model.option_log_probs([prompt], [labels])[0] == pytest.approx(scores, abs=1e-5)
        if prompt is not one:
            assert scores != pytest.approx(found[0], abs=1e-4)
    said = model.generate(prompts[:2], 6)
    for prompt, reply in zip(prompts[:2], said, strict=True):
        assert prompt.clip is not None and prompt.sound is not None
        inputs = encode(loaded, [laid_out(loaded, prompt)], [prompt.clip], [[prompt.sound]])
        own = loaded.model.generate(**inputs, max_new_tokens=6, do_sample=False)
        new = own[0, inputs["input_ids"].shape[1] :]
        assert loaded.processor.tokenizer.decode(new, skip_special_tokens=True).strip() == reply
    assert loaded.generate(one.text, video=one.clip, sound=one.sound, max_new_tokens=6) == said[0]
