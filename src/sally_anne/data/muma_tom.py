"""MuMA-ToM: what two people in a household believe, want, and think that the other wants.

225 episodes with four questions each. In 150 of them people talk: the video shows both, and the
text is their talk. In 75 nobody talks: the video shows one person, the text is the other's actions.

A record's ``description`` is the whole narrative, from which the video was rendered; it is only
used to take the talk from and to compare with. ``filtered_description`` is the text of episodes
without talk. ``texts.json`` holds the talk (``Name: words``) or one person's actions; the copy in
the released code holds the whole narrative instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from sally_anne.core.errors import BenchmarkError, RecordError
from sally_anne.data.items import (
    Benchmark,
    Context,
    Media,
    Option,
    Polarity,
    Question,
    Sampling,
)
from sally_anne.data.read import Field, read_json

NAME = "muma_tom"
QUESTIONS, TEXTS, VIDEOS = "questions.json", "texts.json", ("videos", "Videos")
TYPES = ("belief", "social_goal", "belief_of_goal")
LAYOUT = (
    f"{QUESTIONS}, {TEXTS} and videos/ of the dataset MUMA-TOM-BENCHMARK (videos named 42.mp4 or "
    "video_42.mp4 after their episodes)"
)
_SUFFIXES = (".mp4", ".avi", ".mov", ".mkv", ".webm")
# The benchmark's texts have at most 7 in 10 of their narratives' words; those above are the whole.
WHOLE = 0.9
_LINE = re.compile(r"([^\W\d_][\w'’-]*)\s*:\s*(\S.*)")
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”")
LABELS = ("A", "B", "C")
# Some strings were written as Python shows bytes: b'...' with escapes.
_BYTES = re.compile(r"b(['\"])(.*)\1", re.DOTALL)
_ESCAPE = re.compile(r"(?:\\x[0-9a-fA-F]{2})+|\\[nrt\\'\"]")
_OPTION = re.compile(r"^[ \t]*([A-Z])\)[ \t]*", re.MULTILINE)
_ANSWER = re.compile(r"([A-Z])\)\s*(.*)", re.DOTALL)
_POLARITY: dict[str, Polarity] = {"MOST": "most", "LEAST": "least"}
_PEOPLE = tuple(
    re.compile(pattern)
    for pattern in (
        # Belief: the social goal is given.
        r"\bif (?P<subject>\w+) has been trying to (?:help|hinder) (?P<other>\w+)\b",
        # Social goal: the options name it.
        r"\b(?P<subject>\w+) has been trying to (?:help|prevent) (?P<other>\w+)\b",
        r"\b(?P<subject>\w+) was indifferent towards (?P<other>\w+)['’]",
        # Belief of the other's goal.
        r"\b(?P<subject>\w+) believed that (?P<other>\w+) (?:placed|want)",
        r"\b(?P<subject>\w+) doesn['’]t know (?P<other>\w+)['’]",
    )
)


def load(folder: Path) -> list[Question]:
    """All questions of a folder, see :data:`LAYOUT`, in order; an episode's are one group.

    Raises:
        RecordError: a record is malformed; names file, episode, question and field.
        BenchmarkError: there is no ``questions.json``, or two videos are of one episode.
    """
    folder = Path(folder)
    path, texts_path = folder / QUESTIONS, folder / TEXTS
    if not path.is_file():
        raise BenchmarkError(f"{path} is missing; the folder must hold {LAYOUT}")
    records = Field(read_json(path), str(path)).entries()
    texts = Field(read_json(texts_path) if texts_path.exists() else {}, str(texts_path)).entries()
    videos = _videos(folder)
    items = []
    for episode, record in records.items():
        cleaned(Field(episode, f"{path}, episode {episode!r}", "name"))
        text = texts.get(episode)
        text = Field(text.value, f"{texts_path}, episode {episode}") if text else None
        record = Field(record.value, f"{path}, episode {episode}")
        items += read_episode(episode, record, text, videos.get(episode))
    if not items:
        raise RecordError(f"{path}: has no questions")
    return items


def read_episode(
    episode: str, record: Field, text: Field | None = None, video: Path | None = None
) -> list[Question]:
    """The questions of one episode: its entries in the two files, and its video."""
    questions = {
        number: (*take_apart(question), answer, kind)
        for number, question, answer, kind in _questions(record)
    }
    wordings = [
        words
        for question, options, *_ in questions.values()
        for words in (question, *(option.text for option in options))
    ]
    talks = any(kind in ("belief", "social_goal") for *_, kind in questions.values())
    context = _context(record, text, talks, people(wordings))
    return [
        Question(
            item_id=f"{episode}/{number}",
            benchmark=NAME,
            split="test",
            group=episode,
            question=question,
            options=options,
            answer=answer_label(answer, options),
            media=(Media(path=video),),
            context=context,
            tags={"type": (kind,), "polarity": (polarity,)},
            polarity=polarity,
            licence="Apache-2.0",
        )
        for number, (question, options, polarity, answer, kind) in questions.items()
    ]


def _questions(record: Field) -> Iterator[tuple[str, Field, Field, str]]:
    """Number, question, answer and type of each question."""
    columns = {name: record.get(name).entries() for name in ("questions", "answers", "labels")}
    numbers = dict.fromkeys(number for column in columns.values() for number in column)
    if not numbers:
        record.get("questions").fail("is empty")
    for number in numbers:
        cleaned(Field(number, f"{record.where}, question {number!r}", "questions"))
        given = {name: column[number].value for name, column in columns.items() if number in column}
        row = Field(given, f"{record.where}, question {number}")
        question, answer, label = (row.get(name) for name in columns)
        kind = cleaned(label).lower().replace(" ", "_")
        yield number, question, answer, replace(label, value=kind).one_of(TYPES)


def _videos(folder: Path) -> dict[str, Path]:
    videos: dict[str, Path] = {}
    for path in (path for name in VIDEOS for path in sorted((folder / name).glob("*"))):
        if path.suffix.lower() in _SUFFIXES:
            episode = path.stem.removeprefix("video_")
            # Where file names ignore case both folders are the same one.
            if episode in videos and not path.samefile(videos[episode]):
                raise BenchmarkError(f"{path}: episode {episode} also has {videos[episode]}")
            videos[episode] = path
    return videos


def _context(record: Field, text: Field | None, talks: bool, who: People | None) -> Context:
    """The benchmark's text: the talk, or one person's actions, never the narrative."""
    description = record.get("description")
    narrative = cleaned(description)
    if record.has("filtered_description"):
        return Context(actions=_part(record.get("filtered_description"), narrative))
    if talks:
        lines = _dialogue(cleaned(text)) if text is not None else None
        return Context(dialogue=lines or _quoted(description, narrative, text, who))
    if text is None:
        record.get("filtered_description")
        record.fail("field filtered_description is null, and there is no entry in texts.json")
    return Context(actions=_part(text, narrative))


def _part(field: Field, narrative: str) -> str:
    """A text that covers a part of the narrative."""
    text = cleaned(field)
    words, whole = text.split(), narrative.split()
    if len(words) >= WHOLE * len(whole) or one_line(narrative) in one_line(text):
        field.fail(
            f"is the whole narrative ({len(words)} of {len(whole)} words), not what the "
            "benchmark gives: one person's actions, as in field filtered_description"
        )
    return text


def _dialogue(text: str) -> str | None:
    """Two or more lines ``Name: words``; None if the text is something else."""
    lines = [_LINE.fullmatch(line.strip()) for line in text.splitlines() if line.strip()]
    if len(lines) < 2 or not all(lines):
        return None
    return "\n".join(f"{line[1]}: {line[2]}" for line in lines if line)


def _quoted(description: Field, narrative: str, text: Field | None, who: People | None) -> str:
    """The talk that a narrative quotes: a question, and a reply by whom the questions are about.

    Names are those of the questions, as texts.json renames people in some episodes.
    """
    quotes = _quotes(narrative)
    if len(quotes) != 2 and text is not None:
        quotes = _quotes(cleaned(text))
    if len(quotes) != 2:
        description.fail(f"must quote a question and a reply, quotes {len(quotes)} utterances")
    if who is None:
        description.fail("quotes a talk, but the questions do not name who asks and who replies")
    return f"{who.other}: {quotes[0]}\n{who.subject}: {quotes[1]}"


def _quotes(text: str) -> list[str]:
    """Quoted utterances, each a sentence with its own end."""
    quotes = [one_line(a or b).rstrip(" ,;") for a, b in _QUOTED.findall(text)]
    return [words if words[-1] in ".!?" else f"{words}." for words in quotes if words]


class People(NamedTuple):
    """Whose mind is asked about, who replies in a talk; and who asks, or whose goal is guessed."""

    subject: str
    other: str


def people(texts: Iterable[str]) -> People | None:
    """The persons that questions and options of one episode name; None for none, or several."""
    pairs = {
        People(match["subject"], match["other"])
        for text in texts
        for pattern in _PEOPLE
        for match in pattern.finditer(text)
    }
    pair = pairs.pop() if len(pairs) == 1 else None
    return pair if pair and pair.subject != pair.other else None


def cleaned(field: Field) -> str:
    """A text without white space around it, and without Python's ``b'...'``."""
    text = field.text().strip()
    if match := _BYTES.fullmatch(text):
        try:
            text = _ESCAPE.sub(_unescaped, match[2]).strip()
        except UnicodeDecodeError:
            field.fail("holds bytes that are not UTF-8")
    return replace(field, value=text).text()


