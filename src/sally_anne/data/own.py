"""The user's own task: questions as JSON lines, with a video, pictures, words or neither.

docs/own-data.md lists the fields; options, context and media are in all lines or in none.
"""

from __future__ import annotations

import string
from pathlib import Path

from sally_anne.data.items import Benchmark, Context, Media, Option, Question, Sampling
from sally_anne.data.read import Field, named_lines

FIELDS = (
    *("question", "options", "answer", "video", "images", "context"),
    *("group", "tags", "id", "split"),
)
# As many frames of a video as the other benchmarks show that do not say otherwise.
FRAMES = 8
LETTERS = string.ascii_uppercase


def own_task(path: Path) -> Benchmark:
    """The task in a JSON-lines file: its views follow from what its lines have."""
    path = Path(path)
    items = load(path)
    words = ("scene",) if items[0].context.scene else ()
    filmed = bool(items[0].media)
    frames = max([FRAMES, *(len(media.files) for item in items for media in item.media)])
    return Benchmark(
        name=path.stem,
        load=load,
        views={
            **({"multimodal": words, "video": ()} if filmed else {}),
            **({"text": words} if words or not filmed else {}),
            "none": (),
        },
        default_view="multimodal" if filmed else "text",
        sampling=Sampling(count=frames),
        breakdowns=tuple(dict.fromkeys(kind for item in items for kind in item.tags)),
        layout=f"one question a line, with the fields {', '.join(FIELDS)}",
        default_split=items[0].split,
        open_ended=not items[0].options,
    )


def load(path: Path) -> list[Question]:
    """All questions, in the order of the file; RecordError names file, line and field."""
    path = Path(path)
    alike = (("options",), ("context",), ("video", "images"))
    lines = named_lines(path, "question", "id", "{}", FIELDS, alike)
    return [_item(item_id, record, path) for item_id, record in lines.items()]


def _item(item_id: str, record: Field, path: Path) -> Question:
    texts = [option.stripped() for option in record.opt("options", Field.items) or []]
    many = 2 <= len(texts) <= len(LETTERS)
    if record.has("options") and (not many or len(set(texts)) < len(texts)):
        record.get("options").fail(f"must be 2 to {len(LETTERS)} different texts")
    answer = record.get("answer") if record.has("answer") else None
    tags = {
        kind: tuple(value.text() for value in values.several())
        for kind, values in (record.opt("tags", Field.entries) or {}).items()
    }
    return Question(
        item_id=item_id,
        benchmark=path.stem,
        split=record.opt("split", Field.name) or "test",
        group=record.opt("group", Field.name) or record.value.get("video") or item_id,
        question=record.get("question").text(),
        options=tuple(map(Option, LETTERS, texts)),
        answer=_label(answer, texts) if answer and texts else None,
        reference=answer.text() if answer and not texts else None,
        media=_media(record, path.parent),
        context=Context(record.opt("context", Field.text) or ""),
        tags={kind: values for kind, values in tags.items() if values},
    )


def _label(answer: Field, texts: list[str]) -> str:
    """Of the right option, given by its number, letter or text."""
    given = answer.value.strip() if isinstance(answer.value, str) else answer.value
    labels = [
        label
        for number, (label, text) in enumerate(zip(LETTERS, texts, strict=False))
        if given in (label, text) or (type(given) is int and given == number)
    ]
    if len(labels) != 1:
        answer.fail(
            f"must be the number of one option from 0 to {len(texts) - 1}, its letter or its text, "
            f"is {given!r:.60}"
        )
    return labels[0]


def _media(record: Field, folder: Path) -> tuple[Media, ...]:
    images = record.opt("images", Field.several)
    if record.has("video"):
        if images is not None:
            record.get("images").fail("comes with video; give one of them")
        return (Media(path=record.get("video").file(folder)),)
    if images is None:
        return ()
    if not images:
        record.get("images").fail("is empty")
    return (Media(kind="frames", path=folder, files=tuple(i.file(folder) for i in images)),)
