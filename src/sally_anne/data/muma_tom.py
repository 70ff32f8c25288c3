"""MuMA-ToM: what two people in a household believe, want, and think that the other wants.

225 episodes with four questions each. In 150 of them people talk: the video shows both, and the
text is their talk. In 75 nobody talks: the video shows one person, the text tells what the other
does.

A record's ``description`` is the whole narrative, from which the video was rendered: it is used
here only to take the talk from and to compare with. ``filtered_description`` is the text of
episodes without talk. ``texts.json`` comes in two kinds. As the benchmark's text it holds the talk
(``Name: words``) or one person's actions; the copy beside the released code holds the whole
narrative instead.
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
    BenchmarkItem,
    Context,
    Media,
    Option,
    Polarity,
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
# About what is said while people talk.
_TALK = ("belief", "social_goal")
_SUFFIXES = (".mp4", ".avi", ".mov", ".mkv", ".webm")
# The benchmark's texts have at most 7 in 10 of their narratives' words; those above tell it all.
WHOLE = 0.9
_LINE = re.compile(r"([^\W\d_][\w'’-]*)\s*:\s*(\S.*)")
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”")
LABELS = ("A", "B", "C")
# Some strings were written as Python shows bytes: b'...' with escapes.
_BYTES = re.compile(r"b(['\"])(.*)\1", re.DOTALL)
_ESCAPE = re.compile(r"(?:\\x[0-9a-fA-F]{2})+|\\[nrt\\'\"]")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
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


def load(folder: Path) -> list[BenchmarkItem]:
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
        text = texts.get(episode)
        given = Field(text.value, f"{texts_path}, episode {episode}") if text else None
        cleaned(Field(episode, f"{path}, episode {episode!r}", "name"))
        where = f"{path}, episode {episode}"
        items += read_episode(episode, Field(record.value, where), given, videos.get(episode))
    if not items:
        raise RecordError(f"{path}: has no questions")
    return items


def read_episode(
    episode: str, record: Field, text: Field | None = None, video: Path | None = None
) -> list[BenchmarkItem]:
    """The questions of one episode: its entries in the two files, and its video."""
    asked = {
        number: (*take_apart(question), answer, kind)
        for number, question, answer, kind in _questions(record)
    }
    wordings = [
        words
        for question, options, *_ in asked.values()
        for words in (question, *(option.text for option in options))
    ]
    talks = any(kind in _TALK for *_, kind in asked.values())
    context = _context(record, text, talks, people(wordings))
    return [
        BenchmarkItem(
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
        for number, (question, options, polarity, answer, kind) in asked.items()
    ]


def _questions(record: Field) -> Iterator[tuple[str, Field, Field, str]]:
    """Number, question, answer and type of each question, whose places name the question."""
    columns = {name: record.get(name).entries() for name in ("questions", "answers", "labels")}
    numbers = dict.fromkeys(number for column in columns.values() for number in column)
    if not numbers:
        record.get("questions").fail("is empty")
    for number in numbers:
        cleaned(Field(number, f"{record.where}, question {number!r}", "questions"))
        given = {name: column[number].value for name, column in columns.items() if number in column}
        row = Field(given, f"{record.where}, question {number}")
        question, answer, label = (row.get(name) for name in columns)
        spelt = cleaned(label).lower().replace(" ", "_")
        yield number, question, answer, replace(label, value=spelt).one_of(TYPES)


def _videos(folder: Path) -> dict[str, Path]:
    """The video of each episode that has one here."""
    found: dict[str, Path] = {}
    for path in (path for name in VIDEOS for path in sorted((folder / name).glob("*"))):
        if path.suffix.lower() in _SUFFIXES:
            episode = path.stem.removeprefix("video_")
            # On disks deaf to case both folders are the same one.
            if episode in found and not path.samefile(found[episode]):
                raise BenchmarkError(
                    f"{path}: episode {episode} has a video at {found[episode]} too"
                )
            found[episode] = path
    return found


def _context(record: Field, text: Field | None, talks: bool, who: People | None) -> Context:
    """What the benchmark tells in words: the talk, or one person's actions, never the narrative.

    The talk is two or more lines ``Name: words``.
    """
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
    """A text that tells a part of the narrative."""
    text = cleaned(field)
    words, whole = text.split(), narrative.split()
    if len(words) >= WHOLE * len(whole) or one_line(narrative) in one_line(text):
        field.fail(
            f"tells the whole narrative ({len(words)} of {len(whole)} words), not what the "
            "benchmark gives: one person's actions, as in field filtered_description"
        )
    return text


def _dialogue(text: str) -> str | None:
    """Lines ``Name: words``; None if the text is something else."""
    lines = [_LINE.fullmatch(line.strip()) for line in text.splitlines() if line.strip()]
    if len(lines) < 2 or not all(lines):
        return None
    return "\n".join(f"{line[1]}: {line[2]}" for line in lines if line)


def _quoted(description: Field, narrative: str, text: Field | None, who: People | None) -> str:
    """The talk that a narrative quotes: a question, and a reply by whom the questions are about.

    The questions' names are taken, as texts.json renames people in some episodes.
    """
    said = _quotes(narrative)
    if len(said) != 2 and text is not None:
        said = _quotes(cleaned(text))
    if len(said) != 2:
        description.fail(f"must quote a question and a reply, quotes {len(said)} utterances")
    if who is None:
        description.fail("quotes a talk, but the questions do not tell who asks and who replies")
    return f"{who.other}: {said[0]}\n{who.subject}: {said[1]}"


def _quotes(text: str) -> list[str]:
    """Quoted utterances, each a sentence with its own end."""
    said = [one_line(a or b).rstrip(" ,;") for a, b in _QUOTED.findall(text)]
    return [words if words[-1] in ".!?" else f"{words}." for words in said if words]


class People(NamedTuple):
    """Whose mind is asked about, who replies in a talk; and who asks, or whose goal is guessed."""

    subject: str
    other: str


def people(texts: Iterable[str]) -> People | None:
    """The persons that questions and options of one episode name; None for none, or several."""
    found = {
        People(match["subject"], match["other"])
        for text in texts
        for pattern in _PEOPLE
        for match in pattern.finditer(text)
    }
    if len(found) != 1:
        return None
    pair = found.pop()
    return pair if pair.subject != pair.other else None


def cleaned(field: Field) -> str:
    """A text without white space around it, and without Python's ``b'...'``."""
    text = field.stripped()
    if found := _BYTES.fullmatch(text):
        try:
            text = _ESCAPE.sub(_unescaped, found[2]).strip()
        except UnicodeDecodeError:
            field.fail("holds bytes that are not UTF-8")
        if not text:
            field.fail("must be a text, is b''")
    return replace(field, value=text).text()


