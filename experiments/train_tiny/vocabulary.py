"""Word-level vocabulary and tokenizer of the tiny models, shared by both families."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from sally_anne.benchmarks.gridtom.narration import (
    Cast,
    caption,
    environment,
    first_order,
    initial_questions,
    second_order,
)
from sally_anne.benchmarks.gridtom.world import COLOURS

SIZE = 320
PAD, UNK, BOS, EOS = "<pad>", "<unk>", "<s>", "</s>"
QWEN_SPECIALS = (
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
LLAVA_SPECIALS = ("<image>", "<video>")
SPECIALS = (PAD, UNK, BOS, EOS, *QWEN_SPECIALS, *LLAVA_SPECIALS)

# Words of the training documents beside the stories, of the chat layouts, and of the official
# release's captions and questions (known to the tokenizer, though not trained).
_MORE_WORDS = """
user assistant system : ; ! ? . , - ( ) [ ] { } " ' / 0 1 2 3 4 5 6 7 8 9 belief really right
wrong role last second middle is goes stays question answer choose one or was sees hears then so
it can now here there they he she his her true false yes no a b c d e none not know which what
where who how many much initially stands walks towards enters behind itself throughout time over
does do did close open opened closed shut therefore everything cannot anything happening very
color should be thinks inside outside unable able to video story proceeds follows as just from
following colors room grid 2d viewed consisting represents wall cannot penetrated borders
represent corridor floor own triangles representing agents while same at however that exact
moment because of this timing actually leaving before after will has have had been with without
frame picture shows show please only and the an in on for by if then else more most likely least
"""


def words_of(texts: Iterable[str]) -> list[str]:
    """Lower-case words and punctuation marks, as the tokenizer cuts them, in order of sight."""
    seen: dict[str, None] = {}
    for text in texts:
        for word in re.findall(r"\w+|[^\w\s]+", text.lower()):
            seen.setdefault(word)
    return list(seen)


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Tokenizer whose words are those of the stories and of the training documents.

    Raises:
        ValueError: the words do not fit in :data:`SIZE`.
    """
    cast = Cast(*COLOURS[:5])
    texts = [*COLOURS, environment(COLOURS[:3])]
    texts += [
        caption(cast, first, second, perspective)
        for perspective in ("omniscient", "protagonist", "participant")
        for first in ("TB", "FB")
        for second in (None, "TB", "FB")
    ]
    texts += [q.question for q in initial_questions(cast, COLOURS[:3], (0, 1, 2, 3))]
    for belief in (first_order(cast, cast.last_room), second_order(cast, cast.last_room)):
        texts += [belief.question, belief.statement_true, belief.statement_false]
    words = [*SPECIALS, *(w for w in words_of([*texts, _MORE_WORDS]) if w not in SPECIALS)]
    if len(words) > SIZE:
        raise ValueError(f"{len(words)} words do not fit in a vocabulary of {SIZE}")
    words += [f"<reserved_{i}>" for i in range(SIZE - len(words))]
    core = Tokenizer(WordLevel({w: i for i, w in enumerate(words)}, unk_token=UNK))
    core.normalizer = Lowercase()
    core.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        unk_token=UNK,
        bos_token=BOS,
        eos_token=EOS,
        additional_special_tokens=[*QWEN_SPECIALS, *LLAVA_SPECIALS],
        padding_side="left",
        model_max_length=2048,
    )
