"""lm-eval's requests as contexts and continuations, their pictures as the frames of one clip.

The clip stands where the first ``<image>`` stood; the other marks are removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from lm_eval.api.instance import Instance
from PIL import Image

from sally_anne.core.errors import HarnessError
from sally_anne.harness.adapters.common import checked
from sally_anne.harness.adapters.questions import MARK
from sally_anne.hooks.batch_size import in_batches
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prompts import reply_prompt


@dataclass(frozen=True, eq=False)
class Context:
    text: str  # as the tokenizer reads it, the mark of a clip in its place
    ids: tuple[int, ...]  # its tokens; a clip counts as its mark
    pictures: tuple[Image.Image, ...] = ()  # frames of the clip

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal contexts have equal keys as long as the pictures live."""
        return self.ids, tuple(id(picture) for picture in self.pictures)

    @property
    def shape(self) -> tuple[int, ...]:
        """Clips of one shape make a batch; empty for text."""
        return (len(self.pictures), *self.pictures[0].size) if self.pictures else ()

    @property
    def clip(self) -> np.ndarray:
        """``uint8 [F, height, width, 3]``; all frames take the size of the first picture."""
        size, bicubic = self.pictures[0].size, Image.Resampling.BICUBIC
        frames = [picture.convert("RGB") for picture in self.pictures]
        return np.stack(
            [np.asarray(f if f.size == size else f.resize(size, bicubic)) for f in frames]
        )


def split(
    encode: Callable[..., list[int]], first_token: int, context: str, continuation: str
) -> tuple[str, list[int], list[int]]:
    """The context's text and tokens, and the continuation's tokens.

    The context ends at its own last token if that is a token of the whole text as well. Otherwise
    white space at its end belongs to the continuation, since tokenizers join it to the next word.
    An empty context is the model's first token. (lm-eval's own models move white space in any case;
    here it is the prompt's last token, at which steering vectors act.)
    """
    if not context.strip():
        text = ""
        begun = [first_token]
        ending = encode(context + continuation, add_special_tokens=False)
        ending = ending[1:] if ending[:1] == begun else ending
    else:
        text = context
        whole, begun = encode(context + continuation), encode(context)
        if whole[: len(begun)] != begun:
            text = context.rstrip()
            begun = encode(text)
        ending = whole[len(begun) :]
    if not ending:
        raise HarnessError(
            f"the continuation {continuation!r} adds no token to its context "
            f"({context[-60:]!r}), so it has no probability"
        )
    return text, begun, ending


def batches(contexts: Sequence[Context], size: int) -> Iterator[Sequence[int]]:
    """Numbers of contexts that go through the model together: one shape, the longest first."""
    order = sorted(range(len(contexts)), key=lambda i: (contexts[i].shape, -len(contexts[i].ids)))
    for _, alike in groupby(order, key=lambda i: contexts[i].shape):
        yield from in_batches(list(alike), size)


def clip_mark(loaded: LoadedModel) -> str:
    """What the model's chat template writes for a clip, e.g. ``<video>`` and a line break."""
    probe = "x"
    without, with_clip = (reply_prompt(loaded, probe, video) for video in (False, True))
    before, _, after = without.rpartition(probe)
    if not (with_clip.startswith(before) and with_clip.endswith(probe + after)):
        raise HarnessError(
            f"the chat template of {loaded.name} does not put a clip right before the text, so "
            "pictures have no place in its prompts"
        )
    return with_clip.removeprefix(before).removesuffix(probe + after)


def place_clip(text: str, mark: str, pictures: int) -> str:
    """The text with the clip's own mark in the place of the pictures' marks."""
    if (found := text.count(MARK)) != pictures:
        raise HarnessError(
            f"a prompt needs one {MARK} for each of its pictures: it has {found} for {pictures} "
            f"({text[:60]!r} ...); examples of few-shot prompts cannot have pictures"
        )
    return text.replace(MARK, mark, 1).replace(MARK, "")


def pictures_of(request: Instance) -> tuple[Image.Image, ...]:
    """The pictures of a request, from what lm-eval sends beside its text."""
    extra = request.args[2] if len(request.args) > 2 else {}
    if "audio" in extra:
        raise HarnessError("the models of this toolkit see and read; they do not hear")
    visuals = extra.get("visual") or ()
    found = tuple(visuals) if isinstance(visuals, list | tuple) else (visuals,)
    for picture in found:
        if not isinstance(picture, Image.Image):
            raise HarnessError(
                f"a task's doc_to_image must give PIL pictures, not {type(picture).__name__}"
            )
    return tuple(map(checked, found))
