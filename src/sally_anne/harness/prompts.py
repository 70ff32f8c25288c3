"""The words that stand around questions: templates, notes on frames, examples of few-shot prompts.

An example is in words, also where the question asked comes with frames: a prompt holds one
film, which is the asked question's. Each item has examples of its own, chosen by its name and a
seed, no two of one story; as many of them as can be of each belief condition and with the answer at
each place, so that neither is taught.
"""

from __future__ import annotations

import json
import random
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sally_anne.core.errors import HarnessError
from sally_anne.core.files import reading
from sally_anne.data.items import Option, Question
from sally_anne.data.mimeqa import clock, in_minutes
from sally_anne.harness.protocols import COUNT_MARK, FRAMES_MARK, LENGTH_MARK, TIMES_MARK

_MOST_OPTIONS = 26
_EACH = tuple(f"{kind}_{n + 1}" for n in range(_MOST_OPTIONS) for kind in ("option", "label"))
# What stands for frames that are not decoded yet, by template field.
MARKS = {"length": LENGTH_MARK, "count": COUNT_MARK, "times": TIMES_MARK}
# Of a large pool so many are looked at for an item.
_CANDIDATES = 256


def read_template(
    path: Path, option: str, fields: Sequence[str], needed: Sequence[Sequence[str]]
) -> str:
    """A file's text with ``fields`` in braces, at least one of each group in ``needed``.

    ``options`` among the fields brings those of single options. A HarnessError names the option
    that gave the file, the file, and what is wrong in it.
    """
    with reading(path, HarnessError):
        text = path.read_text(encoding="utf-8")
        parts = [part[1:] for part in string.Formatter().parse(text) if part[1] is not None]
    known = (*fields, *(_EACH if "options" in fields else ()))
    for name, style, conversion in parts:
        if name not in known or style or conversion:
            raise HarnessError(
                f"{option} {path}: {{{name}}} is not one of {', '.join(fields)}, option_1, label_1 "
                "and so on; each stands alone in its braces"
            )
    for group in needed:
        if not set(group) & {name for name, _, _ in parts}:
            raise HarnessError(f"{option} {path}: {{{group[0]}}} is missing")
    return text


def option_fields(options: Sequence[Option]) -> dict[str, str]:
    """The fields of a question's options, all and single ones."""
    labels = [option.label for option in options]
    return {
        "options": "\n".join(f"{o.label}. {o.text}" for o in options),
        "labels": f"{', '.join(labels[:-1])} or {labels[-1]} only" if labels else "",
        **{f"option_{n}": o.text for n, o in enumerate(options, 1)},
        **{f"label_{n}": o.label for n, o in enumerate(options, 1)},
    }


def fill(template: str, fields: Mapping[str, str], item_id: str, options: int) -> str:
    """The prompt of an item; HarnessError if the template asks for an option that it lacks."""
    try:
        return template.format_map(fields)
    except KeyError as error:
        raise HarnessError(
            f"item {item_id}: the template asks for {error.args[0]}, and there are {options} "
            "options"
        ) from error


def frame_notes(
    duration_seconds: float, times: Sequence[float], minutes: bool = False
) -> dict[str, str]:
    """The words for each mark: how much film the frames show, and their times in seconds.

    The MimeQA paper tells models that are given single frames of both (appendix B.4).
    """
    count = "one frame" if len(times) == 1 else f"{len(times)} frames"
    at = ", ".join(clock(time) for time in times)
    each = [in_minutes(time) if minutes else f"{time:.2f}s" for time in times]
    length = in_minutes(duration_seconds) if minutes else f"{duration_seconds:.2f} seconds"
    return {
        FRAMES_MARK: f"You see {clock(duration_seconds)} of the film in {count}, from {at}.",
        LENGTH_MARK: length,
        COUNT_MARK: str(len(each)),
        TIMES_MARK: ",".join(each),
    }


