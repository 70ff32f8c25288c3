"""FANToM: who knows what was said while they were away (Kim et al., EMNLP 2023).

The official file is a list of sets of questions, each on one piece of information in a conversation
that somebody leaves and comes back to. Of each set there are questions about a belief, and whether
each speaker can answer the fact question (answerability) and knows the information
(info-access). The authors ask them on the part of the conversation that matters or on all of it:
these are the splits, ``short`` and ``full``. Where nobody has missed the information, a set is a
control.

Belief questions are asked as a choice of two, in the order that the authors' code draws; the others
have Yes or No for each speaker. What is answered freely there is left out, see :data:`LEFT_OUT`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sally_anne.data.items import Benchmark, BenchmarkItem, Context, Option
from sally_anne.data.read import Field, find_file, read_json

FILE = "fantom_v1.json"
# The authors' code unpacks it to data/fantom.
PLACES = ("", "fantom/", "data/fantom/")
LAYOUT = f"{FILE}, here, in fantom/ or in data/fantom/, where the authors' code unpacks it"
SPLITS = ("short", "full")
ACCESS = ("inaccessible", "accessible")
# By what is asked: the questions' field, and what they are told before.
BINARY = {
    "answerability": ("answerabilityQAs_binary", "Target: {question}"),
    "info-access": ("infoAccessibilityQAs_binary", "Information: {question} {answer}"),
}
# With the last answer a speaker is not in the short conversation, and is not asked about there.
ANSWERS = ("yes", "no", "no:long")
LEFT_OUT = (
    "of each set of FANToM the fact question, the two lists of speakers and the belief questions "
    "in free words are left out: their replies are scored by words and embeddings there"
)
# Of the authors' script (eval_fantom.py), which draws for one belief question after another.
SEED = 99


def load(folder: Path) -> list[BenchmarkItem]:
    """All questions, of both splits; RecordError names file, set and field."""
    path = find_file(folder, [f"{place}{FILE}" for place in PLACES], LAYOUT)
    sets = Field(read_json(path), str(path)).items()
    if not sets:
        Field(None, str(path)).fail("has no sets of questions")
    draws = random.Random(SEED)
    return [item for record in sets for item in read_set(record, draws)]


def read_set(record: Field, draws: random.Random) -> list[BenchmarkItem]:
    """The questions of one set; ``draws`` says which answer of a belief question comes last."""
    name = record.get("set_id").name()
    told = [record.get(f"{split}_context").stripped() for split in SPLITS]
    sets = [_Set(name, split, text) for split, text in zip(SPLITS, told, strict=True)]
    beliefs = record.get("beliefQAs").items()
    lasts = [draws.choice([True, False]) for _ in beliefs]
    fact = record.get("factQA")
    words = {
        "question": fact.get("question").stripped(),
        "answer": fact.get("correct_answer").stripped(),
    }
    found: list[BenchmarkItem] = []
    for one in sets:
        for number, (belief, last) in enumerate(zip(beliefs, lasts, strict=True)):
            found.append(one.belief(belief, number, last))
        for kind, (field, before) in BINARY.items():
            asked = record.get(field).items()
            found += one.binary(kind, asked, before.format(**words))
    return found


@dataclass(frozen=True)
class _Set:
    """A set of questions on one form of its conversation."""

    name: str
    split: str
    conversation: str

    def belief(self, record: Field, number: int, right_last: bool) -> BenchmarkItem:
        right, wrong = (record.get(f"{which}_answer").stripped() for which in ("correct", "wrong"))
        if right == wrong:
            record.get("wrong_answer").fail("is the right answer too")
        access = record.get("missed_info_accessibility").one_of(ACCESS)
        return self._item(
            "belief",
            number,
            record.get("question").stripped(),
            (wrong, right) if right_last else (right, wrong),
            int(right_last),
            access,
            {"order": (record.get("tom_type").stripped(),)},
        )

    def binary(self, kind: str, records: list[Field], before: str) -> Iterator[BenchmarkItem]:
        answers = [record.get("correct_answer").one_of(ANSWERS) for record in records]
        access = [record.get("missed_info_accessibility").one_of(ACCESS) for record in records]
        if self.split == "full" and records:
            # On all of the conversation there is something to miss for anybody who says no.
            missed = any(answer != "yes" for answer in answers)
            access = [ACCESS[0] if missed else access[0]] * len(records)
        for number, (record, answer) in enumerate(zip(records, answers, strict=True)):
            if self.split == "short" and answer == "no:long":
                continue
            asked = f"{before}\n{record.get('question').stripped()}"
            right = 0 if answer == "yes" else 1
            yield self._item(kind, number, asked, ("Yes", "No"), right, access[number], {})

    def _item(
        self,
        kind: str,
        number: int,
        question: str,
        texts: tuple[str, str],
        right: int,
        access: str,
        tags: dict[str, tuple[str, ...]],
    ) -> BenchmarkItem:
        # Controls have figures of their own, and no part in those of the paper's tables.
        control = " control" if access == "accessible" else ""
        joint = ["all but lists"] + ([] if kind == "belief" else [f"all {kind}"])
        return BenchmarkItem(
            item_id=f"{self.split}/{self.name}/{kind}-{number}",
            benchmark="fantom",
            split=self.split,
            # Sets on one conversation are not independent.
            group=f"{self.split}/{self.name.partition('-')[0]}",
            question=question,
            options=tuple(map(Option, "AB", texts)),
            answer="AB"[right],
            context=Context(dialogue=self.conversation),
            tags={
                "type": (f"{kind}{control}",),
                **tags,
                "set": (self.name,),
                "joint": tuple(f"{name}{control}" for name in joint),
            },
            licence="MIT",
        )


FANTOM = Benchmark(
    name="fantom",
    load=load,
    views={"text": ("dialogue",), "none": ()},
    breakdowns=("type", "order"),
    layout=LAYOUT,
    default_split="short",
    left_out=LEFT_OUT,
)
