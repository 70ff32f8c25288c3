"""Every class by its real way in: a saved checkpoint, opened, asked, shown films, and probed.

Numbers are compared with a plain forward of each whole prompt by itself.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoProcessor, GPTNeoConfig, GPTNeoForCausalLM

from sally_anne.core.errors import ModelError
from sally_anne.data.items import Setting
from sally_anne.data.samples import Sample
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.evaluate import evaluate
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.hooks.capture import Capture
from sally_anne.hooks.geometry import find_geometry
from sally_anne.models.estimate import Load, needs
from sally_anne.models.families import FAMILIES
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.options import CATALOGUE
from sally_anne.models.prefix import extend, prefill, read_side_by_side, split_common_prefix, step
from sally_anne.models.processor import BREAK, eye_of
from sally_anne.models.prompts import encode, open_prompt, process, reply_prompt
from sally_anne.models.videos import pad_for_crop
from sally_anne.probing.config import ProbeConfig
from sally_anne.probing.extraction import extract
from sally_anne.probing.pipeline import dry_run
from sally_anne.probing.pipeline import run as probe
from tests.hooks.test_every_type import build, small
from tests.hooks.tiny_inputs import added, vector_on
from tests.models.checkpoints import (
    FEWER,
    FILMS,
    HEAD_DIMS,
    HEADS,
    HIDDEN,
    LAYERS,
    MIXED,
    SHOWN,
    TYPES,
    WINDOW,
    WORDS,
    lay_out_as_on_the_hub,
    save,
)

pytestmark = pytest.mark.integration

# Beginnings and endings of unequal lengths; the first is longer than the window of any layer.
STORIES = (
    "At first the red agent is in the corridor. The door is closed. Belief: The red agent is {}",
    "The video ends here. Belief: The white agent {}",
)
ENDINGS = ("in the blue room.", "not in the purple room, and not in the green room.", "here now.")
NAMES = (*SHOWN, *WORDS, "qwen2-audio")
SEEN = [(name, video) for name in NAMES for video in (False, *([True] * (name in SHOWN)))]


@pytest.fixture(scope="session")
def small_clips() -> list[np.ndarray]:
    """Two clips of seven small frames."""
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (7, 84, 126, 3), dtype=np.uint8) for _ in range(2)]


def prompts(loaded: LoadedModel, video: bool) -> list[list[str]]:
    return [[open_prompt(loaded, s.format(e), video) for e in ENDINGS] for s in STORIES]


@torch.inference_mode()
def alone(loaded: LoadedModel, prompt: str, clip: np.ndarray | None) -> tuple[torch.Tensor, ...]:
    """Activations `[L, H, D]` and logits `[V]` after one prompt, read whole and without padding."""
    inputs = encode(loaded, [prompt], None if clip is None else [clip])
    assert inputs["attention_mask"].all()
    with Capture(loaded.model) as capture:
        logits = loaded.model(**inputs, use_cache=False).logits[0, -1]
        return capture.take()[0, 0], logits


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()


@pytest.mark.parametrize("name", NAMES)
def test_opens(opened: Callable[[str], LoadedModel], name: str) -> None:
    loaded = opened(name)
    assert loaded.family.name == name
    assert type(loaded.model).__name__ == type(loaded.skeleton).__name__ == loaded.family.class_name
    found = find_geometry(loaded.model)
    wanted = (LAYERS - (name in FEWER), HEADS, HEAD_DIMS.get(name, 12), HIDDEN)
    assert (found.n_layers, found.n_heads, found.head_dim, found.hidden_size) == wanted
    assert find_geometry(loaded.skeleton) == found
    again = load_model(loaded.source)
    encode(loaded, [open_prompt(loaded, text, False) for text in ("one.", "one two three.")], None)
    assert again.processor_hash == loaded.processor_hash
    assert {f.name for f in FAMILIES} <= {*NAMES}


@pytest.mark.parametrize("name", FILMS)
def test_a_folder_as_the_hub_has_it(opened, small_clips, tmp_path, name: str) -> None:
    """It opens with the same processors, and they make the same of a film."""
    ours = opened(name)
    folder = Path(shutil.copytree(ours.source, tmp_path / name))
    lay_out_as_on_the_hub(name, folder)
    loaded = load_model(str(folder))
    for part in (lambda p: p, lambda p: p.video_processor, lambda p: p.image_processor):
        assert type(part(loaded.processor)) is type(part(ours.processor))
    assert loaded.processor.chat_template == ours.processor.chat_template
    texts = [reply_prompt(loaded, story, True) for story in STORIES]
    found, expected = (process(x, texts, small_clips) for x in (loaded, ours))
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[key], expected[key]) for key in expected)


def test_a_processor_that_does_not_say_its_patches(opened, small_clips, tmp_path) -> None:
    folder = Path(shutil.copytree(opened("llava-next-video").source, tmp_path / "model"))
    lay_out_as_on_the_hub("llava-next-video", folder)
    (folder / "processor_config.json").unlink()
    loaded = load_model(str(folder))
    inputs = process(loaded, [reply_prompt(loaded, "Where?", True)], small_clips[:1])
    assert (inputs["input_ids"] == loaded.config.video_token_id).sum() == 7 * 4


# Bands along the edges of a frame, in colours that scaling mixes with grey at most at their rims.
BANDS = {"top": (255, 0, 0), "bottom": (0, 255, 0), "left": (0, 0, 255), "right": (255, 255, 0)}


def banded(height: int, width: int, band: int) -> np.ndarray:
    """A clip of two grey frames with a band of its own colour along each edge."""
    frame = np.full((height, width, 3), 128, dtype=np.uint8)
    frame[:band], frame[-band:] = BANDS["top"], BANDS["bottom"]
    frame[band:-band, :band], frame[band:-band, -band:] = BANDS["left"], BANDS["right"]
    return np.stack([frame, frame])


def seen(loaded: LoadedModel, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Colours of all pixels that the tower is given, `[P, 3]`, from 0 to 255."""
    eye = eye_of(loaded)
    key = "pixel_values_videos" if "pixel_values_videos" in inputs else "pixel_values"
    values = inputs[key]
    if values.ndim == 2:  # [patches, colours x frames x height x width]
        values = values.reshape(len(values), 3, -1)
    else:  # [..., colours, height, width]
        values = values.reshape(-1, 3, values.shape[-2] * values.shape[-1])
    pixels = values.swapaxes(1, 2).reshape(-1, 3)
    return 255 * (pixels * np.array(eye.image_std) + np.array(eye.image_mean))


