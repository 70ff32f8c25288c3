"""What users write stays plain text, also where it spells a token of the chat layout.

A question may hold ``<video>`` or ``<|im_end|>``. Tokenizers and processors look for these marks
in the whole prompt and would take the user's for the template's own. So that they do not, a
character that no text holds is put inside each mark of the user's, and the tokenizer's normalizer,
which runs after it has looked for its marks, takes that character out again: what is left is split
like any other words.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sally_anne.models.families import OpenModel

# A noncharacter: Unicode keeps it for use inside programs, and no text that is exchanged holds it.
BREAK = "\ufdd0"


def marks_of(processor: Any) -> re.Pattern[str]:
    """Where a mark of the tokenizer or the processor begins; overlapping ones are all found.

    Marks of one character cannot be broken, and stand for themselves.
    """
    tokenizer = processor.tokenizer
    found = {str(t) for t in tokenizer.added_tokens_decoder.values() if t.special}
    found |= set(tokenizer.all_special_tokens)
    # Those that the processor looks for before the tokenizer does.
    named = (value for name, value in vars(processor).items() if name.endswith("_token"))
    found |= {mark for mark in named if isinstance(mark, str)}
    longer = sorted((mark for mark in found if len(mark) > 1), key=len, reverse=True)
    return re.compile("(?=(?:" + "|".join(map(re.escape, longer)) + ")).", re.DOTALL)


def plain(loaded: OpenModel, text: str) -> str:
    """The user's ``text`` as it stands in a prompt: none of its marks is the model's."""
    return loaded.marks.sub(lambda match: match[0] + BREAK, text.replace(BREAK, ""))


def teach(tokenizer: Any) -> None:
    """Let a fast tokenizer take :data:`BREAK` out of what it reads, behind its marks.

    Marks that are looked for behind the normalizer stay broken, by a space.
    """
    from tokenizers import normalizers

    forget(tokenizer)
    backend = tokenizer.backend_tokenizer
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
    """Words that a tokenizer turns into its token for all it does not know.

    Attributes:
        prompts: how many of the texts hold one.
        of: how many texts there are.
        tokens: how many tokens say nothing, in all of them.
        examples: some of the words, in the order in which they come.
    """

    prompts: int
    of: int
    tokens: int
    examples: tuple[str, ...]

    def told(self, name: str) -> str:
        """A warning in one line about the model ``name``; empty if there are none."""
        if not self.tokens:
            return ""
        some = ", ".join(map(repr, self.examples))
        return (
            f"warning: {name} does not know all words: {self.prompts} of {self.of} prompts hold "
            f"{self.tokens} tokens that it reads as unknown, such as {some}"
        )


def unknown_words(loaded: OpenModel, texts: Iterable[str], most: int = 5) -> Unknown:
    """Count what the tokenizer does not know in users' ``texts``.

    Args:
        loaded: whose tokenizer.
        texts: as they are given to :func:`sally_anne.models.prompts.reply_prompt`.
        most: examples kept.
    """
    said = Counter(plain(loaded, text) for text in texts)
    unknown = loaded.processor.tokenizer.unk_token_id
    if unknown is None:
        return Unknown(0, said.total(), 0, ())
    prompts = tokens = 0
    examples: dict[str, None] = {}
    for text, times in said.items():
        read = loaded.processor.tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True
        )
        pairs = zip(read["input_ids"], read["offset_mapping"], strict=True)
        places = [place for token, place in pairs if token == unknown]
        prompts += times * bool(places)
        tokens += times * len(places)
        for start, end in places if len(examples) < most else ():
            examples[text[start:end].replace(BREAK, "")] = None
    return Unknown(prompts, said.total(), tokens, tuple(examples)[:most])
