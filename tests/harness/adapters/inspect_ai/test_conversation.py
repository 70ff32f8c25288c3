"""Chat messages become a prompt in each family's own layout."""

from __future__ import annotations

import numpy as np
import pytest

inspect_ai = pytest.importorskip("inspect_ai")

from inspect_ai.model import (  # noqa: E402
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    ContentAudio,
    ContentImage,
    ContentText,
    ContentVideo,
)
from inspect_ai.tool import ToolCall  # noqa: E402

from sally_anne.core.errors import HarnessError  # noqa: E402
from sally_anne.harness.adapters.inspect_ai.messages import (  # noqa: E402
    picture_uris,
    prompt_of,
    video_uri,
)
from sally_anne.models.loading import LoadedModel  # noqa: E402
from sally_anne.models.processor import BREAK  # noqa: E402
from sally_anne.models.prompts import reply_prompt  # noqa: E402

pytestmark = pytest.mark.plugins

ASKED = "Where is the red agent?"
FRAMES = np.random.default_rng(1).integers(0, 256, (3, 28, 28, 3), dtype=np.uint8)
FILM = ContentVideo(video=video_uri(FRAMES), format="mov")
PICTURES = [ContentImage(image=uri) for uri in picture_uris(FRAMES)]
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


def test_fewer_frames_on_request(loaded: LoadedModel) -> None:
    prompt = prompt_of(loaded, [user(FILM, TEXT)], frames=2)
    assert prompt.clip is not None and np.array_equal(prompt.clip, FRAMES[[0, 2]])


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


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "the last message"),
        ([ChatMessageUser(content="a"), ChatMessageAssistant(content="b")], "the last message"),
        ([user(FILM, TEXT, FILM)], "one clip at most, got 2"),
        ([user(FILM, TEXT), ChatMessageAssistant(content="b"), user(FILM, TEXT)], "one clip"),
        ([user(PICTURES[0], TEXT, PICTURES[1])], "without text between"),
        ([ChatMessageSystem(content=[FILM]), user(TEXT)], "message 1: pictures and videos"),
        ([ChatMessageTool(content="x", tool_call_id="1"), user(TEXT)], "message 1: .* no tool"),
        (
            [
                ChatMessageAssistant(
                    content="", tool_calls=[ToolCall(id="1", function="f", arguments={})]
                ),
                user(TEXT),
            ],
            "message 1: the model calls no tools",
        ),
        ([user(ContentAudio(audio="a.wav", format="wav"), TEXT)], "message 1: .* no audio"),
        ([user(ContentVideo(video="none.mp4", format="mp4"), TEXT)], "'none.mp4': not readable"),
    ],
)
def test_what_the_model_cannot_be_given(loaded: LoadedModel, messages, message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        prompt_of(loaded, messages)


def test_the_users_text_makes_no_place_for_frames(loaded: LoadedModel) -> None:
    for mark in (loaded.processor.video_token, loaded.processor.image_token):
        prompt = prompt_of(loaded, [ChatMessageUser(content=f"What does {mark} mean?")])
        assert mark not in prompt.text and prompt.whole
        assert prompt.text.replace(BREAK, "").count(f"What does {mark} mean?") == 1
