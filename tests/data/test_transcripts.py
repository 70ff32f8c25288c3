"""Reading what is said, and cutting it to a window."""

from __future__ import annotations

import html
import json
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sally_anne.core.errors import RecordError
from sally_anne.data.transcripts import Utterance, Word, parse, read_transcript, within

SRT = """1
00:00:01,000 --> 00:00:02,500
<i>Hello</i>
there.

2
00:01:05,250 --> 01:00:06,000 X1:40 X2:600
[SPEAKER_01]: {\\an8}Who is it?

3
00:00:03,000 --> 00:00:04,000

"""
SAID = (Utterance(1.0, 2.5, "Hello there."), Utterance(65.25, 3606.0, "Who is it?", "SPEAKER_01"))
VTT = """WEBVTT - some film
Kind: captions

NOTE nothing
said here

STYLE
::cue { color: red }

intro
00:01.000 --> 00:02.500 align:start
<c.yellow>Hello</c> <00:00:02.000>there.

01:05.250 --> 01:00:06.000
<v.loud SPEAKER_01>Who is it?</v>
"""


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


def test_cues_stand_apart() -> None:
    with pytest.raises(RecordError, match="empty line"):
        parse(SRT.replace("there.\n\n", "there.\n"), "film", ".srt")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize(("name", "text"), [("film.srt", SRT), ("film.VTT", VTT)])
def test_subtitles(tmp_path: Path, name: str, text: str, ending: str, encoding: str) -> None:
    path = write(tmp_path / name, text.replace("\n", ending), encoding)
    assert read_transcript(path) == SAID


def test_whisperx(tmp_path: Path) -> None:
    words = [
        {"word": "Who", "start": 5.0, "end": 5.2, "score": 0.9, "speaker": "SPEAKER_01"},
        {"word": "1?"},
    ]
    whole = {
        "segments": [
            {"start": 5.0, "end": 6, "text": " Who 1?", "words": words, "speaker": "SPEAKER_01"},
            {"start": 1.0, "end": 2.5, "text": "Hello\nthere.", "speaker": None},
            {"start": 3.0, "end": 3.0, "text": " "},
        ],
        "word_segments": words,
        "language": "en",
    }
    path = write(tmp_path / "film.json", json.dumps(whole), "utf-8-sig")
    assert read_transcript(path) == (
        Utterance(1.0, 2.5, "Hello there."),
        Utterance(5.0, 6.0, "Who 1?", "SPEAKER_01", (Word("Who", 5.0, 5.2), Word("1?"))),
    )


def test_without_words_the_middle_decides() -> None:
    assert within(SAID, 0, 10) == "Hello there." and within(SAID, 3, 60) == ""
    assert within(SAID, 0, None) == "Hello there.\nSPEAKER_01: Who is it?"
    said = [Utterance(10.0, 20.0, "a b c")]
    assert within(said, 0, 15.0) == within(said, 15.0, 99) == "a b c"
    assert within(said, 0, 14.9) == within(said, 15.1, 99) == ""


def test_words_are_cut_one_by_one() -> None:
    words = (Word("so"), Word("a", 10, 11), Word("7"), Word("b", 12, 14), Word("c", 15, 16))
    said = [Utterance(10.0, 16.0, "so a 7 b c", "X", words)]
    assert within(said, 0, 16) == "X: so a 7 b c"
    assert within(said, 0, 12.9) == "X: so a 7"
    assert within(said, 0, 13.0) == "X: so a 7 b"
    assert within(said, 10.6, 99) == "X: b c"
    assert within(said, 15.9, 99) == ""
    untimed = [Utterance(10.0, 16.0, "a b", words=(Word("a"), Word("b")))]
    assert within(untimed, 0, 13.0) == "a b" and within(untimed, 0, 12.0) == ""


