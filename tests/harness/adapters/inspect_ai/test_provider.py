"""The provider says what the harness's own model says, to the last bit."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("inspect_ai")
import base64
import io
from pathlib import Path

import pytest
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    ContentImage,
    ContentText,
    GenerateConfig,
    Model,
    ModelOutput,
    get_model,
)
from PIL import Image

import sally_anne.harness.adapters.inspect_ai  # noqa: F401
from sally_anne.core.errors import HarnessError
from sally_anne.data.items import Media, Sampling
from sally_anne.data.media import read_clip
from sally_anne.harness.adapters.common import Decoding
from sally_anne.harness.adapters.inspect_ai.provider import (
    DEFAULT_MAX_TOKENS,
    Batches,
    picture,
    prompt_of,
    settings,
    video,
)
from sally_anne.harness.adapters.inspect_ai.task import picture_uri
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.processor import BREAK
from sally_anne.models.prompts import reply_prompt
from tests.harness.made_benchmarks import encoded

pytestmark = pytest.mark.plugins
QWEN = "tiny-qwen2-vl"
TEXTS = (
    "The red agent walks into the blue room. Question: In which room is the red agent? Answer:",
    "The white agent walks into the green room. Question: Which room is the white agent in? "
    "Choose one: green or blue. Answer:",
    "Where is the yellow agent?",
)
CLIP = np.random.default_rng(2).integers(0, 256, (4, 84, 84, 3), dtype=np.uint8)
SHORT = GenerateConfig(max_tokens=8)


def provider(model: str = QWEN, **arguments: Any) -> Model:
    return get_model(f"sally-anne/{model}", memoize=False, **arguments)


def answers(
    model: Model, texts: Sequence[Any], config: GenerateConfig = SHORT
) -> list[ModelOutput]:
    """All asked at once."""

    async def ask() -> list[ModelOutput]:
        asked = (model.generate([ChatMessageUser(content=text)], config=config) for text in texts)
        return await asyncio.gather(*asked)

    return asyncio.run(ask())


def filmed(text: str) -> list[Any]:
    return [*(ContentImage(image=picture_uri(frame)) for frame in CLIP), ContentText(text=text)]


def said(outputs: Sequence[ModelOutput]) -> list[str]:
    return [output.completion for output in outputs]


def test_replies_are_the_models_own(loaded: LoadedModel) -> None:
    own = SteeredModel(loaded)
    model = provider(loaded.name)
    prompts = [Prompt(text) for text in TEXTS]
    assert said(answers(model, TEXTS)) == own.generate(prompts, 8)
    shown = [Prompt(text, CLIP) for text in TEXTS]
    assert said(answers(model, [filmed(t) for t in TEXTS])) == own.generate(shown, 8)


def test_usage_and_stop_reason(loaded: LoadedModel) -> None:
    model = provider(loaded.name)
    whole, shown = answers(model, [TEXTS[1], filmed(TEXTS[1])])
    tokenizer = loaded.processor.tokenizer
    ids = tokenizer(whole.completion, add_special_tokens=False)["input_ids"]
    assert whole.usage is not None and shown.usage is not None
    assert whole.stop_reason == "stop"
    assert whole.usage.output_tokens == len(ids) + 1  # the end token
    assert whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens
    assert shown.usage.input_tokens > whole.usage.input_tokens
    cut = answers(model, TEXTS[1:2], GenerateConfig(max_tokens=1))[0]
    assert cut.stop_reason == "max_tokens"
    assert cut.usage is not None and cut.usage.output_tokens == 1
    assert whole.completion.startswith(cut.completion) and cut.completion


def test_stop_strings(loaded: LoadedModel) -> None:
    model = provider(loaded.name)
    plain = answers(model, TEXTS)
    stops = [reply[len(reply) // 2 :][:3] for reply in said(plain)]
    config = GenerateConfig(max_tokens=8, stop_seqs=["zebra", *stops])
    stopped = answers(model, TEXTS, config)
    for before, output in zip(said(plain), stopped, strict=True):
        assert output.completion == before[: min(before.find(s) for s in stops if s in before)]
        assert output.stop_reason == "stop"
    assert any(said(stopped)) and "max_tokens" in [output.stop_reason for output in plain]


@pytest.mark.parametrize("alpha", [2, 0])
def test_a_steered_provider_is_the_steered_model(vector_folder, alpha: int) -> None:
    """Strength 0 is no steering, to the bit, with words alone and with frames."""
    folder, loaded = vector_folder(QWEN), load_model(QWEN)
    vector = SteeringVector.load(folder, loaded.model) if alpha else None
    own, plain = SteeredModel(loaded, vector, alpha or None), SteeredModel(loaded)
    model = provider(steer=str(folder), alpha=alpha, batch_size=1)
    prompts = [Prompt(text) for text in TEXTS] + [Prompt(text, CLIP) for text in TEXTS]
    outputs = said(answers(model, [*TEXTS, *map(filmed, TEXTS)]))
    assert outputs == [own.generate([prompt], 8)[0] for prompt in prompts]
    assert (outputs == [plain.generate([prompt], 8)[0] for prompt in prompts]) == (not alpha)
    # By which inspect-ai's cache tells models of one name apart.
    others = {provider(batch_size=n).api.base_url for n in (1, 2)}
    assert len(others) == 1 and model.api.base_url not in others


def test_replies_come_in_batches_no_larger_than_connections(monkeypatch) -> None:
    sizes: list[int] = []
    replies = SteeredModel.replies

    def counted(self, prompts, *arguments):
        sizes.append(len(prompts))
        return replies(self, prompts, *arguments)

    monkeypatch.setattr(SteeredModel, "replies", counted)
    answers(provider(), [TEXTS[0]] * 5, GenerateConfig(max_tokens=2, max_connections=3))
    assert sum(sizes) == 5 and 1 < max(sizes) <= 3
    sizes.clear()
    answers(provider(batch_size=2), [TEXTS[0]] * 5, GenerateConfig(max_tokens=2, max_connections=5))
    assert sum(sizes) == 5 and max(sizes) == 2


def test_weights_are_let_go_and_read_again() -> None:
    model = provider()
    before = said(answers(model, TEXTS[:1]))
    model.api.close()
    assert "model" not in vars(model.api.steered.loaded)
    assert said(answers(model, TEXTS[:1])) == before


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, Decoding(DEFAULT_MAX_TOKENS, ())),
        ({"temperature": 0.0, "seed": 3, "num_choices": 1}, Decoding(DEFAULT_MAX_TOKENS, ())),
        ({"max_tokens": 5, "stop_seqs": ["a", "b"]}, Decoding(5, ("a", "b"))),
        ({"logprobs": False}, Decoding(DEFAULT_MAX_TOKENS, ())),
    ],
)
def test_what_is_asked_for(config, expected: Decoding) -> None:
    assert settings(GenerateConfig(**config)) == expected


class Work:
    """Doubles numbers, and notes each batch."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.batches: list[list[int]] = []
        self.threads: set[int] = set()

    def __call__(self, numbers: Sequence[int]) -> list[int]:
        self.batches.append(list(numbers))
        self.threads.add(threading.get_ident())
        time.sleep(self.seconds)
        if 13 in numbers:
            raise ValueError("thirteen")
        return [2 * number for number in numbers]


