"""inspect-ai's messages as prompts in the model's own chat layout, and replies as its outputs.

Pictures and videos come as files or data URIs; frames also go out as a video that keeps every bit.
"""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import av
import numpy as np
from inspect_ai import model
from PIL import Image

from sally_anne.core.errors import HarnessError, MediaError
from sally_anne.core.media import (
    FRAME_PIXELS,
    Frames,
    check_file,
    opened_picture,
    opened_video,
)
from sally_anne.harness.adapters.common import laid_out, one_clip
from sally_anne.harness.model import Completion, Prompt
from sally_anne.models.loading import LoadedModel
from sally_anne.models.processor import plain

# More frames than this are hardly meant to go to a model as they are.
MOST_FRAMES = 128


def prompt_of(
    loaded: LoadedModel, messages: Sequence[model.ChatMessage], frames: int | None = None
) -> Prompt:
    """A conversation as a prompt, with the assistant's turn opened.

    A video is a clip; pictures that follow one another are the frames of a clip. A conversation has
    one clip at most.

    The last message is the user's; ``frames`` is as of :func:`video`.
    """
    if not messages or messages[-1].role != "user":
        raise HarnessError("the last message of a conversation must be the user's")
    turns: list[dict[str, Any]] = []
    clips: list[np.ndarray] = []
    for number, message in enumerate(messages, start=1):
        _check(message, number)
        parts: list[dict[str, str]] = []
        for run in _runs(message.content):
            if isinstance(run[0], model.ContentText):
                parts.append({"type": "text", "text": plain(loaded, run[0].text)})
                continue
            if message.role != "user":
                raise HarnessError(
                    f"message {number}: pictures and videos come from the user alone"
                )
            parts.append({"type": "video"})
            if isinstance(run[0], model.ContentVideo):
                clips.append(video(run[0].video, frames))
            else:
                clips.append(one_clip([picture(part.image) for part in run]))
        turns.append({"role": message.role, "content": parts})
    if len(clips) > 1:
        raise HarnessError(
            f"a conversation has one clip at most, got {len(clips)}: pictures make one clip if "
            "they follow one another, without text between them"
        )
    return Prompt(laid_out(loaded, turns), clips[0] if clips else None, whole=True)


def _check(message: model.ChatMessage, number: int) -> None:
    if message.role not in ("system", "user", "assistant"):
        raise HarnessError(f"message {number}: the model knows no {message.role} messages")
    if isinstance(message, model.ChatMessageAssistant) and message.tool_calls:
        raise HarnessError(f"message {number}: the model calls no tools")
    for part in [] if isinstance(message.content, str) else message.content:
        if not isinstance(part, (model.ContentText, model.ContentImage, model.ContentVideo)):
            raise HarnessError(
                f"message {number}: the model takes text, pictures and videos, no {part.type}"
            )


def _runs(content: str | Sequence[model.Content]) -> list[list[Any]]:
    """The parts, pictures that follow one another together."""
    parts = [model.ContentText(text=content)] if isinstance(content, str) else content
    alike = groupby(parts, lambda part: "image" if part.type == "image" else id(part))
    return [list(run) for _, run in alike]


def picture(reference: str) -> np.ndarray:
    """A picture, of a data URI or path, as ``uint8 [height, width, 3]``."""
    with _named("picture", reference), opened_picture(_bytes(reference)) as image:
        return np.array(image.convert("RGB"))


def video(reference: str, frames: int | None = None) -> np.ndarray:
    """A video, of a data URI or path, as ``uint8 [F, height, width, 3]``, scaled as others are.

    ``frames`` are so many, spread evenly, the first and the last among them; None takes all, up to
    :data:`MOST_FRAMES`.
    """
    with _named("video", reference):
        data, name = _bytes(reference), Path("the file")
        with opened_video(name, data) as (container, stream):
            count = sum(1 for _ in container.decode(stream))
        if not count:
            raise HarnessError("it has no frames")
        if frames is None and count > MOST_FRAMES:
            raise HarnessError(
                f"{count} frames; say with -M frames=8 how many to take, spread evenly"
            )
        chosen = np.linspace(0, count - 1, min(count, frames or count)).round().astype(int)
        kept = Frames(chosen.tolist(), FRAME_PIXELS)
        with opened_video(name, data) as (container, stream):
            for number, frame in enumerate(container.decode(stream)):
                if number in kept.rows:
                    kept.add(number, frame, stream.sample_aspect_ratio)
        assert kept.pixels is not None
        return kept.pixels


