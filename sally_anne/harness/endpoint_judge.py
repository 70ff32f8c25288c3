"""A judge behind an address that speaks the OpenAI chat-completions protocol."""

from __future__ import annotations

import json
import logging
import os
import ssl
import time
import urllib.parse
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing import TimeoutError
from multiprocessing.pool import ThreadPool
from typing import Any

import httpx

from sally_anne.core.errors import HarnessError
from sally_anne.harness.judge import WORDS, Asked, Judge, Verdict, Words, read_verdict

# It logs addresses whole, with the keys in them.
logging.getLogger("httpx").setLevel(logging.WARNING)

PATH = "/chat/completions"
# Greedy, as far as the endpoint can.
SETTINGS: Mapping[str, Any] = {"temperature": 0, "max_tokens": 256}

_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
_LONGEST_PAUSE = 60.0
_LARGEST_ANSWER = 4 << 20
# Parts of an address that are no secrets; any other may be one.
_OPEN_FIELDS = frozenset({"api-version", "version", "model", "deployment"})
# Stands for a secret where an address or an error is shown or saved.
HIDDEN = "[hidden]"


class _Unanswered(Exception):
    """One try failed in a way that another may not; the endpoint may ask for a ``pause``."""

    def __init__(self, problem: str, pause: float = 0.0) -> None:
        super().__init__(problem)
        self.pause = pause


def _within(seconds: float, work: Callable[[], bytes]) -> bytes:
    """What ``work`` gives in this time; a socket's own timeout starts anew with each byte.

    If the time is over, the work goes on in its thread, which ends with the process.
    """
    pool = ThreadPool(1)
    found = pool.apply_async(work)
    pool.close()
    try:
        return found.get(seconds)
    except TimeoutError:
        raise _Unanswered("timed out") from None