def _unescaped(match: re.Match[str]) -> str:
    escape = match[0]
    if escape.startswith("\\x"):
        return bytes.fromhex(escape.replace("\\x", "")).decode()
    return {"n": "\n", "r": "\r", "t": "\t"}.get(escape[1], escape[1])


def take_apart(field: Field) -> tuple[str, tuple[Option, ...], Polarity]:
    """A question ``... MOST likely?``, its options on lines ``A) ...`` to ``C) ...``, and its
    polarity.
    """
    text = cleaned(field)
    marks = list(_OPTION.finditer(text))
    labels = tuple(mark[1] for mark in marks)
    if labels != LABELS:
        field.fail(f"must offer A), B) and C) on lines of their own, offers {', '.join(labels)}")
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    texts = [one_line(text[m.end() : end]) for m, end in zip(marks, ends, strict=True)]
    if not all(texts) or len({option.casefold() for option in texts}) < len(texts):
        field.fail("has an empty option, or the same one twice")
    question = one_line(text[: marks[0].start()])
    asked = re.findall(r"\b(?:MOST|LEAST)\b", question)
    if len(asked) != 1:
        field.fail(f"must ask once for MOST or LEAST before its options, asks {', '.join(asked)}")
    return question, tuple(map(Option, LABELS, texts)), _POLARITY[asked[0]]


