"""Replies as a model would give them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from sally_anne.harness.model import Completion, Prompt, SteeredModel


def replied(texts: Iterable[str], ended: bool = True) -> list[Completion]:
    """Replies of these texts, come to their end or cut."""
    return [Completion(0, text, ended=ended) for text in texts]


def scripted_replies(
    monkeypatch: pytest.MonkeyPatch, reply: Callable[[Prompt], str]
) -> list[Prompt]:
    """Let the model under evaluation reply by hand; returns its prompts as they come."""
    seen: list[Prompt] = []

    def replies(self: Any, prompts: Sequence[Prompt], max_new_tokens: int) -> list[Completion]:
        seen.extend(prompts)
        return replied(map(reply, prompts))

    monkeypatch.setattr(SteeredModel, "replies", replies)
    return seen
