"""A model's processor and tokenizer. What users write stays plain text, also ``<|im_end|>``.

A character that no text holds is put inside each mark of the user's; the tokenizer's normalizer,
which runs after it has looked for its marks, takes it out again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from tokenizers import normalizers
from torch.nn.utils.rnn import pad_sequence
from transformers.image_utils import SizeDict

from sally_anne.core.errors import ModelError
from sally_anne.models.families import FAMILIES, Family, Showing

if TYPE_CHECKING:
    from sally_anne.models.loading import LoadedModel

# A noncharacter: Unicode keeps it for use inside programs, and no text that is exchanged holds it.
BREAK = "\ufdd0"
# The prompt frame of texts around which nothing stands.
RAW = "raw"


def open_processor(
    name: str, family: Family, location: str, config: Any, options: dict[str, Any]
) -> Any:
    processor = _opened(family, location, config, options)
    if not hasattr(processor, "tokenizer"):
        why = f"not the processor of {family.class_name}; save it there"
        kind = type(processor).__name__
        raise ModelError(f"model {name!r}: {location} holds a {kind} alone, {why}")
    tokenizer = processor.tokenizer
    if not hasattr(tokenizer, "backend_tokenizer"):
        kind = type(tokenizer).__name__
        raise ModelError(f"model {name!r}: {kind} is no fast tokenizer; save one in {location}")
    if size := getattr(processor, "videos_kwargs", {}).get("size"):
        # Qwen2.5-Omni's processor has its own in mind, whatever its video processor says.
        processor.video_processor.size = SizeDict(**size)
    # It is masked, so that any will do that the model has a vector of.
    size, first = config.get_text_config().vocab_size, tokenizer.convert_ids_to_tokens(0)
    marks = (tokenizer.pad_token, tokenizer.eos_token, tokenizer.unk_token, first)
    known = (mark for mark in marks if mark and tokenizer.convert_tokens_to_ids(mark) < size)
    tokenizer.pad_token = next(known, tokenizer.pad_token)
    tokenizer.padding_side = "left"
    teach(tokenizer)
    return processor


def _opened(family: Family, location: str, config: Any, options: dict[str, Any]) -> Any:
    """The type's own processor; a tokenizer where there is none, or nothing but text is read."""

    def own(kind: str) -> Any:
        return getattr(transformers, kind).from_pretrained(location, **options)

    processor: Any
    try:
        if family.reads_only:
            processor = TextProcessor(own("AutoTokenizer"))
        elif family.name == "llava-next-video":
            # Where a checkpoint has no settings for videos AutoProcessor guesses their class from
            # the name LlavaNextImageProcessor, and gets the whole processor's, without end.
            parts = "LlavaNextVideoVideoProcessor", "AutoImageProcessor", "AutoTokenizer"
            kind = transformers.LlavaNextVideoProcessor
            settings, _ = kind.get_processor_dict(location, **options)
            processor = kind.from_args_and_dict([*map(own, parts)], settings)
        else:
            processor = own("AutoProcessor")
    except OSError:
        if family in FAMILIES:
            raise
        # Of pictures that it is never shown nothing need be known.
        processor = TextProcessor(own("AutoTokenizer"))
    if getattr(processor, "patch_size", 0) is None:
        # Early conversions of LLaVA's checkpoints say it in the model's config alone.
        processor.patch_size = config.vision_config.patch_size
    return processor


def showing_of(family: Family, processor: Any) -> Showing:
    """How a model is given frames: as a video if processor and template know one, or pictures."""
    why = "it has no processor of pictures or videos"
    for kind in ("video", "image"):
        mark = str(getattr(processor, f"{kind}_token", None) or "")
        if not mark or not getattr(processor, f"{kind}_processor", None):
            continue
        why = f"its chat template writes no place for them, such as {mark!r}"
        one, two, three = (_with_parts(processor, kind, count) for count in (1, 2, 3))
        before, _, after = one.partition(mark)
        if one.count(mark) != 1:
            continue
        if kind == "video":
            # A processor that knows these marks puts them around each step of a video, and leaves
            # those of the template around the whole.
            ends = (getattr(processor, f"vision_{end}_token", "") for end in ("start", "end"))
            around = mark.join(ends)
            return Showing(kind, around if around in one else mark)
        between = two.removeprefix(before + mark).removesuffix(mark + after)
        if three == before + between.join([mark] * 3) + after:
            return Showing(kind, mark, between)
        why = "its chat template numbers pictures"
    return Showing(why=why if layout_of(processor) else "it has no chat template")


