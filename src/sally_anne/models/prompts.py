"""From texts and frames to a model's inputs, through its own chat template and processor."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sally_anne.core.errors import ContextError, ModelError
from sally_anne.models.families import check_senses
from sally_anne.models.processor import RAW, layout_of, padded, plain, raw_ids
from sally_anne.models.videos import REMEDY, Sounds, context_of, processed

if TYPE_CHECKING:
    from sally_anne.models.loading import LoadedModel

# By what a chat template asks which day it is, and the parts of the form in which it does.
NOW = "strftime_now"
_FORMS = [f"%{part}" for part in ("-d", "-m", "-H", "-I", "-M", *"aAbBcdDeFHIjmMpSTuUwWxXyYZ%")]
# Stands for a message's text while its place in the layout is looked for: a noncharacter.
_PLACE = "\ufdd1"
# How inputs of what is seen and heard are called.
_SENSED = ("pixel_values", "input_features")
# Letters of scripts without blanks between words.
_NO_BLANKS = re.compile("[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]{2}")

# Who says it (role: system, user, assistant) and what (content).
Message = Mapping[str, str]
Prompt = str | tuple[int, ...]
Clips = Sequence[np.ndarray] | None


def reply_prompt(
    loaded: LoadedModel, content: str | Sequence[Message], video: bool, sounds: int = 0
) -> str:
    """The user's turn, or a chat, closed, and the assistant's turn opened; film and sound first."""
    return _render(loaded, _turns(loaded, content), video, reply=True, sounds=sounds)


def open_prompt(
    loaded: LoadedModel, content: str | Sequence[Message], video: bool, sounds: int = 0
) -> str:
    """The conversation up to the last character of its last message, which is left open.

    Its last token is the last token of that message: the place where the paper reads activations
    (section 4.2). Film and sound are as of a reply's prompt.
    """
    turns = _turns(loaded, content)
    if loaded.prompt == RAW:
        return _render(loaded, turns, video, False, sounds)
    text = turns[-1]["content"]
    marked = [*turns[:-1], {**turns[-1], "content": _PLACE}]
    rendered, around = (_render(loaded, chat, video, False, sounds) for chat in (turns, marked))
    # The text itself may occur in the layout, as "end" does in <|im_end|>.
    before, _, after = around.partition(_PLACE)
    read = rendered[len(before) : len(rendered) - len(after)]
    if rendered != before + read + after or read.strip() != text.strip() or _PLACE in after:
        why = f"so the end of the statement {text[:60]!r} cannot be found in the prompt"
        raise ModelError(f"the chat template of {loaded.name} rewrites the user's text, {why}")
    return before + read


def _turns(loaded: LoadedModel, content: str | Sequence[Message]) -> list[dict[str, str]]:
    turns: Any = [{"role": "user", "content": content}] if isinstance(content, str) else content
    for turn in turns if isinstance(turns, list | tuple) and turns else [turns]:
        said: Any = turn.get("content") if isinstance(turn, Mapping) else None
        known = isinstance(said, str) and turn.get("role") in ("system", "user", "assistant")
        if not known or turn is turns or any("\ud800" <= one <= "\udfff" for one in said):
            what = "a text, or a list of turns with a role (system, user, assistant) and a content"
            raise ModelError(f"a model takes {what}, no half surrogates; this holds {turn!r:.60}")
    return [{**turn, "content": plain(loaded, turn["content"])} for turn in turns]


def continuations(loaded: LoadedModel, prompt: str, options: Sequence[str]) -> list[list[int]]:
    """Token ids of each option as they follow a rendered prompt, with a blank if it needs one."""
    tokenizer = loaded.processor.tokenizer

    def ids(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    before, found = ids(prompt), []
    for option in (plain(loaded, option) for option in options):
        seam = prompt[-1:] + option[:1]
        gap = "" if re.search(r"\s", seam) or _NO_BLANKS.match(seam) else " "
        whole = ids(f"{prompt}{gap}{option}")
        joined = whole[: len(before)] == before and len(whole) > len(before)
        found.append(whole[len(before) :] if joined else ids(option))
    return found


def _render(
    loaded: LoadedModel, turns: Sequence[Message], video: bool, reply: bool, sounds: int = 0
) -> str:
    check_senses(loaded, video, bool(sounds))
    chat: list[dict[str, Any]] = []
    for turn in turns:
        parts: list[dict[str, str]] = []
        if turn["role"] == "user":
            parts = [{"type": loaded.showing.kind}] * video + [{"type": "audio"}] * sounds
            video, sounds = False, 0
        chat.append({**turn, "content": [*parts, {"type": "text", "text": turn["content"]}]})
    if loaded.prompt == RAW:
        return raw_text(loaded, chat)
    how: dict[str, Any] = {"add_generation_prompt": reply, "tokenize": False}
    if "date" in loaded.changes:
        # A run that goes on tomorrow tells the day on which it began.
        told = "".join(f".replace({f!r}, {loaded.date.strftime(f)!r})" for f in _FORMS)
        macro = f"{{% macro {NOW}(form) %}}{{{{ form{told} }}}}{{% endmacro +%}}"
        how["chat_template"] = macro + layout_of(loaded.processor)
    try:
        return loaded.processor.apply_chat_template(chat, **how)
    except Exception as error:  # what a template does is up to who wrote it
        why = f"its chat template cannot be used ({type(error).__name__}: {error})"
        raise ModelError(f"model {loaded.name!r}: {why}") from error


def raw_text(loaded: LoadedModel, turns: Sequence[Mapping[str, Any]]) -> str:
    """The texts of all turns, a blank line between them; a ModelError if there is more."""
    every = (turn["content"] for turn in turns)
    said = [[{"text": own}] if isinstance(own, str) else own for own in every]
    if any("text" not in part for parts in said for part in parts):
        why = "leave --prompt raw out, or run it with --setting text"
        raise ModelError(
            f"model {loaded.name!r}: a raw prompt has no place for film or sound; {why}"
        )
    return "\n\n".join("".join(part["text"] for part in parts) for parts in said)


def pieces_of(loaded: LoadedModel, sound: np.ndarray) -> list[np.ndarray]:
    """A sound ``float [S]``, 16,000 samples a second, in pieces that the model hears whole."""
    check_senses(loaded, sounds=True)
    if sound.ndim != 1 or not len(sound) or not np.isfinite(sound).all():
        raise ModelError(f"a sound is float [S] of finite samples, this is {list(sound.shape)}")
    longest = loaded.processor.feature_extractor.n_samples
    parts = [sound[i : i + longest] for i in range(0, len(sound), longest)]
    # Of less than a tenth of a second some tower makes nothing.
    parts[-1] = np.pad(parts[-1], (0, max(0, 1600 - len(parts[-1]))))
    return parts


def sound_tokens(loaded: LoadedModel, samples: int) -> list[int]:
    """How many tokens each piece of a sound of so many samples takes; the processor says it."""
    mark = loaded.processor.tokenizer.convert_tokens_to_ids(loaded.processor.audio_token)
    pieces = pieces_of(loaded, np.zeros(samples, np.float32))
    prompt, counts = [reply_prompt(loaded, "?", False, 1)], {}
    for length, piece in {len(piece): piece for piece in pieces}.items():
        inputs = process(loaded, prompt, None, [[piece]])
        counts[length] = int((inputs["input_ids"] == mark).sum())
    return [counts[len(piece)] for piece in pieces]


def encode(
    loaded: LoadedModel, prompts: Sequence[Prompt], clips: Clips, sounds: Sounds = None
) -> dict[str, Any]:
    """:func:`process`, on the model's device."""
    return to_model(loaded, process(loaded, prompts, clips, sounds))


