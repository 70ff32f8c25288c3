"""The user's own task: questions as JSON lines, with a video, pictures, words or neither.

A line is one question::

    {"question": "Where does Ann look first?", "options": ["the box", "the basket"], "answer": 1,
     "video": "videos/ann.mp4", "context": "Ann left the room.", "group": "ann",
     "tags": {"condition": "FB"}}

| field | content |
|---|---|
| ``question`` | what is asked, without the options |
| ``options`` | two to 26 texts, called A, B, C ...; without them the question is open |
| ``answer`` | an option's number from 0, its letter or its text; the reply to an open question; \
left out or null where it is not known |
| ``video`` | a file, from the folder of the JSON-lines file on |
| ``images`` | in place of a video: one picture or a list of them, in their order |
| ``context`` | what is told beside the question |
| ``group`` | intervals are over groups; the video by default, or else the line by itself |
| ``tags`` | kinds of items to values (a text or several), by which accuracy is reported |
| ``id`` | unique name; the line's number by default |
| ``split`` | ``test`` by default |

Each field of ``options``, ``context``, and ``video`` or ``images`` stands in all lines or in none.

:func:`load` gives the questions as the other benchmarks' loaders do; :func:`own_task` gives what
the harness needs to ask them: ``own_task(path).load(path)``.
"""

from __future__ import annotations

import string
from pathlib import Path

from sally_anne.benchmarks.fields import Field, json_lines, read_bytes
from sally_anne.benchmarks.items import Benchmark, BenchmarkItem, Context, Media, Option, Sampling
from sally_anne.core.errors import RecordError

FIELDS = (
    *("question", "options", "answer", "video", "images", "context"),
    *("group", "tags", "id", "split"),
)
# As many frames of a video as the other benchmarks show that do not say otherwise.
FRAMES = 8


def own_task(path: Path) -> Benchmark:
    """The task in a JSON-lines file: its views follow from what its lines have.

    Raises:
        RecordError: as :func:`load`.
    """
    path = Path(path)
    items = load(path)
    words = ("scene",) if items[0].context.scene else ()
    filmed = bool(items[0].media)
    kinds = dict.fromkeys(kind for item in items for kind in item.tags)
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
        breakdowns=tuple(kinds),
        layout=f"one question a line, with the fields {', '.join(FIELDS)}",
        default_split=items[0].split,
        open_ended=not items[0].options,
    )


def load(path: Path) -> list[BenchmarkItem]:
    """All questions, in the order of the file.

    Args:
        path: of the JSON-lines file.

    Raises:
        RecordError: the file cannot be read, has no questions or an unusable one; names file, line
            and field.
    """
    path = Path(path)
    items: dict[str, BenchmarkItem] = {}
    first: Field | None = None
    for record in json_lines(read_bytes(path), path, "question"):
        first = first or record
        for names in (("options",), ("context",), ("video", "images")):
            has = [any(r.has(name) for name in names) for r in (record, first)]
            if has[0] != has[1]:
                other = first.where.removeprefix(f"{path}, ")
                record.fail(
                    f"field {' or '.join(names)} is {'there' if has[0] else 'missing'}, unlike in "
                    f"{other}; give it in all lines or in none"
                )
        item = _item(record, path)
        if item.item_id in items:
            record.get("id").fail(f"repeats {item.item_id!r}")
        items[item.item_id] = item
    if not items:
        raise RecordError(f"{path}: has no questions")
    return list(items.values())


def _item(record: Field, path: Path) -> BenchmarkItem:
    if unknown := [name for name in record.value if name not in FIELDS]:
        record.fail(f"has an unknown field {unknown[0]!r}; known are {', '.join(FIELDS)}")
    question = record.get("question").encodable()
    texts: list[str] = []
    if record.has("options"):
        options = record.get("options")
        texts = [option.encodable().strip() for option in options.items()]
        if not 2 <= len(texts) <= len(string.ascii_uppercase) or len(set(texts)) < len(texts):
            options.fail(f"must be 2 to {len(string.ascii_uppercase)} different texts")
    answer = record.get("answer") if record.has("answer") else None
    labels = string.ascii_uppercase[: len(texts)]
    media = _media(record, path.parent)
    item_id = _name(record, "id", record.where.rpartition(" ")[2])
    return BenchmarkItem(
        item_id=item_id,
        benchmark=path.stem,
        split=_name(record, "split", "test"),
        group=_name(record, "group", record.value.get("video") or item_id),
        question=question,
        options=tuple(map(Option, labels, texts)),
        answer=labels[_choice(answer, texts)] if answer and texts else None,
        reference=answer.encodable() if answer and not texts else None,
        media=(media,) if media else (),
        context=Context(record.get("context").encodable() if record.has("context") else ""),
        tags=_tags(record),
    )


def _choice(answer: Field, texts: list[str]) -> int:
    """Place of the right option, given by its number, letter or text."""
    given = answer.value
    labels = string.ascii_uppercase[: len(texts)]
    if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < len(texts):
        return given
    if isinstance(given, str) and (said := given.strip()):
        found = {texts.index(said)} if said in texts else set()
        found |= {labels.index(said)} if said in labels and len(said) == 1 else set()
        if len(found) > 1:
            answer.fail(f"{said!r} is the letter of one option and the text of another")
        if found:
            return found.pop()
    answer.fail(
        f"must be the number of an option from 0 to {len(texts) - 1}, its letter or its text, is "
        f"{given!r:.60}"
    )


def _media(record: Field, folder: Path) -> Media | None:
    if record.has("video"):
        if record.has("images"):
            record.get("images").fail("stands beside video; give one of them")
        return Media(path=_file(record.get("video"), folder))
    if not record.has("images"):
        return None
    field = record.get("images")
    named = [field] if isinstance(field.value, str) else field.items()
    if not named:
        field.fail("is empty")
    return Media(kind="frames", path=folder, files=tuple(_file(name, folder) for name in named))


def _file(field: Field, folder: Path) -> Path:
    path = folder / field.encodable()
    try:
        there = path.is_file()
    # A name with NUL, or one that is too long.
    except (OSError, ValueError) as error:
        field.fail(f"is no name of a file ({error})")
    if not there:
        field.fail(f"names {path}, where there is no file")
    return path


def _name(record: Field, field: str, otherwise: str) -> str:
    """A text or whole number."""
    if not record.has(field):
        return otherwise
    value = record.get(field)
    return str(value.number()) if isinstance(value.value, int) else value.encodable()


def _tags(record: Field) -> dict[str, tuple[str, ...]]:
    kinds = record.get("tags").entries() if record.has("tags") else {}
    tags = {
        kind: tuple(v.encodable() for v in (f.items() if isinstance(f.value, list) else [f]))
        for kind, f in kinds.items()
    }
    return {kind: values for kind, values in tags.items() if values}
