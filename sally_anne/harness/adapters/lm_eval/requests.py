"""lm-eval's requests as contexts, continuations and settings of generation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image

from sally_anne.core.errors import HarnessError

# lm-eval's names for one thing, in its order of precedence.
_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
# They say how a sample is drawn; greedy decoding draws none.
_IDLE = ("top_p", "top_k", "min_p", "use_cache")

Encode = Callable[..., list[int]]


@dataclass(frozen=True, eq=False)
class Context:
    """What a request begins with.

    Attributes:
        text: as the tokenizer reads it, the mark of a clip in its place.
        ids: its tokens; a clip counts as its mark.
        pictures: frames of the clip; empty for text alone.
    """

    text: str
    ids: tuple[int, ...]
    pictures: tuple[Image.Image, ...] = ()

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal contexts have equal keys as long as the pictures live."""
        return self.ids, tuple(id(picture) for picture in self.pictures)

    @property
    def shape(self) -> tuple[int, ...]:
        """Clips of one shape make a batch; empty for text."""
        return (len(self.pictures), *self.pictures[0].size) if self.pictures else ()


@dataclass(frozen=True)
class Decoding:
    """How a reply is written.

    Attributes:
        max_gen_toks: at most so many tokens.
        until: strings before which it is cut.
    """

    max_gen_toks: int
    until: tuple[str, ...]


def split(
    encode: Encode, first_token: int, context: str, continuation: str
) -> tuple[str, list[int], list[int]]:
    """Where the context ends and the continuation begins, in tokens.

    The context ends at its own last token if that is a token of the whole text as well. Otherwise
    white space at its end belongs to the continuation, as lm-eval has it, since tokenizers join it
    to the next word. An empty context is the model's first token.

    (lm-eval's own models move white space in any case. The sums differ by the log-probability of
    that white space, e.g. of the line break after ``assistant`` in a chat layout. Here it is the
    prompt's last token, at which steering vectors act.)

    Args:
        encode: as lm-eval's ``tok_encode``.
        first_token: stands for an empty context.
        context: what is given.
        continuation: what is scored.

    Returns:
        The context's text and tokens, and the continuation's tokens.

    Raises:
        HarnessError: the continuation adds no token.
    """
    if not context.strip():
        text = ""
        ending = encode(context + continuation, add_special_tokens=False)
        begun = [first_token]
        if ending[:1] == begun:
            ending = ending[1:]
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


def decoding(settings: Mapping[str, Any], max_gen_toks: int) -> Decoding:
    """A request's settings of generation.

    Args:
        settings: the task's ``generation_kwargs``.
        max_gen_toks: length of a reply if they do not say.

    Raises:
        HarnessError: sampling, beams, an unknown setting, or a value that makes no sense.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    unknown = sorted(
        set(given) - {"until", "temperature", "do_sample", "num_beams", *_LENGTHS, *_IDLE}
    )
    if unknown:
        raise HarnessError(f"generation_kwargs: {unknown[0]!r} is not supported")
    temperature = _number("temperature", given.get("temperature", 0.0))
    if temperature > 0 or (given.get("do_sample") and "temperature" not in given):
        raise HarnessError(
            f"generation_kwargs: decoding is greedy, but temperature is {temperature:g} and "
            f"do_sample {given.get('do_sample', False)}; run with "
            "--gen_kwargs do_sample=False,temperature=0"
        )
    if _number("num_beams", given.get("num_beams", 1)) != 1:
        raise HarnessError("generation_kwargs: num_beams must be 1, as decoding is greedy")
    lengths = [given[name] for name in _LENGTHS if name in given]
    length = _number("max_gen_toks", lengths[0] if lengths else max_gen_toks)
    if length < 1 or length != int(length):
        raise HarnessError(f"generation_kwargs: max_gen_toks is {length:g}, not 1 or more")
    until = given.get("until", [])
    until = [until] if isinstance(until, str) else until
    if not isinstance(until, list | tuple) or not all(isinstance(stop, str) for stop in until):
        raise HarnessError(f"generation_kwargs: until must be texts, is {until!r}")
    return Decoding(int(length), tuple(dict.fromkeys(stop for stop in until if stop)))


def batches(contexts: Sequence[Context], size: int) -> Iterator[list[int]]:
    """Numbers of contexts that go through the model together: one shape, the longest first."""
    order = sorted(range(len(contexts)), key=lambda i: (contexts[i].shape, -len(contexts[i].ids)))
    batch: list[int] = []
    for number in order:
        if batch and (len(batch) == size or contexts[number].shape != contexts[batch[0]].shape):
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def _number(name: str, value: Any) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError) as error:
        raise HarnessError(f"generation_kwargs: {name} must be a number, is {value!r}") from error
    if not math.isfinite(found):
        raise HarnessError(f"generation_kwargs: {name} must be finite, is {value!r}")
    return found
