"""Reading lists and objects out of a model's reply, whatever else it writes."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from sally_anne.harness.limp.episode import Hypothesis

_BULLET = re.compile(r"^\s*(?:[-*•]|\(?\d+[.):])\s*")
_NOTHING = {"", "none", "nothing", "n/a", "null", "blank", "[]"}
# A reply that repeats itself up to its last token is no list of actions.
MOST = 40


def read_list(reply: str) -> tuple[str, ...]:
    """The texts of the first list: JSON, Python, bulleted or numbered lines, or one a line.

    Args:
        reply: any text.

    Returns:
        At most :data:`MOST` texts without white space around them, without empty ones and without
        "none"; a text right after the same one counts once.
    """
    for value in _values(reply, "[", "]"):
        if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
            return _kept(value)
    lines = [line for line in reply.splitlines() if line.strip() and not line.startswith("```")]
    bulleted = [_BULLET.sub("", line) for line in lines if _BULLET.match(line)]
    if bulleted:
        return _kept(bulleted)
    if len(lines) == 1:
        lines = re.split(r"(?<=[.;!?])\s+", lines[0])
    return _kept(line for line in lines if not line.rstrip().endswith(":"))


def read_hypotheses(reply: str, labels: Sequence[str]) -> dict[str, Hypothesis] | None:
    """Latent variables by label from a JSON or Python object; None if a label is left out."""
    for value in _values(reply, "{", "}"):
        if not isinstance(value, dict):
            continue
        entries = {_label(name): entry for name, entry in value.items()}
        found = {label: _hypothesis(entries.get(label.casefold())) for label in labels}
        if None not in found.values():
            return {label: entry for label, entry in found.items() if entry}
    return None


def _hypothesis(entry: Any) -> Hypothesis | None:
    if not isinstance(entry, dict):
        return None
    fields = {str(name).strip().casefold().replace(" ", "_"): text for name, text in entry.items()}
    found = {}
    for name in ("belief", "social_goal", "believed_goal"):
        text = fields.get(name)
        if not isinstance(text, str | None):
            return None
        plain = " ".join((text or "").split())
        found[name] = "" if plain.casefold() in _NOTHING else plain
    return Hypothesis(**found) if any(found.values()) else None


def _label(name: Any) -> str:
    return str(name).casefold().removeprefix("option").strip(" .):(")


def _values(reply: str, opening: str, closing: str) -> Iterator[Any]:
    """JSON or Python values that begin with a bracket, from left to right."""
    decoder = json.JSONDecoder()
    start = reply.find(opening)
    while start >= 0:
        end = start + 1
        try:
            value, end = decoder.raw_decode(reply, start)
            yield value
        except ValueError:
            stop = reply.find(closing, start)
            # Nested objects end at the last bracket rather than at the next one.
            for last in dict.fromkeys((stop, reply.rfind(closing))):
                if last > start and (value := _python(reply[start : last + 1])) is not None:
                    end = last + 1
                    yield value
                    break
        except RecursionError:  # thousands of brackets; reading on would take as many attempts
            return
        start = reply.find(opening, end)


def _python(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _kept(texts: Any) -> tuple[str, ...]:
    found: list[str] = []
    for text in texts:
        plain = " ".join(text.split()).strip(" ,;\"'")
        if plain.casefold().rstrip(".") not in _NOTHING and found[-1:] != [plain]:
            found.append(plain)
    return tuple(found[:MOST])
