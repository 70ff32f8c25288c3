"""What of inspect-ai's generation options a greedy model can honour."""

from __future__ import annotations

from dataclasses import dataclass

from inspect_ai.model import GenerateConfig

from sally_anne.core.errors import HarnessError

DEFAULT_MAX_TOKENS = 256
# Options that would change the reply, and the values at which they do not.
_ONLY: dict[str, tuple[object, ...]] = {
    "temperature": (None, 0),
    "num_choices": (None, 1),
    "best_of": (None, 1),
    "frequency_penalty": (None, 0),
    "presence_penalty": (None, 0),
    "logit_bias": (None, {}),
    "response_schema": (None,),
    "prompt_logprobs": (None,),
    "modalities": (None, []),
}


@dataclass(frozen=True)
class Settings:
    """How a reply is generated; requests with equal settings can share a batch.

    Attributes:
        max_tokens: its length.
        stops: strings at which it stops.
        top: how many likeliest tokens are reported at each place; None for no log-probabilities.
    """

    max_tokens: int
    stops: tuple[str, ...]
    top: int | None


def settings(config: GenerateConfig, vocabulary: int) -> Settings:
    """The settings that a config asks for.

    Decoding is greedy: it draws nothing, so ``seed``, ``top_p`` and ``top_k`` change nothing.

    Args:
        config: inspect-ai's.
        vocabulary: number of tokens that the model knows.

    Raises:
        HarnessError: names an option that cannot be honoured.
    """
    for name, harmless in _ONLY.items():
        value = getattr(config, name, None)
        if value not in harmless:
            raise HarnessError(
                f"{name} = {value}: steered models decode greedily and give one reply; leave it out"
            )
    length = DEFAULT_MAX_TOKENS if config.max_tokens is None else config.max_tokens
    if length < 1:
        raise HarnessError(f"max_tokens must be at least 1, got {length}")
    stops = tuple(config.stop_seqs or ())
    if "" in stops:
        raise HarnessError("stop_seqs: an empty string stops nothing")
    top = config.top_logprobs
    if top is not None and not 0 <= top <= vocabulary:
        raise HarnessError(f"top_logprobs must be between 0 and {vocabulary}, got {top}")
    return Settings(length, stops, (top or 0) if config.logprobs or top else None)
