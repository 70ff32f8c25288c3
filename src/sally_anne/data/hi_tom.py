"""Hi-ToM: what one thinks that another thinks, up to the fourth order (He et al., EMNLP 2023).

The official file is one JSON object whose ``data`` is a list of questions. Each has its story and
15 containers to choose from, ``"A. red_box, B. ..."``, and the answer in words. The authors ask
for an answer alone (VP) of other stories than for thoughts as well (CoTP); these are the splits. Of
each story five questions are asked, of the orders 0 to 4; records of one order stand together.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from dataclasses import replace
from pathlib import Path

from sally_anne.data.items import Benchmark, BenchmarkItem, Context, Option
from sally_anne.data.read import Field, find_file, read_json

QUESTIONS = "Hi-ToM_data.json"
SPLITS = ("VP", "CoTP")
ORDERS = range(5)
LAYOUT = f"{QUESTIONS}, as a clone of the authors' repository has it"
TOLD = {False: "No_Tell", True: "Tell"}
# What the authors tell every model to assume, in our own words: without it the answers of higher
# orders, and of stories in which agents talk, are not determined.
ASSUMED = (
    "Agents see all that happens in a room until they leave it. One knows what another has in mind "
    "only if they were in a room together, or talked in private or in public. Agents like to lie: "
    "what they say need not be what they believe, and they believe another who left the room "
    "after them; all know who left when. Who talks in private knows that nobody else hears it, and "
    "that all hear what is claimed in public."
)
_CHOICE = re.compile(r"([A-Z])\. (\S.*)")


def load(folder: Path) -> list[BenchmarkItem]:
    """All questions, in the order of the file; RecordError names file, record and field."""
    path = find_file(folder, (QUESTIONS,), LAYOUT)
    records = Field(read_json(path), str(path)).get("data").items()
    if not records:
        Field(None, str(path), "data").fail("has no questions")
    # Records do not name their story: it is the n-th of those of its kind, in each order.
    seen: Counter[str] = Counter()
    items = []
    for record in records:
        item = read_question(record)
        seen[item.item_id] += 1
        story = f"{item.group}/sample_{seen[item.item_id]}"
        name = f"{story}/order_{item.tags['order'][0]}"
        items.append(replace(item, item_id=name, group=story))
    return items


def read_question(record: Field) -> BenchmarkItem:
    """One question; of its story's name and its own the number of the story is left out."""
    split = record.get("prompting_type").one_of(SPLITS)
    told = record.get("deception")
    if not isinstance(told.value, bool):
        told.fail("must be true or false")
    length, order = (record.get(name).number() for name in ("story_length", "question_order"))
    if order not in ORDERS:
        record.get("question_order").fail(f"must be one of {ORDERS[0]} to {ORDERS[-1]}")
    options = _options(record.get("choices"))
    right = record.get("answer").stripped()
    labels = [option.label for option in options if option.text == right]
    if len(labels) != 1:
        record.get("answer").fail(f"must be one of the choices, is {right!r:.60}")
    group = f"{split}/{TOLD[told.value]}/length_{length}"
    return BenchmarkItem(
        item_id=f"{group}/order_{order}",
        benchmark="hi_tom",
        split=split,
        group=group,
        question=record.get("question").stripped(),
        options=options,
        answer=labels[0],
        context=Context(scene=record.get("story").stripped()),
        tags={
            "order": (f"{order}",),
            "deception": (TOLD[told.value],),
            "length": (f"{length}",),
            # The paper's joint accuracy wants all lower orders to be right, too.
            "joint": tuple(f"up to order {top}" for top in ORDERS[max(order, 1) :]),
        },
        licence="Apache-2.0",
    )


def _options(choices: Field) -> tuple[Option, ...]:
    parts = [_CHOICE.fullmatch(part) for part in choices.stripped().split(", ")]
    found = tuple(Option(part[1], part[2].strip()) for part in parts if part)
    labels = "".join(option.label for option in found)
    if len(found) < len(parts) or len(found) < 2 or not string.ascii_uppercase.startswith(labels):
        choices.fail('must be the choices in order, as "A. red_box, B. blue_box"')
    if len({option.text for option in found}) < len(found):
        choices.fail("has a choice twice")
    return found


HI_TOM = Benchmark(
    name="hi_tom",
    load=load,
    views={"text": ("scene",), "none": ()},
    breakdowns=("order", "deception", "length"),
    layout=LAYOUT,
    notes={"": ASSUMED},
    default_split="VP",
)
