"""A model behind an address that speaks the OpenAI chat-completions protocol.

It is asked and parsed as any other; there is no way to its inside, so that it is neither steered
nor captured, and its options have no probabilities. The ``openai`` client retries and waits.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import logging
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import openai
from PIL import Image

from sally_anne.core.errors import HarnessError
from sally_anne.core.folder import Journal
from sally_anne.core.processes import AUTO, here
from sally_anne.harness.config import (
    CHAT_PATH,
    DEFAULT_BATCH,
    checked_address,
    key_from,
    request_fields,
)
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.models.loading import load_model

# They log addresses whole, with the keys in them.
for _name in ("httpx", "httpx2", "httpcore", "openai"):
    logging.getLogger(_name).setLevel(logging.WARNING)

# Greedy, as far as an endpoint can.
GREEDY: Mapping[str, Any] = {"temperature": 0}
FILTERED, CUT = "content_filter", "length"
# Completions of a run's endpoint, in its folder.
FILE = "endpoint.jsonl"
# Seconds that a try waits.
TIMEOUT = 120.0
_FILTER_CODES = {FILTERED, "content_policy_violation", "ResponsibleAIPolicyViolation"}
_KEPT = "Replies so far are kept: the same command continues from there"
# Tries of a request whose answer is no chat completion; the client counts its own of failures.
_TRIES = 3

Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class ChatCompletion:
    """One reply; empty where the endpoint's filter holds the question back."""

    text: str
    finish: str = ""  # why it ended: stop, length, content_filter
    usage: Sequence[int] = ()  # tokens read and written, where it says so
    first: Mapping[str, float] | None = None  # log-probabilities of the likeliest first tokens

    @property
    def ended(self) -> bool:
        return self.finish != CUT


