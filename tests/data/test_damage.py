"""Damaged records of every benchmark: read as they are, or an error that names the place."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sally_anne.core.errors import RecordError
from sally_anne.data.items import Question
from sally_anne.data.items import load as load_own
from sally_anne.data.mimeqa import items_of, rows_of
from sally_anne.data.mmtom_qa import read_record
from sally_anne.data.moments import read_question
from sally_anne.data.muma_tom import read_episode
from sally_anne.data.read import Field
from sally_anne.data.samples import read_samples
from sally_anne.data.text_sets import (
    read_fantom,
    read_hi_tom,
    read_opentom,
    read_stories,
    read_tombench,
    read_tomi,
)
from tests.data import made_text_sets as made
from tests.shared_data import MADE

ROUNDS = 400
WHERE = "made, record 3"
JUNK = (
    *(None, True, False, 0, 3, -1, 10**400, float("nan"), 1.5, [], {}, [[]], {"a": 1}, [None]),
    *("", " \n", "x", "\ud800", "é你\0", "A", "B. ", "yes", "no:long", "the ", "x" * 999, "A) x"),
)
PIECES = (
    *("", " ", "\t", ",", ";", '"', "\n", "1 ", "red_box", "_tom", "\0", "é", "\u2028", "(1, 2)"),
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value inside."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for name, one in inside:
        yield (*path, name)
        if isinstance(one, dict | list):
            yield from paths(one, (*path, name))


def damaged(rng: random.Random, record: Any) -> Any:
    """The record with up to three values removed, replaced, mixed up or edited."""
    record = copy.deepcopy(record)
    for _ in range(rng.randrange(4)):
        places = list(paths(record))
        if not places:
            break
        *into, name = rng.choice(places)
        inside, other = record, record
        for step in into:
            inside = inside[step]
        for step in rng.choice(places):
            other = other[step]
        value, how = inside[name], rng.randrange(5)
        if how == 0:
            del inside[name]
        elif how == 1 and isinstance(value, str):
            at = rng.randrange(len(value) + 1)
            inside[name] = value[:at] + rng.choice(PIECES) + value[at + 1 :]
        elif how == 2:
            inside[name] = copy.deepcopy(other)
        elif how == 3 and isinstance(inside, list):
            inside.insert(name, rng.choice(JUNK))
        else:
            inside[name] = copy.deepcopy(rng.choice(JUNK))
    return record


def damaged_text(rng: random.Random, text: str) -> str:
    """The text with up to two lines dropped, doubled, exchanged or edited."""
    lines = text.split("\n")
    for _ in range(rng.randrange(3)):
        one, other = (rng.randrange(len(lines)) for _ in range(2))
        how, at = rng.randrange(4), rng.randrange(len(lines[one]) + 1)
        if how == 0 and len(lines) > 1:
            del lines[one]
        elif how == 1:
            lines.insert(other, lines[one])
        elif how == 2:
            lines[one], lines[other] = lines[other], lines[one]
        else:
            lines[one] = lines[one][:at] + rng.choice(PIECES) + lines[one][at + rng.randrange(3) :]
    return "\n".join(lines)


def first_of(name: str) -> Any:
    text = next(MADE.glob(name)).read_text(encoding="utf-8")
    whole = json.loads(text.splitlines()[0] if name.startswith("mmtom") else text)
    return whole if isinstance(whole, dict) else whole[:2]


def muma_tom(record: Any) -> list[Question]:
    return read_episode("7", Field(record, WHERE), Field("Bob took a pear.", WHERE))


def bigtom(text: str) -> list[Question]:
    return read_stories(text.encode("utf-8"), Path("0_forward_belief_true_belief") / WHERE)


def mimeqa(text: str) -> list[Question]:
    return items_of(rows_of(text.encode("utf-8"), WHERE))


def tomi(text: str) -> list[Question]:
    path = Path(f"{WHERE}_test.txt")
    path.with_suffix(".trace").write_text(made.tomi_texts()[1])
    path.write_text(text, encoding="utf-8")
    return read_tomi(path)


def lines(read: Callable[[Path], list[Any]], *records: Any) -> list[Any]:
    path = Path(WHERE)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return read(path)


MIME = (
    "file,question,question type,timestamp,reference_answer\n"
    '0002.mp4,"What, then?",Temporal,"(12.5, 30.0)",A wall.\n'
    "0002.mp4,Who is it?,Working Memory,,A clown.\n"
)
STORY = "Ann sees it.;Does Ann believe it?;Ann believes it.;Ann does not.\n" * 2
EPISODES = [record for record in first_of("muma_tom/questions.json").values()]
OWN = {"question": "Why?", "options": ["a", "b"], "answer": 1, "tags": {"kind": "x"}}
SAMPLE = {"text": "He looks.", "labels": {"y": True}, "group": "1", "tags": {}}
# By name: good records or texts, and what reads one.
READERS: dict[str, tuple[list[Any], Callable[[Any], list[Any]]]] = {
    "hi_tom": ([made.HI_TOM], lambda r: [read_hi_tom(Field(r, WHERE), Counter())]),
    "fantom": ([made.fantom_set()], lambda r: read_fantom(Field(r, WHERE), random.Random(7))),
    "opentom": (made.opentom_records(), lambda r: [read_opentom(Field(r, WHERE), "test", {})]),
    "tombench": ([made.TOMBENCH], lambda r: read_tombench(Field(r, WHERE), "task", "story")),
    "mmtom_qa": ([first_of("mmtom_qa/questions.json")], lambda r: [read_record(Field(r, WHERE))]),
    "moments": (
        [first_of("moments/**/moments_*_questions.json")],
        lambda r: [read_question(one, "test", {})[0] for one in Field(r, WHERE).items()],
    ),
    "muma_tom": (EPISODES, muma_tom),
    "bigtom": ([STORY], bigtom),
    "mimeqa": ([MIME], mimeqa),
    "tomi": ([made.tomi_texts()[0]], tomi),
    "own": ([OWN], lambda record: lines(load_own, OWN, record)),
    "samples": ([SAMPLE], lambda record: lines(read_samples, SAMPLE, record)),
}


@pytest.mark.fuzz
@pytest.mark.parametrize("name", READERS)
def test_damaged_records(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    records, read = READERS[name]
    outcomes = {"read": 0, "refused": 0}
    for seed in range(ROUNDS):
        rng = random.Random(f"{name}/{seed}")
        good = rng.choice(records)
        bad = damaged_text(rng, good) if isinstance(good, str) else damaged(rng, good)
        try:
            items = read(bad)
        except RecordError as error:
            outcomes["refused"] += 1
            str(error).encode()
            assert WHERE in str(error), seed
            continue
        outcomes["read"] += 1
        assert len({item.item_id for item in items}) == len(items), seed
        for item in items:
            repr(item).encode()
            if isinstance(item, Question):
                labels = [option.label for option in item.options]
                assert item.question and len(set(labels)) == len(labels)
                assert item.answer is None or item.answer in labels
                assert all(option.text for option in item.options)
    assert min(outcomes.values()) > ROUNDS // 20, outcomes


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("fantom", ("short_context",), None),
        ("fantom", ("answerabilityQAs_binary", 2, "correct_answer"), "maybe"),
        ("hi_tom", ("deception",), "yes"),
        ("hi_tom", ("answer",), "bag"),
        ("opentom", ("question", "answer"), "none of them"),
        ("opentom", ("question", "question"), "Is it there?"),
        ("tombench", ("答案\nANSWER",), "E"),
        ("tombench", ("问题",), "\ud800"),
        ("mmtom_qa", ("answer",), "c"),
        ("mmtom_qa", ("question_type",), 3),
        ("mmtom_qa", ("end_time",), -1),
        ("muma_tom", ("questions", "1"), "Which? A) x"),
        ("muma_tom", ("answers", "1"), "D) x"),
        ("muma_tom", ("labels", "1"), "dream"),
        ("moments", (0, "options"), {"A": "x"}),
        ("moments", (0, "t_i"), -1),
        ("moments", (0, "assigned_categories", 0), "Dreams"),
        ("moments", (0, "video_url"), "https://[x"),
    ],
)
def test_an_error_names_the_field(name: str, path: tuple[Any, ...], value: Any) -> None:
    (good, *_), read = READERS[name]
    record = inside = copy.deepcopy(good)
    read(record)
    for step in path[:-1]:
        inside = inside[step]
    inside[path[-1]] = value
    place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).lstrip(".")
    with pytest.raises(RecordError) as caught:
        read(record)
    assert str(caught.value).startswith(f"{WHERE}: field {place} ")
