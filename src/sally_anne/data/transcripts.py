"""What is said in a film, by whom and when: SRT, WebVTT, WhisperX's JSON; errors of transcripts."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment

from sally_anne.core.errors import RecordError
from sally_anne.data.read import Field, one_line, parse_json, read_text

SUFFIXES = (".json", ".srt", ".vtt")
# Hours may be left out in WebVTT; SRT has a comma before the thousandths.
_TIME = r"(?:([0-9]{1,9}):)?([0-5]?[0-9]):([0-5]?[0-9])[.,]([0-9]{1,3})"
_TIMES = re.compile(rf"\s*{_TIME}\s*-->\s*{_TIME}(?:\s.*)?")
_SRT_MARKUP = re.compile(r"</?(?:[biu]|font[^>]*)>|\{\\[^}]*\}", re.IGNORECASE)
_VTT_MARKUP = re.compile(r"<[^>]*>")
_VTT_VOICE = re.compile(r"<v(?:\.[^\s<>]*+)?\s+([^>]+)>")
# WhisperX writes "[SPEAKER_00]: text" into subtitles.
_SPEAKER = re.compile(r"\[([^\[\]]{1,60})\]:\s*(?=\S)")
_VTT_OTHER = re.compile(r"(?:NOTE|STYLE|REGION)(?:\s|$)")
_MARKS = re.compile(r"[^\w\s]")


@dataclass(frozen=True)
class TranscribeConfig:
    """Write what is said in films as SRT, as MoMentS' transcripts/ takes it.

    Attributes:
        data: a film or sound file, or a folder of them.
        whisper: hub id or folder of a Whisper checkpoint.
        diariser: hub id or folder of a model that distinguishes speakers, frame by frame
            (...ForAudioFrameClassification, as WavLM's); nobody is named without one.
        reference: folder of your own transcripts, named as the films: word errors, and speaker
            errors where these name all speakers.
        out: folder to write to. In an existing one films that are written are left as they are.
        device: where the models are put: cpu, cuda, cuda:1 or mps.
    """

    data: Path
    whisper: str
    diariser: str | None = None
    reference: Path | None = None
    out: Path | None = None
    device: str = "cpu"

    @property
    def folder(self) -> Path:
        name = f"{self.data.stem}-{Path(self.whisper).name}"
        return self.out or Path("runs") / "transcribe" / name


@dataclass(frozen=True)
class Word:
    text: str
    start: float | None = None
    end: float | None = None


@dataclass(frozen=True)
class Utterance:
    """One line of speech from ``start`` to ``end`` seconds; without speaker or words if unknown."""

    start: float
    end: float
    text: str
    speaker: str = ""
    words: tuple[Word, ...] = ()


def read_transcript(path: Path) -> tuple[Utterance, ...]:
    return parse(read_text(path), str(path), path.suffix.lower())


def parse(text: str, where: str, suffix: str) -> tuple[Utterance, ...]:
    """All speech of a film, in order of time; what has no words is left out.

    SubRip and WebVTT without markup; ``[NAME]: text`` and ``<v NAME>`` name the speaker. WhisperX's
    JSON. RecordError names ``where`` and the line, or the field of JSON.
    """
    if suffix not in SUFFIXES:
        raise RecordError(f"{where}: is no transcript; it must end in {', '.join(SUFFIXES)}")
    found: Iterable[Utterance] = _cues(text, where, suffix == ".vtt")
    if suffix == ".json":
        found = map(_segment, Field(parse_json(text, where), where).get("segments").items())
    return tuple(sorted((one for one in found if one.text), key=lambda u: (u.start, u.end)))


def within(utterances: Iterable[Utterance], start: float, end: float | None) -> str:
    """The speech of a window in seconds, a line an utterance, ``SPEAKER: text`` if named.

    Of an utterance partly in it the words are kept whose middle is; one without times goes with the
    one before it. Without times of words the utterance's own middle decides.
    """
    last = float("inf") if end is None else end
    lines = []
    for one in utterances:
        if one.end < start or one.start > last:
            continue
        text = _part(one, start, last) if one.start < start or one.end > last else one.text
        if text:
            lines.append(f"{one.speaker}: {text}" if one.speaker else text)
    return "\n".join(lines)


def _part(one: Utterance, start: float, last: float) -> str:
    def inside(part: Utterance | Word) -> bool | None:
        if part.start is None or part.end is None:
            return None
        return start <= (part.start + part.end) / 2 <= last

    states = [inside(word) for word in one.words]
    first = next((state for state in states if state is not None), None)
    if first is None:
        return one.text if inside(one) else ""
    kept = accumulate(states, lambda before, now: before if now is None else now, initial=first)
    return " ".join(word.text for word, keep in zip(one.words, [*kept][1:], strict=True) if keep)


def _blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """Stretches of lines that are not blank, with the number of their first line, from 1."""
    # Not `splitlines`, which takes many more characters for the end of a line.
    lines = enumerate(re.split(r"\r\n|\r|\n", text), start=1)
    for blank, block in groupby(lines, lambda line: not line[1].strip()):
        if not blank:
            numbers, found = zip(*block, strict=True)
            yield numbers[0], list(found)


def _cues(text: str, where: str, vtt: bool) -> Iterator[Utterance]:
    blocks = list(_blocks(text))
    if vtt:
        if not blocks or not re.fullmatch(r"WEBVTT(?:\s.*)?", blocks[0][1][0]):
            raise RecordError(f"{where}, line 1: must begin with WEBVTT")
        blocks = [block for block in blocks[1:] if not _VTT_OTHER.match(block[1][0])]
    for number, lines in blocks:
        timed = 1 if len(lines) > 1 and "-->" not in lines[0] else 0
        times = _TIMES.fullmatch(lines[timed])
        start, end = (_seconds(times.groups()[i : i + 4]) for i in (0, 4)) if times else (1.0, 0.0)
        if end < start:
            raise RecordError(
                f"{where}, line {number + timed}: must be rising times such as 00:01:02,500 --> "
                f"00:01:04,000, is {lines[timed].strip()[:60]!r}"
            )
        raw, speaker = "\n".join(lines[timed + 1 :]), ""
        if "-->" in raw:
            raise RecordError(f"{where}, line {number}: an empty line must part it from the next")
        if vtt:
            voice = _VTT_VOICE.search(raw)
            speaker = one_line(html.unescape(voice[1])) if voice else ""
            said = one_line(html.unescape(_VTT_MARKUP.sub("", raw)))
        else:
            said = one_line(_SRT_MARKUP.sub("", raw))
        if not speaker and (match := _SPEAKER.match(said)):
            said, speaker = said[match.end() :], one_line(match[1])
        yield Utterance(start, end, said, speaker)


def _seconds(parts: Sequence[str | None]) -> float:
    hours, minutes, seconds, rest = parts
    whole = int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
    return float(f"{whole}.{rest}")


def _segment(segment: Field) -> Utterance:
    text = segment.get("text")
    if not isinstance(text.value, str):
        text.fail("must be a text")
    speaker = segment.opt("speaker", Field.text) or ""
    words = segment.opt("words", Field.items) or []
    return Utterance(
        *_span(segment), one_line(text.value), one_line(speaker), tuple(map(_word, words))
    )


def _word(word: Field) -> Word:
    timed = word.has("start") and word.has("end")
    return Word(one_line(word.get("word").text()), *(_span(word) if timed else ()))


def _span(field: Field) -> tuple[float, float]:
    start, end = field.get("start").seconds(), field.get("end").seconds()
    if end < start:
        field.get("end").fail(f"is before start, {end:g} < {start:g} s")
    return start, end


def words_of(utterances: Iterable[Utterance]) -> list[str]:
    return _MARKS.sub("", " ".join(one.text for one in utterances).casefold()).split()


def word_errors(reference: Sequence[str], hypothesis: Sequence[str]) -> int:
    """The edit distance in words (MoMentS' appendix A.4)."""
    ids = {word: i for i, word in enumerate(dict.fromkeys([*reference, *hypothesis]))}
    columns = np.array([ids[word] for word in hypothesis], dtype=int)
    steps = np.arange(len(hypothesis) + 1)
    row = steps
    for number, word in enumerate(reference, start=1):
        other = np.minimum(row[1:] + 1, row[:-1] + (columns != ids[word]))
        best = np.concatenate([[number], other])
        # Inserted words add up along the row: the least of all before, and one for each step.
        row = np.minimum.accumulate(best - steps) + steps
    return int(row[-1])


def speaker_errors(
    reference: Sequence[Utterance], hypothesis: Sequence[Utterance]
) -> tuple[float, float, float]:
    """Seconds of the reference's speech that are missed, attributed wrongly, and in all.

    Names are mapped one to one so that most is right.
    """
    edges = np.unique([edge for one in (*reference, *hypothesis) for edge in (one.start, one.end)])
    lengths = np.diff(edges)
    true, other = (_speaking(speech, edges) for speech in (reference, hypothesis))
    named = [row for name, row in other.items() if name]
    shared = np.array([[lengths[one & two].sum() for two in named] for one in true.values()])
    shared = shared.reshape(len(true), len(named))
    right = float(shared[linear_sum_assignment(-shared)].sum())
    speaking, found = (sum(rows.values(), np.zeros(len(lengths), int)) for rows in (true, other))
    total = float(speaking @ lengths)
    missed = float(np.maximum(speaking - found, 0) @ lengths)
    return missed, max(0.0, total - missed - right), total


def _speaking(speech: Iterable[Utterance], edges: np.ndarray) -> dict[str, np.ndarray]:
    rows: dict[str, np.ndarray] = {}
    for one in speech:
        now = (edges[:-1] >= one.start) & (edges[1:] <= one.end)
        rows[one.speaker] = rows.get(one.speaker, False) | now
    return rows
