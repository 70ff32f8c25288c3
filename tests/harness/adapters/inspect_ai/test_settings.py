"""Options that a greedy model cannot honour are refused, not passed over."""

from __future__ import annotations

import pytest

pytest.importorskip("inspect_ai")

from inspect_ai.model import GenerateConfig  # noqa: E402

from sally_anne.core.errors import HarnessError  # noqa: E402
from sally_anne.harness.adapters.inspect_ai.provider import (  # noqa: E402
    DEFAULT_MAX_TOKENS,
    Settings,
    settings,
)

pytestmark = pytest.mark.plugins


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, Settings(DEFAULT_MAX_TOKENS, (), None)),
        ({"temperature": 0.0, "seed": 3, "num_choices": 1}, Settings(DEFAULT_MAX_TOKENS, (), None)),
        ({"max_tokens": 5, "stop_seqs": ["a", "b"]}, Settings(5, ("a", "b"), None)),
        ({"logprobs": True}, Settings(DEFAULT_MAX_TOKENS, (), 0)),
        ({"logprobs": True, "top_logprobs": 4}, Settings(DEFAULT_MAX_TOKENS, (), 4)),
        ({"logprobs": False}, Settings(DEFAULT_MAX_TOKENS, (), None)),
    ],
)
def test_what_is_asked_for(config, expected: Settings) -> None:
    assert settings(GenerateConfig(**config), 100) == expected


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"temperature": 0.7}, "temperature = 0.7"),
        ({"num_choices": 2}, "num_choices = 2"),
        ({"best_of": 3}, "best_of = 3"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"presence_penalty": -0.5}, "presence_penalty"),
        ({"logit_bias": {1: 2.0}}, "logit_bias"),
        ({"prompt_logprobs": 1}, "prompt_logprobs"),
        ({"modalities": ["image"]}, "modalities"),
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
        ({"stop_seqs": ["a", ""]}, "empty string"),
        ({"logprobs": True, "top_logprobs": 101}, "between 0 and 100"),
        ({"logprobs": True, "top_logprobs": -1}, "between 0 and 100"),
    ],
)
def test_what_cannot_be_honoured(config, message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        settings(GenerateConfig(**config), 100)
