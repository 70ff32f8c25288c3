"""MMToM-QA: what a person in a household video believes and wants (Jin et al., ACL 2024).

One question a line of ``questions.json``; the videos are folders of frames, each with a pickle that
tells at which frame each step of the episode ends. A question is about all that happens up to its
``end_time``, which counts steps from 0.

Types: 1.1 true belief, 1.2 false belief, 1.3 belief tracked over a longer time; 2.1 goal given a
true belief, 2.2 a false belief, 2.3 an updated belief, 2.4 future actions. Of the beliefs asked
for, the published types say of 1.1 and 1.2 alone whether they are true.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from sally_anne.core.errors import RecordError
from sally_anne.data.items import Benchmark, BenchmarkItem, Context, Media, Option, Sampling
from sally_anne.data.mmtom_qa.episodes import NOT_HERE, episode_media
from sally_anne.data.read import Field, json_lines, read_bytes

QUESTIONS = "questions.json"
LAYOUT = (
    "questions.json (or Benchmark/questions.json) and, for videos, "
    "videos/task_EPISODE/frame_intervals.pik and videos/task_EPISODE/script/0/Action_*_normal.png"
)
TYPES = ("1.1", "1.2", "1.3", "2.1", "2.2", "2.3", "2.4")
CONDITIONS = {"1.1": "TB", "1.2": "FB"}
# Which texts a question is published with: all of the scene or of the actions, or a part.
SCENES = ("graph", "init_graph", "filtered_graph", "filtered_init_graph")
ACTIONS = ("actions", "filtered_actions")
LABELS = ("a", "b")
# Headings of a question's text.
SCENE_HEADING = "What's inside the apartment:"
ACTIONS_HEADING = "Actions taken by "
QUESTION_HEADING = "Question:"
OPTION_HEADINGS = ("(a)", "(b)")
REQUEST = re.compile(r"Please respond with either a or b\s*\.?\s*\Z")
# Far more than any episode or step; a number beyond it is a mistake.
MOST = 999_999


def load(folder: Path) -> list[BenchmarkItem]:
    """All questions of a folder, see :data:`LAYOUT`, in the order of the file.

    Without videos ``Media.path`` is None. RecordError names file, line and field, or a pickle.
    """
    folder = Path(folder)
    places = (folder / QUESTIONS, folder / "Benchmark" / QUESTIONS)
    path = next((path for path in places if path.is_file()), None)
    if path is None:
        raise RecordError(f"{places[0]}: is not there; the folder must hold {LAYOUT}")
    videos = episode_media(folder)
    items: dict[str, tuple[BenchmarkItem, Field]] = {}
    for record in json_lines(read_bytes(path), path, "question"):
        item = read_record(record, videos)
        if item.item_id in items:
            first = items[item.item_id][1].where.removeprefix(f"{path}, ")
            record.get("episode").fail(
                f"with its type and times repeats the question of {first}; remove one"
            )
        items[item.item_id] = (item, record)
    if not items:
        raise RecordError(f"{path}: has no questions")
    return [item for item, _ in items.values()]


def read_record(
    record: Field, videos: Callable[[int, Field], Media] = lambda *_: NOT_HERE
) -> BenchmarkItem:
    """One line of the file; ``videos`` gives an episode's frames up to a step."""
    # Published as a number with one decimal.
    published = record.get("question_type")
    kind = str(published.value).strip() if isinstance(published.value, str | float) else ""
    if kind not in TYPES:
        published.fail(f"must be one of {', '.join(TYPES)}")
    episode = _episode(record.get("episode"))
    start, end = _step(record.get("start_time")), _step(record.get("end_time"))
    if start > end:
        record.get("end_time").fail(f"is {end}, before start_time {start}")
    told = record.get("test")
    modality = tuple(entry.one_of(SCENES + ACTIONS) for entry in told.items())
    if len(set(modality)) < len(modality):
        told.fail("names a text twice")
    text = record.get("question")
    wording = take_apart(text)
    for needed, part, name in (
        (SCENES, wording.scene, "scene"),
        (ACTIONS, wording.actions, "actions"),
    ):
        if set(needed) & set(modality) and not part:
            text.fail(f"tells no {name}, which field test asks for")
    if record.has("answer_list"):
        choices = record.get("answer_list")
        if tuple(_letter(entry) for entry in choices.items(len(LABELS))) != LABELS:
            choices.fail(f"must be the labels {' and '.join(LABELS)} of the question's options")
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
        options=tuple(map(Option, LABELS, wording.options)),
        answer=_letter(record.get("answer")),
        media=(videos(episode, record.get("end_time")),),
        context=Context(scene=wording.scene, actions=wording.actions),
        tags=tags,
        polarity="least" if "less likely" in wording.question else "most",
        asked=text.text(),
        person=wording.person,
        licence="MIT",
    )


