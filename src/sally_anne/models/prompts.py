"""From texts and frames to a model's inputs, through its own chat template and processor."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from sally_anne.core.errors import ContextError, ModelError
from sally_anne.models.families import OpenModel, check_frames, check_sounds, check_videos
from sally_anne.models.processor import plain
from sally_anne.models.videos import REMEDY, context_of, pad_for_crop, size_limits, times_of

# Samples of a sound of which no tower for sounds makes nothing: a tenth of a second.
_SHORTEST = 1600

# Where a chat template asks which day it is, and in which form.
_NOW = re.compile(r"""\bstrftime_now\(\s*(['"])(.*?)\1\s*\)""")
# Stands for a message's text while its place in the layout is looked for: a noncharacter.
_PLACE = "\ufdd1"

# Who says it (role: system, user, assistant) and what (content).
Message = Mapping[str, str]


def reply_prompt(
    loaded: OpenModel, content: str | Sequence[Message], video: bool, sounds: int = 0
) -> str:
    """The user's turn with ``content``, or a chat, closed, and the assistant's turn opened.

    The first user's turn begins with the film, then so many pieces of sound (:func:`pieces_of`).
    """
    return _render(loaded, _turns(loaded, content), video, reply=True, sounds=sounds)


def open_prompt(
    loaded: OpenModel, content: str | Sequence[Message], video: bool, sounds: int = 0
) -> str:
    """The conversation up to the last character of its last message, which is left open.

    Its last token is the last token of that message: the place where the paper reads activations
    (section 4.2). Marks of the model in it are plain text; a film comes with the first user's turn.
    """
    turns = _turns(loaded, content)
    text = turns[-1]["content"]
    marked = [*turns[:-1], {**turns[-1], "content": _PLACE}]
    rendered, around = (
        _render(loaded, chat, video, reply=False, sounds=sounds) for chat in (turns, marked)
    )
    # The text itself may occur in the layout, as "end" does in <|im_end|>.
    before, _, after = around.partition(_PLACE)
    read = rendered[len(before) : len(rendered) - len(after)]
    if rendered != before + read + after or read.strip() != text.strip() or _PLACE in after:
        raise ModelError(
            f"the chat template of {loaded.name} rewrites the user's text, so the end of the "
            f"statement {text[:60]!r} cannot be found in the prompt"
        )
    return before + read


def _turns(loaded: OpenModel, content: str | Sequence[Message]) -> list[dict[str, str]]:
    turns = [{"role": "user", "content": content}] if isinstance(content, str) else content
    for turn in turns:
        if not (isinstance(turn, Mapping) and isinstance(turn.get("content"), str)):
            raise ModelError(
                "a model is asked a text, or a chat of turns with a role and a text as content; "
                f"this holds {turn!r:.60}"
            )
    return [{**turn, "content": plain(loaded, turn["content"])} for turn in turns]


def continuations(loaded: OpenModel, prompt: str, options: Sequence[str]) -> list[list[int]]:
    """Token ids of each option as they follow a rendered prompt, ``[len(options)][n]``."""
    tokenizer = loaded.processor.tokenizer
    before = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    gap = "" if prompt[-1].isspace() else " "
    found = []
    for option in (plain(loaded, option) for option in options):
        whole = tokenizer(f"{prompt}{gap}{option}", add_special_tokens=False)["input_ids"]
        joined = whole[: len(before)] == before and len(whole) > len(before)
        own = tokenizer(option, add_special_tokens=False)["input_ids"]
        found.append(whole[len(before) :] if joined else own)
    return found


def _render(
    loaded: OpenModel, turns: Sequence[Message], video: bool, reply: bool, sounds: int
) -> str:
    if video:
        check_videos(loaded.family, loaded.name)
    if sounds:
        check_sounds(loaded.family, loaded.name)
    if not (loaded.processor.chat_template or loaded.processor.tokenizer.chat_template):
        raise ModelError(
            f"model {loaded.name!r} has no chat template, so it cannot be asked; take one that was "
            "tuned on conversations (often named -Instruct, -chat or -it)"
        )
    chat: list[dict[str, Any]] = []
    for turn in turns:
        parts: list[dict[str, str]] = []
        if turn["role"] == "user":
            parts = [{"type": "video"}] * video + [{"type": "audio"}] * sounds
            video, sounds = False, 0
        chat.append({**turn, "content": [*parts, {"type": "text", "text": turn["content"]}]})
    how: dict[str, Any] = {"add_generation_prompt": reply, "tokenize": False}
    if "date" in loaded.changes:
        # A run that goes on tomorrow tells the day on which it began.
        layout = loaded.processor.chat_template or loaded.processor.tokenizer.chat_template
        how["chat_template"] = _NOW.sub(lambda now: repr(loaded.date.strftime(now[2])), layout)
    try:
        return loaded.processor.apply_chat_template(chat, **how)
    # What a template does is up to who wrote it.
    except Exception as error:
        raise ModelError(
            f"model {loaded.name!r}: its chat template cannot be used ({type(error).__name__}: "
            f"{error})"
        ) from error


def tells_date(processor: Any) -> bool:
    """Whether a chat template says which day it is."""
    return bool(_NOW.search(str(processor.chat_template or processor.tokenizer.chat_template)))


def pieces_of(loaded: OpenModel, sound: np.ndarray) -> list[np.ndarray]:
    """A sound ``float [S]``, 16,000 samples a second, in pieces that the model hears whole.

    Its processor would drop what is beyond one piece (30 seconds of Qwen2-Audio). A last piece of
    less than a tenth of a second is made as long by silence.
    """
    check_sounds(loaded.family, loaded.name)
    if sound.ndim != 1 or not len(sound) or not np.isfinite(sound).all():
        raise ModelError(f"a sound is float [S] of finite samples, this is {list(sound.shape)}")
    longest = loaded.processor.feature_extractor.n_samples
    parts = [sound[i : i + longest] for i in range(0, len(sound), longest)]
    parts[-1] = np.pad(parts[-1], (0, max(0, _SHORTEST - len(parts[-1]))))
    return parts


def sound_tokens(loaded: OpenModel, samples: int) -> list[int]:
    """How many tokens each piece of a sound of so many samples takes; the processor says it."""
    mark = loaded.processor.tokenizer.convert_tokens_to_ids(loaded.processor.audio_token)
    lengths = [len(piece) for piece in pieces_of(loaded, np.zeros(samples, np.float32))]
    counts = {}
    for length in set(lengths):
        prompt = reply_prompt(loaded, "?", False, 1)
        inputs = process(loaded, [prompt], None, [[np.zeros(length, np.float32)]])
        counts[length] = int((inputs["input_ids"] == mark).sum())
    return [counts[length] for length in lengths]


def encode(
    loaded: OpenModel,
    prompts: Sequence[str],
    clips: Sequence[np.ndarray] | None,
    sounds: Sequence[Sequence[np.ndarray]] | None = None,
) -> dict[str, Any]:
    """:func:`process`, on the model's device."""
    return to_model(loaded, process(loaded, prompts, clips, sounds))


def process(
    loaded: OpenModel,
    prompts: Sequence[str],
    clips: Sequence[np.ndarray] | None,
    sounds: Sequence[Sequence[np.ndarray]] | None = None,
) -> dict[str, np.ndarray]:
    """What the processor makes of rendered prompts: arguments for the model; needs no weights.

    Clips are one ``uint8 [F, height, width, 3]`` a prompt, or None for text alone. All F frames are
    used, and the whole of each: where the processor would cut off their edges, they are padded
    first. ``sounds`` are the pieces of each prompt's sound, see :func:`pieces_of`.
    ``attention_mask`` marks the padding on the left.

    Raises:
        ModelError: the model takes no videos, a prompt has more or fewer places of frames than
            clips, or the processor dropped or resampled frames.
        ContextError: a prompt is longer than the model can read.
    """
    _check_places(loaded, prompts, 0 if clips is None else 1)
    _check_sounds(loaded, prompts, sounds)
    arguments: dict[str, Any] = {"text": list(prompts), "return_tensors": "pt", "padding": True}
    if clips is not None:
        check_videos(loaded.family, loaded.name)
        eye = loaded.processor.video_processor
        shaped = [pad_for_crop(clip, eye) for clip in clips]
        arguments |= {"videos": shaped, "do_sample_frames": False}
        if (rate := loaded.family.frame_rate) is not None:
            arguments["video_metadata"] = [times_of(len(clip), rate) for clip in clips]
        limits = [size_limits(loaded, len(clip)) for clip in clips]
        if any(each != limits[0] for each in limits):
            raise ModelError(
                f"{loaded.name}: clips of one batch differ in length, so their frames would have "
                "other sizes than by themselves; use --batch-size 1"
            )
        if limits[0] is not None:
            arguments["size"] = limits[0]
        if mark := loaded.family.video_mark:
            bare = loaded.processor.video_token
            arguments["text"] = [prompt.replace(mark, bare) for prompt in prompts]
    if sounds is not None:
        arguments["audio"] = [piece for pieces in sounds for piece in pieces]
        arguments["sampling_rate"] = loaded.processor.feature_extractor.sampling_rate
    first_token = loaded.processor.tokenizer.bos_token
    if first_token and all(p.startswith(first_token) for p in prompts):
        # The template wrote it already; the tokenizer would put a second one before it.
        arguments["add_special_tokens"] = False
    inputs = loaded.processor(**arguments)
    if clips is not None:
        check_frames(loaded.family, inputs, loaded.processor, [len(c) for c in clips])
    context = context_of(loaded)
    for prompt, mask in zip(prompts, inputs["attention_mask"], strict=True):
        if context is not None and (tokens := int(mask.sum())) > context:
            raise ContextError(
                f"the prompt {prompt[:60]!r} ... has {tokens:,} tokens, more than the {context:,} "
                f"that {loaded.name} can read; {REMEDY}"
            )
    return {key: np.asarray(value) for key, value in inputs.items()}


def _check_places(loaded: OpenModel, prompts: Sequence[str], clips: int) -> None:
    """Each prompt has as many places of frames as it has clips, and none of pictures."""
    for name, expected in (("video_token", clips), ("image_token", 0)):
        mark: Any = getattr(loaded.processor, name, None)
        for prompt in prompts if mark else ():
            if (found := prompt.count(mark)) != expected:
                raise ModelError(
                    f"{loaded.name} reads {mark!r} as a place of frames: the prompt "
                    f"{prompt[:60]!r} ... holds {found} and comes with {expected} clips; write it "
                    "otherwise"
                )


def _check_sounds(
    loaded: OpenModel, prompts: Sequence[str], sounds: Sequence[Sequence[np.ndarray]] | None
) -> None:
    """Each prompt has as many places of sounds as it has pieces."""
    mark: Any = getattr(loaded.processor, "audio_token", None)
    for number, prompt in enumerate(prompts if mark else ()):
        expected = 0 if sounds is None else len(sounds[number])
        if (found := prompt.count(mark)) != expected:
            raise ModelError(
                f"{loaded.name} reads {mark!r} as a place of sound: the prompt {prompt[:60]!r} ... "
                f"holds {found} and comes with {expected} pieces; write it otherwise"
            )


def to_model(loaded: OpenModel, inputs: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Processed inputs as tensors on the model's device; times stay exact.

    Frames and sounds are in the model's dtype.
    """
    model = loaded.model
    return {
        key: torch.from_numpy(value).to(
            model.device,
            model.dtype if key.startswith(("pixel_values", "input_features")) else None,
        )
        for key, value in inputs.items()
    }
