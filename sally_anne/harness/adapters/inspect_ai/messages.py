"""inspect-ai's messages as prompts in the model's own chat layout, and replies as its outputs.

Pictures and videos come as files or data URIs; frames also go out as a video that keeps every bit.
"""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import av
import jinja2
import numpy as np
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    Content,
    ContentImage,
    ContentText,
    ContentVideo,
    Logprob,
    Logprobs,
    ModelOutput,
    ModelUsage,
    TopLogprob,
)
from PIL import Image

from sally_anne.benchmarks.clips import MOST_PIXELS
from sally_anne.benchmarks.pictures import check_file, opened
from sally_anne.benchmarks.video import Frames, decode_counting, opened_video
from sally_anne.core.errors import ClipError, HarnessError
from sally_anne.harness.adapters.common import one_clip
from sally_anne.harness.model import Prompt
from sally_anne.harness.replies import Reply
from sally_anne.models.loading import LoadedModel
from sally_anne.models.processor import plain

# More frames than this are hardly meant to go to a model as they are.
MOST_FRAMES = 128


def prompt_of(
    loaded: LoadedModel, messages: Sequence[ChatMessage], frames: int | None = None
) -> Prompt:
    """A conversation as a prompt, with the assistant's turn opened.

    A video is a clip; pictures that follow one another are the frames of a clip. A conversation has
    one clip at most.

    Args:
        loaded: whose chat template and processor.
        messages: system, user and assistant messages; the last is the user's.
        frames: of a video so many frames are taken, spread evenly; None takes all.

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
                raise HarnessError(
                    f"message {number}: pictures and videos come from the user alone"
                )
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
                f"message {number}: the model takes text, pictures and videos, no {part.type}"
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
        return video(run[0].video, frames)
    return one_clip([picture(part.image) for part in run])


def picture(reference: str) -> np.ndarray:
    """A picture as ``uint8 [height, width, 3]``.

    Args:
        reference: data URI or path.

    Raises:
        HarnessError: it cannot be read.
    """
    data = _bytes(reference, "picture")
    try:
        with opened(data) as image:
            return np.array(image.convert("RGB"))
    except ClipError as error:
        raise HarnessError(f"picture {_short(reference)}: not readable, it {error}") from error


def video(reference: str, frames: int | None = None) -> np.ndarray:
    """A video as ``uint8 [F, height, width, 3]``, scaled as videos of benchmarks are.

    Args:
        reference: data URI or path.
        frames: so many of its frames, spread evenly, the first and the last among them; all of a
            video that has fewer. None takes all frames.

    Raises:
        HarnessError: it cannot be read, or has more than :data:`MOST_FRAMES` frames and ``frames``
            does not choose among them.
    """
    data, name = _bytes(reference, "video"), Path(_short(reference))
    try:
        with opened_video(name, data) as (container, stream):
            count = sum(1 for _ in container.decode(stream))
        kept = Frames(sorted(_chosen(reference, count, frames)), MOST_PIXELS)
        with opened_video(name, data) as (container, stream):
            decode_counting(container, stream, kept)
        assert kept.pixels is not None
        return kept.pixels
    except (av.FFmpegError, ValueError) as error:
        if isinstance(error, HarnessError):
            raise
        raise HarnessError(f"video {_short(reference)}: not readable ({error})") from error


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


def _chosen(reference: str, count: int, frames: int | None) -> frozenset[int]:
    if not count:
        raise HarnessError(f"video {_short(reference)}: it has no frames")
    if frames is None and count > MOST_FRAMES:
        raise HarnessError(
            f"video {_short(reference)}: {count} frames; say with -M frames=8 how many to take, "
            "spread evenly"
        )
    if frames is None or frames >= count:
        return frozenset(range(count))
    return frozenset(np.linspace(0, count - 1, frames).round().astype(int).tolist())


def _bytes(reference: str, what: str) -> bytes:
    if not reference.startswith("data:"):
        if "://" in reference:
            raise HarnessError(
                f"{what} {_short(reference)}: give a file or a data URI; nothing is downloaded here"
            )
        try:
            check_file(Path(reference))
            return Path(reference).read_bytes()
        except (OSError, ValueError) as error:
            raise HarnessError(f"{what} {_short(reference)}: not readable ({error})") from error
    head, comma, payload = reference.partition(",")
    if not comma or not head.endswith(";base64"):
        raise HarnessError(f"{what} {_short(reference)}: its data URI is not in base64")
    try:
        return base64.b64decode(payload, validate=True)
    except binascii.Error as error:
        raise HarnessError(f"{what} {_short(reference)}: broken base64 ({error})") from error


def _uri(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def _short(reference: str) -> str:
    return repr(reference if len(reference) <= 60 else f"{reference[:40]}...")


def output_of(reply: Reply, tokenizer: Any, model_name: str, top: int | None) -> ModelOutput:
    """A reply with its stop reason, token counts and log-probabilities.

    Counts and log-probabilities are of all tokens that the model said, the end token and those of
    a stop string among them; a prompt's count has the tokens that its frames take.

    Args:
        reply: what was said.
        tokenizer: the model's.
        model_name: as inspect-ai knows it.
        top: as in :class:`sally_anne.harness.adapters.inspect_ai.provider.Settings`.
    """
    message = ChatMessageAssistant(content=reply.text, model=model_name, source="generate")
    choice = ChatCompletionChoice(
        message=message,
        stop_reason="stop" if reply.ended else "max_tokens",
        logprobs=None if top is None else _logprobs(reply, tokenizer, top),
    )
    said = len(reply.tokens)
    usage = ModelUsage(
        input_tokens=reply.prompt_tokens,
        output_tokens=said,
        total_tokens=reply.prompt_tokens + said,
    )
    return ModelOutput(model=model_name, choices=[choice], usage=usage)


def _logprobs(reply: Reply, tokenizer: Any, top: int) -> Logprobs:
    content = []
    for place, token in enumerate(reply.tokens):
        before = reply.tokens[max(0, place - 1) : place]
        others = [
            TopLogprob(token=_piece(tokenizer, before, other), logprob=log_prob)
            for other, log_prob in (reply.likeliest[place] if top else ())
        ]
        content.append(
            Logprob(
                token=_piece(tokenizer, before, token),
                logprob=reply.log_probs[place],
                top_logprobs=others if top else None,
            )
        )
    return Logprobs(content=content)


def _piece(tokenizer: Any, before: Sequence[int], token: int) -> str:
    """What a token adds to the text; some tokenizers drop the space before a token alone."""
    ahead = tokenizer.decode(list(before))
    whole = tokenizer.decode([*before, token])
    return whole[len(ahead) :] if whole.startswith(ahead) else tokenizer.decode([token])
