"""How many tokens a prompt has, known without its film's pixels, and whether the model has room.

Published models are built without weights, and have the published sizes.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sally_anne.core.errors import ContextError, ModelError, OptionError
from sally_anne.data.items import Media, Sampling
from sally_anne.data.media import read_clip, shape_of
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.evaluate import evaluate
from sally_anne.hooks.geometry import find_geometry
from sally_anne.models.estimate import TEXT_MORE, Counter, open_described
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.options import CATALOGUE, ModelOptions
from sally_anne.models.prompts import open_prompt, process, reply_prompt
from sally_anne.models.videos import check_room, size_limits, video_size
from tests.harness import made_benchmarks as made
from tests.models.checkpoints import FILMS, save

pytestmark = pytest.mark.integration

SHIPPED = ("tiny-qwen2-vl", "tiny-llava-next-video")


@pytest.fixture(scope="session")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., LoadedModel]:
    """`opened(name, **options)`: a model of the family, or a shipped one."""
    kept: dict[str, Path] = {}

    def get(name: str, **options) -> LoadedModel:
        if name in SHIPPED:
            return load_model(name, **options)
        if name not in kept:
            kept[name] = save(name, tmp_path_factory.mktemp(name))
        return load_model(str(kept[name]), **options)

    return get


def narrow(loaded: LoadedModel, context: int) -> LoadedModel:
    loaded.config.get_text_config().max_position_embeddings = int(context)
    return loaded


@pytest.mark.parametrize("name", [*FILMS, *SHIPPED])
@pytest.mark.parametrize("shape", [(7, 420, 294), (6, 60, 200), (3, 126, 126)])
def test_counted_as_the_processor_makes_them(opened, name: str, shape) -> None:
    """Also one token more or less than the context, which is the line between them."""
    loaded = opened(name)
    prompt = reply_prompt(loaded, "Where is the red agent?", True)
    inputs = process(loaded, [prompt], [np.zeros((*shape, 3), dtype=np.uint8)])
    tokens = int(inputs["attention_mask"].sum())
    # Kept: in the narrow contexts below Qwen's frames would shrink.
    assert 0 < video_size(loaded, shape)[0] < tokens
    check_room(narrow(loaded, tokens + 5), "it", prompt, shape, 5)
    said = f"it: {tokens:,} tokens .*reply of 5 are more than the {tokens + 4:,} .*--frames"
    with pytest.raises(ContextError, match=said):
        check_room(narrow(loaded, tokens + 4), "it", prompt, shape, 5)


# 64 frames of 720p and 1080p in Qwen2-VL without a limit: 32 steps of 46 x 26 and 69 x 39 tokens.
@pytest.mark.parametrize(
    ("name", "shape", "free", "limited"),
    [
        ("qwen2-vl", (64, 720, 1280), 32 * 26 * 46, 32 * 20 * 36),
        ("qwen2-vl", (64, 1080, 1920), 32 * 39 * 69, 32 * 20 * 36),
        ("llava-next-video", (64, 720, 1280), 64 * 144, 64 * 144),
    ],
)
def test_published_models(name: str, shape, free: int, limited: int) -> None:
    loaded = open_described(ModelOptions(model=name))
    assert video_size(loaded, shape)[0] == limited
    if name == "qwen2-vl" and shape[1] == 720:
        small = open_described(ModelOptions(model=name, max_pixels=100 * 28 * 28))
        assert video_size(small, shape)[0] == 32 * 7 * 13
    own = open_described(ModelOptions(model=name))
    assert video_size(narrow(own, 10**7), shape)[0] == free
    if shape[0] == 64 and name.startswith("llava"):
        with pytest.raises(ContextError, match="9,2[0-9]{2} tokens .9,216 of them frames"):
            check_room(loaded, "item 1", reply_prompt(loaded, "Why?", True), shape, 16)


@pytest.mark.parametrize("name", ["qwen2-vl", "qwen2.5-vl", "qwen3-vl"])
def test_the_limit_is_of_each_frame(opened, name: str) -> None:
    loaded = opened(name, max_pixels=64 * 64)
    assert loaded.changes == {"max_pixels": "4096"}
    clip = np.zeros((7, 420, 294, 3), dtype=np.uint8)
    prompt = reply_prompt(loaded, "Where?", True)
    inputs = process(loaded, [prompt], [clip])
    patch = loaded.processor.video_processor.patch_size
    _, high, wide = inputs["video_grid_thw"][0]
    assert high * wide * patch**2 <= 4096
    tokens = inputs["attention_mask"].sum()
    assert tokens < process(opened(name), [prompt], [clip])["attention_mask"].sum()
    check_room(narrow(loaded, tokens), "it", prompt, clip.shape[:3], 0)
    with pytest.raises(ContextError):
        check_room(narrow(loaded, tokens - 1), "it", prompt, clip.shape[:3], 0)
    # Larger than the frames are, it changes nothing.
    assert size_limits(opened(name, max_pixels=10**9), 7) is None


def test_frames_shrink_until_they_fit(opened) -> None:
    """Three quarters of a context of 96: 4 steps of 18 tokens of 28 x 28 pixels."""
    loaded = narrow(opened("qwen2-vl"), 96)
    clip = np.zeros((7, 420, 294, 3), dtype=np.uint8)
    inputs = process(loaded, [reply_prompt(loaded, "Where?", True)], [clip])
    steps, high, wide = inputs["video_grid_thw"][0]
    assert (steps, high // 2, wide // 2) == (4, 5, 3)
    clips = [clip, clip[:2]]
    prompts = [reply_prompt(loaded, "Where?", True)] * 2
    with pytest.raises(ModelError, match="clips of one batch differ in length.*--batch-size 1"):
        process(loaded, prompts, clips)


@pytest.mark.parametrize("name", ["llava-next-video", "llava-onevision", "internvl"])
def test_families_of_one_frame_size_take_no_limit(opened, name: str) -> None:
    with pytest.raises(ModelError, match="--max-pixels has no effect .*--frames"):
        opened(name, max_pixels=1000)
    with pytest.raises(OptionError, match="max_pixels must be at least 1, got 0"):
        opened(name, max_pixels=0)


def test_a_prompt_that_slipped_through_is_refused(opened) -> None:
    loaded = narrow(opened("tiny-qwen2-vl"), 12)
    with pytest.raises(ContextError, match="has 2[0-9] tokens, more than the 12"):
        process(loaded, [reply_prompt(loaded, "where " * 15, False)], None)


@pytest.mark.parametrize("exact", [True, False])
def test_shapes_are_known_without_decoding(tmp_path: Path, exact: bool, monkeypatch) -> None:
    made.film(tmp_path / "film.mp4", seconds=3)
    media = Media(path=tmp_path / "film.mp4", start=1.0, end=2.0)
    for sampling, bound in (
        (Sampling(count=4), 4),
        (Sampling(count=64), 64),
        (Sampling(rate=2.0, most=5), 5),
        (Sampling(rate=2.0), None),
    ):
        frames = read_clip(media, "full", sampling, 32 * 32).frames
        with monkeypatch.context() as patch:
            patch.setattr("sally_anne.core.media.read_frames", lambda *_: pytest.fail("decoded"))
            found = shape_of(media, "full", sampling, 32 * 32, exact)
        count = len(frames) if exact or bound is None else bound
        assert found == (count, *frames.shape[1:3])


def test_commands_say_so_before_weights_are_read(opened, tmp_path: Path) -> None:
    crops = opened("llava-next-video")
    config = EvalConfig(model=crops.source, out=tmp_path / "asked", limit=1)
    narrow(crops, 100)
    with pytest.raises(ContextError, match="item .*--window"):
        evaluate(config, loaded=crops)
    assert "model" not in vars(crops)
    assert not (tmp_path / "asked" / "answers.jsonl").exists()


def test_a_processor_that_crops_may_do_so(opened) -> None:
    whole, cut = (opened("llava-next-video", crop=crop) for crop in (False, True))
    clip = np.random.default_rng(0).integers(0, 256, (4, 420, 294, 3), dtype=np.uint8)
    stock = cut.processor.video_processor(videos=[clip], do_sample_frames=False)
    text = reply_prompt(cut, "Where?", True)
    same, other = (process(one, [text], [clip])["pixel_values_videos"] for one in (cut, whole))
    np.testing.assert_array_equal(same, stock["pixel_values_videos"])
    assert same.shape == other.shape and not np.array_equal(same, other)
    assert video_size(cut, clip.shape[:3]) == video_size(whole, clip.shape[:3])
    assert (cut.changes, whole.changes) == ({"crop": "True"}, {})
    for name in ("tiny-qwen2-vl", "qwen2-vl"):
        with pytest.raises(ModelError, match="--crop has no effect"):
            open_described(ModelOptions(model=name, crop=True))


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
    loaded = open_described(ModelOptions(model=name))
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
    loaded = open_described(ModelOptions(model=name))
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