@pytest.mark.parametrize("name", [*FILMS, "llava", "tiny-qwen2-vl", "tiny-llava-next-video"])
@pytest.mark.parametrize(("height", "width"), [(420, 294), (126, 168), (72, 128)])
def test_the_tower_sees_the_whole_frame(opened, name: str, height: int, width: int) -> None:
    """Each edge's colour covers as large a share of what is seen of the frame as of the frame."""
    loaded = load_model(name) if name.startswith("tiny") else opened(name)
    clip = banded(height, width, min(height, width) // 7)
    inputs = process(loaded, [reply_prompt(loaded, "Where?", True)], [clip])
    margins = pad_for_crop(clip, eye_of(loaded))
    colours = seen(loaded, inputs)
    for colour in BANDS.values():
        shares = [
            float((abs(pixels.reshape(-1, 3) - np.array(colour)).max(1) < 70).mean())
            for pixels in (colours, margins.astype(float))
        ]
        assert shares[0] == pytest.approx(shares[1], rel=0.25), (name, colour, shares)
    crops = name in ("llava", "llava-next-video")
    assert (margins is clip) != crops


@pytest.mark.parametrize("name", ["tiny-qwen2-vl", "tiny-llava-next-video"])
def test_shipped_models_are_given_what_they_were_trained_on(name: str, clips) -> None:
    loaded = load_model(name)
    text = reply_prompt(loaded, "Where?", True)
    plain = AutoProcessor.from_pretrained(CATALOGUE[name].source)
    expected = plain(text=[text], videos=clips[:1], do_sample_frames=False, return_tensors="np")
    found = process(loaded, [text], clips[:1])
    assert all(np.array_equal(found[key], expected[key]) for key in expected)


# Means of the times of two frames, rounded to one decimal as Python does; the last is there twice.
TIMES = [*(f"{second + 0.25:.1f}" for second in range(3)), "3.0"]


def test_each_step_of_qwen3_vl_has_its_time_and_marks(opened, small_clips) -> None:
    """Two frames a second: 0.0 and 0.5 together, 1.0 and 1.5, ...; no marks around the whole."""
    loaded = opened("qwen3-vl")
    inputs = process(loaded, [open_prompt(loaded, "Where?", True)], small_clips[:1])
    words = loaded.processor.tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())
    text = "".join(word for word in words if word != "<|video_pad|>")
    steps = [f"<unk>{t[0]}.{t[2]}<unk><unk><|vision_start|><|vision_end|>" for t in TIMES]
    assert text == f"<|im_start|>user{''.join(steps)}where?"