class EndpointJudge(Judge):
    """Asks an endpoint about one reply after the other.

    Its ``url`` may end in ``/chat/completions`` or not. The ``key``, sent as a bearer token, is
    never written anywhere, also where an endpoint repeats it, and no more are secrets of the
    address, see :func:`public`. ``timeout`` is of one try from beginning to end, ``pause`` before
    the second one, in seconds; it doubles from try to try. ``settings`` are further fields of the
    request, such as temperature; None leaves a field out.
    """

    def __init__(
        self,
        url: str,
        model: str,
        key: str = "",
        *,
        words: Words = WORDS,
        timeout: float = 60.0,
        tries: int = 5,
        pause: float = 1.0,
        settings: Mapping[str, Any] = SETTINGS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(words)
        self._url = _checked(url)
        self.url = public(self._url)
        if not model.strip():
            raise HarnessError("a judge at an endpoint needs the name of a model there")
        if tries < 1 or not timeout > 0 or not pause >= 0:
            raise HarnessError(
                f"a judge needs at least one try and positive times, got {tries} tries, a timeout "
                f"of {timeout} s and a pause of {pause} s"
            )
        self._key = key.strip()
        if not (self._key.isascii() and self._key.isprintable()) or " " in self._key:
            raise HarnessError("the judge's key holds characters that no key has")
        self.model, self.timeout, self.tries, self.pause = model, timeout, tries, pause
        self.settings = {name: value for name, value in settings.items() if value is not None}
        self._sleep = sleep
        self._secrets = _secrets(self._url, self._key)

    @classmethod
    def with_key_from(cls, variable: str, url: str, model: str, **named: Any) -> EndpointJudge:
        """A judge whose key is in the environment variable ``variable``, which must hold one."""
        key = os.environ.get(variable, "").strip()
        if not key:
            raise HarnessError(f"the environment variable {variable} holds no key for the judge")
        return cls(url, model, key, **named)

    @property
    def about(self) -> dict[str, Any]:
        place = {"judge": self.url, "judge_model": self.model, "judge_settings": self.settings}
        return place | {"judge_prompt": self.prompt_hash}

    def ask(self, questions: list[Asked]) -> list[Verdict]:
        """A verdict on each; one that cannot be read is invalid, and none has a probability."""
        texts = [self._said(self.prompt(asked)) for asked in questions]
        found = [(read_verdict(text, self.words), self._without_secrets(text)) for text in texts]
        return [Verdict(right is True, text=text, invalid=right is None) for right, text in found]

    def _said(self, prompt: str) -> str:
        """The reply to one prompt, after as many tries as it takes."""
        message = {"role": "user", "content": prompt}
        body = {**self.settings, "model": self.model, "messages": [message]}
        for number in range(1, self.tries + 1):
            try:
                return self._content(_within(self.timeout, partial(self._try, body)))
            except _Unanswered as problem:
                if number == self.tries:
                    raise HarnessError(
                        f"the judge at {self.url} does not answer ({problem}; {number} tries). "
                        "Verdicts given so far are kept: the same command goes on from there"
                    ) from None
                backoff = self.pause * 2 ** (number - 1)
                self._sleep(min(max(problem.pause, backoff), _LONGEST_PAUSE))
        raise AssertionError

    def _try(self, body: dict[str, Any]) -> bytes:
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        data = b""
        try:
            # Redirects are not followed: they would take the key to another address.
            with httpx.stream(
                "POST",
                self._url,
                content=json.dumps(body),  # in ASCII: replies may hold what UTF-8 cannot
                headers=headers,
                timeout=self.timeout,
                verify=ssl.create_default_context(),  # the system's authorities, not a package's
            ) as response:
                for part in response.iter_bytes():
                    data += part
                    if len(data) > _LARGEST_ANSWER:
                        raise _Unanswered(f"an answer of more than {_LARGEST_ANSWER >> 20} MiB")
        # An answer that stops midway as well: timeouts, closed connections, broken chunks.
        except httpx.HTTPError as error:
            raise _Unanswered(self._without_secrets(str(error)) or type(error).__name__) from error
        except ImportError as error:
            raise HarnessError(f"the judge's proxy, of the environment: {error}") from error
        # A host name that cannot be one.
        except (ValueError, httpx.InvalidURL) as error:
            raise HarnessError(
                f"{self.url!r} is no address of a judge ({self._without_secrets(str(error))})"
            ) from None
        if not response.is_success:
            raise self._refused(response, data)
        return data

    def _refused(self, response: httpx.Response, data: bytes) -> Exception:
        """What to raise for a status that is an error; some endpoints repeat the key in it."""
        problem = self._without_secrets(f"HTTP {response.status_code} {response.reason_phrase}")
        if response.status_code in _AGAIN:
            # In seconds; its other form, a date, is not read.
            wanted = response.headers.get("Retry-After", "").strip()
            seconds = wanted.isascii() and wanted.isdigit() and len(wanted) < 7
            return _Unanswered(problem, float(wanted) if seconds else 0.0)
        if said := " ".join(self._without_secrets(data.decode(errors="replace")).split())[:300]:
            problem += f": {said}"
        return HarnessError(
            f"the judge at {self.url} refuses: {problem}. Check the address, the model's name and "
            "the key"
        )

    def _content(self, data: bytes) -> str:
        """The reply's text; empty where the endpoint gives none."""
        try:
            content = json.loads(data)["choices"][0]["message"]["content"]
        # ValueError covers bad JSON and bad UTF-8.
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            said = self._without_secrets(data.decode(errors="replace"))[:200]
            raise _Unanswered(f"no chat completion but {said!r}") from error
        if not isinstance(content, str | None):
            said = self._without_secrets(str(content))[:200]
            raise _Unanswered(f"a reply that is no text but {said!r}")
        return content or ""

    def _without_secrets(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text


def public(address: str) -> str:
    """A judge's address as it is printed and saved: without name, password and secret fields."""
    rest, mark, query = address.partition("?")
    scheme, slashes, rest = rest.rpartition("://")
    host, slash, path = rest.partition("/")
    pairs = [pair.partition("=") for pair in query.partition("#")[0].split("&") if pair]
    kept = "&".join(
        f"{name}={value if name.lower() in _OPEN_FIELDS else HIDDEN}" if is_ else HIDDEN
        for name, is_, value in pairs
    )
    return f"{scheme}{slashes}{host.rpartition('@')[2]}{slash}{path}{mark}{kept}"


def _secrets(url: str, key: str) -> list[str]:
    """What must not be repeated, as it is, in an address and in JSON; the longest first."""
    fields = urllib.parse.parse_qsl(urllib.parse.urlsplit(url).query, keep_blank_values=True)
    # A field without a value may be a secret itself.
    plain = {key} | {value or name for name, value in fields if name.lower() not in _OPEN_FIELDS}
    quoted = {urllib.parse.quote(one, safe="") for one in plain}
    escaped = {json.dumps(one)[1:-1] for one in plain}
    return sorted((plain | quoted | escaped) - {""}, key=len, reverse=True)


def _checked(url: str) -> str:
    try:
        parts = urllib.parse.urlsplit(url.strip())
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        usable = False
    if not usable or not url.strip().isascii() or any(c.isspace() for c in url.strip()):
        # Nobody knows where a name and password end in it.
        shown = HIDDEN if "@" in url else public(url)
        raise HarnessError(
            f"{shown!r} is no address of a judge; it should be like https://host/v1{PATH}"
        )
    if parts.username or parts.password:
        raise HarnessError("the judge's address must not hold a name or password; use the key")
    path = parts.path.rstrip("/").removesuffix(PATH) + PATH
    return urllib.parse.urlunsplit(parts._replace(path=path, fragment=""))
