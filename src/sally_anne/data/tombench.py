"""ToMBench: eight tasks and 31 abilities in English and Chinese (Chen et al., ACL 2024).

The official files are JSON lines, one file a task or ability, one question a line. Each has its
story, question and options in both languages, which are the splits ``en`` and ``zh``. Where there
are two options, those of C and D are NaN or null.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from sally_anne.core.errors import RecordError
from sally_anne.data.items import Benchmark, BenchmarkItem, Context, Option
from sally_anne.data.read import Field, json_lines, read_bytes

PLACES = ("", "data")
LAYOUT = "a file for each task, such as False Belief Task.jsonl, here or in data/"
ABILITY, ANSWER = "能力\nABILITY", "答案\nANSWER"
LABELS = "ABCD"
CATEGORIES = (
    *("Emotion", "Desire", "Intention", "Knowledge", "Belief"),
    "Non-literal communication",
)
_CATEGORY = re.compile(rf"({'|'.join(CATEGORIES)}):", re.IGNORECASE)
_LABEL = re.compile(r"([A-D])(?:\.\s*)?")


@dataclass(frozen=True)
class _Language:
    """Names of the fields in one language; an option's ends with its letter."""

    story: str
    question: str
    option: str


LANGUAGES = {
    "en": _Language("STORY", "QUESTION", "OPTION-"),
    "zh": _Language("故事", "问题", "选项"),
}


def load(folder: Path) -> list[BenchmarkItem]:
    """All questions, in both languages; RecordError names file, line and field."""
    places = [Path(folder) / place for place in PLACES]
    files = next((found for place in places if (found := sorted(place.glob("*.jsonl")))), None)
    if files is None:
        raise RecordError(f"{folder}: must hold {LAYOUT}")
    # Questions on one story form a group, also in two files, and in both languages.
    stories: dict[str, str] = {}
    items: list[BenchmarkItem] = []
    for path in files:
        records = list(json_lines(read_bytes(path), path, "question"))
        if not records:
            raise RecordError(f"{path}: has no questions")
        for record in records:
            story = record.get(LANGUAGES["zh"].story).text()
            group = stories.setdefault(story, f"story-{len(stories) + 1:04d}")
            items += read_question(record, path.stem, group)
    return items


def read_question(record: Field, task: str, group: str) -> list[BenchmarkItem]:
    """One line as an item of each language."""
    line = record.where.rpartition(" ")[2]
    abilities = _abilities(record.get(ABILITY))
    letter = _LABEL.fullmatch(record.get(ANSWER).stripped())
    if letter is None:
        record.get(ANSWER).fail(f"must be one of {', '.join(LABELS)}")
    found = []
    for language, fields in LANGUAGES.items():
        options = _options(record, fields)
        right = [option.text for option in options if option.label == letter[1]]
        # Two published lines have a wrong option twice; the right one is there once.
        if [option.text for option in options].count(right[0] if right else "") != 1:
            record.get(ANSWER).fail(f"is {letter[1]}, which must be one of the options, and once")
        found.append(
            BenchmarkItem(
                item_id=f"{task}/{line}/{language}",
                benchmark="tombench",
                split=language,
                group=group,
                question=record.get(fields.question).stripped(),
                options=options,
                answer=letter[1],
                context=Context(scene=record.get(fields.story).stripped()),
                tags={
                    "task": (task,),
                    "category": tuple(dict.fromkeys(category for category, _ in abilities)),
                    "ability": tuple(f"{category}: {name}" for category, name in abilities),
                    "language": (language,),
                },
                licence="MIT",
            )
        )
    return found


def _abilities(field: Field) -> list[tuple[str, str]]:
    """Category and name of each ability that a question needs, spelt alike."""
    first, *parts = _CATEGORY.split(field.text())
    names = [name.strip() for name in parts[1::2]]
    if first.strip() or not names or not all(names):
        field.fail(f"must be abilities, each after its category: {', '.join(CATEGORIES)}")
    return list(dict.fromkeys(zip(map(str.capitalize, parts[::2]), names, strict=True)))


def _options(record: Field, fields: _Language) -> tuple[Option, ...]:
    """Two or four, without the letter that some of them begin with."""
    cells = [record.get(f"{fields.option}{label}") for label in LABELS]
    there = [cell for cell in cells if not _absent(cell)]
    if there != cells[: len(there)] or len(there) not in (2, 4):
        cells[2].fail("and the others must be A and B, or A to D, and the rest null")
    found = []
    for label, cell in zip(LABELS, there, strict=False):
        text = re.sub(rf"^\s*{label}\s*[.:．：]\s*", "", cell.text()).strip()
        if not text:
            cell.fail("is a letter alone")
        found.append(Option(label, text))
    return tuple(found)


def _absent(cell: Field) -> bool:
    return cell.value is None or (isinstance(cell.value, float) and cell.value != cell.value)


TOMBENCH = Benchmark(
    name="tombench",
    load=load,
    views={"text": ("scene",), "none": ()},
    breakdowns=("task", "category", "ability", "language"),
    layout=LAYOUT,
    default_split="en",
)