def _with_parts(processor: Any, kind: str, count: int) -> str:
    parts = [*[{"type": kind}] * count, {"type": "text", "text": "?"}]
    try:
        return processor.apply_chat_template([{"role": "user", "content": parts}], tokenize=False)
    except Exception:  # what a template does is up to who wrote it
        return ""


def eye_of(loaded: LoadedModel) -> Any:
    return getattr(loaded.processor, f"{loaded.showing.kind or 'no'}_processor", None)


def sensed_ids(config: Any, kinds: Sequence[str] = ("image", "video", "audio")) -> list[int]:
    """The tokens in whose places a model of this config puts frames and sounds."""
    names = (f"{kind}_token_{end}" for kind in kinds for end in ("id", "index"))
    return [token for name in names if (token := getattr(config, name, None)) is not None]


def layout_of(processor: Any) -> Any:
    return processor.chat_template or processor.tokenizer.chat_template


def frame_of(name: str, asked: str, layout: Any) -> str:
    """What stands around a text, ``chat`` or ``raw``; a ModelError if that cannot be."""
    if asked == "chat" and not layout:
        why = "leave --prompt chat out, and texts are read as they are"
        raise ModelError(f"model {name!r} has no chat template: {why}")
    return "chat" if layout and asked != RAW else RAW


def hash_of(processor: Any) -> str:
    """Hash of tokenizer, image settings and chat layout."""
    tokenizer = json.loads(processor.tokenizer.backend_tokenizer.to_str())
    # What the last call padded or cut is kept in there, too.
    tokenizer |= {"padding": None, "truncation": None}
    tokenizer["normalizer"] = original(tokenizer["normalizer"])
    parts = [json.dumps(tokenizer, sort_keys=True), str(layout_of(processor))]
    eye = getattr(processor, "video_processor", None) or getattr(processor, "image_processor", None)
    if eye is not None:
        parts.append(json.dumps(eye.to_dict(), sort_keys=True, default=str))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class TextProcessor:
    """A tokenizer in the place of a processor, for models that read and do not see."""

    # Nothing in a prompt stands for pictures, and the chat layout is the tokenizer's.
    image_token = video_token = chat_template = None

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def apply_chat_template(self, messages: Sequence[dict[str, Any]], **options: Any) -> str:
        # As templates expect it here, the text parts of a turn are joined.
        turns = [dict(turn) for turn in messages]
        for turn in turns:
            if not isinstance(turn["content"], str):
                turn["content"] = "".join(part["text"] for part in turn["content"])
        # Templates that can open a reply with a chain of thought do not; others ignore it.
        return self.tokenizer.apply_chat_template(turns, **{"enable_thinking": False, **options})

    def __call__(self, text: list[str], **options: Any) -> Any:
        # Some tokenizers would add types of tokens, which no decoder takes.
        return self.tokenizer(text, return_token_type_ids=False, **options)

    def save_pretrained(self, folder: str | Path, **options: Any) -> Any:
        return self.tokenizer.save_pretrained(folder, **options)


def marks_of(processor: Any) -> re.Pattern[str]:
    """Where a mark of two characters or more of tokenizer or processor begins, overlapping too."""
    tokenizer = processor.tokenizer
    found = [str(t) for t in tokenizer.added_tokens_decoder.values() if t.special]
    # The last are those that the processor looks for before the tokenizer does.
    named = [v for n, v in vars(processor).items() if n.endswith("_token") and isinstance(v, str)]
    marks = {*found, *tokenizer.all_special_tokens, *named}
    longer = sorted((mark for mark in marks if len(mark) > 1), key=len, reverse=True)
    # Without any nothing is found, rather than all.
    either = "|".join(map(re.escape, longer)) or "(?!)"
    return re.compile(f"(?=(?:{either})).", re.DOTALL)