def process(
    loaded: LoadedModel, prompts: Sequence[Prompt], clips: Clips, sounds: Sounds = None
) -> dict[str, np.ndarray]:
    """What the processor makes of rendered prompts: arguments for the model; needs no weights.

    Clips are one ``uint8 [F, height, width, 3]`` a prompt, or None for text alone. All F frames are
    used, and the whole of each, unless the model was opened with ``crop``. ``sounds`` are pieces of
    :func:`pieces_of`. Padding is on the left. Raw prompts may be token ids. A ModelError if the
    model takes no videos, a prompt has more or fewer places of frames than clips, or the processor
    dropped frames; a ContextError for a prompt that is too long.
    """
    if loaded.prompt == RAW:
        rows = [p if isinstance(p, tuple) else raw_ids(loaded, p) for p in prompts]
        inputs = dict(zip(("input_ids", "attention_mask"), padded(loaded, rows), strict=True))
    else:
        inputs = processed(loaded, [str(prompt) for prompt in prompts], clips, sounds)
        _check_ends(loaded, prompts, inputs["input_ids"])
    context = context_of(loaded)
    for prompt, mask in zip(prompts, inputs["attention_mask"], strict=True):
        if context is not None and (tokens := int(mask.sum())) > context:
            way = f"{loaded.name} can read; {'give less text' if clips is None else REMEDY}"
            many = f"has {tokens:,} tokens, more than the {context:,} that {way}"
            raise ContextError(f"the prompt {prompt[:60]!r} ... {many}")
    return {key: np.asarray(value) for key, value in inputs.items()}


def _check_ends(loaded: LoadedModel, prompts: Sequence[Any], ids: Any) -> None:
    """Each row ends with its prompt's last token: a processor may write more behind it."""
    tokenizer = loaded.processor.tokenizer
    for prompt, row in zip(prompts, ids.tolist(), strict=True):
        tail = prompt.rpartition(loaded.showing.mark or "\0")[2] or prompt
        own = tokenizer(tail, add_special_tokens=False)["input_ids"]
        if own and row[-1] != own[-1]:
            more = f"{tokenizer.decode(row[-1:])!r} behind a prompt that ends with {tail[-40:]!r}"
            raise ModelError(f"the processor of {loaded.name} writes {more}")


def to_model(loaded: LoadedModel, inputs: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Processed inputs as tensors on the model's device, frames and sounds in its dtype."""
    model, tensors = loaded.model, {k: torch.from_numpy(v) for k, v in inputs.items()}
    for key, value in tensors.items():
        if key.startswith(_SENSED):
            # See :func:`narrowed`.
            value = value.view(torch.bfloat16) if value.dtype == torch.int16 else value
            tensors[key] = value.to(model.dtype)
    return {key: value.to(model.device) for key, value in tensors.items()}


def narrowed(loaded: LoadedModel, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Frames and sounds for a model in bfloat16, as numpy's ``int16``: bytes between processes."""
    halves = {}
    for key in inputs if loaded.dtype == "bfloat16" else ():
        if key.startswith(_SENSED):
            halves[key] = torch.from_numpy(inputs[key]).bfloat16().view(torch.int16).numpy()
    return inputs | halves
