"""A tokenizer in the place of a processor, for models that read and do not see."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any


class TextProcessor:
    """What a processor is to a model that sees, a tokenizer is to one that does not.

    Attributes:
        tokenizer: the model's.
        image_token, video_token: None, as nothing in a prompt stands for pictures.
    """

    image_token: None = None
    video_token: None = None

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    @property
    def chat_template(self) -> Any:
        """The tokenizer's; None if there is none."""
        return self.tokenizer.chat_template

    def apply_chat_template(self, messages: Sequence[dict[str, Any]], **options: Any) -> str:
        """Lay a conversation out; the text parts of a turn are joined, as templates expect here.

        Raises:
            ValueError: the tokenizer has no chat template.
        """
        turns = [{**turn, "content": _joined(turn["content"])} for turn in messages]
        # Templates that can open a reply with a chain of thought are told not to; others ignore it.
        return self.tokenizer.apply_chat_template(turns, **{"enable_thinking": False, **options})

    def __call__(self, text: list[str], **options: Any) -> Any:
        """Token ids and mask; some tokenizers would add types of tokens, which no decoder takes."""
        return self.tokenizer(text, return_token_type_ids=False, **options)

    def save_pretrained(self, folder: str | Path, **options: Any) -> Any:
        """Write the tokenizer's files."""
        return self.tokenizer.save_pretrained(folder, **options)


def _joined(content: str | Sequence[dict[str, str]]) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