def _episode(field: Field) -> int:
    if not isinstance(field.value, str):
        return _step(field)
    digits = field.value.strip()
    if not (digits.isascii() and digits.isdigit()) or len(digits) > len(str(MOST)):
        field.fail(f"must be a number up to {MOST}")
    return int(digits)


def _step(field: Field) -> int:
    value = field.number()
    if value > MOST:
        field.fail(f"must be at most {MOST}")
    return value


def _letter(field: Field) -> str:
    letter = field.stripped().lower()
    if letter not in LABELS:
        field.fail(f"must be {' or '.join(LABELS)}")
    return letter


class Wording(NamedTuple):
    """The parts of one question's text; those before ``question`` are empty where not told."""

    scene: str
    actions: str
    question: str
    options: tuple[str, str]
    person: str


def take_apart(text: Field) -> Wording:
    """Headings stand at most once and in this order: scene, actions, question, (a), (b)."""
    context, asked = _halves(text, text.text(), QUESTION_HEADING)
    actions = scene = person = ""
    parts: dict[str, str] = {}
    if ACTIONS_HEADING in context:
        context, acted = _halves(text, context, ACTIONS_HEADING)
        person, colon, actions = acted.partition(":")
        if not colon and person:
            text.fail(f"has no colon after {ACTIONS_HEADING!r} and a name")
        if colon:
            parts |= {ACTIONS_HEADING: person, f"{ACTIONS_HEADING}{person.strip()}:": actions}
    before = context
    if SCENE_HEADING in context:
        before, scene = _halves(text, context, SCENE_HEADING)
        parts[SCENE_HEADING] = scene
    if before.strip():
        headings = (SCENE_HEADING, ACTIONS_HEADING, QUESTION_HEADING)
        text.fail("must begin with {!r}, {!r} or {!r}".format(*headings))
    question, choices = _halves(text, asked, OPTION_HEADINGS[0])
    a, b = _halves(text, choices, OPTION_HEADINGS[1])
    b = REQUEST.sub("", b)
    parts |= {QUESTION_HEADING: question, OPTION_HEADINGS[0]: a, OPTION_HEADINGS[1]: b}
    for heading, part in parts.items():
        if not part.strip():
            text.fail(f"has nothing after {heading!r}")
    if a.strip() == b.strip():
        text.fail("has the same text for (a) and (b)")
    told = (scene.strip(), actions.strip(), question.strip())
    return Wording(*told, (a.strip(), b.strip()), person.strip())


def _halves(field: Field, text: str, heading: str) -> tuple[str, str]:
    """What stands before and after a heading that must be there once."""
    count = text.count(heading)
    if count != 1:
        field.fail(f"must have {heading!r} once and in its place, has it {count} times there")
    before, _, after = text.partition(heading)
    return before, after


_WORDS = ("scene", "actions")
MMTOM_QA = Benchmark(
    name="mmtom_qa",
    official="mmtom_qa",
    load=load,
    # The official multimodal condition shows the frames and all that is told; the official video
    # condition leaves out both what is in the apartment and what is done.
    views={"multimodal": _WORDS, "video": (), "text": _WORDS, "none": ()},
    default_view="multimodal",
    sampling=Sampling(count=8),
    breakdowns=("family", "type", "condition"),
    layout=LAYOUT,
)