def plain(loaded: LoadedModel, text: str) -> str:
    """The user's ``text`` as it stands in a prompt: none of its marks is the model's."""
    return loaded.marks.sub(lambda match: match[0] + BREAK, text.replace(BREAK, ""))


def raw_ids(loaded: LoadedModel, text: str) -> tuple[int, ...]:
    """A text's token ids, after a BOS if the tokenizer writes one; the last is the text's own."""
    cut = loaded.processor.tokenizer(text)
    own = [place for place, part in enumerate(cut.sequence_ids(0)) if part is not None]
    if not own:
        raise ModelError(f"the text {text[:60]!r} has no token for {loaded.name}: write more of it")
    return tuple(cut["input_ids"][: own[-1] + 1])


def padded(
    loaded: LoadedModel, rows: Sequence[Sequence[int]], side: str = "left"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and mask ``[R, T]``, int64, on the CPU."""
    ids = [torch.tensor(row, dtype=torch.long) for row in rows]
    ones = [torch.ones_like(row) for row in ids]
    pad = loaded.processor.tokenizer.pad_token_id
    return pad_sequence(ids, True, pad, side), pad_sequence(ones, True, 0, side)


def teach(tokenizer: Any) -> None:
    """Let a fast tokenizer take :data:`BREAK` out of what it reads, behind its marks."""
    forget(tokenizer)
    backend = tokenizer.backend_tokenizer
    # Marks that are looked for behind the normalizer stay broken, by a space.
    late = any(t.special and t.normalized for t in tokenizer.added_tokens_decoder.values())
    first = normalizers.Replace(BREAK, " " if late else "")
    rest = [] if backend.normalizer is None else [backend.normalizer]
    backend.normalizer = normalizers.Sequence([first, *rest])


def forget(tokenizer: Any) -> None:
    """The tokenizer as it was before :func:`teach`, to be saved."""
    backend = tokenizer.backend_tokenizer
    own = json.loads(backend.to_str())["normalizer"]
    if own != original(own):
        backend.normalizer = backend.normalizer[1] if len(own["normalizers"]) > 1 else None


def original(normalizer: dict[str, Any] | None) -> dict[str, Any] | None:
    """What ``normalizer`` of a tokenizer.json was before :func:`teach`."""
    steps = (normalizer or {}).get("normalizers", [])
    if steps and steps[0].get("pattern") == {"String": BREAK}:
        return steps[1] if len(steps) > 1 else None
    return normalizer


@dataclass(frozen=True)
class Unknown:
    """How many tokens a tokenizer does not know, in how many of its texts, and some of them."""

    prompts: int
    of: int
    tokens: int
    examples: tuple[str, ...]

    def warning(self, name: str) -> str:
        """One line about the model ``name``; empty if there are none."""
        some = ", ".join(map(repr, self.examples))
        said = (
            f"warning: {name} does not know all words: {self.prompts} of {self.of} prompts hold "
            f"{self.tokens} tokens that it reads as unknown, such as {some}; it answers "
            "without them, so take a model with a larger vocabulary, or other words"
        )
        return said if self.tokens else ""


def unknown_words(loaded: LoadedModel, texts: Iterable[str]) -> Unknown:
    """Count what the tokenizer does not know in users' ``texts``; keep five examples."""
    said = Counter(plain(loaded, text) for text in texts)
    tokenizer = loaded.processor.tokenizer
    prompts, tokens, examples = 0, 0, dict[str, None]()
    # The tokenizer looks it up each time that it is asked for.
    unknown = tokenizer.unk_token_id
    for text, times in said.items() if unknown is not None else ():
        cut = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        pairs = zip(cut["input_ids"], cut["offset_mapping"], strict=True)
        places = [place for token, place in pairs if token == unknown]
        prompts += times * bool(places)
        tokens += times * len(places)
        examples |= dict.fromkeys(text[start:end].replace(BREAK, "") for start, end in places)
    return Unknown(prompts, said.total(), tokens, (*examples,)[:5])
