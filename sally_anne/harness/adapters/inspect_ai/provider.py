"""Models of this project, steered or not, as a model provider of inspect-ai."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread
from inspect_ai.model import ChatMessage, GenerateConfig, ModelAPI, ModelOutput
from inspect_ai.tool import ToolChoice, ToolInfo

from sally_anne.core.errors import HarnessError
from sally_anne.harness.adapters.inspect_ai.batches import Batches
from sally_anne.harness.adapters.inspect_ai.conversation import prompt_of
from sally_anne.harness.adapters.inspect_ai.errors import shown_plainly
from sally_anne.harness.adapters.inspect_ai.outputs import output_of
from sally_anne.harness.adapters.inspect_ai.settings import DEFAULT_MAX_TOKENS, Settings, settings
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.harness.replies import Reply
from sally_anne.harness.vectors import open_vector, require_fits
from sally_anne.models.loading import load_model

DEFAULT_BATCH = 16


@dataclass(frozen=True)
class _Request:
    prompt: Prompt
    settings: Settings


class SallyAnneAPI(ModelAPI):
    """One model, and a vector that steers it or none.

    Replies to a batch can differ in the last bits of their log-probabilities from replies one by
    one; ``batch_size=1`` makes them independent of what else is asked.

    Args:
        model_name: catalogue name, hub id or folder.
        base_url: not taken, as the model runs here.
        api_key: not needed.
        config: inspect-ai's generation options.
        steer: folder of a steering vector; none leaves the model as it is.
        alpha: its strength; the vector's own by default.
        dtype: of the weights: auto, float32, bfloat16 or float16.
        device_map: as in accelerate, e.g. auto.
        revision: branch, tag or commit on the hub.
        batch_size: prompts that go through the model together; by default as many as inspect-ai's
            max_connections, or 16.
        frames: of a film so many frames are taken, spread evenly; all by default.
        force: steer a model that the vector was not fitted on.
        unknown: anything else is refused.

    Raises:
        PrerequisiteError: a model, vector or option that cannot be used; the message says why.
    """

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008 - inspect-ai's own signature
        steer: str | None = None,
        alpha: float | None = None,
        dtype: str = "auto",
        device_map: str | None = None,
        revision: str | None = None,
        batch_size: int | None = None,
        frames: int | None = None,
        force: bool = False,
        **unknown: Any,
    ) -> None:
        super().__init__(model_name, base_url, api_key, config=config)
        with shown_plainly():
            _check(base_url, steer, alpha, batch_size, frames, unknown)
            loaded = load_model(
                model_name, dtype, device_map, None if revision is None else str(revision)
            )
            vector = None
            if steer is not None:
                vector = open_vector(Path(str(steer)), force)
                require_fits(vector, loaded, alpha)
        self.steered = SteeredModel(loaded, vector, alpha)
        self.batch_size = batch_size
        self.frames = frames
        self._batches: Batches[_Request, Reply] = Batches(self._reply, _kind)

    async def generate(
        self,
        input: list[ChatMessage],
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput:
        """The model's reply to a conversation.

        Raises:
            HarnessError: something that the model cannot be given or asked for, named.
            ModelError: the processor dropped frames, or the weights cannot be had.
        """
        if tools:
            raise HarnessError(
                f"tools ({', '.join(tool.name for tool in tools)}): {self.model_name} calls none; "
                "choose a task or solver without tools"
            )
        loaded = self.steered.loaded
        how = settings(config, _vocabulary(loaded.config))
        # Frames are decoded in a thread: what is sent at once is read side by side.
        prompt = await anyio.to_thread.run_sync(partial(prompt_of, loaded, input, self.frames))
        most = self.batch_size or config.max_connections or DEFAULT_BATCH
        reply = await self._batches.ask(_Request(prompt, how), most)
        return output_of(reply, loaded.processor.tokenizer, self.model_name, how.top)

    def max_tokens(self) -> int | None:
        """Length of a reply where nobody says how long it may be."""
        return DEFAULT_MAX_TOKENS

    def max_connections(self) -> int:
        """As many as fill a batch."""
        return self.batch_size or DEFAULT_BATCH

    def connection_key(self) -> str:
        """Connections are counted for this model alone, not for all of this provider."""
        return f"{self.model_name}/{id(self)}"

    async def count_text_tokens(self, text: str) -> int:
        """By the model's own tokenizer; inspect-ai's default fetches one from the network."""
        tokenizer = self.steered.loaded.processor.tokenizer
        return len(tokenizer(text, add_special_tokens=False)["input_ids"])

    def close(self) -> None:
        """Let go of the weights; they are read again if they are needed."""
        with suppress(AttributeError):
            del self.steered.loaded.model

    def _reply(self, requests: Sequence[_Request]) -> list[Reply]:
        how = requests[0].settings
        prompts = [request.prompt for request in requests]
        return self.steered.replies(prompts, how.max_tokens, how.stops, how.top)


def _kind(request: _Request) -> Hashable:
    """Settings, and the shape of the clip: not every processor takes clips that differ in it."""
    clip = request.prompt.clip
    return request.settings, None if clip is None else clip.shape


def _vocabulary(config: Any) -> int:
    return int(config.get_text_config().vocab_size)


def _check(
    base_url: str | None,
    steer: str | None,
    alpha: float | None,
    batch_size: int | None,
    frames: int | None,
    unknown: dict[str, Any],
) -> None:
    if base_url is not None:
        raise HarnessError("there is no base URL for a model that runs here")
    if unknown:
        raise HarnessError(
            f"unknown model argument {next(iter(unknown))!r}; there are steer, alpha, dtype, "
            "device_map, revision, batch_size, frames and force"
        )
    for name, value in (("batch_size", batch_size), ("frames", frames)):
        whole = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and (not whole or value < 1):
            raise HarnessError(f"model argument {name} must be a number from 1, got {value!r}")
    if alpha is None:
        return
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not math.isfinite(alpha):
        raise HarnessError(f"model argument alpha must be a finite number, got {alpha!r}")
    if steer is None:
        raise HarnessError("model argument alpha is the strength of a vector: give one with steer")
