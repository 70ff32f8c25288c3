"""What a tiny model can and cannot do: ``sally-anne evaluate-tiny``.

Prints, on the test stories, how it answers the initial-belief questions, judges statements and
answers the belief questions, in each setting.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

import torch
from rich.progress import track

from sally_anne.core.console import Console, print_table
from sally_anne.data.gridtom import samples
from sally_anne.data.gridtom.stories import context_text, generated
from sally_anne.data.items import Setting
from sally_anne.experiments.config import EvaluateConfig
from sally_anne.experiments.train_tiny.documents import RIGHT, WRONG, Scene, place
from sally_anne.models.decoding import decode, extend, greedy, prefill, split_common_prefix
from sally_anne.models.loading import load_model
from sally_anne.models.prompts import encode, open_prompt, reply_prompt

_BATCH = 16
_SIDES = "statements TB", "statements FB"
# Both sides of a pair: where frames alone are given, verdicts that follow the film shown.
_FOLLOWED = "statements TB and FB"
MEASURES = (
    *("initial belief", "location statements", *_SIDES, _FOLLOWED, "belief TB", "belief FB"),
    *("belief TB after true statements", "belief TB after false statements"),
    *("belief FB after true statements", "belief FB after false statements"),
    *("second-order statements", "second-order belief TB", "second-order belief FB"),
)


class Item(NamedTuple):
    """One prompt, and words that must all, or must not, be said after it.

    With ``reply`` the model answers in its own turn (questions); else it goes on (statements).
    Frames come from ``case``; the description of a ``bare`` world names no colours.
    """

    measure: str
    content: str
    reply: bool
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    case: Any
    bare: bool = False


def items(stories: Iterable[Any], setting: Setting) -> Iterator[Item]:
    """The prompts of all measures for each story."""
    for record in stories:
        rng = random.Random(f"evaluate/{record.index}")
        plain, cast = record.cases(1)[0], record.cast
        for question in record.initial:
            colourless = replace(record, environment=record.initial_environment)
            text = context_text(colourless, plain, "omniscient", setting)
            wrong = tuple(c for c in question.choices if c not in question.answer)
            content = f"{text} Question: {question.question} Answer:"
            yield Item("initial belief", content, True, question.answer, wrong, plain, True)
        for order, case in [(n, case) for n in (1, 2) for case in record.cases(n)]:
            first = order == 1
            text = context_text(record, case, "omniscient", setting)
            for room in (cast.first_room, cast.last_room):
                said = case.statement(room)
                stated = f"{text} Belief: {said}"
                verdict = _verdict(room == (case.believed if first else case.thought))
                name = f"statements {case.first}" if first else "second-order statements"
                yield Item(name, stated, False, *verdict, case)
                if first:
                    verdict = _verdict(room == cast.last_room)
                    stated = f"{text} Really: {said}"
                    yield Item("location statements", stated, False, *verdict, case)
            a, b = rng.sample(case.question.options, 2)
            asked = f"Question: {case.question.question} Choose one: {a} or {b}. Answer:"
            answers = (case.question.answer,), (a if case.question.answer == b else b,)
            name = f"belief {case.first}" if first else f"second-order belief {case.second}"
            yield Item(name, f"{text} {asked}", True, *answers, case)
            for truth in (True, False) if first else ():
                after = f"{name} after {'true' if truth else 'false'} statements"
                # About other facts than the belief: where both agents went first.
                scene = Scene(cast, case.first, None)
                parts = [place(rng, scene, kind, truth) for kind in ("first", "own")]
                said = " ".join(f"{head} {room} room." for head, room in parts)
                yield Item(after, f"{text} {said} {asked}", True, *answers, case)


def _verdict(true: bool) -> tuple[tuple[str], tuple[str]]:
    return ((RIGHT,), (WRONG,)) if true else ((WRONG,), (RIGHT,))


def measure(loaded: Any, stories: Iterable[Any], setting: Setting) -> dict[str, float]:
    """Share of right answers of each measure, by greedy decoding.

    Contexts are read together; what is asked about one shares it.
    """
    video = setting != "text"
    right: dict[str, list[bool]] = {name: [] for name in MEASURES}
    asked_of = groupby(items(stories, setting), key=lambda item: (id(item.case), item.bare))
    contexts = [list(group) for _, group in asked_of]
    chunks = [contexts[i : i + _BATCH] for i in range(0, len(contexts), _BATCH)]
    for chunk in track(chunks, f"{loaded.name} {setting}"):
        prompts = [
            [(reply_prompt if i.reply else open_prompt)(loaded, i.content, video) for i in own]
            for own in chunk
        ]
        shared = [split_common_prefix(loaded, own) for own in prompts]
        clips = [own[0].case.frames() for own in chunk] if video else None
        rows = [
            (number, ending, item)
            for number, (own, cut) in enumerate(zip(chunk, shared, strict=True))
            for item, ending in zip(own, cut.endings, strict=True)
        ]
        with torch.inference_mode():
            state = prefill(loaded, encode(loaded, [s.beginning for s in shared], clips))
            for reply, tokens in ((False, 1), (True, 6)):
                if not (now := [row for row in rows if row[2].reply is reply]):
                    continue
                numbers, endings, asked = zip(*now, strict=True)
                after = extend(loaded, state, numbers, endings)
                texts = decode(loaded, greedy(loaded, after, tokens))
                for item, text in zip(asked, texts, strict=True):
                    words = set(re.findall(r"\w+", text.lower()))
                    ok = words.issuperset(item.right) and words.isdisjoint(item.wrong)
                    right[item.measure].append(ok)
    # Both sides' statements come in the same order: story by story, room by room.
    right[_FOLLOWED] = [a and b for a, b in zip(*(right[side] for side in _SIDES), strict=True)]
    return {name: sum(found) / len(found) for name, found in right.items() if found}


def run(config: EvaluateConfig) -> None:
    """Measure, and print."""
    loaded = load_model(config.model)
    test = samples.members(generated(), "test")[: config.stories]
    settings: tuple[Setting, ...] = ("multimodal", "text", "video")
    figures = {s: measure(loaded, generated(stories=test), s) for s in settings}
    rows = [(name, *(f"{100 * figures[s][name]:.1f}" for s in figures)) for name in MEASURES]
    title = f"{config.model}, {len(test)} test stories, % right"
    print_table(Console(), title, ["measure", *figures], rows)
