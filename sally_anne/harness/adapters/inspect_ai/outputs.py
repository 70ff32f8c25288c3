"""Replies as inspect-ai's model output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessageAssistant,
    Logprob,
    Logprobs,
    ModelOutput,
    ModelUsage,
    TopLogprob,
)

from sally_anne.harness.replies import Reply


def output_of(reply: Reply, tokenizer: Any, model_name: str, top: int | None) -> ModelOutput:
    """A reply with its stop reason, token counts and log-probabilities.

    Counts and log-probabilities are of all tokens that the model said, the end token and those of
    a stop string among them; a prompt's count has the tokens that its frames take.

    Args:
        reply: what was said.
        tokenizer: the model's.
        model_name: as inspect-ai knows it.
        top: as in :class:`sally_anne.harness.adapters.inspect_ai.settings.Settings`.
    """
    message = ChatMessageAssistant(content=reply.text, model=model_name, source="generate")
    choice = ChatCompletionChoice(
        message=message,
        stop_reason="stop" if reply.ended else "max_tokens",
        logprobs=None if top is None else _logprobs(reply, tokenizer, top),
    )
    said = len(reply.tokens)
    usage = ModelUsage(
        input_tokens=reply.prompt_tokens,
        output_tokens=said,
        total_tokens=reply.prompt_tokens + said,
    )
    return ModelOutput(model=model_name, choices=[choice], usage=usage)


def _logprobs(reply: Reply, tokenizer: Any, top: int) -> Logprobs:
    content = []
    for place, token in enumerate(reply.tokens):
        before = reply.tokens[max(0, place - 1) : place]
        others = [
            TopLogprob(token=_piece(tokenizer, before, other), logprob=log_prob)
            for other, log_prob in (reply.likeliest[place] if top else ())
        ]
        content.append(
            Logprob(
                token=_piece(tokenizer, before, token),
                logprob=reply.log_probs[place],
                top_logprobs=others if top else None,
            )
        )
    return Logprobs(content=content)


def _piece(tokenizer: Any, before: Sequence[int], token: int) -> str:
    """What a token adds to the text; some tokenizers drop the space before a token alone."""
    ahead = tokenizer.decode(list(before))
    whole = tokenizer.decode([*before, token])
    return whole[len(ahead) :] if whole.startswith(ahead) else tokenizer.decode([token])