@pytest.mark.parametrize(("name", "video"), SEEN)
def test_a_shared_beginning_equals_whole_prompts(opened, small_clips, name, video) -> None:
    loaded = opened(name)
    groups = prompts(loaded, video)
    shared = [split_common_prefix(loaded, group) for group in groups]
    lengths = [len(e) for s in shared for e in s.endings]
    assert len(set(lengths)) > 2
    with torch.inference_mode():
        beginnings = [s.beginning for s in shared]
        inputs = encode(loaded, beginnings, small_clips if video else None)
        behind, ran = find_geometry(loaded.model).o_proj_names[-1], []
        hook = loaded.model.get_submodule(behind).register_forward_hook(lambda *_: ran.append(1))
        prefix = prefill(loaded, inputs, logits=False)
        hook.remove()
        # Some keep more than keys and values, some take those of earlier layers.
        assert bool(ran) == (name in ("lfm2-vl", "qwen3-5", "gemma4"))
        if not ran:
            whole = prefill(loaded, inputs).cache
            for made, own in zip(prefix.cache.layers, whole.layers, strict=True):
                assert torch.equal(made.keys, own.keys) and torch.equal(made.values, own.values)
        assert prefix.mask.sum(1).min() > (WINDOW if video or name in WORDS else 0)
        before = prefix.cache.layers[0].keys.clone()
        rows = [g for g, s in enumerate(shared) for _ in s.endings]
        with Capture(loaded.model) as capture:
            out = extend(loaded, prefix, rows, [e for s in shared for e in s.endings])
            found = capture.take()[:, 0]
    assert torch.equal(prefix.cache.layers[0].keys, before)
    for i, prompt in enumerate(p for group in groups for p in group):
        z, logits = alone(loaded, prompt, small_clips[rows[i]] if video else None)
        close(found[i], z)
        close(out.logits[i], logits)


@pytest.mark.parametrize(("name", "video"), SEEN)
def test_a_reply_goes_on_as_a_plain_forward_would(opened, small_clips, name, video) -> None:
    """Each token after the prompt, with endings of unequal length, against all read again."""
    loaded = opened(name)
    group = prompts(loaded, video)[0]
    shared = split_common_prefix(loaded, group)
    clips = small_clips[:1] if video else None
    with torch.inference_mode():
        prefix = prefill(loaded, encode(loaded, [shared.beginning], clips))
        state = extend(loaded, prefix, [0] * len(group), shared.endings)
        said = []
        for _ in range(3):
            tokens = state.logits.argmax(-1)
            said.append(tokens)
            if name not in MIXED:
                both = read_side_by_side(loaded, state, range(len(group)), tokens.tolist(), 2)
            state = step(loaded, state, tokens)
            if name not in MIXED:
                close(both, state.logits[:, None].expand_as(both))
        for row, prompt in enumerate(group):
            inputs = _longer(encode(loaded, [prompt], clips), [int(t[row]) for t in said])
            close(state.logits[row], loaded.model(**inputs, use_cache=False).logits[0, -1])


