"""OpenToM: where a character thinks a thing is, how full and within reach it is, and what another
thinks of its being moved (Xu et al., ACL 2024).

The official files are lists of questions, ``opentom.json`` on stories of about 200 words and
``opentom_long.json`` on longer ones. Each has all that is known of its story (``plot_info``,
``observed``, ``narrative``, in the long file also ``long_narrative``) and a ``question`` with its
answer and type. One character, the mover, moves a thing; the other, the observer, sees it or not.

Answers are classes: Yes and No of coarse location questions, the two places of fine ones, three
each of fullness, accessibility and attitude.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

from sally_anne.data.items import (
    Benchmark,
    BenchmarkItem,
    Context,
    Option,
    two_options,
)
from sally_anne.data.read import Field, find_file, read_json

# By split: the file, and the field of its stories.
FILES = {"test": ("opentom.json", "narrative"), "long": ("opentom_long.json", "long_narrative")}
PLACES = ("", "data/")
LAYOUT = "opentom.json, opentom_long.json or both, here or in data/"
# By what is asked: a word that its questions have and others have not (as the authors' code tells
# them apart, in this order), the types it comes with, and its answers.
ASKED = {
    "location fine": ("locate", "location", ()),
    "location coarse": ("initial", "location", ("Yes", "No")),
    "fullness": ("fullness", "multihop", ("more full", "equally full", "less full")),
    "accessibility": (
        *("accessibility", "multihop"),
        ("more accessible", "equally accessible", "less accessible"),
    ),
    "attitude": ("attitude", "attitude", ("positive", "neutral", "negative")),
}
ORDERS = {"fo": "first order", "so": "second order"}
# What the authors add to questions of attitude, as not every observer has seen the move.
SEEN = ", assuming that you observed the action?"
_PERSON = re.compile(r"(?:From (.+?)'s perspective|As (.+?)), ")
_ARTICLE = re.compile(r"(?:a|an|the) ", re.IGNORECASE)
# A place that is misspelt in one story of the published file, and not in all of its answers.
_SPELT = {"center of dinint table": "center of dining table"}


def load(folder: Path) -> list[BenchmarkItem]:
    """All questions of the files that are there; RecordError names file, record and field."""
    names = [f"{place}{file}" for file, _ in FILES.values() for place in PLACES]
    root = find_file(folder, names, LAYOUT).parent
    items = []
    for split, (file, _) in FILES.items():
        if not (root / file).is_file():
            continue
        records = Field(read_json(root / file), str(root / file)).items()
        if not records:
            Field(None, str(root / file)).fail("has no questions")
        # Questions on one story are spread over the file, and do not name it.
        stories: dict[str, str] = {}
        asked: Counter[str] = Counter()
        for record in records:
            item = read_question(record, split)
            group = stories.setdefault(item.context.scene, f"{split}/{len(stories) + 1:03d}")
            asked[group] += 1
            items.append(replace(item, item_id=f"{group}/{asked[group]:02d}", group=group))
    return items


def read_question(record: Field, split: str) -> BenchmarkItem:
    """One question; the numbers of its story and its own are left out of its name."""
    field = record.get("question")
    question = field.get("question").stripped()
    kind, _, order = field.get("type").stripped().partition("-")
    asked = next((name for name, (word, *_) in ASKED.items() if word in question), "")
    if not asked or ASKED[asked][1] != kind or (order in ORDERS) == (asked == "attitude"):
        field.get("question").fail(
            f"is no question of type {field.get('type').value!r:.60} about "
            f"{', '.join(ASKED)}, of which one must be named"
        )
    person = _person(record, field.get("question"))
    options, answer = _options(record, asked, field, question)
    hop = {"hop": (asked,)} if kind == "multihop" else {}
    tags = {
        "type": (f"{'multihop' if hop else asked}, {ORDERS[order]}" if order else asked,),
        "perspective": (person,),
        **hop,
    }
    observed = record.get("observed")
    if not isinstance(observed.value, bool):
        observed.fail("must be true or false")
    if not observed.value and kind == "location" and order == "fo" and person != "narrator":
        tags["condition"] = ("TB" if person == "mover" else "FB",)
    return BenchmarkItem(
        item_id=split,
        benchmark="opentom",
        split=split,
        group=split,
        question=question.rstrip("?") + SEEN if kind == "attitude" else question,
        options=options,
        answer=answer,
        context=Context(scene=record.get(FILES[split][1]).stripped()),
        tags=tags,
        licence="CC-BY-NC-4.0",
    )


def _person(record: Field, question: Field) -> str:
    """Whose view is asked for: the mover's, the observer's or the narrator's."""
    plot = record.get("plot_info")
    names = {plot.get(role).stripped(): role for role in ("mover", "observer")}
    found = _PERSON.match(question.value.strip())
    if found is None or (name := found[1] or found[2]) not in {**names, "narrator": ""}:
        question.fail(f"must begin with the perspective of {', '.join(names)} or the narrator")
    return names.get(name, name)


def _options(
    record: Field, asked: str, field: Field, question: str
) -> tuple[tuple[Option, ...], str]:
    """Options and the right one's label."""
    given, texts = field.get("answer"), ASKED[asked][2]
    if texts:
        return tuple(map(Option, "ABC", texts)), "ABC"[texts.index(given.one_of(texts))]
    plot = record.get("plot_info")
    places = [_place(plot.get(f"{name}_place")) for name in ("original", "move_to")]
    right, *plain = (_ARTICLE.sub("", place, count=1) for place in (_place(given), *places))
    if plain.count(right) != 1:
        given.fail(f"must be one of the two places, {' and '.join(places)}, is {right!r:.60}")
    at = plain.index(right)
    return two_options(question, places[at], places[1 - at])


def _place(field: Field) -> str:
    text = field.stripped()
    return _SPELT.get(text, text)


OPENTOM = Benchmark(
    name="opentom",
    load=load,
    views={"text": ("scene",), "none": ()},
    breakdowns=("type", "hop", "perspective"),
    layout=LAYOUT,
    cells=("type",),
)
