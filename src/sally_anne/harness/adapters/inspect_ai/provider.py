"""Models of this project, steered or not, as a model provider of inspect-ai.

Messages become prompts in the model's own chat layout; pictures and videos are files or data URIs.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import anyio
import anyio.to_thread
import numpy as np
from inspect_ai import model
from inspect_ai.tool import ToolChoice, ToolInfo

from sally_anne.core.errors import HarnessError, MediaError
from sally_anne.core.folder import fingerprint
from sally_anne.core.media import as_shown, check_file, frames_of, opened_picture
from sally_anne.data.items import Media, Sampling
from sally_anne.data.media import read_clip
from sally_anne.harness.adapters import common
from sally_anne.harness.adapters.inspect_ai.task import shown_plainly
from sally_anne.harness.model import Completion, Prompt
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prompts import reply_prompt

DEFAULT_BATCH = 16
DEFAULT_MAX_TOKENS = 256
# For how long nothing must have come before a batch goes off that is not full, in seconds.
QUIET = 0.05
# Options that would change the reply, but for None, and at one where there can be several.
_REFUSED = (
    *("temperature", "frequency_penalty", "presence_penalty", "logit_bias", "response_schema"),
    *("logprobs", "top_logprobs", "prompt_logprobs", "modalities", "num_choices", "best_of"),
)


def settings(config: model.GenerateConfig) -> common.Decoding:
    """What a config asks; a HarnessError names what cannot be.

    Decoding is greedy: it draws nothing, so ``seed``, ``top_p`` and ``top_k`` change nothing.
    """
    for name in _REFUSED:
        value = getattr(config, name, None)
        if value and not (value == 1 and name in ("num_choices", "best_of")):
            raise HarnessError(
                f"{name} = {value}: steered models decode greedily and give one reply; leave it out"
            )
    length = DEFAULT_MAX_TOKENS if config.max_tokens is None else config.max_tokens
    stops = tuple(filter(None, config.stop_seqs or ()))
    return common.Decoding(common.whole("max_tokens", length), stops)


class SallyAnneAPI(model.ModelAPI):
    """One model, and a vector that steers it or none.

    Args:
        model_name: catalogue name, hub id or folder.
        steer, alpha, allow_mismatch, options: as of
            :func:`sally_anne.harness.adapters.common.open_steered`.
        batch_size: prompts that go through the model together; by default as many as inspect-ai's
            max_connections, or 16.
        frames: so many are taken of a video, spread evenly.
    """

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: model.GenerateConfig = model.GenerateConfig(),  # noqa: B008 - their signature
        steer: str | None = None,
        alpha: float | None = None,
        batch_size: int | None = None,
        frames: int = 8,
        allow_mismatch: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(model_name, base_url, api_key, config=config)
        with shown_plainly():
            if batch_size is not None:
                common.whole("batch_size", batch_size)
            self.frames = common.whole("frames", frames)
            self.steered = common.open_steered(model_name, options, steer, alpha, allow_mismatch)
        # inspect-ai's cache knows the model's name and this, not what steers it.
        about = *sorted(self.steered.about.items()), self.frames
        self.base_url = f"sally-anne:{fingerprint(about)}"
        self.batch_size = batch_size
        # Decoding, and the shape of the clip: not every processor takes clips that differ in it.
        self._batches = Batches(self._reply, lambda request: (request[1], request[0].shape))

    async def generate(
        self,
        input: list[model.ChatMessage],
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: model.GenerateConfig,
    ) -> model.ModelOutput:
        if tools:
            raise HarnessError(f"{self.model_name} calls no tools; choose a task without them")
        loaded, how = self.steered.loaded, settings(config)
        # Pictures are decoded in a thread: what is sent at once is read side by side.
        prompt = await anyio.to_thread.run_sync(prompt_of, loaded, input, self.frames)
        most = self.batch_size or config.max_connections or DEFAULT_BATCH
        reply = await self._batches.ask((prompt, how), most)
        return output_of(reply, self.model_name)

    def max_tokens(self) -> int | None:
        return DEFAULT_MAX_TOKENS

    def max_connections(self) -> int:
        return self.batch_size or DEFAULT_BATCH

    def connection_key(self) -> str:
        return f"{self.model_name}/{id(self)}"

    async def count_text_tokens(self, text: str) -> int:
        # inspect-ai's default fetches a tokenizer from the network.
        tokenizer = self.steered.loaded.processor.tokenizer
        return len(tokenizer(text, add_special_tokens=False)["input_ids"])

    def close(self) -> None:
        # They are read again if they are needed.
        with suppress(AttributeError):
            del self.steered.loaded.model

    def _reply(self, requests: Sequence[tuple[Prompt, common.Decoding]]) -> list[Completion]:
        how = requests[0][1]
        prompts = [prompt for prompt, _ in requests]
        return self.steered.replies(prompts, how.max_new_tokens, how.until)


class Batches:
    """Requests of one ``kind`` that come at the same time, done in batches, one at a time.

    There is no background task, so nothing is left running when a request is cancelled.
    """

    def __init__(
        self, work: Callable[[Sequence[Any]], Sequence[Any]], kind: Callable[[Any], Hashable]
    ) -> None:
        self._work = work
        self._kind = kind
        self._waiting: dict[Future[Any], Any] = {}
        self._turn = anyio.Lock()

    async def ask(self, request: Any, most: int) -> Any:
        """The result of one request, in a batch of ``most``; or what its work alone raises."""
        outcome: Future[Any] = Future()
        self._waiting[outcome] = request
        try:
            async with self._turn:
                if not outcome.done():
                    # Until a batch is full, or nobody comes any more.
                    before = 0
                    while before < len(self._waiting) < most:
                        before = len(self._waiting)
                        await anyio.sleep(QUIET)
                    # In the order in which they came, but with this one among them.
                    kind = self._kind(request)
                    alike = [o for o, r in self._waiting.items() if self._kind(r) == kind]
                    taken = [outcome, *(o for o in alike if o is not outcome)][:most]
                    batch = {one: self._waiting.pop(one) for one in taken}
                    await anyio.to_thread.run_sync(self._run, batch)
        finally:
            self._waiting.pop(outcome, None)
        return outcome.result()

    def _run(self, batch: Mapping[Future[Any], Any]) -> None:
        """Do a batch; if it fails, one by one, so that nobody fails for another's fault."""
        try:
            results = self._work(list(batch.values()))
        except Exception as error:
            for outcome, request in batch.items():
                if len(batch) == 1:
                    outcome.set_exception(error)
                else:
                    self._run({outcome: request})
        else:
            for outcome, result in zip(batch, results, strict=True):
                outcome.set_result(result)


