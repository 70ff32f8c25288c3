"""Times in a film: read from files and from prose, and written for prompts."""

from __future__ import annotations

import re

# Longer than any film; guards against seconds that are really milliseconds.
LONGEST = 24 * 3600.0
# Characters of two times; the pattern between them takes the square of a text's length.
_WIDEST = 100

_CLOCK = r"(?:[0-9]{1,2}:[0-5]?[0-9]|[0-9]{1,3}):[0-5][0-9](?:\.[0-9]{1,6})?"
_SECONDS = r"[0-9]{1,9}(?:\.[0-9]*)?(?:[eE][-+]?[0-9]{1,3})?"
_TIME = re.compile(rf"(?:({_CLOCK})|({_SECONDS})\s*(?:s|sec|secs|seconds)?)\Z", re.IGNORECASE)
_BETWEEN = re.compile(r"\s*[,;–—]\s*|\s+to\s+|(?<![eE])\s*-\s*")
_IN_PROSE = re.compile(
    rf"(?<![0-9:.])(?:(?P<first>{_CLOCK})\s*(?:-|–|—|to|until|till|through)\s*(?P<last>{_CLOCK})"
    rf"|\bbetween\s+(?P<from>{_CLOCK})\s+and\s+(?P<until>{_CLOCK}))(?![0-9:])",
    re.IGNORECASE,
)


def read_time(text: str) -> float | None:
    """Seconds from ``m:ss``, ``mm:ss``, ``h:mm:ss`` or plain seconds, each with decimals or not.

    None if it is none of these, or no time within a day.
    """
    match = _TIME.match(text.strip())
    if match is None:
        return None
    if match[1] is None:
        seconds = float(match[2])
    else:
        seconds = 0.0
        for part in match[1].split(":"):
            seconds = 60 * seconds + float(part)
    return seconds if seconds <= LONGEST else None


def read_range(text: str) -> tuple[float, float] | None:
    """Two times, such as ``(12.5, 30.0)``, ``1:02-1:30`` or ``0:05 to 0:09``, in seconds.

    None if there are not two, or the second is before the first.
    """
    inner = text.strip()
    if len(inner) > _WIDEST:
        return None
    if inner[:1] in ("(", "["):
        if inner[-1:] != {"(": ")", "[": "]"}[inner[0]]:
            return None
        inner = inner[1:-1].strip()
    parts = [read_time(part) for part in _BETWEEN.split(inner)]
    if len(parts) != 2 or parts[0] is None or parts[1] is None or parts[1] < parts[0]:
        return None
    return parts[0], parts[1]


def range_in(prose: str) -> tuple[float, float] | None:
    """The first range of clock times that a sentence names; a single time is none."""
    for match in _IN_PROSE.finditer(prose):
        first, last = match["first"] or match["from"], match["last"] or match["until"]
        start, end = read_time(first), read_time(last)
        if start is not None and end is not None and start < end:
            return start, end
    return None


def clock(seconds: float) -> str:
    """``m:ss``, from an hour on ``h:mm:ss``; tenths are written where there are any.

    Args:
        seconds: finite, from 0 on.
    """
    tenths = round(10 * seconds)
    whole, tenth = divmod(tenths, 10)
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    written = f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
    return f"{written}.{tenth}" if tenth else written