def video_uri(frames: np.ndarray) -> str:
    """Frames ``uint8 [F, height, width, 3]`` as a data URI from which :func:`video` gets every bit.

    A QuickTime video whose frames are PNG pictures, one a second.
    """
    file = io.BytesIO()
    with av.open(file, "w", format="mov") as container:
        stream = container.add_stream("png", rate=1)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "rgb24"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, "rgb24")))
        container.mux(stream.encode())
    return _uri("video/quicktime", file.getvalue())


def picture_uris(frames: np.ndarray) -> list[str]:
    """Frames ``uint8 [F, height, width, 3]`` as data URIs of PNG pictures."""
    found = []
    for frame in frames:
        file = io.BytesIO()
        Image.fromarray(frame).save(file, "PNG")
        found.append(_uri("image/png", file.getvalue()))
    return found


@contextmanager
def _named(what: str, reference: str) -> Iterator[None]:
    """Errors in the block say of which picture or video they are."""
    name = f"{what} {reference if len(reference) <= 60 else f'{reference[:40]}...'!r}"
    try:
        yield
    except HarnessError as error:
        raise HarnessError(f"{name}: {error}") from error
    except (MediaError, OSError, ValueError, av.FFmpegError) as error:
        raise HarnessError(f"{name}: not readable ({error})") from error


def _bytes(reference: str) -> bytes:
    """What a file or a data URI holds."""
    if not reference.startswith("data:"):
        if "://" in reference:
            raise HarnessError("give a file or a data URI; nothing is downloaded here")
        check_file(Path(reference))
        return Path(reference).read_bytes()
    head, comma, payload = reference.partition(",")
    if not comma or not head.endswith(";base64"):
        raise HarnessError("its data URI is not in base64")
    try:
        return base64.b64decode(payload, validate=True)
    except binascii.Error as error:
        raise HarnessError(f"broken base64 ({error})") from error


def _uri(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def output_of(
    reply: Completion, tokenizer: Any, model_name: str, top: int | None
) -> model.ModelOutput:
    """A reply with its stop reason, token counts and log-probabilities.

    Counts and log-probabilities are of all tokens that the model said, the end token and those of
    a stop string among them; a prompt's count has the tokens that its frames take.
    """
    message = model.ChatMessageAssistant(content=reply.text, model=model_name, source="generate")
    choice = model.ChatCompletionChoice(
        message=message,
        stop_reason="stop" if reply.ended else "max_tokens",
        logprobs=None if top is None else _logprobs(reply, tokenizer, top),
    )
    said = len(reply.tokens)
    usage = model.ModelUsage(
        input_tokens=reply.prompt_tokens,
        output_tokens=said,
        total_tokens=reply.prompt_tokens + said,
    )
    return model.ModelOutput(model=model_name, choices=[choice], usage=usage)


def _logprobs(reply: Completion, tokenizer: Any, top: int) -> model.Logprobs:
    content = []
    for place, token in enumerate(reply.tokens):
        before = reply.tokens[max(0, place - 1) : place]
        others = [
            model.TopLogprob(token=_piece(tokenizer, before, other), logprob=log_prob)
            for other, log_prob in (reply.likeliest[place] if top else ())
        ]
        content.append(
            model.Logprob(
                token=_piece(tokenizer, before, token),
                logprob=reply.log_probs[place],
                top_logprobs=others if top else None,
            )
        )
    return model.Logprobs(content=content)


def _piece(tokenizer: Any, before: Sequence[int], token: int) -> str:
    """What a token adds to the text; some tokenizers drop the space before a token alone."""
    ahead = tokenizer.decode(list(before))
    whole = tokenizer.decode([*before, token])
    return whole[len(ahead) :] if whole.startswith(ahead) else tokenizer.decode([token])
