"""One client of a chat endpoint: asked with patience, every reply kept as soon as it is there."""

from __future__ import annotations

import hashlib
import json
import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cached_property, partial
from multiprocessing import TimeoutError
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import httpx

from sally_anne.core.errors import HarnessError
from sally_anne.core.folder import Journal
from sally_anne.harness.endpoint.address import HIDDEN, checked, checked_key, public, secrets
from sally_anne.harness.endpoint.limits import Budget, Pace
from sally_anne.harness.endpoint.replies import (
    Refused,
    Said,
    Unanswered,
    read_completion,
    read_refusal,
    usage_of,
)

# They log addresses whole, with the keys in them.
for _name in ("httpx", "httpcore"):
    logging.getLogger(_name).setLevel(logging.WARNING)

# Greedy, as far as an endpoint can.
GREEDY: Mapping[str, Any] = {"temperature": 0}
# Seconds between tries at most; an endpoint that asks for more is left alone.
LONGEST_PAUSE = 60.0
LONGEST_WAIT = 600.0
_LARGEST_ANSWER = 4 << 20
_KEPT = "Replies so far are kept: the same command goes on from there"

Messages = Sequence[Mapping[str, Any]]


class Endpoint:
    """Asks a model behind an address, from several threads where that is wanted.

    Its ``url`` may end in ``/chat/completions`` or not. The ``key``, sent as a bearer token, is
    never written anywhere, also where an endpoint repeats it, and no more are secrets of the
    address, see :func:`sally_anne.harness.endpoint.address.public`.

    Args:
        fields: further fields of a request; None as a value leaves a field out.
        timeout: seconds of one try, from beginning to end.
        tries: of one request; what cannot pass by itself is not tried again.
        pause: seconds before the second try, doubled from try to try. Where the endpoint says how
            long to wait (Retry-After), nothing is asked before that.
        rate: requests a minute at most, tries included.
        prices: of a million tokens read and written, in the unit of the budget.
        budget: of the run, which several endpoints may share.
    """

    def __init__(
        self,
        url: str,
        model: str,
        key: str = "",
        *,
        fields: Mapping[str, Any] | None = None,
        timeout: float = 120.0,
        tries: int = 6,
        pause: float = 1.0,
        rate: float | None = None,
        prices: tuple[float, float] | None = None,
        budget: Budget | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = checked(url)
        self.url = public(self._url)
        if not model.strip():
            raise HarnessError("an endpoint needs the name of a model there")
        if tries < 1 or not timeout > 0 or not pause >= 0:
            raise HarnessError(
                f"an endpoint needs at least one try and positive times, got {tries} tries, a "
                f"timeout of {timeout} s and a pause of {pause} s"
            )
        self._key = checked_key(key)
        self.model, self.timeout, self.tries, self.pause = model, timeout, tries, pause
        self.fields = {**GREEDY, **(fields or {})}
        self.prices, self.budget = prices, budget or Budget()
        if self.budget.limit is not None and prices is None:
            raise HarnessError(f"a spending limit needs the prices of {model}")
        self._pace = Pace(rate, sleep, clock)
        self._secrets = secrets(self._url, self._key)
        self._journal: Journal | None = None
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self.tokens = [0, 0]  # read and written, as far as replies report it
        self.requests = 0

    @property
    def about(self) -> dict[str, Any]:
        """What its replies depend on."""
        return {"endpoint": self.url, "endpoint_model": self.model, "fields": self.fields}

    @property
    def usage(self) -> dict[str, Any]:
        """What it was asked and has cost, earlier runs of the folder included."""
        cost = None if self.prices is None else self._cost(self.tokens)
        read, written = self.tokens
        return {"requests": self.requests, "read": read, "written": written, "cost": cost}

    @contextmanager
    def keeping(self, path: Path) -> Iterator[None]:
        """Keep each reply in a journal as soon as it is there; what it holds is not asked again."""
        with Journal(path, self.about) as journal:
            for line in journal.answers.values():
                self._count(line["usage"])
            self._journal = journal
            try:
                yield
            finally:
                self._journal = None

    def ask(self, requests: Sequence[Messages], at_once: int = 1, **fields: Any) -> list[Said]:
        """The reply to each list of messages, up to ``at_once`` of them asked at the same time.

        ``fields`` are of these requests alone. Of several that fail the first is raised, once
        those under way have ended and are kept.
        """
        bodies = [self._body(messages, fields) for messages in requests]
        keys = [hashlib.sha256(body.encode()).hexdigest() for body in bodies]
        found: dict[str, Said] = {}
        todo: dict[str, str] = {}
        for key, body in zip(keys, bodies, strict=True):
            if self._journal is not None and (line := self._journal.answers.get(key)):
                found[key] = Said.from_line(line)
            else:
                todo[key] = body  # the same request is made once
        self._stopped.clear()
        if at_once == 1 or len(todo) < 2:
            found |= {key: self._one(key, body) for key, body in todo.items()}
        else:
            with ThreadPoolExecutor(at_once) as pool:
                jobs = {key: pool.submit(self._one, key, body) for key, body in todo.items()}
                try:
                    wait(jobs.values(), return_when=FIRST_EXCEPTION)
                finally:
                    self._stopped.set()
                    pool.shutdown(cancel_futures=True)
            done = [job for job in jobs.values() if not job.cancelled()]
            for job in done:
                if (error := job.exception()) is not None and not isinstance(error, _Stopped):
                    raise error
            found |= {key: job.result() for key, job in jobs.items()}
        return [found[key] for key in keys]

    def _body(self, messages: Messages, fields: Mapping[str, Any]) -> str:
        # What the user gives goes before what a caller asks for: some models know another name
        # for a field, or none.
        every = {**GREEDY, **fields, **self.fields, "model": self.model, "messages": messages}
        # In ASCII: replies may hold what UTF-8 cannot.
        return json.dumps({name: value for name, value in every.items() if value is not None})

    def _one(self, key: str, body: str) -> Said:
        """The reply to one request, after as many tries as it takes; it is kept."""
        pause = 0.0
        for number in range(1, self.tries + 1):
            self.budget.begin()
            try:
                self._pace.wait(pause)
                if self._stopped.is_set():
                    raise _Stopped
                said = self._read(_within(self.timeout, partial(self._post, body)))
                self._keep(key, said)
                break
            except Unanswered as problem:
                self._keep_cost(f"{key} {number}", problem.usage)
                pause = min(self.pause * 2 ** (number - 1), LONGEST_PAUSE)
                wanted = problem.wait
                shown = self._without_secrets(str(problem))
                if number == self.tries or wanted > LONGEST_WAIT:
                    tries = f"{number} tries" if number > 1 else "1 try"
                    asks = f"; it asks to wait {wanted:.0f} s" if wanted > LONGEST_WAIT else ""
                    raise HarnessError(
                        f"{self.model} at {self.url} does not answer ({shown}; {tries}{asks}). "
                        f"{_KEPT}"
                    ) from None
                if wanted:
                    self._pace.hold(wanted)
            finally:
                self.budget.end()
        if self.budget.limit is not None and said.usage is None:
            raise HarnessError(
                f"{self.model} at {self.url} does not say how many tokens a reply took, so that "
                f"--endpoint-limit cannot be kept; leave it out. {_KEPT}"
            )
        return said

    def _keep(self, key: str, said: Said) -> None:
        with self._lock:
            self._count(said.usage)
            if self._journal is not None:
                self._journal.add([{"item_id": key, **said.line()}])

    def _keep_cost(self, key: str, usage: tuple[int, int] | None) -> None:
        """What a reply cost that could not be used."""
        if usage is not None:
            with self._lock:
                self._count(usage)
                if self._journal is not None:
                    self._journal.add([{"item_id": key, "usage": usage}])

    def _count(self, usage: Sequence[int] | None) -> None:
        self.requests += 1
        if usage is not None:
            self.tokens = [self.tokens[0] + usage[0], self.tokens[1] + usage[1]]
            self.budget.add(self._cost(usage))

    def _cost(self, usage: Sequence[int]) -> float:
        prices = self.prices or (0.0, 0.0)
        return sum(tokens * price for tokens, price in zip(usage, prices, strict=True)) / 1e6

    @cached_property
    def _http(self) -> httpx.Client:
        try:
            # Redirects are not followed: they would take the key to another address.
            return httpx.Client(
                timeout=self.timeout,
                verify=ssl.create_default_context(),  # the system's authorities, not a package's
                limits=httpx.Limits(max_connections=None),
            )
        except (ImportError, ValueError) as error:
            raise HarnessError(
                f"the endpoint's proxy, of the environment: {self._without_secrets(str(error))}"
            ) from None

    def _post(self, body: str) -> tuple[httpx.Response, bytes]:
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        data = b""
        try:
            with self._http.stream("POST", self._url, content=body, headers=headers) as response:
                for part in response.iter_bytes():
                    data += part
                    if len(data) > _LARGEST_ANSWER:
                        raise Unanswered(f"an answer of more than {_LARGEST_ANSWER >> 20} MiB")
        # An answer that stops midway as well: timeouts, closed connections, broken chunks.
        except httpx.HTTPError as error:
            raise Unanswered(str(error) or type(error).__name__) from None
        # A host name that cannot be one.
        except (ValueError, httpx.InvalidURL) as error:
            raise HarnessError(
                f"{self.url!r} is no address of an endpoint ({self._without_secrets(str(error))})"
            ) from None
        return response, data

    def _read(self, answer: tuple[httpx.Response, bytes]) -> Said:
        response, data = answer
        # Secrets go first: a message that is cut may end within one.
        text = self._without_secrets(data.decode(errors="replace"))
        if response.is_success:
            try:
                return read_completion(data, self._without_secrets)
            except Unanswered as problem:
                problem.usage = usage_of(data)
                raise
        try:
            return read_refusal(response.status_code, response.headers, text)
        except Refused as refused:
            status = f"HTTP {response.status_code} {response.reason_phrase}"
            said = f": {refused}" if str(refused) else ""
            raise HarnessError(
                f"{self.model} at {self.url} refuses: {self._without_secrets(status)}{said}. "
                f"Check the address, the model's name, the key and the fields. {_KEPT}"
            ) from None

    def _without_secrets(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text


class _Stopped(Exception):
    """Another request has failed, so that this one is not made."""


def _within(seconds: float, work: Callable[[], Any]) -> Any:
    """What ``work`` gives in this time; a socket's own timeout starts anew with each byte.

    If the time is over, the work goes on in its thread, which ends with the process.
    """
    pool = ThreadPool(1)
    found = pool.apply_async(work)
    pool.close()
    try:
        return found.get(seconds)
    except TimeoutError:
        raise Unanswered("timed out") from None
