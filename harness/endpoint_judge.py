"""A judge behind an address that speaks the OpenAI chat-completions protocol."""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.errors import HarnessError
from harness.verdicts import (
    WORDS,
    Asked,
    Verdict,
    Words,
    ask_where_needed,
    check_words,
    judge_prompt,
    prompt_hash,
    read_verdict,
)

PATH = "/chat/completions"
# Greedy, as far as the endpoint can.
SETTINGS: Mapping[str, Any] = {"temperature": 0, "max_tokens": 256}

_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
_LONGEST_PAUSE = 60.0
_LARGEST_ANSWER = 4 << 20


class _Unanswered(Exception):
    """One try failed in a way that another may not; ``pause`` is what the endpoint asks for."""

    def __init__(self, problem: str, pause: float | None = None) -> None:
        super().__init__(problem)
        self.pause = pause


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Redirects are errors: they would take the key to another address."""

    def redirect_request(self, *arguments: Any, **named: Any) -> None:
        return None


class EndpointJudge:
    """Asks an endpoint about one reply after the other.

    Args:
        url: of the endpoint, with or without ``/chat/completions``; http or https.
        model: which of its models.
        key: sent as a bearer token; empty for none. It is never written anywhere.
        words: for right and for wrong.
        timeout: of one try, in seconds.
        tries: for each reply.
        pause: before the second try, in seconds; it doubles from try to try.
        settings: further fields of the request, such as temperature; None leaves a field out.
        sleep: waits so many seconds.

    Raises:
        HarnessError: the address, key or numbers cannot be used.
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
        check_words(words)
        self.url = _checked(url)
        if not model.strip():
            raise HarnessError("a judge at an endpoint needs the name of a model there")
        if tries < 1 or not timeout > 0 or not pause >= 0:
            raise HarnessError(
                f"a judge needs at least one try and positive times, got {tries} tries, a timeout "
                f"of {timeout} s and a pause of {pause} s"
            )
        key = key.strip()
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise HarnessError("the judge's key holds characters that no key has")
        self.model = model
        self.words = words
        self.timeout = timeout
        self.tries = tries
        self.pause = pause
        self.settings = {name: value for name, value in settings.items() if value is not None}
        self._key = key
        self._sleep = sleep
        self._opener = urllib.request.build_opener(_NoRedirect)

    @classmethod
    def with_key_from(cls, variable: str, url: str, model: str, **named: Any) -> EndpointJudge:
        """A judge whose key is in the environment variable ``variable``.

        Raises:
            HarnessError: the variable is not set or empty; or as the class.
        """
        key = os.environ.get(variable, "").strip()
        if not key:
            raise HarnessError(f"the environment variable {variable} holds no key for the judge")
        return cls(url, model, key, **named)

    @property
    def about(self) -> dict[str, Any]:
        """What its verdicts depend on, for a journal."""
        return {
            "judge": self.url,
            "judge_model": self.model,
            "judge_settings": self.settings,
            "judge_prompt": prompt_hash(self.words),
        }

    def judge(self, questions: Sequence[Asked]) -> list[Verdict]:
        """A verdict on each; one that cannot be read is invalid, and has no probability.

        Raises:
            HarnessError: a question without a reference, or an endpoint that does not answer.
        """
        return ask_where_needed(questions, lambda asked: [self._one(a) for a in asked])

    def _one(self, asked: Asked) -> Verdict:
        text = self._said(judge_prompt(asked, self.words))
        right = read_verdict(text, self.words)
        return Verdict(right=right is True, text=text, invalid=right is None)

    def _said(self, prompt: str) -> str:
        """The reply to one prompt, after as many tries as it takes."""
        message = {"role": "user", "content": prompt}
        body = json.dumps({**self.settings, "model": self.model, "messages": [message]}).encode()
        for number in range(1, self.tries + 1):
            try:
                return _content(self._answer(body))
            except _Unanswered as problem:
                if number == self.tries:
                    raise HarnessError(
                        f"the judge at {self.url} does not answer ({problem}; {number} tries). "
                        "Verdicts given so far are kept: the same command goes on from there"
                    ) from problem
                backoff = self.pause * 2 ** (number - 1)
                self._sleep(min(max(problem.pause or 0.0, backoff), _LONGEST_PAUSE))
        raise AssertionError

    def _answer(self, body: bytes) -> bytes:
        """One try."""
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        request = urllib.request.Request(self.url, body, headers, method="POST")
        try:
            with self._opener.open(request, timeout=self.timeout) as response:
                data: bytes = response.read(_LARGEST_ANSWER + 1)
        except urllib.error.HTTPError as error:
            problem = f"HTTP {error.code} {error.reason}"
            with error:
                if error.code in _AGAIN:
                    raise _Unanswered(problem, _wanted_pause(error)) from error
                raise HarnessError(
                    f"the judge at {self.url} refuses: {problem}{self._detail(error)}. Check the "
                    "address, the model's name and the key"
                ) from error
        except urllib.error.URLError as error:
            raise _Unanswered(str(error.reason)) from error
        # An answer that stops midway: timeouts, closed connections, broken chunks.
        except (OSError, http.client.HTTPException) as error:
            raise _Unanswered(str(error) or type(error).__name__) from error
        # A host name that cannot be one.
        except ValueError as error:
            raise HarnessError(f"{self.url!r} is no address of a judge ({error})") from error
        if len(data) > _LARGEST_ANSWER:
            raise _Unanswered(f"an answer of more than {_LARGEST_ANSWER >> 20} MiB")
        return data

    def _detail(self, error: urllib.error.HTTPError) -> str:
        """What the endpoint says of an error, without the key, which some repeat."""
        try:
            text = error.read(2000).decode(errors="replace")
        except (OSError, http.client.HTTPException):
            return ""
        if self._key:
            text = text.replace(self._key, "[key]")
        said = " ".join(text.split())[:300]
        return f": {said}" if said else ""


def _checked(url: str) -> str:
    """The whole address."""
    try:
        parts = urllib.parse.urlsplit(url.strip())
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        usable = False
    if not usable or not url.strip().isascii() or any(c.isspace() for c in url.strip()):
        raise HarnessError(
            f"{url!r} is no address of a judge; it should be like https://host/v1{PATH}"
        )
    if parts.username or parts.password:
        raise HarnessError("the judge's address must not hold a name or password; use the key")
    path = parts.path.rstrip("/")
    if not path.endswith(PATH):
        path += PATH
    return urllib.parse.urlunsplit(parts._replace(path=path, fragment=""))


def _wanted_pause(error: urllib.error.HTTPError) -> float | None:
    """``Retry-After`` in seconds; its other form, a date, is not read."""
    wanted = str(error.headers.get("Retry-After", "")).strip()
    return float(wanted) if wanted.isascii() and wanted.isdigit() and len(wanted) < 7 else None


def _content(data: bytes) -> str:
    """The reply's text; empty where the endpoint gives none."""
    try:
        answer = json.loads(data)
        content = answer["choices"][0]["message"]["content"]
    # ValueError covers bad JSON and bad UTF-8.
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        start = data[:200].decode(errors="replace")
        raise _Unanswered(f"no chat completion but {start!r}") from error
    if content is None:
        return ""
    if not isinstance(content, str):
        raise _Unanswered(f"a reply that is no text but {str(content)[:100]!r}")
    return content