class ChatEndpoint:
    """Asks a model behind an address; ``at_once`` requests are made at the same time.

    The key is never written anywhere, also where an endpoint repeats it.

    Args:
        url: may end in ``/chat/completions`` or not.
        fields: further fields of a request; None as a value leaves a field out.
        rate: requests a minute at most, retries aside.
        limit: tokens that this endpoint may read and write in a run folder.
    """

    def __init__(
        self,
        url: str,
        model: str,
        key: str = "",
        *,
        fields: Mapping[str, Any] | None = None,
        rate: float | None = None,
        limit: float | None = None,
        at_once: int = 1,
    ) -> None:
        whole = urllib.parse.urlsplit(checked_address(url))
        self.url, self.model = whole.geturl(), model
        self.fields = {**GREEDY, **(fields or {})}
        self.limit, self.at_once = limit, at_once
        self._headers = {} if key else {"Authorization": openai.Omit()}
        self._key = key
        self._client = openai.OpenAI(
            base_url=whole._replace(path=whole.path.removesuffix(CHAT_PATH), query="").geturl(),
            api_key=key or "none",
            default_query=dict(urllib.parse.parse_qsl(whole.query, keep_blank_values=True)),
            timeout=TIMEOUT,
            max_retries=5,
            # A redirect would take the key to another address.
            http_client=openai.DefaultHttpxClient(follow_redirects=False),
        )
        self._pause, self._next = 60.0 / rate if rate else 0.0, time.monotonic()
        self._journal: Journal | None = None
        self._kept: dict[str, ChatCompletion] = {}
        self._lock = threading.Lock()

    @property
    def about(self) -> dict[str, Any]:
        place = {"endpoint": self.url, "endpoint_model": self.model, "fields": self.fields}
        return {**place, "model": self.model}

    @contextmanager
    def keeping(self, folder: Path, role: str = "") -> Iterator[None]:
        """Keep each reply in a journal of the folder at once; what it holds is not asked again."""
        names = ChatCompletion.__dataclass_fields__
        with Journal(folder / (f"{role}_{FILE}" if role else FILE), self.about) as journal:
            self._kept = {
                key: ChatCompletion(**{name: line[name] for name in names})
                for key, line in journal.answers.items()
            }
            self._journal = journal
            try:
                yield
            finally:
                self._journal = None

    def generate(self, prompts: Sequence[Prompt], max_new_tokens: int = 16) -> list[str]:
        """Replies of at most so many tokens; empty where the endpoint's filter gives none."""
        return [reply.text for reply in self.replies(prompts, max_new_tokens)]

    def replies(
        self, prompts: Sequence[Prompt], max_new_tokens: int = 16, **fields: Any
    ) -> list[ChatCompletion]:
        """``fields`` are of these requests alone; the same request is made once.

        Of several that fail the first is raised, once those under way have ended and are kept.
        """
        # What the user gives goes before what a caller asks for: some models know another name
        # for a field, or none.
        every = {**GREEDY, "max_tokens": max_new_tokens, **fields, **self.fields}
        shared = {name: value for name, value in every.items() if value is not None}
        bodies = [{**shared, "model": self.model, "messages": messages_of(p)} for p in prompts]
        keys = [hashlib.sha256(json.dumps(body).encode()).hexdigest() for body in bodies]
        todo = {k: one for k, one in zip(keys, bodies, strict=True) if k not in self._kept}
        while todo:
            some = [*todo][: self._affords(len(todo))]
            with ThreadPoolExecutor(self.at_once) as pool:
                jobs = [pool.submit(self._one, key, todo.pop(key)) for key in some]
                wait(jobs, return_when=FIRST_EXCEPTION)
                pool.shutdown(cancel_futures=True)
            for job in jobs:
                if not job.cancelled():
                    job.result()
        return [self._kept[key] for key in keys]

    def _affords(self, many: int) -> int:
        """How many of so many requests may begin: each may take as many tokens as any so far."""
        if self.limit is None:
            return many
        spent = [sum(reply.usage or ()) for reply in self._kept.values()]
        most, left = max(spent, default=0), self.limit - sum(spent)
        if left < max(most, 1):
            raise self._failed(
                f"may take {self.limit:g} tokens (--endpoint-limit): {sum(spent)} are taken, and a "
                f"request takes up to {most}; raise it to go on"
            )
        return min(many, self.at_once, int(left // most)) if most else 1

    def _one(self, key: str, body: Mapping[str, Any]) -> None:
        for _ in range(_TRIES):
            with self._lock:
                begin = max(self._next, time.monotonic())
                self._next = begin + self._pause
            time.sleep(max(0.0, begin - time.monotonic()))
            text = self._post(body)
            if reply := ChatCompletion("", FILTERED) if text is None else self._read(text):
                break
        else:
            raise self._failed(f"does not answer with a chat completion but {text!r:.200}")
        with self._lock:
            if self._journal is not None:
                self._journal.add([{"item_id": key, **asdict(reply)}])
            self._kept[key] = reply
        if self.limit is not None and not reply.usage:
            raise self._failed("does not say how many tokens a reply took: omit --endpoint-limit")

    def _failed(self, why: str) -> HarnessError:
        return HarnessError(self._clean(f"{self.model} at {self.url} {why}. {_KEPT}"))

    def _post(self, body: Mapping[str, Any]) -> str | None:
        """The text of the answer; None where the endpoint's filter holds the question back."""
        create = self._client.chat.completions.with_raw_response.create
        try:
            # The messages, too, are of the body, which goes before.
            answer = create(model="", messages=[], extra_body=body, extra_headers=self._headers)
            return answer.http_response.text
        except openai.APIStatusError as error:
            words = self._clean(error.response.text or error.message)
            if error.status_code == 400 and any(f'"{code}"' in words for code in _FILTER_CODES):
                return None
            raise self._failed(f"refuses: HTTP {error.status_code}, {words[:300]}") from None
        except openai.OpenAIError as error:
            raise self._failed(f"does not answer ({error} {error.__cause__ or ''})") from None

    def _read(self, text: str) -> ChatCompletion | None:
        try:
            completion = json.loads(text)
            usage = completion.get("usage") or {}
            used = (usage["prompt_tokens"], usage.get("completion_tokens", 0)) if usage else ()
            choice = completion["choices"][0]
            content = choice["message"].get("content") or choice["message"].get("refusal") or ""
            finish = str(choice.get("finish_reason") or "")
            return ChatCompletion(self._clean(content + ""), finish, used, self._first(choice))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None

    def _first(self, choice: Mapping[str, Any]) -> dict[str, float] | None:
        """The likeliest first tokens; of tokens with the same text the likelier counts."""
        try:
            top = choice["logprobs"]["content"][0]["top_logprobs"]
            pairs = sorted((float(one["logprob"]), self._clean(one["token"])) for one in top)
            return {token: value for value, token in pairs}
        except (LookupError, TypeError):
            return None

    def _clean(self, text: str) -> str:
        """Without the key, as it is and in JSON."""
        for secret in {self._key, json.dumps(self._key)[1:-1]} - {""}:
            text = text.replace(secret, "[hidden]")
        return text


# A model here, or one at an address.
AnyModel = SteeredModel | ChatEndpoint


def messages_of(prompt: Prompt) -> Messages:
    """A user's turn: its frames as PNGs, in order, then its text; a system message before."""
    if prompt.whole or prompt.sound is not None:
        what = "prompts in a model's own chat layout" if prompt.whole else "sounds"
        raise HarnessError(f"{what} cannot go to an endpoint")
    *before, user = prompt.turns
    if prompt.clip is None:
        return [*before, user]
    content: list[dict[str, Any]] = []
    for frame in prompt.clip:
        file = io.BytesIO()
        Image.fromarray(frame).save(file, "PNG")
        url = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
        content.append({"type": "image_url", "image_url": {"url": url}})
    return [*before, {"role": "user", "content": [*content, {"type": "text", "text": prompt.text}]}]


def open_endpoint(config: Any, role: str = "endpoint") -> ChatEndpoint:
    """The model that ``--endpoint`` and its options name, or a run's second model.

    ``role`` is the option with its address (judge, perceiver), and begins its other options' names.
    """
    if here().count > 1:
        raise HarnessError("an endpoint is asked by one process; start it without a launcher")
    return ChatEndpoint(
        getattr(config, role),
        getattr(config, f"{role}_model"),
        key_from(getattr(config, f"{role}_key"), f"--{role}-key"),
        fields=request_fields(config),
        rate=config.endpoint_rate,
        limit=config.endpoint_limit,
        at_once=DEFAULT_BATCH if config.batch_size == AUTO else config.batch_size,
    )


def open_second(config: Any, role: str, videos: bool = False, **opening: Any) -> AnyModel:
    """The model that the option ``role`` names: at an address, or opened here as the run's own."""
    name = getattr(config, role)
    if "://" in name:
        return open_endpoint(config, role)
    own = config.opening() | {"name": name, "revision": None, "prompt": "auto"} | opening
    if not videos:
        own |= {"max_pixels": None, "crop": False}
    return SteeredModel(load_model(**own, videos=videos))
