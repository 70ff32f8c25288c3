"""A judge behind an address that speaks the OpenAI chat-completions protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sally_anne.harness.endpoint.client import Endpoint
from sally_anne.harness.judge import PROMPT, WORDS, Asked, Judge, Verdict, Words, read_verdict

# Greedy, as far as the endpoint can.
SETTINGS: dict[str, Any] = {"temperature": 0, "max_tokens": 256}


class EndpointJudge(Judge):
    """Asks an endpoint about replies, ``at_once`` of them at the same time.

    ``settings`` are further fields of the request; None leaves a field out. ``options`` are those
    of :class:`sally_anne.harness.endpoint.client.Endpoint`.
    """

    def __init__(
        self,
        url: str,
        model: str,
        key: str = "",
        *,
        words: Words = WORDS,
        template: str = PROMPT,
        at_once: int = 1,
        settings: Mapping[str, Any] = SETTINGS,
        **options: Any,
    ) -> None:
        super().__init__(words, template)
        self.endpoint = Endpoint(url, model, key, fields=settings, **options)
        self.at_once = at_once

    @property
    def about(self) -> dict[str, Any]:
        given = self.endpoint.fields.items()
        settings = {name: value for name, value in given if value is not None}
        place = {"judge": self.endpoint.url, "judge_model": self.endpoint.model}
        return place | {"judge_settings": settings, "judge_prompt": self.prompt_hash}

    def ask(self, questions: list[Asked]) -> list[Verdict]:
        """A verdict on each; one that cannot be read is invalid, and none has a probability."""
        requests = [[{"role": "user", "content": self.prompt(asked)}] for asked in questions]
        verdicts = []
        for said in self.endpoint.ask(requests, self.at_once):
            right = read_verdict(said.text, self.words)
            verdicts.append(Verdict(right is True, text=said.text, invalid=right is None))
        return verdicts