def gathered(work: Work, numbers: Sequence[int], most: int, kinds: int = 1) -> list[object]:
    async def ask_all() -> list[object]:
        batches: Batches = Batches(work, lambda number: number % kinds)
        asked = (batches.ask(number, most) for number in numbers)
        return list(await asyncio.gather(*asked, return_exceptions=True))

    return asyncio.run(ask_all())


def test_kinds_are_kept_apart() -> None:
    work = Work()
    assert gathered(work, range(6), 16, kinds=2) == [0, 2, 4, 6, 8, 10]
    assert work.batches == [[0, 2, 4], [1, 3, 5]]


def test_one_bad_request_fails_alone() -> None:
    work = Work()
    found = gathered(work, [1, 13, 3], 16)
    assert found[0] == 2 and found[2] == 6
    assert isinstance(found[1], ValueError) and str(found[1]) == "thirteen"


def test_a_cancelled_request_leaves_nothing_behind() -> None:
    work = Work(seconds=0.2)

    async def cancelled() -> list[int]:
        batches: Batches = Batches(work, lambda number: number)
        first = asyncio.create_task(batches.ask(1, 16))
        second = asyncio.create_task(batches.ask(2, 16))
        third = asyncio.create_task(batches.ask(3, 16))
        await asyncio.sleep(0.1)
        second.cancel()
        return [await first, await third]

    assert asyncio.run(cancelled()) == [2, 6]
    assert work.batches == [[1], [3]]


