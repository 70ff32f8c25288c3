"""MuMA-ToM: what two people in a household believe, want, and think that the other wants.

Of 225 episodes, with four questions each, people talk in 150: the video shows both, and the text is
their talk. In 75 the video shows one person, the text (``filtered_description``) is the other's
actions. A record's ``description`` is the whole narrative, from which the talk is taken where
``texts.json``, whose copy in the released code holds the narrative instead, has none.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from sally_anne.data import items
from sally_anne.data.items import Benchmark, Context, Media, Option, Polarity, Question
from sally_anne.data.read import Field, find_files, one_line, read_json, some

NAME = "muma_tom"
QUESTIONS, TEXTS, VIDEOS = "questions.json", "texts.json", ("videos", "Videos")
TYPES = ("belief", "social_goal", "belief_of_goal")
LAYOUT = (
    f"{QUESTIONS}, {TEXTS} and videos/ of the dataset MUMA-TOM-BENCHMARK (videos named 42.mp4 or "
    "video_42.mp4 after their episodes)"
)
# The benchmark's texts have at most 7 in 10 of their narratives' words; those above are the whole.
WHOLE = 0.9
_LINE = re.compile(r"([^\W\d_][\w'’-]*)\s*:\s*(\S.*)")
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”")
LABELS = ("A", "B", "C")
# Some strings were written as Python shows bytes: b'...' with escapes.
_BYTES = re.compile(r"b(['\"])(.*)\1", re.DOTALL)
_OPTION = re.compile(r"^[ \t]*([A-Z])\)[ \t]*", re.MULTILINE)
# Belief: the social goal is given; social goal: the options name it; belief of the other's goal.
_PEOPLE = re.compile(
    r"\bif (\w+) has been trying to (?:help|hinder) (\w+)\b"
    r"|\b(\w+) has been trying to (?:help|prevent) (\w+)\b"
    r"|\b(\w+) was indifferent towards (\w+)['’]"
    r"|\b(\w+) believed that (\w+) (?:placed|want)"
    r"|\b(\w+) doesn['’]t know (\w+)['’]"
)


def load(folder: Path) -> list[Question]:
    """All questions of a folder; RecordError names file, episode, question and field."""
    path = find_files(folder, (QUESTIONS,), LAYOUT)[0]
    texts_path = folder / TEXTS
    texts = read_json(texts_path).entries() if texts_path.exists() else {}
    videos = {
        name.removeprefix("video_"): file
        for place in VIDEOS
        for name, file in items.videos_in(folder / place).items()
    }
    questions = []
    for episode, record in read_json(path).entries().items():
        record = Field(record.value, f"{path}, episode {episode}")
        questions += read_episode(episode, record, texts.get(episode), videos.get(episode))
    return some(questions, path)


def read_episode(
    episode: str, record: Field, text: Field | None = None, video: Path | None = None
) -> list[Question]:
    """The questions of one episode: its entries in the two files, and its video."""
    parts = {n: take_apart(question) for n, question in record.get("questions").entries().items()}
    kinds, answers = {}, {}
    for number in parts:
        given = record.get("answers").get(number)
        answers[number] = replace(given, value=cleaned(given).partition(")")[0]).one_of(LABELS)
        label = record.get("labels").get(number)
        kinds[number] = replace(label, value=cleaned(label).lower().replace(" ", "_")).one_of(TYPES)
    wordings = [w for q, options, _ in parts.values() for w in (q, *(o.text for o in options))]
    talks = any(kind != "belief_of_goal" for kind in kinds.values())
    context = _context(record, text, talks, people(wordings))
    return [
        Question(
            item_id=f"{episode}/{number}",
            benchmark=NAME,
            split="test",
            group=episode,
            question=question,
            options=options,
            answer=answers[number],
            media=(Media(path=video),),
            context=context,
            tags=items.tags_of(type=kinds[number], polarity=polarity),
            polarity=polarity,
        )
        for number, (question, options, polarity) in parts.items()
    ]


def _context(record: Field, text: Field | None, talks: bool, who: People | None) -> Context:
    """The benchmark's text: the talk, else what the narrative quotes, or one person's actions.

    Names are those of the questions, as texts.json renames people in some episodes.
    """
    description = record.get("description")
    narrative = cleaned(description)
    if record.has("filtered_description") or not talks:
        if text is None or record.has("filtered_description"):
            text = record.get("filtered_description")
        if len(cleaned(text).split()) >= WHOLE * len(narrative.split()):
            text.fail(
                "is the whole narrative, not what the benchmark gives: one person's actions, as in "
                "field filtered_description"
            )
        return Context(actions=cleaned(text))
    told = "" if text is None else cleaned(text)
    said = [_LINE.fullmatch(line.strip()) for line in told.splitlines() if line.strip()]
    if len(said) >= 2 and all(said):
        return Context(dialogue="\n".join(f"{line[1]}: {line[2]}" for line in said if line))
    quotes = next((found for t in (narrative, told) if len(found := _quotes(t)) == 2), None)
    if quotes is None or who is None:
        description.fail("must quote a question and a reply, whose people the questions name")
    return Context(dialogue=f"{who.other}: {quotes[0]}\n{who.subject}: {quotes[1]}")


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
    found = [filter(None, match.groups()) for text in texts for match in _PEOPLE.finditer(text)]
    pairs = {People(*names) for names in found}
    pair = pairs.pop() if len(pairs) == 1 else None
    return pair if pair and pair.subject != pair.other else None


def cleaned(field: Field) -> str:
    """A text without white space around it, and without Python's ``b'...'``."""
    text = field.text().strip()
    if match := _BYTES.fullmatch(text):
        try:
            text = codecs.escape_decode(match[2].encode())[0].decode().strip()
        except ValueError:
            field.fail("holds bytes that are not UTF-8")
    return replace(field, value=text).text()


def take_apart(field: Field) -> tuple[str, tuple[Option, ...], Polarity]:
    """A question ``... MOST likely?``, options on lines ``A) ...`` to ``C) ...``, its polarity."""
    question, *parts = _OPTION.split(cleaned(field))
    texts = [one_line(text) for text in parts[1::2]]
    asked = re.findall(r"\b(?:MOST|LEAST)\b", question)
    if tuple(parts[::2]) != LABELS or not all(texts) or len(asked) != 1:
        field.fail("must ask once for MOST or LEAST and offer A), B) and C) on lines of their own")
    polarity: Polarity = "most" if asked == ["MOST"] else "least"
    return one_line(question), tuple(map(Option, LABELS, texts)), polarity


# The benchmark's own view is video and text together; each alone lacks a part. Talk is drawn into
# the videos as captions. The whole narrative is in no view.
MUMA_TOM = Benchmark(
    name=NAME,
    official=NAME,
    load=load,
    views=items.film_views("actions", "dialogue"),
    default_view="multimodal",
    # Paper, appendix 12.1: every 20th frame of videos at 10 frames a second.
    sampling=items.Sampling(every=20),
    breakdowns=("type", "polarity"),
    layout=LAYOUT,
)