def prompt_of(
    loaded: LoadedModel, messages: Sequence[model.ChatMessage], frames: int = 8
) -> Prompt:
    """A conversation as a prompt, with the assistant's turn opened; the last message is a user's.

    What its first user shows is one clip, which stands before the words: pictures that follow one
    another, or a video, of which so many ``frames`` are taken.
    """
    turns: list[dict[str, str]] = []
    clips: list[Any] = []
    for message in messages:
        content: Any = message.content
        content = [model.ContentText(text=content)] if isinstance(content, str) else content
        first = message.role == "user" and not any(turn["role"] == "user" for turn in turns)
        kinds = {"text", "image", "video"} if first else {"text"}
        if (
            message.role not in ("system", "user", "assistant")
            or getattr(message, "tool_calls", None)
            or not {part.type for part in content} <= kinds
        ):
            raise HarnessError(
                f"a message of the {message.role}: the model takes words of system, user and "
                "assistant, pictures or a video in the user's first one, and no tool calls"
            )
        for kind, run in groupby(content, lambda part: part.type):
            if kind == "image":
                clips.append(frames_of([picture(part.image) for part in run]))
            elif kind == "video":
                clips += [video(part.video, frames) for part in run]
        words = (part.text for part in content if part.type == "text")
        turns.append({"role": message.role, "content": "".join(words)})
    if len(clips) > 1 or not turns or turns[-1]["role"] != "user":
        raise HarnessError(
            f"a conversation ends with the user and has one clip at most, this has {len(clips)}: "
            "pictures make one clip if they follow one another, without text between them"
        )
    clip = clips[0] if clips else None
    return Prompt(reply_prompt(loaded, turns, clip is not None), clip, whole=True)


def picture(reference: str) -> np.ndarray:
    """A picture, of a data URI or path, as ``uint8 [height, width, 3]``."""
    with _bytes("picture", reference) as data, opened_picture(data) as image:
        return as_shown(image)


def video(reference: str, frames: int) -> np.ndarray:
    """So many frames of a video, of a data URI or path, ``uint8 [F, height, width, 3]``."""
    with _bytes("video", reference) as data, NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        return read_clip(Media(path=Path(file.name)), "full", Sampling(count=frames)).frames


@contextmanager
def _bytes(what: str, reference: str) -> Iterator[bytes]:
    try:
        if reference.startswith("data:"):
            yield base64.b64decode(reference.partition(";base64,")[2], validate=True)
        else:
            check_file(Path(reference))
            yield Path(reference).read_bytes()
    except (MediaError, OSError, ValueError) as error:
        name = reference if len(reference) <= 60 else f"{reference[:40]}..."
        raise HarnessError(
            f"{what} {name!r}: give a file or a data URI in base64; not readable ({error})"
        ) from error


def output_of(reply: Completion, model_name: str) -> model.ModelOutput:
    """A reply with its stop reason and token counts, those of frames and the end among them."""
    output = model.ModelOutput.from_content(
        model_name, reply.text, "stop" if reply.ended else "max_tokens"
    )
    asked, said = reply.prompt_tokens, len(reply.tokens)
    output.usage = model.ModelUsage(
        input_tokens=asked, output_tokens=said, total_tokens=asked + said
    )
    return output