def answer_label(field: Field, options: tuple[Option, ...]) -> str:
    """The label of an answer ``C) text``, whose text must be that option's."""
    match = _ANSWER.fullmatch(cleaned(field))
    texts = {option.label: _compared(option.text) for option in options}
    if match is None or match[1] not in texts:
        field.fail(f"must be an option's label and text, like 'A) ...', is {field.value!r:.60}")
    if _compared(match[2]) != texts[match[1]]:
        field.fail(f"names option {match[1]}, but its text is another's")
    return match[1]


def one_line(text: str) -> str:
    """A text with single blanks between its words."""
    return " ".join(text.split())


def _compared(text: str) -> str:
    return one_line(text).rstrip(" .").casefold()


_WORDS = ("actions", "dialogue")
# The benchmark's own view is video and text together; each alone lacks a part. Talk is drawn into
# the videos as captions. The whole narrative is in no view.
MUMA_TOM = Benchmark(
    name=NAME,
    official=NAME,
    load=load,
    views={
        "multimodal": _WORDS,
        "video": (),
        "audio": (),
        "audiovisual": (),
        "text": _WORDS,
        "none": (),
    },
    default_view="multimodal",
    # Paper, appendix 12.1: every 20th frame of videos at 10 frames a second.
    sampling=Sampling(every=20),
    breakdowns=("type", "polarity"),
    layout=LAYOUT,
)
