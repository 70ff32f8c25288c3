"""inspect-ai's chat messages as a prompt in the model's own chat layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jinja2
import numpy as np
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    Content,
    ContentImage,
    ContentText,
    ContentVideo,
)

from sally_anne.core.errors import HarnessError
from sally_anne.harness.adapters.inspect_ai.media import as_clip, film, picture
from sally_anne.harness.model import Prompt
from sally_anne.models.loading import LoadedModel
from sally_anne.models.processor import plain


def prompt_of(
    loaded: LoadedModel, messages: Sequence[ChatMessage], frames: int | None = None
) -> Prompt:
    """A conversation as a prompt, with the assistant's turn opened.

    A film is a clip; pictures that follow one another are the frames of a clip. A conversation has
    one clip at most.

    Args:
        loaded: whose chat template and processor.
        messages: system, user and assistant messages; the last is the user's.
        frames: of a film so many frames are taken, spread evenly; None takes all.

    Raises:
        HarnessError: names what the model cannot be given.
    """
    if not messages or messages[-1].role != "user":
        raise HarnessError("the last message of a conversation must be the user's")
    turns: list[dict[str, Any]] = []
    clips: list[np.ndarray] = []
    for number, message in enumerate(messages, start=1):
        _check(message, number)
        parts: list[dict[str, str]] = []
        for run in _runs(message.content):
            if isinstance(run[0], ContentText):
                parts.append({"type": "text", "text": plain(loaded, run[0].text)})
                continue
            if message.role != "user":
                raise HarnessError(f"message {number}: pictures and films come from the user alone")
            parts.append({"type": "video"})
            clips.append(_clip(run, frames))
        turns.append({"role": message.role, "content": parts})
    if len(clips) > 1:
        raise HarnessError(
            f"a conversation has one clip at most, got {len(clips)}: pictures make one clip if "
            "they follow one another, without text between them"
        )
    try:
        text = loaded.processor.apply_chat_template(
            turns, add_generation_prompt=True, tokenize=False
        )
    except jinja2.TemplateError as error:
        raise HarnessError(f"the chat template of {loaded.name}: {error}") from error
    return Prompt(text, clips[0] if clips else None, whole=True)


def _check(message: ChatMessage, number: int) -> None:
    if message.role not in ("system", "user", "assistant"):
        raise HarnessError(f"message {number}: the model knows no {message.role} messages")
    if isinstance(message, ChatMessageAssistant) and message.tool_calls:
        raise HarnessError(f"message {number}: the model calls no tools")
    for part in [] if isinstance(message.content, str) else message.content:
        if not isinstance(part, (ContentText, ContentImage, ContentVideo)):
            raise HarnessError(
                f"message {number}: the model takes text, pictures and films, no {part.type}"
            )


def _runs(content: str | Sequence[Content]) -> list[list[Any]]:
    """The parts, pictures that follow one another together."""
    if isinstance(content, str):
        return [[ContentText(text=content)]]
    runs: list[list[Any]] = []
    for part in content:
        if isinstance(part, ContentImage) and runs and isinstance(runs[-1][0], ContentImage):
            runs[-1].append(part)
        else:
            runs.append([part])
    return runs


def _clip(run: Sequence[Any], frames: int | None) -> np.ndarray:
    if isinstance(run[0], ContentVideo):
        return film(run[0].video, frames)
    return as_clip([picture(part.image) for part in run])
