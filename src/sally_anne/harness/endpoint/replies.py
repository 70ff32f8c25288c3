"""What an endpoint answers: a reply, a refusal of this one question, a failure that may pass."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

# They may pass; 429 and 503 often say when.
AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
FILTERED, CUT = "content_filter", "length"
# Of a 429 that no waiting mends.
_NO_MONEY = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")


class Unanswered(Exception):
    """One try failed in a way that another may not; the endpoint may ask to ``wait`` (seconds)."""

    def __init__(self, problem: str, wait: float = 0.0) -> None:
        super().__init__(problem)
        self.wait = wait
        self.usage: tuple[int, int] | None = None


class Refused(Exception):
    """The request will be refused however often it is made."""


@dataclass(frozen=True)
class Said:
    """One reply: its text, why it ended (``stop``, ``length``, ``content_filter``), its tokens.

    A question that the endpoint's filter holds back has an empty reply.
    """

    text: str
    finish: str = ""
    usage: tuple[int, int] | None = None  # tokens read and written; None if it does not say
    first: Mapping[str, float] | None = None  # likeliest first tokens, log-probabilities in nats

    def line(self) -> dict[str, Any]:
        """For a journal."""
        told = {"first": dict(self.first)} if self.first is not None else {}
        return {"reply": self.text, "finish": self.finish, "usage": self.usage, **told}

    @property
    def ended(self) -> bool:
        """Whether it came to an end; if not, it was cut."""
        return self.finish != CUT

    @classmethod
    def from_line(cls, line: Mapping[str, Any]) -> Said:
        usage = line["usage"] and (int(line["usage"][0]), int(line["usage"][1]))
        return cls(line["reply"], line["finish"], usage, line.get("first"))


def read_completion(data: bytes, clean: Callable[[str], str]) -> Said:
    """The reply in a chat completion; Unanswered if there is none. ``clean`` takes secrets out."""
    try:
        completion = json.loads(data)
        choice = completion["choices"][0]
        finish = choice.get("finish_reason")
        content = choice.get("message", {}).get("content")
        refusal = choice.get("message", {}).get("refusal")
    # ValueError covers bad JSON and bad UTF-8.
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        said = clean(data.decode(errors="replace"))[:200]
        raise Unanswered(f"no chat completion but {said!r}") from None
    if isinstance(content, list):  # parts, as some servers send them
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        if texts and all(isinstance(text, str) for text in texts):
            content = "".join(map(str, texts))
    if not isinstance(content, str | None):
        raise Unanswered(f"a reply that is no text but {clean(str(content))[:200]!r}")
    text = content or (refusal if isinstance(refusal, str) else "")
    finish = finish if isinstance(finish, str) else ""
    return Said(clean(text), clean(finish), usage_of(data), _first(choice, clean))


def read_refusal(status: int, headers: Mapping[str, str], text: str) -> Said:
    """An empty reply, where the question was filtered; else Unanswered or Refused is raised."""
    error = _error(text)
    codes = {error.get("code"), error.get("type")}
    inner = error.get("innererror")
    codes.add(inner.get("code") if isinstance(inner, dict) else None)
    shown = " ".join(str(error.get("message") or text).split())[:300]
    if status == 400 and codes & {
        FILTERED,
        "content_policy_violation",
        "ResponsibleAIPolicyViolation",
    }:
        return Said("", FILTERED)
    if status in AGAIN and not codes & set(_NO_MONEY):
        raise Unanswered(f"HTTP {status}", retry_after(headers))
    raise Refused(shown)


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float:
    """Seconds that the header asks to wait, in either of its forms (RFC 9110); 0 without one."""
    wanted = headers.get("Retry-After", "").strip()
    try:
        seconds = float(wanted)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(wanted).timestamp() - (now or time.time())
        except (ValueError, OverflowError, OSError):
            return 0.0
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0


def usage_of(data: bytes) -> tuple[int, int] | None:
    """Tokens read and written, as the answer reports them; None if it does not."""
    try:
        usage = json.loads(data)["usage"]
        counts = (usage["prompt_tokens"], usage.get("completion_tokens", 0))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    if all(type(n) is int and n >= 0 for n in counts):
        return counts
    return None


def _first(choice: Mapping[str, Any], clean: Callable[[str], str]) -> dict[str, float] | None:
    """The likeliest first tokens; of tokens that are spelled alike the likelier counts."""
    try:
        listed = choice["logprobs"]["content"][0]["top_logprobs"]
        pairs = [(clean(entry["token"]), float(entry["logprob"])) for entry in listed]
    except (LookupError, TypeError, ValueError, AttributeError):
        return None
    found: dict[str, float] = {}
    for token, value in pairs:
        found[token] = max(value, found.get(token, -math.inf))
    return found


def _error(text: str) -> dict[str, Any]:
    try:
        error = json.loads(text)["error"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return {}
    return error if isinstance(error, dict) else {"message": error}