def clock(seconds: float, comma: str) -> str:
    total = round(seconds * 1000)
    hours, rest = divmod(total, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    return f"{hours:02}:{minutes:02}:{rest // 1000:02}{comma}{rest % 1000:03}"


def as_srt(said: tuple[Utterance, ...]) -> str:
    return "\n".join(
        f"{n}\n{clock(u.start, ',')} --> {clock(u.end, ',')}\n"
        f"{f'[{u.speaker}]: ' if u.speaker else ''}{u.text}\n"
        for n, u in enumerate(said, start=1)
    )


def as_vtt(said: tuple[Utterance, ...]) -> str:
    return "WEBVTT\n\n" + "\n".join(
        f"{clock(u.start, '.')} --> {clock(u.end, '.')}\n"
        f"{f'<v {html.escape(u.speaker)}>' if u.speaker else ''}{html.escape(u.text)}\n"
        for u in said
    )


def as_json(said: tuple[Utterance, ...]) -> str:
    segments = [
        {"start": u.start, "end": u.end, "text": f" {u.text}", "speaker": u.speaker or None}
        for u in said
    ]
    return json.dumps({"segments": segments})


# One draw of a seed and all else from it: far faster than a strategy for each part.
SEEDS = st.integers(0, 2**62)
FAST = settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
LETTERS = "abcé你好 '’?!.,;&-0189\u05e9\U0001f600#@"


def drawn(rng: random.Random) -> tuple[Utterance, ...]:
    """Utterances in order, with times in thousandths of a second."""
    found = []
    for _ in range(rng.randrange(5)):
        start = rng.randrange(10 ** rng.randrange(1, 8))
        text = " ".join("".join(rng.choices(LETTERS, k=rng.randrange(1, 12))).split())
        speaker = rng.choice(["", "", "SPEAKER_00", "Ann & Bo"])
        if text:
            end = start + rng.randrange(10_000)
            found.append(Utterance(start / 1000, end / 1000, text, speaker))
    return tuple(sorted(found, key=lambda u: (u.start, u.end)))


@pytest.mark.fuzz
@settings(FAST, max_examples=500)
@given(SEEDS)
def test_round_trips(seed: int) -> None:
    rng = random.Random(seed)
    said = drawn(rng)
    assert parse(as_srt(said), "x", ".srt") == said
    assert parse(as_vtt(said), "x", ".vtt") == said
    assert parse(as_json(said), "x", ".json") == said


PIECES = ["-->", "\n", "\n\n", "[", "]:", "<v ", ">", "&lt", "00:", "{", "}", '"', "1", ",", "\0"]


@pytest.mark.fuzz
@FAST
@given(SEEDS)
def test_damage_gives_utterances_or_a_named_error(seed: int) -> None:
    rng = random.Random(seed)
    kind, write_ = rng.choice([(".srt", as_srt), (".vtt", as_vtt), (".json", as_json)])
    text = write_(drawn(rng))
    for _ in range(rng.randrange(1, 4)):
        place = rng.randrange(len(text) + 1)
        piece = rng.choice(PIECES) if rng.random() < 0.8 else chr(rng.randrange(0x10FFFF))
        text = text[:place] + piece + text[place + rng.randrange(4) :]
    try:
        said = parse(text, "film.x", kind)
    except RecordError as error:
        assert str(error).startswith("film.x")
        return
    assert list(said) == sorted(said, key=lambda u: (u.start, u.end))
    for one in said:
        assert 0 <= one.start <= one.end and one.text == " ".join(one.text.split()) != ""
        assert "\n" not in one.speaker
    start, end = sorted((rng.uniform(0, 100), rng.uniform(0, 100)))
    assert len(within(said, start, end)) <= len(within(said, 0, None))


def test_markup_is_what_is_closed() -> None:
    cue = "WEBVTT\n\n00:00.000 --> 00:01.000\n<v A &amp; B>&lt;3 &amp;&nbsp;so on\n"
    assert parse(cue, "x", ".vtt") == (Utterance(0.0, 1.0, "<3 & so on", "A & B"),)
    cue = "WEBVTT\n\n00:01.000 --> 00:02.000\n<v.loud Ann>a <b <i>b</i> &#x41; < c"
    assert parse(cue, "x", ".vtt") == (Utterance(1.0, 2.0, "a b A < c", "Ann"),)
    cue = "1\n00:01.000 --> 00:02.000\n<i>a</i> <font color=red>{\\an8}b</font> <font {\\ c"
    assert parse(cue, "x", ".srt") == (Utterance(1.0, 2.0, "a b <font {\\ c"),)
