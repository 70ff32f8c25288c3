"""Replies as a model would give them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from sally_anne.harness.config import EvalConfig
from sally_anne.harness.evaluate import evaluate
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


def evaluated(config: EvalConfig) -> tuple[pd.DataFrame, dict[str, Any], str]:
    """The answers and results that an evaluation saves, and what it prints."""
    printed = io.StringIO()
    evaluate(config, console=Console(file=printed, width=160))
    table = pd.read_parquet(config.folder / "answers.parquet")
    return table, json.loads((config.folder / "results.json").read_text()), printed.getvalue()
