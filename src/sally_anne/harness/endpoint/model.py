"""A model behind an endpoint, asked as one that is here: prompts in, replies out."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sally_anne.core.errors import HarnessError
from sally_anne.core.processes import here
from sally_anne.harness.config import DEFAULT_BATCH
from sally_anne.harness.endpoint.address import key_from
from sally_anne.harness.endpoint.client import Endpoint, Messages
from sally_anne.harness.endpoint.limits import Budget
from sally_anne.harness.endpoint.options import request_fields
from sally_anne.harness.endpoint.replies import Said
from sally_anne.harness.model import Prompt
from sally_anne.hooks.batch_size import AUTO

# Replies of a run's endpoint, in its folder.
KEPT = "endpoint.jsonl"


class EndpointModel:
    """Asks an endpoint for replies; ``at_once`` requests are made at the same time."""

    def __init__(self, endpoint: Endpoint, at_once: int = 1) -> None:
        self.endpoint, self.at_once = endpoint, at_once

    @property
    def about(self) -> dict[str, Any]:
        """What its answers depend on, for a run's record."""
        return {**self.endpoint.about, "model": self.endpoint.model}

    def generate(self, prompts: Sequence[Prompt], max_new_tokens: int = 16) -> list[str]:
        """Replies of at most so many tokens; empty where the endpoint's filter gives none."""
        return [said.text for said in self.replies(prompts, max_new_tokens)]

    def replies(
        self, prompts: Sequence[Prompt], max_new_tokens: int = 16, **fields: Any
    ) -> list[Said]:
        """As :meth:`generate`, with all that is known of each reply."""
        requests = [messages_of(prompt) for prompt in prompts]
        return self.endpoint.ask(requests, self.at_once, max_tokens=max_new_tokens, **fields)


def messages_of(prompt: Prompt) -> Messages:
    """A user's turn: its frames as pictures, in order, then its text; a system message before."""
    if prompt.whole:
        raise HarnessError("a prompt in a model's own chat layout cannot go to an endpoint")
    if prompt.sound is not None:
        raise HarnessError("sounds cannot go to an endpoint")
    *before, asked = prompt.turns
    if prompt.clip is None:
        return [*before, asked]
    pictures = [{"type": "image_url", "image_url": {"url": data_url(f)}} for f in prompt.clip]
    content = [*pictures, {"type": "text", "text": prompt.text}]
    return [*before, {"role": "user", "content": content}]


def data_url(frame: np.ndarray) -> str:
    """A frame ``uint8 [height, width, 3]`` as a PNG in an address."""
    file = io.BytesIO()
    Image.fromarray(frame).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def open_endpoint(config: Any, budget: Budget | None = None) -> EndpointModel:
    """The model that ``--endpoint`` and its options name, see :class:`EndpointOptions`."""
    if here().count > 1:
        raise HarnessError(
            "an endpoint is asked by one process; start it without a launcher, --batch-size says "
            "how many requests are made at the same time"
        )
    endpoint = Endpoint(
        config.endpoint,
        config.endpoint_model,
        key_from(config.endpoint_key, "--endpoint-key"),
        fields=request_fields(config),
        timeout=config.endpoint_timeout,
        rate=config.endpoint_rate,
        prices=config.endpoint_prices,
        budget=budget or Budget(config.endpoint_limit),
    )
    size = config.batch_size
    return EndpointModel(endpoint, DEFAULT_BATCH if size == AUTO else size)


def open_second(config: Any, role: str, budget: Budget) -> EndpointModel:
    """A run's second model at an address: what ``--judge`` and its options would name."""
    endpoint = Endpoint(
        getattr(config, role),
        getattr(config, f"{role}_model"),
        key_from(getattr(config, f"{role}_key"), f"--{role}-key"),
        fields=request_fields(config),
        timeout=config.endpoint_timeout,
        rate=config.endpoint_rate,
        prices=getattr(config, f"{role}_prices"),
        budget=budget,
    )
    size = config.batch_size
    return EndpointModel(endpoint, DEFAULT_BATCH if size == AUTO else size)


def kept_in(folder: Path, role: str = "") -> Path:
    """The journal of an endpoint's replies; ``role`` tells those of one run apart."""
    return folder / (f"{role}_{KEPT}" if role else KEPT)


def said_usage(role: str, usage: Mapping[str, Any]) -> str:
    """One line: what was asked of an endpoint in a run folder, and what it cost."""
    cost = "" if usage["cost"] is None else f", {usage['cost']:.4f} spent"
    return (
        f"endpoint of the {role}: {usage['requests']:,} replies, {usage['read']:,} tokens read, "
        f"{usage['written']:,} written{cost}"
    )
