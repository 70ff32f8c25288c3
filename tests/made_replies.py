"""Replies as a model would give them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from sally_anne.core.errors import HarnessError
from sally_anne.figures.draw import part_name
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.evaluate import evaluate
from sally_anne.harness.judge import JudgeRequest, JudgeResult
from sally_anne.harness.model import Completion, Prompt, SteeredModel


def replied(texts: Iterable[str], ended: bool = True) -> list[Completion]:
    """Replies of these texts, come to their end or cut."""
    return [Completion(0, text, ended=ended) for text in texts]


class Scribe:
    """Finds a reply right that is the reference; cannot make up its mind on "perhaps"."""

    about: dict[str, str] = {"judge": "made up"}  # noqa: RUF012
    model = SteeredModel(None)  # type: ignore[arg-type]

    def __init__(self, left: int = 99) -> None:
        self.batches: list[list[str]] = []
        self.left = left

    def judge(self, questions: Sequence[JudgeRequest]) -> list[JudgeResult]:
        if not self.left:
            raise HarnessError("the judge is gone")
        self.left -= 1
        self.batches.append([asked.reply for asked in questions])
        return [
            JudgeResult(False, None, "well", invalid=True)
            if asked.reply == "perhaps"
            else JudgeResult(asked.reply == asked.reference, 0.75, "TRUE")
            for asked in questions
        ]


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


def printed(work: Callable[..., Any], *given: Any, width: int = 200) -> tuple[Any, str]:
    """What a command gives of these options, and what it prints."""
    text = io.StringIO()
    found = work(*given, console=Console(file=text, width=width))
    return found, text.getvalue()


def figures_of(rows: list[dict[str, Any]], parser: str = "robust") -> dict[str, Any]:
    """Value and number of each of a parser's figures, by their names in printed tables."""
    own = (row for row in rows if row["parser"] == parser)
    return {part_name(r["part"], r["measure"]): (r["value"], r["n"]) for r in own}


def stopped_after(monkeypatch: pytest.MonkeyPatch, name: str, calls: int) -> None:
    """Let the model under evaluation be asked so often in this way, and then be interrupted."""
    own, left = getattr(SteeredModel, name), [None] * calls

    def asked(self: SteeredModel, *given: Any, **named: Any) -> Any:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return own(self, *given, **named)

    monkeypatch.setattr(SteeredModel, name, asked)


def evaluated(config: EvalConfig) -> tuple[pd.DataFrame, dict[str, Any], str]:
    """The answers and results that an evaluation saves, and what it prints."""
    _, text = printed(evaluate, config, width=160)
    table = pd.read_parquet(config.folder / "answers.parquet")
    return table, json.loads((config.folder / "results.json").read_text()), text