@pytest.mark.parametrize(("name", "video"), SEEN)
@pytest.mark.parametrize("positions", ["last_prompt+generated", "all"])
def test_steered_option_scores_equal_a_plain_forward(
    opened, small_clips, name, video, positions
) -> None:
    """Option by option: the prompt and all but its last token, read whole under the vector."""
    loaded = opened(name)
    vector = vector_on(loaded.skeleton, ((1, 2),), [1.0], 3, alpha=5.0, positions=positions)
    asked = [
        Prompt(story.format("where?"), clip if video else None)
        for story, clip in zip(STORIES, small_clips, strict=True)
    ]
    options = [["blue room", "the green room", "red"], ["purple", "in the blue room ."]]
    steered = SteeredModel(loaded, vector)
    scores = steered.option_log_probs(asked, options)
    for prompt, choices, found in zip(asked, options, scores, strict=True):
        text = reply_prompt(loaded, prompt.text, video)
        inputs = encode(loaded, [text], [prompt.clip] if prompt.clip is not None else None)
        length = inputs["input_ids"].shape[1]
        for tokens, score in zip(steered.continuations(prompt, choices), found, strict=True):
            total = 0.0
            for count in range(len(tokens)):
                more = _longer(inputs, tokens[:count])
                # What was asked is the prompt; generated tokens are steered like it.
                columns = slice(0 if positions == "all" else length - 1, None)
                with torch.no_grad(), added(loaded.model, vector.delta(), columns):
                    log_probs = loaded.model(**more, use_cache=False).logits.log_softmax(-1)
                total += float(log_probs[0, -1, tokens[count]])
            assert score == pytest.approx(total, abs=2e-4)


def _longer(inputs: dict[str, Any], tokens: list[int]) -> dict[str, Any]:
    """One prompt's inputs with words behind."""
    more = torch.tensor([tokens], dtype=torch.long)
    found = inputs | {"input_ids": torch.cat([inputs["input_ids"], more], dim=1)}
    for key in ("attention_mask", "mm_token_type_ids", "token_type_ids"):
        if key in inputs:
            kind = torch.full_like(more, int(key == "attention_mask"))
            found[key] = torch.cat([inputs[key], kind.to(inputs[key])], dim=1)
    return found


shipped = cache(load_model)


@pytest.mark.parametrize("name", [*NAMES, "tiny-qwen2-vl", "tiny-llava-next-video"])
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
@given(data=st.data())
def test_marks_of_the_model_in_a_question_are_plain_text(opened, small_clips, name, data) -> None:
    """A prompt that spells them has no more of them than one that does not."""
    loaded = opened(name) if name in NAMES else shipped(name)
    tokenizer = loaded.processor.tokenizer
    marks = sorted({str(t) for t in tokenizer.added_tokens_decoder.values() if t.special})
    named = [v for k, v in vars(loaded.processor).items() if k[-6:] == "_token" and type(v) is str]
    piece = st.sampled_from([*marks, *named, "The door ", "<", "|>", " ", "\n", BREAK])
    text = "".join(data.draw(st.lists(piece, max_size=8))) + data.draw(st.sampled_from(marks)) * 2
    video = bool(loaded.showing.kind) and data.draw(st.booleans())
    clips = small_clips[:1] if video else None
    for make in (open_prompt, reply_prompt):
        found, bare = (
            process(loaded, [make(loaded, f"Q:{said}A: here", video)], clips)["input_ids"][0]
            for said in (text, "where")
        )
        special = tokenizer.convert_tokens_to_ids(marks)
        wanted = {i: (bare == i).sum() for i in special if i != tokenizer.unk_token_id}
        assert {i: (found == i).sum() for i in wanted} == wanted
        # What is read is what was written, letter by letter.
        prompt = make(loaded, f"Q:{text}A: here", video)
        read = tokenizer.backend_tokenizer.normalizer.normalize_str(prompt)
        assert f"q:{text.replace(BREAK, '')}a: here".lower() in read.lower()


