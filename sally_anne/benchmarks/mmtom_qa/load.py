"""Reads MMToM-QA's official files.

One question a line of ``questions.json``; the films are folders of frames, each with a pickle that
tells at which frame each step of the episode ends. A question is about all that happens up to its
``end_time``, which counts steps from 0.

Types: 1.1 true belief, 1.2 false belief, 1.3 belief tracked over a longer time; 2.1 goal given a
true belief, 2.2 a false belief, 2.3 an updated belief, 2.4 future actions. Of the beliefs asked
for, the published types say of 1.1 and 1.2 alone whether they are true.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sally_anne.benchmarks.fields import Field
from sally_anne.benchmarks.items import BenchmarkItem, Context, Media, Option
from sally_anne.benchmarks.mmtom_qa.episodes import FILMS, episode_media
from sally_anne.core.errors import RecordError

QUESTIONS = "questions.json"
LAYOUT = (
    "questions.json (or Benchmark/questions.json) and, for films, "
    "videos/task_EPISODE/frame_intervals.pik and videos/task_EPISODE/script/0/Action_*_normal.png"
)
TYPES = ("1.1", "1.2", "1.3", "2.1", "2.2", "2.3", "2.4")
CONDITIONS = {"1.1": "TB", "1.2": "FB"}
# Which texts a question is published with: all of the scene or of the actions, or a part.
SCENES = ("graph", "init_graph", "filtered_graph", "filtered_init_graph")
ACTIONS = ("actions", "filtered_actions")
LABELS = ("a", "b")
# Far more than any episode or step; a number beyond it is a mistake.
MOST = 999_999

Films = Callable[[int, Field], Media]


def load(folder: Path) -> list[BenchmarkItem]:
    """All questions, in the order of the file.

    Args:
        folder: see :data:`LAYOUT`. Without films ``Media.path`` is None.

    Raises:
        RecordError: the file is missing, empty or has an unusable record; names file, line and
            field. Also for an unusable pickle of an episode that is there.
    """
    folder = Path(folder)
    path = _questions(folder)
    films = episode_media(folder)
    items: dict[str, tuple[BenchmarkItem, Field]] = {}
    for record in _lines(path):
        item = read_record(record, films)
        if item.item_id in items:
            first = items[item.item_id][1].where.removeprefix(f"{path}, ")
            record.get("episode").fail(
                f"with its type and times repeats the question of {first}; remove one"
            )
        items[item.item_id] = (item, record)
    if not items:
        raise RecordError(f"{path}: has no questions")
    return [item for item, _ in items.values()]


def read_record(record: Field, films: Films | None = None) -> BenchmarkItem:
    """One line of the file.

    Args:
        record: the parsed line.
        films: gives an episode's frames up to a step; None where there are none.

    Raises:
        RecordError: a field is missing or does not fit the others.
    """
    kind = _type(record.get("question_type"))
    episode = _episode(record.get("episode"))
    start, end = _step(record.get("start_time")), _step(record.get("end_time"))
    if start > end:
        record.get("end_time").fail(f"is {end}, before start_time {start}")
    modality = _modality(record.get("test"))
    text = record.get("question")
    _check_characters(text)
    wording = take_apart(text)
    for needed, part, name in (
        (SCENES, wording.scene, "scene"),
        (ACTIONS, wording.actions, "actions"),
    ):
        if set(needed) & set(modality) and not part:
            text.fail(f"tells no {name}, which field test asks for")
    family = "belief" if kind.startswith("1") else "goal"
    tags = {"type": (kind,), "family": (family,), "modality": modality}
    if kind in CONDITIONS:
        tags["condition"] = (CONDITIONS[kind],)
    return BenchmarkItem(
        item_id=f"episode-{episode}/{kind}/{start}-{end}",
        benchmark="mmtom_qa",
        split="test",
        group=f"episode-{episode}",
        question=wording.question,
        options=tuple(Option(k, t) for k, t in zip(LABELS, wording.options, strict=True)),
        answer=_answer(record),
        media=(films(episode, record.get("end_time")) if films else FILMS,),
        context=Context(scene=wording.scene, actions=wording.actions),
        tags=tags,
        polarity="least" if "less likely" in wording.question else "most",
        licence="MIT",
    )


def _questions(folder: Path) -> Path:
    for path in (folder / QUESTIONS, folder / "Benchmark" / QUESTIONS):
        if path.is_file():
            return path
    raise RecordError(f"{folder / QUESTIONS}: is not there; the folder must hold {LAYOUT}")


def _lines(path: Path) -> Iterator[Field]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror})") from error
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").splitlines(), start=1):
        where = f"{path}, line {number}"
        if not line.strip():
            continue
        try:
            value = json.loads(line.decode())
        # ValueError covers bad JSON, bad UTF-8 and numbers with thousands of digits.
        except (ValueError, RecursionError) as error:
            raise RecordError(
                f"{where}: is not valid JSON ({error}); each line must be one question"
            ) from error
        if not isinstance(value, dict):
            raise RecordError(f"{where}: must be an object with the fields of one question")
        yield Field(value, where)


def _check_characters(text: Field) -> None:
    # JSON can spell half a character, which no tokenizer takes.
    try:
        text.text().encode()
    except UnicodeEncodeError as error:
        text.fail(f"holds half a character at {error.start}")


def _type(field: Field) -> str:
    """Published as a number with one decimal."""
    value = field.value
    kind = str(value).strip() if isinstance(value, str | float) else ""
    if kind not in TYPES:
        field.fail(f"must be one of {', '.join(TYPES)}")
    return kind


def _episode(field: Field) -> int:
    value = field.value
    if isinstance(value, str):
        digits = value.strip()
        if not (digits.isascii() and digits.isdigit()) or len(digits) > len(str(MOST)):
            field.fail(f"must be a number up to {MOST}")
        return int(digits)
    return _step(field)


def _step(field: Field) -> int:
    value = field.number()
    if value > MOST:
        field.fail(f"must be at most {MOST}")
    return value


def _modality(field: Field) -> tuple[str, ...]:
    named = tuple(entry.one_of(SCENES + ACTIONS) for entry in field.items())
    if len(set(named)) < len(named):
        field.fail("names a text twice")
    return named


def _answer(record: Field) -> str:
    if record.has("answer_list"):
        choices = record.get("answer_list")
        if tuple(_letter(entry) for entry in choices.items(len(LABELS))) != LABELS:
            choices.fail(f"must be the labels {' and '.join(LABELS)} of the question's options")
    return _letter(record.get("answer"))


def _letter(field: Field) -> str:
    letter = field.text().strip().lower()
    if letter not in LABELS:
        field.fail(f"must be {' or '.join(LABELS)}")
    return letter


SCENE = "What's inside the apartment:"
ACTED = "Actions taken by "
QUESTION = "Question:"
OPTIONS = ("(a)", "(b)")
REQUEST = re.compile(r"Please respond with either a or b\s*\.?\s*\Z")


@dataclass(frozen=True)
class Wording:
    """The parts of one question's text, without headings and without the request for a letter.

    Attributes:
        scene: what is inside the apartment; empty if it is not told.
        person: who acts; empty if no actions are told.
        actions: what the person does; empty if it is not told.
        question: without options.
        options: texts of a and b.
    """

    scene: str
    person: str
    actions: str
    question: str
    options: tuple[str, str]


def take_apart(text: Field) -> Wording:
    """The parts of the text.

    Args:
        text: the field that holds it. Headings stand at most once and in this order: scene,
            actions, question, (a), (b).

    Raises:
        RecordError: a part is missing, empty, twice there or out of its place.
    """
    told, asked = _halves(text, text.text(), QUESTION)
    told, actions = _halves(text, told, ACTED) if ACTED in told else (told, "")
    before, scene = _halves(text, told, SCENE) if SCENE in told else (told, "")
    if before.strip():
        text.fail(f"must begin with {SCENE!r}, {ACTED!r} or {QUESTION!r}")
    person, colon, actions = actions.partition(":")
    if colon != ":" and person:
        text.fail(f"has no colon after {ACTED!r} and a name")
    question, choices = _halves(text, asked, OPTIONS[0])
    a, b = _halves(text, choices, OPTIONS[1])
    b = REQUEST.sub("", b)
    parts = {QUESTION: question, OPTIONS[0]: a, OPTIONS[1]: b}
    if colon:
        parts |= {ACTED: person, f"{ACTED}{person.strip()}:": actions}
    if SCENE in told:
        parts[SCENE] = scene
    for heading, part in parts.items():
        if not part.strip():
            text.fail(f"has nothing after {heading!r}")
    if a.strip() == b.strip():
        text.fail("has the same text for (a) and (b)")
    return Wording(
        scene=scene.strip(),
        person=person.strip(),
        actions=actions.strip(),
        question=question.strip(),
        options=(a.strip(), b.strip()),
    )


def _halves(field: Field, text: str, heading: str) -> tuple[str, str]:
    """What stands before and after a heading that must be there once."""
    count = text.count(heading)
    if count != 1:
        field.fail(f"must have {heading!r} once and in its place, has it {count} times there")
    before, _, after = text.partition(heading)
    return before, after
