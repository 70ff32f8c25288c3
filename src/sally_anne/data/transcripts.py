"""What is said in a video and when: SRT, WebVTT and WhisperX's JSON."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sally_anne.core.errors import RecordError
from sally_anne.data.read import Field, parse_json, read_text

SUFFIXES = (".json", ".srt", ".vtt")

# Hours may be left out in WebVTT; SRT has a comma before the thousandths.
_TIME = r"(?:([0-9]{1,9}):)?([0-5]?[0-9]):([0-5]?[0-9])[.,]([0-9]{1,3})"
_TIMES = re.compile(rf"\s*{_TIME}\s*-->\s*{_TIME}(?:\s.*)?")
# Tags are looked for in front of the last mark that could close one: looking for the end of each
# that is open would take the square of a text's length.
_SRT_TAG = re.compile(r"</?(?:[biu]|font[^>]*)>", re.IGNORECASE)
_SRT_STYLE = re.compile(r"\{\\[^}]*\}")
_VTT_MARKUP = re.compile(r"<[^>]*>")
_VTT_VOICE = re.compile(r"<v(?:\.[^\s<>]*+)?\s+([^>]+)>")
# WhisperX writes "[SPEAKER_00]: text" into subtitles.
_SPEAKER = re.compile(r"\[([^\[\]]{1,60})\]:\s*(?=\S)")
# Blocks of WebVTT that hold nothing said.
_VTT_OTHER = re.compile(r"(?:NOTE|STYLE|REGION)(?:\s|$)")


@dataclass(frozen=True)
class Word:
    """One word and its seconds from the video's beginning; None where the aligner found no time."""

    text: str
    start: float | None = None
    end: float | None = None


@dataclass(frozen=True)
class Utterance:
    """Something said, in one line, from ``start`` to ``end`` seconds from the video's beginning.

    ``speaker`` is empty where nobody is named, ``words`` where the file does not have them.
    """

    start: float
    end: float
    text: str
    speaker: str = ""
    words: tuple[Word, ...] = ()


def read_transcript(path: Path) -> tuple[Utterance, ...]:
    """All that is said in a video, in order of time. Cues without words are left out.

    Raises:
        RecordError: not a file in one of :data:`SUFFIXES`, or a malformed one; names file and line,
            or the field of a JSON file.
    """
    readers = {".srt": parse_srt, ".vtt": parse_vtt, ".json": parse_whisperx}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise RecordError(f"{path}: is no transcript; it must end in {', '.join(SUFFIXES)}")
    return reader(read_text(path), str(path))


def parse_srt(text: str, where: str) -> tuple[Utterance, ...]:
    """SubRip: blocks of an optional number, a line of times, and lines of text.

    Blank lines part the blocks. Markup is left out; ``[NAME]: text`` names the speaker.
    """
    return _in_order(_cue(block, where, _srt_words) for block in _blocks(text))


def parse_vtt(text: str, where: str) -> tuple[Utterance, ...]:
    """WebVTT: a header, then blocks of an optional name, a line of times, and lines of text.

    Markup is left out; ``<v NAME>`` or ``[NAME]: text`` names the speaker.
    """
    blocks = list(_blocks(text))
    if not blocks or not re.fullmatch(r"WEBVTT(?:\s.*)?", blocks[0][1][0]):
        raise RecordError(f"{where}, line 1: must begin with WEBVTT")
    spoken = (block for block in blocks[1:] if not _VTT_OTHER.match(block[1][0]))
    return _in_order(_cue(block, where, _vtt_words) for block in spoken)


def parse_whisperx(text: str, where: str) -> tuple[Utterance, ...]:
    """WhisperX: ``segments`` with start, end, text, and where there are some, speaker and words.

    Words may lack times, as those that the aligner could not place do.
    """
    whole = Field(parse_json(text, where), where)
    return _in_order(_segment(segment) for segment in whole.get("segments").items())


def within(utterances: Iterable[Utterance], start: float, end: float | None) -> str:
    """What is said in a window, a line an utterance, ``SPEAKER: text`` where speakers are named.

    An utterance that lies wholly in the window is kept as it is. One that lies partly in it keeps
    the words whose middle is in the window, ends included; a word without times goes with the one
    before it, or at the beginning with the first that has times. Without times of words it is kept
    if its own middle is in the window. Seconds; ``end`` is None for the end of the video.
    """
    last = float("inf") if end is None else end
    lines = []
    for said in utterances:
        if said.end < start or said.start > last:
            continue
        text = said.text
        if said.start < start or said.end > last:
            text = _part(said, start, last)
        if text:
            lines.append(f"{said.speaker}: {text}" if said.speaker else text)
    return "\n".join(lines)