@pytest.mark.parametrize("name", ["qwen2.5-vl", "qwen3-vl", "qwen2-vl", "qwen2.5-omni"])
def test_a_film_of_more_steps_than_a_frame_is_wide(opened, folders, name: str) -> None:
    """Its last step has a higher position than the words behind it, which go on from their own."""
    loaded = load_model(str(folders[name]) if name == "qwen2-vl" else opened(name).source)
    if name == "qwen2.5-vl":
        # Steps of four seconds each, which count in its positions.
        loaded.processor.video_processor.fps = 0.5
    clip = np.random.default_rng(1).integers(0, 256, (64, 64, 64, 3), dtype=np.uint8)
    group = prompts(loaded, True)[1]
    inputs = encode(loaded, group[:1], [clip])
    patch = loaded.model.config.vision_config.spatial_merge_size
    steps, high, wide = inputs["video_grid_thw"][0].tolist()
    assert steps > max(high, wide) // patch + 20
    shared = split_common_prefix(loaded, group)
    with torch.inference_mode():
        prefix = prefill(loaded, encode(loaded, [shared.beginning], [clip]))
        with Capture(loaded.model) as capture:
            extend(loaded, prefix, [0] * len(group), shared.endings)
            found = capture.take()[:, 0]
    for row, prompt in enumerate(group):
        close(found[row], alone(loaded, prompt, clip)[0])


@pytest.mark.parametrize("name", ["qwen3-vl", "qwen2-audio", "gemma3", *TYPES])
def test_runs(opened, small_clips, tmp_path, name: str) -> None:
    """The probing runs, from the folder, is planned before, and steering by 0 changes no bit."""
    loaded = opened(name)
    setting: Setting = "multimodal" if name in SHOWN else "text"
    config = ProbeConfig(
        model=loaded.source,
        setting=setting,
        stories=8,
        out=tmp_path / "probes",
        figures=False,
        permutations=19,
        pairs=2,
        validation_pairs=2,
        random_sets=5,
    )
    assert dry_run(config)["samples N"].value == 32
    table = probe(config)
    assert len(table) == (LAYERS - (name in FEWER)) * HEADS
    assert ("question_used" in table) == (name not in MIXED)
    saved = json.loads((config.folder / "config.json").read_text())["model"]
    assert (saved["class"], saved["head_dim"]) == (
        loaded.family.class_name,
        HEAD_DIMS.get(name, 12),
    )
    asked = [Prompt("where?", clip if name in SHOWN else None) for clip in small_clips]
    vector = vector_on(loaded.skeleton, ((1, 2),), [1.0], 3, alpha=0.0)
    plain, steered = (SteeredModel(loaded, v).generate(asked, 4) for v in (None, vector))
    assert plain == steered
    asked = EvalConfig(model=loaded.source, setting=setting, limit=2, out=tmp_path / "asked")
    assert len(evaluate(asked)) > 0


@pytest.mark.parametrize("name", WORDS)
def test_no_films_for_those_that_only_read(opened, small_clips, name: str) -> None:
    loaded = opened(name)
    message = rf"{loaded.family.class_name}\) takes no videos: run it with --setting text.*qwen2-vl"
    with pytest.raises(ModelError, match=message):
        open_prompt(loaded, "Where?", True)
    with pytest.raises(ModelError, match=message):
        process(loaded, ["Where?"], small_clips[:1])


# Types without a family: plain, Conv1D, with a state in place of keys and values, without heads.
OTHERS = {"gpt2": "text", "qwen3_next": "text", "mamba": "text", "qwen3_5": "image"}
OTHERS |= dict.fromkeys(("blip-2", "instructblip", "llama4", "blip"), "image")
OTHERS["gemma3n_text"] = "text"  # its layers have each their width


def lively(model: Any, folder: Path) -> LoadedModel:
    """The model with larger weights and the default tokenizer, saved and opened again."""
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data.normal_(std=0.1)
    model.save_pretrained(folder)
    load_model().processor.tokenizer.save_pretrained(folder)
    return load_model(folder)


@pytest.mark.parametrize("model_type", OTHERS)
@torch.inference_mode()
def test_a_type_without_a_family(tmp_path, model_type: str) -> None:
    """It opens, is planned, and endings of one beginning are read as each prompt by itself."""
    loaded = lively(build(OTHERS[model_type], model_type), tmp_path)
    group = [STORIES[0].format(ending) for ending in ENDINGS]
    shared = split_common_prefix(loaded, group)
    state = prefill(loaded, encode(loaded, [shared.beginning], None))
    state = extend(loaded, state, [0, 0, 0], shared.endings)
    for row, prompt in enumerate(group):
        inputs = encode(loaded, [prompt], None)
        close(state.logits[row], loaded.model(**inputs).logits[0, -1])
    if model_type != "mamba":
        assert needs(loaded, [Load((70,), (9,))])["tokens read"].value == 79
    halved = load_model(tmp_path, dtype="bfloat16")
    assert halved.model.dtype == torch.bfloat16 and halved.limits == loaded.limits