def set_apart(
    records: Sequence[Question], chosen: Sequence[Question], shots: int, seed: int
) -> tuple[list[Question], list[Question]]:
    """The records that examples are taken from, and those of ``chosen`` that are asked about.

    Examples have a key, are not chosen, and share nothing with those that are. Where there are none
    of ``shots`` groups, groups of the chosen ones are taken for it and not asked about.
    """
    keyed = [record for record in records if not record.hidden]

    def apart(asked: Iterable[Question]) -> list[Question]:
        taken = {one for record in asked for one in _sources(record)}
        return [record for record in keyed if taken.isdisjoint(_sources(record))]

    pool, asked = apart(chosen), list(chosen)
    lacking = shots - len({record.group for record in pool})
    if lacking <= 0:
        return pool, asked
    groups = list(dict.fromkeys(record.group for record in chosen if not record.hidden))
    given = random.Random(f"examples/{seed}").sample(groups, min(lacking, len(groups)))
    taken = {one for record in chosen if record.group in given for one in _sources(record)}
    asked = [record for record in chosen if taken.isdisjoint(_sources(record))]
    pool = apart(asked)
    if not asked or len({record.group for record in pool}) < shots:
        of = len({record.group for record in keyed})
        raise HarnessError(
            f"--shots {shots}: examples come from {shots} stories that are not asked about, and "
            f"there are {of} with known answers in all; give fewer --shots, or more data"
        )
    return pool, asked


def _sources(record: Question) -> frozenset[object]:
    """What a record shares with others on the same story: its group, films and words."""
    # No addresses: one may be that of an archive of all films.
    films = {place for media in record.media for place in media.files or (media.path,)}
    words = {record.context} if any(vars(record.context).values()) else set()
    return frozenset({("group", record.group), *films, *words} - {None})


def with_examples(
    items: Iterable[Question], pool: Sequence[Question], shots: int, seed: int
) -> list[Question]:
    """Each item with examples before its text; ``pool`` holds items in words, with a key."""
    return [_with(item, examples_for(item, pool, shots, seed)) for item in items]


def examples_for(item: Question, pool: Sequence[Question], shots: int, seed: int) -> list[Question]:
    """The item's own examples; HarnessError if the pool has too few stories that are not its."""
    rng = random.Random(f"examples/{seed}/{item.item_id}")
    others = [one for one in pool if one.group != item.group]
    candidates = rng.sample(others, min(_CANDIDATES, len(others)))
    if len({one.group for one in candidates}) < shots:
        candidates = rng.sample(others, len(others))
    chosen: list[Question] = []
    kinds: Counter[object] = Counter()
    places: Counter[object] = Counter()
    for _ in range(shots):
        if not candidates:
            raise HarnessError(f"item {item.item_id}: there are not {shots} other stories to show")
        best = min(candidates, key=lambda one: (kinds[_kind(one)], places[_place(one)]))
        chosen.append(best)
        kinds[_kind(best)] += 1
        places[_place(best)] += 1
        candidates = [one for one in candidates if one.group != best.group]
    rng.shuffle(chosen)
    return chosen


def answered(example: Question) -> str:
    """An example with its answer in the form that is asked for."""
    answer = example.reference or " and ".join(example.key)
    if example.text.rstrip().endswith(":"):
        return f"{example.text.rstrip()} {answer}"
    listed = list(example.key) if len(example.key) > 1 else answer
    return f"{example.text}\n{json.dumps({'answer': listed})}"


def _with(item: Question, examples: Sequence[Question]) -> Question:
    senses = ["pictures"] * bool(item.clip) + ["sound"] * bool(item.sound)
    verb = "belongs" if senses == ["sound"] else "belong"
    films = f" The {' and the '.join(senses)} {verb} to it." if senses else ""
    text = "\n\n".join(
        (
            "Here are questions on other stories, with their right answers.",
            *map(answered, examples),
            f"The question to answer now is on a new story.{films}",
            item.text,
        )
    )
    return replace(item, text=text)


def _kind(item: Question) -> tuple[str, str]:
    return item.first, item.condition


def _place(item: Question) -> tuple[int, ...]:
    return tuple(n for n, option in enumerate(item.options) if option.label in item.key)
