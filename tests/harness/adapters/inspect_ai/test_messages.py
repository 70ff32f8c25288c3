"""Chat messages become a prompt in each family's own layout."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("inspect_ai")
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    ContentImage,
    ContentText,
    ContentVideo,
)

from sally_anne.core.errors import HarnessError
from sally_anne.harness.adapters.inspect_ai import provider
from sally_anne.harness.adapters.inspect_ai.provider import prompt_of
from sally_anne.harness.adapters.inspect_ai.task import picture_uri, video_uri
from sally_anne.models.loading import LoadedModel
from sally_anne.models.processor import BREAK
from sally_anne.models.prompts import reply_prompt

pytestmark = pytest.mark.plugins
ASKED = "Where is the red agent?"
FRAMES = np.random.default_rng(1).integers(0, 256, (3, 28, 28, 3), dtype=np.uint8)
FILM = ContentVideo(video=video_uri(FRAMES), format="mov")
PICTURES = [ContentImage(image=picture_uri(frame)) for frame in FRAMES]
TEXT = ContentText(text=ASKED)


def user(*parts) -> ChatMessageUser:
    return ChatMessageUser(content=list(parts))


def test_one_turn_is_the_harness_own_prompt(loaded: LoadedModel) -> None:
    for message in (ChatMessageUser(content=ASKED), user(TEXT)):
        prompt = prompt_of(loaded, [message])
        assert prompt.text == reply_prompt(loaded, ASKED, video=False)
        assert prompt.clip is None and prompt.whole


@pytest.mark.parametrize("shown", [[FILM], PICTURES], ids=["film", "pictures"])
def test_film_and_pictures_are_one_clip(loaded: LoadedModel, shown) -> None:
    prompt = prompt_of(loaded, [user(*shown, TEXT)])
    assert prompt.text == reply_prompt(loaded, ASKED, video=True)
    assert prompt.clip is not None and np.array_equal(prompt.clip, FRAMES)


def test_all_turns_are_in_the_prompt(loaded: LoadedModel) -> None:
    messages: list[ChatMessage] = [
        ChatMessageSystem(content="Answer with a room."),
        user(FILM, TEXT),
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


@pytest.fixture
def frames() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (5, 21, 34, 3), dtype=np.uint8)


def decoded(uri: str) -> bytes:
    return base64.b64decode(uri.partition(",")[2])


def test_a_film_keeps_every_bit(frames: np.ndarray, tmp_path: Path) -> None:
    uri = video_uri(frames)
    assert uri.startswith("data:video/quicktime;base64,")
    assert np.array_equal(provider.video(uri), frames)
    (tmp_path / "film.mov").write_bytes(decoded(uri))
    assert np.array_equal(provider.video(str(tmp_path / "film.mov")), frames)


def test_frames_are_spread_from_first_to_last(frames: np.ndarray) -> None:
    uri = video_uri(frames)
    assert np.array_equal(provider.video(uri, 3), frames[[0, 2, 4]])
    assert np.array_equal(provider.video(uri, 1), frames[2:3])
    assert np.array_equal(provider.video(uri, 9), frames)


@pytest.mark.parametrize("read", [provider.picture, provider.video])
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
        provider.picture(f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}")
