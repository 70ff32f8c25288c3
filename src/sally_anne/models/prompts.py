"""From texts and frames to a model's inputs, through its own chat template and processor.

Raw prompts (``loaded.prompt``) are texts as they are, without frames and sounds; of a chat the
texts of all turns, a blank line between them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from sally_anne.core.errors import ContextError, ModelError
from sally_anne.models.families import OpenModel, check_senses
from sally_anne.models.processor import RAW, layout_of, padded, plain, raw_ids
from sally_anne.models.videos import REMEDY, context_of, processed

# Samples of a sound of which no tower for sounds makes nothing: a tenth of a second.
_SHORTEST = 1600

# By what a chat template asks which day it is, and the parts of the form in which it does.
NOW = "strftime_now"
_FORMS = [f"%{part}" for part in ("-d", "-m", "-H", "-I", "-M", *"aAbBcdDeFHIjmMpSTuUwWxXyYZ%")]
# Stands for a message's text while its place in the layout is looked for: a noncharacter.
_PLACE = "\ufdd1"
# Letters of scripts without blanks between words.
_NO_BLANKS = re.compile("[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]{2}")

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
    (section 4.2). Marks of the model in it are plain text; film and sound as of a reply's prompt.
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
        raise ModelError(
            f"the chat template of {loaded.name} rewrites the user's text, so the end of the "
            f"statement {text[:60]!r} cannot be found in the prompt"
        )
    return before + read


def _turns(loaded: OpenModel, content: str | Sequence[Message]) -> list[dict[str, str]]:
    turns: Any = [{"role": "user", "content": content}] if isinstance(content, str) else content
    for turn in turns if isinstance(turns, list | tuple) and turns else [turns]:
        said: Any = turn.get("content") if isinstance(turn, Mapping) else None
        known = isinstance(said, str) and turn.get("role") in ("system", "user", "assistant")
        if not known or turn is turns or any("\ud800" <= one <= "\udfff" for one in said):
            raise ModelError(
                "a model is asked a text, or a list of turns with a role of system, user or "
                f"assistant and a text as content, without half surrogates; this holds {turn!r:.60}"
            )
    return [{**turn, "content": plain(loaded, turn["content"])} for turn in turns]


def continuations(loaded: OpenModel, prompt: str, options: Sequence[str]) -> list[list[int]]:
    """Token ids of each option as they follow a rendered prompt, ``[len(options)][n]``.

    A blank stands between the two, unless one of them has it or their script has none.
    """
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
    loaded: OpenModel, turns: Sequence[Message], video: bool, reply: bool, sounds: int = 0
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
    # What a template does is up to who wrote it.
    except Exception as error:
        raise ModelError(
            f"model {loaded.name!r}: its chat template cannot be used ({type(error).__name__}: "
            f"{error})"
        ) from error


def raw_text(loaded: OpenModel, turns: Sequence[Mapping[str, Any]]) -> str:
    """The texts of all turns, a blank line between them; a ModelError if there is more."""
    every = (turn["content"] for turn in turns)
    said = [[{"text": own}] if isinstance(own, str) else own for own in every]
    if any("text" not in part for parts in said for part in parts):
        raise ModelError(
            f"model {loaded.name!r}: what is shown and played has no place in a raw prompt; leave "
            "--prompt raw out, or run it with --setting text"
        )
    return "\n\n".join("".join(part["text"] for part in parts) for parts in said)


def pieces_of(loaded: OpenModel, sound: np.ndarray) -> list[np.ndarray]:
    """A sound ``float [S]``, 16,000 samples a second, in pieces that the model hears whole.

    Its processor would drop what is beyond one piece (30 seconds of Qwen2-Audio). A last piece of
    less than a tenth of a second is made as long by silence.
    """
    check_senses(loaded, sounds=True)
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
    prompts: Sequence[str | tuple[int, ...]],
    clips: Sequence[np.ndarray] | None,
    sounds: Sequence[Sequence[np.ndarray]] | None = None,
) -> dict[str, Any]:
    """:func:`process`, on the model's device."""
    return to_model(loaded, process(loaded, prompts, clips, sounds))


def process(
    loaded: OpenModel,
    prompts: Sequence[str | tuple[int, ...]],
    clips: Sequence[np.ndarray] | None,
    sounds: Sequence[Sequence[np.ndarray]] | None = None,
) -> dict[str, np.ndarray]:
    """What the processor makes of rendered prompts: arguments for the model; needs no weights.

    Clips are one ``uint8 [F, height, width, 3]`` a prompt, or None for text alone. All F frames are
    used, and the whole of each: where the processor would cut off their edges, they are padded
    first, unless the model was opened with ``crop``. ``sounds`` are the pieces of each prompt's
    sound, see :func:`pieces_of`.
    ``attention_mask`` marks the padding on the left. Raw prompts may be token ids.

    Raises:
        ModelError: the model takes no videos, a prompt has more or fewer places of frames than
            clips, or the processor dropped or resampled frames.
        ContextError: a prompt is longer than the model can read.
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
            raise ContextError(
                f"the prompt {prompt[:60]!r} ... has {tokens:,} tokens, more than the {context:,} "
                f"that {loaded.name} can read; {'give less text' if clips is None else REMEDY}"
            )
    return {key: np.asarray(value) for key, value in inputs.items()}


def _check_ends(loaded: OpenModel, prompts: Sequence[Any], ids: Any) -> None:
    """Each row ends with its prompt's last token: a processor may write more behind it."""
    tokenizer = loaded.processor.tokenizer
    for prompt, row in zip(prompts, ids.tolist(), strict=True):
        tail = prompt.rpartition(loaded.showing.mark or "\0")[2] or prompt
        own = tokenizer(tail, add_special_tokens=False)["input_ids"]
        if own and row[-1] != own[-1]:
            raise ModelError(
                f"the processor of {loaded.name} writes {tokenizer.decode(row[-1:])!r} behind a "
                f"prompt, so its last token cannot be read: the prompt ends with {tail[-40:]!r}"
            )


def to_model(loaded: OpenModel, inputs: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Processed inputs as tensors on the model's device; times stay exact.

    Frames and sounds are in the model's dtype, also if they are :func:`narrowed`.
    """
    model, tensors = loaded.model, {k: torch.from_numpy(v) for k, v in inputs.items()}
    for key in filter(_seen_or_heard, inputs):
        seen = tensors[key]
        seen = seen.view(torch.bfloat16) if seen.dtype == torch.int16 else seen
        tensors[key] = seen.to(model.dtype)
    return {key: value.to(model.device) for key, value in tensors.items()}


def narrowed(loaded: OpenModel, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Inputs with frames and sounds in half the bytes, where the model is in bfloat16.

    As what numpy, which has no such numbers, takes for ``int16``. Between processes bytes count.
    """
    if loaded.dtype != "bfloat16":
        return inputs
    halves = {
        key: torch.from_numpy(value).bfloat16().view(torch.int16).numpy()
        for key, value in inputs.items()
        if _seen_or_heard(key)
    }
    return inputs | halves


def _seen_or_heard(key: str) -> bool:
    return key.startswith(("pixel_values", "input_features"))