@torch.inference_mode()
def test_types_that_count_columns_themselves(tmp_path) -> None:
    """Local layers of GPT-Neo look back over so many of them, MPT's bias grows with each."""
    config = small(GPTNeoConfig)
    config.window_size = WINDOW
    loaded = lively(GPTNeoForCausalLM(config), tmp_path / "neo")
    group = [STORIES[0].format(ending) for ending in ENDINGS]
    shared = split_common_prefix(loaded, group)
    state = prefill(loaded, encode(loaded, [shared.beginning], None))
    found = extend(loaded, state, [0, 0, 0], shared.endings)
    for row, prompt in enumerate(group):
        close(found.logits[row], loaded.model(**encode(loaded, [prompt], None)).logits[0, -1])
    with pytest.raises(ModelError, match="local"):
        read_side_by_side(loaded, state, [0], [5], 2)
    mpt = lively(build("text", "mpt"), tmp_path / "mpt")
    assert mpt.model and mpt.limits.keys() == {"padding", "words side by side"}


def test_a_decoder_that_looks_ahead_is_refused(opened, tmp_path) -> None:
    folder = save("gemma3-text", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "use_bidirectional_attention": True}))
    with pytest.raises(ModelError, match="use_bidirectional_attention"):
        load_model(str(folder))


def test_sounds_are_not_read_again(tmp_path) -> None:
    """As frames below: where layers look back a certain distance, they are heard from the start."""
    folder = save("qwen2-audio", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    text = {"sliding_window": WINDOW, "use_sliding_window": True}
    config["text_config"] |= text | {"layer_types": ["sliding_attention"] * LAYERS}
    (folder / "config.json").write_text(json.dumps(config))
    loaded, draw = load_model(str(folder)), np.random.default_rng(0)
    sounds = [draw.normal(0, 0.1, 16_000 * n).astype(np.float32) for n in (1, 1, 31)]
    how = {"labels": {"y": 0}, "split": "train", "context": "one"}
    samples = [
        Sample(f"{i}{end}", f"it is {end}", group=f"{i}", sound=sound, **how)
        for i, sound in enumerate(sounds)
        for end in ("red", "in the blue room where the red agent is now and the white is not")
    ]
    together, alone = (extract(loaded, samples[:4], batch_size=size).x for size in (4, 1))
    np.testing.assert_allclose(together, alone, atol=1e-5)
    # One of two pieces and one of one: whose they are cannot be said.
    with pytest.raises(ModelError, match="--batch-size 1"):
        extract(loaded, samples[2:], batch_size=4)


def test_frames_are_not_read_again(tmp_path, small_clips) -> None:
    """Where layers look back a certain distance, a gap is filled with words, never with frames."""
    folder = save("llava-onevision", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    text = {"sliding_window": WINDOW, "use_sliding_window": True}
    config["text_config"] |= text | {"layer_types": ["sliding_attention"] * LAYERS}
    (folder / "config.json").write_text(json.dumps(config))
    loaded = load_model(str(folder))
    group = prompts(loaded, True)[0]
    shared = split_common_prefix(loaded, group)
    bare = reply_prompt(loaded, "Where?", True).partition("Where?")[0]
    with torch.inference_mode():
        prefix = prefill(loaded, encode(loaded, [shared.beginning], small_clips[:1]))
        with Capture(loaded.model) as capture:
            extend(loaded, prefix, [0] * len(group), shared.endings)
            found = capture.take()[:, 0]
        for row, prompt in enumerate(group):
            close(found[row], alone(loaded, prompt, small_clips[0])[0])
        # Of a beginning that ends with them, they are.
        prefix = prefill(loaded, encode(loaded, [bare], small_clips[:1]))
        state = extend(loaded, prefix, [0, 0], [(5, 6), (5, 6, 7, 8, 9)])
        alike = extend(loaded, prefix, [0], [(5, 6)])
        close(state.logits[0], alike.logits[0])