ASKED = "Where is the red agent?"
FRAMES = np.random.default_rng(1).integers(0, 256, (3, 28, 28, 3), dtype=np.uint8)
PICTURES = [ContentImage(image=picture_uri(frame)) for frame in FRAMES]
TEXT = ContentText(text=ASKED)


def user(*parts) -> ChatMessageUser:
    return ChatMessageUser(content=list(parts))


def test_one_turn_is_the_harness_own_prompt(loaded: LoadedModel) -> None:
    for message in (ChatMessageUser(content=ASKED), user(TEXT)):
        prompt = prompt_of(loaded, [message])
        assert prompt.text == reply_prompt(loaded, ASKED, video=False)
        assert prompt.clip is None and prompt.whole


def test_pictures_are_one_clip(loaded: LoadedModel) -> None:
    prompt = prompt_of(loaded, [user(*PICTURES, TEXT)])
    assert prompt.text == reply_prompt(loaded, ASKED, video=True)
    assert prompt.clip is not None and np.array_equal(prompt.clip, FRAMES)


def test_all_turns_are_in_the_prompt(loaded: LoadedModel) -> None:
    messages: list[ChatMessage] = [
        ChatMessageSystem(content="Answer with a room."),
        user(*PICTURES, TEXT),
        ChatMessageAssistant(content="the blue room"),
        ChatMessageUser(content="And the white agent?"),
    ]
    prompt = prompt_of(loaded, messages)
    mark = loaded.processor.video_token
    assert prompt.text.count(mark) == 1
    places = [
        prompt.text.index(part)
        for part in ("Answer with a room.", mark, ASKED, "the blue room", "And the white agent?")
    ]
    assert places == sorted(places)
    opened = prompt_of(loaded, messages[-1:]).text.removeprefix(
        reply_prompt(loaded, "And the white agent?", False).partition("And")[0]
    )
    assert prompt.text.endswith(opened)


def test_the_users_text_makes_no_place_for_frames(loaded: LoadedModel) -> None:
    for mark in (loaded.processor.video_token, loaded.processor.image_token):
        prompt = prompt_of(loaded, [ChatMessageUser(content=f"What does {mark} mean?")])
        assert mark not in prompt.text and prompt.whole
        assert prompt.text.replace(BREAK, "").count(f"What does {mark} mean?") == 1


def test_frames_of_a_video_are_spread_from_first_to_last(tmp_path: Path) -> None:
    path = encoded(tmp_path / "film.mp4", CLIP, 1)
    whole = read_clip(Media(path=path), "full", Sampling(count=4)).frames
    assert np.array_equal(video(str(path), 8), whole)
    data = base64.b64encode(path.read_bytes()).decode()
    assert np.array_equal(video(f"data:video/mp4;base64,{data}", 1), whole[2:3])


@pytest.mark.parametrize("read", [picture, lambda reference: video(reference, 8)])
@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("nowhere.bin", "'nowhere.bin': .*not readable"),
        ("https://example.org/a.mp4", "give a file or a data URI"),
        ("data:video/mp4,abc", "base64"),
        ("data:video/mp4;base64,a?", "base64"),
        ("data:video/mp4;base64,AAAA", "not readable"),
    ],
)
def test_what_is_broken_is_named(read, reference: str, message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        read(reference)


def test_a_picture_of_another_format_is_refused() -> None:
    file = io.BytesIO()
    Image.new("RGB", (3, 2)).save(file, "EPS")
    with pytest.raises(HarnessError, match="PNG, JPEG, WEBP"):
        picture(f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}")