def _part(said: Utterance, start: float, last: float) -> str:
    # In or out by word; None until the first word with times.
    inside: list[bool | None] = []
    for word in said.words:
        if word.start is not None and word.end is not None:
            inside.append(start <= (word.start + word.end) / 2 <= last)
        else:
            inside.append(inside[-1] if inside else None)
    first = next((found for found in inside if found is not None), None)
    if first is None:
        return said.text if start <= (said.start + said.end) / 2 <= last else ""
    kept = [first if found is None else found for found in inside]
    return " ".join(word.text for word, keep in zip(said.words, kept, strict=True) if keep)


def _in_order(utterances: Iterable[Utterance | None]) -> tuple[Utterance, ...]:
    said = [utterance for utterance in utterances if utterance is not None]
    return tuple(sorted(said, key=lambda u: (u.start, u.end)))


def _blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """Stretches of lines that are not blank, with the number of their first line, from 1."""
    block: list[str] = []
    # Not `splitlines`, which takes many more characters for the end of a line.
    lines = re.split(r"\r\n|\r|\n", text)
    for number, line in enumerate([*lines, ""], start=1):
        if line.strip():
            block.append(line)
        elif block:
            yield number - len(block), block
            block = []


def _cue(
    block: tuple[int, list[str]], where: str, words: Callable[[str], tuple[str, str]]
) -> Utterance | None:
    number, lines = block
    # The first line may be a number or a name.
    timed = next((i for i, line in enumerate(lines[:2]) if "-->" in line), None)
    line = lines[timed or 0]
    place, found = f"{where}, line {number + (timed or 0)}", _TIMES.fullmatch(line)
    if timed is None or found is None:
        also = ", or a number and times under it" if timed is None else ""
        raise RecordError(
            f"{place}: must be times such as 00:01:02,500 --> 00:01:04,000{also}, is "
            f"{line.strip()[:60]!r}"
        )
    start, end = _seconds(found.groups()[:4]), _seconds(found.groups()[4:])
    if end < start:
        raise RecordError(f"{place}: ends before it starts, {line.strip()[:60]!r}")
    said, speaker = words("\n".join(lines[timed + 1 :]))
    return Utterance(start, end, said, speaker) if said else None


def _seconds(parts: Sequence[str | None]) -> float:
    hours, minutes, seconds, rest = parts
    whole = int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
    return float(f"{whole}.{rest}")


def _srt_words(raw: str) -> tuple[str, str]:
    return _spoken(_without(_SRT_TAG, ">", _without(_SRT_STYLE, "}", raw)), "")


def _vtt_words(raw: str) -> tuple[str, str]:
    voice = _VTT_VOICE.search(raw, 0, raw.rfind(">") + 1)
    plain = _unescaped(_without(_VTT_MARKUP, ">", raw))
    return _spoken(plain, _line(_unescaped(voice[1])) if voice else "")


def _without(markup: re.Pattern[str], closing: str, text: str) -> str:
    end = text.rfind(closing) + 1
    return markup.sub("", text[:end]) + text[end:]


def _unescaped(text: str) -> str:
    try:
        return html.unescape(text)
    # A character's number of thousands of digits; it stays as it is written.
    except ValueError:
        return text


def _spoken(text: str, speaker: str) -> tuple[str, str]:
    """A text in one line, and who says it."""
    line = _line(text)
    if not speaker and (match := _SPEAKER.match(line)):
        return line[match.end() :], _line(match[1])
    return line, speaker


def _line(text: str) -> str:
    return " ".join(text.split())


def _segment(segment: Field) -> Utterance | None:
    start, end = _span(segment)
    said = segment.get("text")
    if not isinstance(said.value, str):
        said.fail("must be a text")
    text = _line(said.value)
    speaker = _line(segment.opt("speaker", Field.text) or "")
    words = segment.opt("words", Field.items) or []
    return Utterance(start, end, text, speaker, tuple(map(_word, words))) if text else None


def _word(word: Field) -> Word:
    timed = word.has("start") and word.has("end")
    return Word(_line(word.get("word").text()), *(_span(word) if timed else ()))


def _span(field: Field) -> tuple[float, float]:
    start, end = field.get("start").seconds(), field.get("end").seconds()
    if end < start:
        field.get("end").fail(f"is before start, {end:g} < {start:g} s")
    return start, end
