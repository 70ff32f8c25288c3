"""ToMi: where an object is, was, and is looked for (Le et al., EMNLP 2019).

The authors' ``main.py`` writes ``train.txt``, ``val.txt`` and ``test.txt``, and their repository
has a zip with ``fb_all_test.txt`` and so on. A line is its number in the story and a sentence; the
last is the question, its answer and a number, parted by tabs. A ``.trace`` file of the same name
has a line a question: what happens, the type of the question and that of the story, parted by
commas.

Six questions are asked of each story, and their answers are containers. Two are named in a story:
where the object lies, and where it is moved to; these are the options.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from sally_anne.core.errors import RecordError
from sally_anne.data.items import Benchmark, BenchmarkItem, Context, two_options
from sally_anne.data.read import Field, read_text

SPLITS = ("train", "val", "test")
PLACES = ("", "data")
STORIES = ("true_belief", "false_belief", "second_order_false_belief")
LAYOUT = "test.txt and test.trace (or fb_all_test.txt and fb_all_test.trace), here or in data/"
# What a question asks, of which agent, and whether the answer is other than what is so.
_KIND = re.compile(
    r"(?P<control>memory|reality)|(?P<order>first|second)_order_[01]_(?P<true>no_)?tom"
)
_ORDERS = {None: "0", "first": "1", "second": "2"}
_PLACED = re.compile(r"(?:The \w+ is in|\w+ moved the \w+ to) the (?P<place>\w+)\.")


class Asked(NamedTuple):
    """A question on a story; ``happens``, ``kind`` and ``story`` are of its line in the trace."""

    sentences: tuple[str, ...]
    question: str
    right: str
    happens: list[str]
    kind: re.Match[str]
    story: str
    where: Field

    @property
    def condition(self) -> str:
        """Of the belief asked for, TB or FB; empty for control questions."""
        if self.kind["control"]:
            return ""
        return "TB" if self.kind["true"] else "FB"


def load(folder: Path) -> list[BenchmarkItem]:
    """All questions of the files found, in their order; RecordError names file and line."""
    places = [Path(folder) / place for place in PLACES]
    files = [path for place in places for path in sorted(place.glob("*.txt")) if _split(path)]
    if not files:
        made = places[1] if (places[0] / "main.py").is_file() else None
        how = f"; run `python main.py` in it, which writes them to {made}" if made else ""
        raise RecordError(f"{folder}: must hold {LAYOUT}{how}")
    items = []
    for path in files:
        traces = path.with_suffix(".trace")
        if not traces.is_file():
            raise RecordError(f"{traces}: is missing; each file of stories has one")
        items += read_stories(read_text(path), read_text(traces), path)
    return items


def read_stories(text: str, traces: str, path: Path) -> list[BenchmarkItem]:
    """The questions of one file, with the text of its ``.trace``."""
    asked = list(_asked(text, traces, path))
    if not asked:
        raise RecordError(f"{path}: has no stories")
    stories = enumerate(_stories(asked), start=1)
    return [item for number, story in stories for item in _items(story, path, number)]


def _split(path: Path) -> str:
    """Train, val or test; empty for other files."""
    last = path.stem.rpartition("_")[2]
    return last if last in SPLITS else ""


def _asked(text: str, traces: str, path: Path) -> Iterator[Asked]:
    kinds = iter(
        [
            Field(line.strip(), f"{path.with_suffix('.trace')}, line {number}")
            for number, line in enumerate(traces.split("\n"), 1)
            if line.strip()
        ]
    )
    sentences: list[str] = []
    at = Field(None, str(path))
    for line, said in enumerate(text.split("\n"), 1):
        if not said.strip():
            continue
        at = Field(said, f"{path}, line {line}")
        number, _, sentence = said.strip().partition(" ")
        if number != str(len(sentences) + 1):
            at.fail(f"must begin with {len(sentences) + 1}, its number in the story")
        question, *answer = (part.strip() for part in sentence.split("\t"))
        if not answer:
            sentences.append(sentence.strip())
            continue
        if not (question and answer[0]):
            at.fail("must be a question, its answer and a number, parted by tabs")
        if (trace := next(kinds, None)) is None:
            at.fail(f"is a question without a line in {path.with_suffix('.trace').name}")
        yield Asked(tuple(sentences), question, answer[0], *_traced(trace), at)
        sentences = []
    if sentences:
        at.fail("is the end of a story without a question")
    if (trace := next(kinds, None)) is not None:
        trace.fail(f"is of no question: {path.name} has fewer")


def _traced(trace: Field) -> tuple[list[str], re.Match[str], str]:
    """What happens, the type of question and that of story."""
    parts = ["", *trace.value.split(",")]
    kind = _KIND.fullmatch(parts[-2])
    if kind is None or parts[-1] not in STORIES:
        trace.fail("must end with a type of question and a type of story, parted by a comma")
    return parts[:-2], kind, parts[-1]


def _stories(asked: Iterable[Asked]) -> Iterator[list[Asked]]:
    """What is asked of one story, which stands together."""
    story: list[Asked] = []
    for one in asked:
        same = [(o.sentences, o.happens, o.story) for o in (*story[:1], one)]
        if story and (same[0] != same[1] or one.kind[0] in [other.kind[0] for other in story]):
            yield story
            story = []
        story.append(one)
    yield story


def _items(story: list[Asked], path: Path, number: int) -> Iterator[BenchmarkItem]:
    found = [match for said in story[0].sentences if (match := _PLACED.fullmatch(said))]
    containers = list(dict.fromkeys(match["place"] for match in found))
    # Of the two agents one may have seen the move and the other not: a true and a false belief side
    # by side. Second-order questions are both the one or both the other.
    first = [one for one in story if one.kind["order"] == "first"]
    pair = len(first) == 2 and {one.condition for one in first} == {"TB", "FB"}
    for one in story:
        others = [container for container in containers if container != one.right]
        if len(others) != 1 or len(containers) != 2:
            one.where.fail(
                f"its answer is {one.right!r}, and its story names {', '.join(containers)} as "
                "containers; there must be two, one of them the answer"
            )
        item_id = f"{path.stem}/{number:04d}/{one.kind[0]}"
        options, answer = two_options(item_id, one.right, others[0])
        tags = {
            "type": (re.sub("_[01]_", "_", one.kind[0]),),
            "order": (_ORDERS[one.kind["order"]],),
            "story": (one.story,),
            "joint": ("story",),
        }
        yield BenchmarkItem(
            item_id=item_id,
            benchmark="tomi",
            split=_split(path),
            group=f"{path.stem}/{number:04d}",
            question=one.question,
            options=options,
            answer=answer,
            context=Context(scene="\n".join(one.sentences)),
            tags=tags | ({"condition": (one.condition,)} if pair and one in first else {}),
            licence="CC-BY-NC-4.0",
        )


TOMI = Benchmark(
    name="tomi",
    load=load,
    views={"text": ("scene",), "none": ()},
    breakdowns=("type", "order", "story", "condition"),
    layout=LAYOUT,
    cells=("order",),
)
