"""Models of this project, steered or not, as a model provider of inspect-ai."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import anyio
import anyio.to_thread
from inspect_ai.model import ChatMessage, GenerateConfig, ModelAPI, ModelOutput
from inspect_ai.tool import ToolChoice, ToolInfo

from sally_anne.core.errors import HarnessError
from sally_anne.harness.adapters.common import open_steered, whole
from sally_anne.harness.adapters.inspect_ai.messages import output_of, prompt_of
from sally_anne.harness.adapters.inspect_ai.task import shown_plainly
from sally_anne.harness.model import Completion, Prompt

DEFAULT_BATCH = 16


_Request = tuple[Prompt, "Settings"]


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

    ``top`` is how many likeliest tokens are reported at each place; None for no log-probabilities.
    """

    max_tokens: int
    stops: tuple[str, ...]
    top: int | None


def settings(config: GenerateConfig, vocabulary: int) -> Settings:
    """What a config asks of a model with this vocabulary; a HarnessError names what cannot be.

    Decoding is greedy: it draws nothing, so ``seed``, ``top_p`` and ``top_k`` change nothing.
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


class SallyAnneAPI(ModelAPI):
    """One model, and a vector that steers it or none.

    Replies to a batch can differ in the last bits of their log-probabilities from replies one by
    one; ``batch_size=1`` makes them independent of what else is asked.

    Args:
        model_name: catalogue name, hub id or folder.
        steer, alpha, allow_mismatch, options: as of
            :func:`sally_anne.harness.adapters.common.open_steered`.
        batch_size: prompts that go through the model together; by default as many as inspect-ai's
            max_connections, or 16.
        frames: of a video so many frames are taken, spread evenly; all by default.
    """

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008 - inspect-ai's own signature
        steer: str | None = None,
        alpha: float | None = None,
        batch_size: int | None = None,
        frames: int | None = None,
        allow_mismatch: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(model_name, base_url, api_key, config=config)
        with shown_plainly():
            if base_url is not None:
                raise HarnessError("there is no base URL for a model that runs here")
            for name, value in (("batch_size", batch_size), ("frames", frames)):
                if value is not None:
                    whole(name, value)
            self.steered = open_steered(model_name, options, steer, alpha, allow_mismatch)
        self.batch_size = batch_size
        self.frames = frames
        # Settings, and the shape of the clip: not every processor takes clips that differ in it.
        self._batches: Batches[_Request, Completion] = Batches(
            self._reply, lambda request: (request[1], request[0].shape)
        )

    async def generate(
        self,
        input: list[ChatMessage],
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput:
        if tools:
            raise HarnessError(
                f"tools ({', '.join(tool.name for tool in tools)}): {self.model_name} calls none; "
                "choose a task or solver without tools"
            )
        loaded = self.steered.loaded
        how = settings(config, int(loaded.config.get_text_config().vocab_size))
        # Frames are decoded in a thread: what is sent at once is read side by side.
        prompt = await anyio.to_thread.run_sync(partial(prompt_of, loaded, input, self.frames))
        most = self.batch_size or config.max_connections or DEFAULT_BATCH
        reply = await self._batches.ask((prompt, how), most)
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

    def _reply(self, requests: Sequence[_Request]) -> list[Completion]:
        how = requests[0][1]
        prompts = [prompt for prompt, _ in requests]
        return self.steered.replies(prompts, how.max_tokens, how.stops, how.top)


Request = TypeVar("Request")


Result = TypeVar("Result")


# For how long nothing must have come before a batch goes off that is not full, in seconds.
QUIET = 0.05


class Batches(Generic[Request, Result]):
    """Gathers requests; one batch is at work at a time, in a thread of its own.

    While it is, others wait, and the first of them takes along all of its ``kind`` that have come
    by then. There is no background task, so nothing is left running when a request is cancelled.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Request]], Sequence[Result]],
        kind: Callable[[Request], Hashable],
    ) -> None:
        self._work = work
        self._kind = kind
        self._waiting: dict[Future[Result], Request] = {}
        self._turn = anyio.Lock()

    async def ask(self, request: Request, most: int) -> Result:
        """The result of one request, in a batch of ``most``; or what its work alone raises."""
        outcome: Future[Result] = Future()
        self._waiting[outcome] = request
        try:
            async with self._turn:
                if not outcome.done():
                    await self._gather(most)
                    await anyio.to_thread.run_sync(self._run, self._take(outcome, most))
        finally:
            self._waiting.pop(outcome, None)
        return outcome.result()

    async def _gather(self, most: int) -> None:
        """Wait until a batch is full, or nobody comes any more."""
        before = 0
        while before < len(self._waiting) < most:
            before = len(self._waiting)
            await anyio.sleep(QUIET)

    def _take(self, first: Future[Result], most: int) -> dict[Future[Result], Request]:
        """The first and others of its kind, in the order in which they came."""
        kind = self._kind(self._waiting[first])
        alike = [one for one, request in self._waiting.items() if self._kind(request) == kind]
        others = [one for one in alike if one is not first]
        return {one: self._waiting.pop(one) for one in [first, *others[: most - 1]]}

    def _run(self, batch: Mapping[Future[Result], Request]) -> None:
        """Do a batch; if it fails, one by one, so that nobody fails for another's fault."""
        try:
            results = self._work(list(batch.values()))
        except Exception as error:
            for outcome, request in batch.items():
                if len(batch) == 1:
                    outcome.set_exception(error)
                else:
                    self._run({outcome: request})
            return
        for outcome, result in zip(batch, results, strict=True):
            outcome.set_result(result)