def take_apart(field: Field) -> tuple[str, tuple[Option, ...], Polarity]:
    """A question ``... MOST likely?``, its options on lines ``A) ...`` to ``C) ...``, and whether
    the most or least likely is asked for.
    """
    text = cleaned(field)
    marks = list(_OPTION.finditer(text))
    labels = tuple(mark[1] for mark in marks)
    if labels != LABELS:
        field.fail(f"must offer A), B) and C) on lines of their own, offers {_listed(labels)}")
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    said = [one_line(text[m.end() : end]) for m, end in zip(marks, ends, strict=True)]
    if not all(said):
        field.fail(f"has an empty option {LABELS[said.index('')]}")
    if len({option.casefold() for option in said}) < len(said):
        field.fail("has the same option twice")
    question = one_line(text[: marks[0].start()])
    if not question:
        field.fail("has options, but no question before them")
    asked = re.findall(r"\b(?:MOST|LEAST)\b", question)
    if len(asked) != 1:
        field.fail(f"must ask once for MOST or LEAST, asks for {_listed(asked)}")
    return question, tuple(map(Option, LABELS, said)), _POLARITY[asked[0]]


def answer_label(field: Field, options: tuple[Option, ...]) -> str:
    """The label of an answer ``C) text``, whose text must be that option's."""
    found = _ANSWER.fullmatch(cleaned(field))
    if found is None:
        field.fail(f"must be a label and an option's text, like 'A) ...', is {field.value!r:.60}")
    label = found[1]
    said = {option.label: _compared(option.text) for option in options}
    if label not in said:
        field.fail(f"names option {label}, there are {_listed(said)}")
    if _compared(found[2]) != said[label]:
        same = [other for other, text in said.items() if text == _compared(found[2])]
        whose = f"option {same[0]}'s" if same else "no option's"
        field.fail(f"names option {label}, but its text is {whose}")
    return label


def one_line(text: str) -> str:
    """A text with single blanks between its words."""
    return " ".join(text.split())


def _compared(text: str) -> str:
    return one_line(text).rstrip(" .").casefold()


def _unescaped(found: re.Match[str]) -> str:
    escape = found[0]
    if escape.startswith("\\x"):
        return bytes.fromhex(escape.replace("\\x", "")).decode()
    return _ESCAPED.get(escape[1], escape[1])


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


_WORDS = ("actions", "dialogue")
# The benchmark's own view is video and text together. Without one of them a part is not told: video
# alone lacks the text's person in episodes without talk (talk is drawn into the videos as
# captions); words alone lack what the video's people do. The whole narrative is in no view.
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
