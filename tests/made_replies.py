"""Replies as a model would give them."""

from __future__ import annotations

from collections.abc import Iterable

from sally_anne.harness.model import Completion


def replied(texts: Iterable[str], ended: bool = True) -> list[Completion]:
    """Replies of these texts, come to their end or cut."""
    return [Completion(0, text, ended=ended) for text in texts]
