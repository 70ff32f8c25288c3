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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from models.loading import LoadedModel

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


def plain(loaded: LoadedModel, text: str) -> str:
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
