"""What a tiny model can and cannot do: ``sally-anne evaluate-tiny``.

Prints, on the test stories, how it answers the initial-belief questions, judges statements and
answers the belief questions, in each setting.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from rich.progress import track

from sally_anne.core.console import Console
from sally_anne.core.errors import OptionError
from sally_anne.core.files import write_atomic
from sally_anne.data.gridtom import samples
from sally_anne.data.gridtom.samples import statement_text
from sally_anne.data.gridtom.stories import context_text, generated
from sally_anne.experiments.config import EvaluateConfig
from sally_anne.experiments.train_tiny.documents import Scene, place
from sally_anne.harness.report import print_table
from sally_anne.models.decoding import decode, extend, greedy, prefill, split_common_prefix
from sally_anne.models.loading import load_model
from sally_anne.models.prompts import encode, open_prompt, reply_prompt

_SIDES = "statements TB", "statements FB"
# Both sides of a pair: where frames alone are given, verdicts that follow the film shown.
_FOLLOWED = "statements TB and FB"
MEASURES = (
    *("initial belief", "location statements", *_SIDES, _FOLLOWED, "belief TB", "belief FB"),
    *("belief TB after true statements", "belief TB after false statements"),
    *("belief FB after true statements", "belief FB after false statements"),
    *("second-order statements", "second-order belief TB", "second-order belief FB"),
)


@dataclass(frozen=True)
class Item:
    """One prompt, and words that must all, or must not, be said after it."""

    measure: str
    content: str
    reply: bool  # whether the model answers in its own turn (questions) or goes on (statements)
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    case: Any  # where the frames come from
    bare: bool = False  # whether the world's description names no colours


def items(stories: Iterable[Any], setting: str) -> Iterator[Item]:
    """The prompts of all measures for each story."""

    for record in stories:
        rng = random.Random(f"evaluate/{record.index}")
        plain = record.cases(1)[0]
        for question in record.initial:
            text = context_text(record, plain, "omniscient", setting, initial=True)  # type: ignore[arg-type]
            wrong = tuple(c for c in question.choices if c not in question.answer)
            content = f"{text} Question: {question.question} Answer:"
            yield Item("initial belief", content, True, question.answer, wrong, plain, True)
        for order, prefix in ((1, ""), (2, "second-order ")):
            for case in record.cases(order):
                held = case.believed if order == 1 else case.thought
                cast = record.cast
                for room in (cast.first_room, cast.last_room):
                    said = case.statement(room)
                    text = statement_text(record, case, "omniscient", setting, said)  # type: ignore[arg-type]
                    verdict = ("right", "wrong") if room == held else ("wrong", "right")
                    name = f"statements {case.first}" if order == 1 else f"{prefix}statements"
                    yield Item(name, text, False, verdict[:1], verdict[1:], case)
                    if order == 1:
                        world = context_text(record, case, "omniscient", setting)  # type: ignore[arg-type]
                        so = ("right", "wrong") if room == cast.last_room else ("wrong", "right")
                        text = f"{world} Really: {said}"
                        yield Item("location statements", text, False, so[:1], so[1:], case)
                a, b = rng.sample(case.question.options, 2)
                text = context_text(record, case, "omniscient", setting)  # type: ignore[arg-type]
                asked = f"Question: {case.question.question} Choose one: {a} or {b}. Answer:"
                other = a if case.question.answer == b else b
                condition = case.first if order == 1 else case.second
                name = f"{prefix}belief {condition}"
                answers = (case.question.answer,), (other,)
                yield Item(name, f"{text} {asked}", True, *answers, case)
                if order == 2:
                    continue
                for truth in (True, False):
                    after = f"{name} after {'true' if truth else 'false'} statements"
                    said = _two_facts(rng, case, truth)
                    yield Item(after, f"{text} {said} {asked}", True, *answers, case)


def _two_facts(rng: random.Random, case: Any, truth: bool) -> str:
    """Statements about other facts than the belief: where both agents went first."""

    scene = Scene(case.cast, case.first, None)
    parts = [place(rng, scene, kind, truth) for kind in ("first", "own")]
    return " ".join(f"{head} {room} room." for head, room in parts)


def measure(
    loaded: Any,
    stories: Iterable[Any],
    setting: str,
    batch_size: int,
    frames: Callable[[Any], Any] = lambda case: case.frames(),
) -> dict[str, float]:
    """Share of right answers of each measure, by greedy decoding.

    ``batch_size`` contexts are read together; what is asked about one shares it. ``frames`` gives
    what is shown with a case, ``uint8 [F, height, width, 3]``: other films show what is read.
    """

    video = setting != "text"
    right: dict[str, list[bool]] = {name: [] for name in MEASURES}
    asked_of = groupby(items(stories, setting), key=lambda item: (id(item.case), item.bare))
    contexts = [list(group) for _, group in asked_of]
    chunks = [contexts[i : i + batch_size] for i in range(0, len(contexts), batch_size)]
    for chunk in track(chunks, f"{loaded.name} {setting}"):
        prompts = [
            [(reply_prompt if i.reply else open_prompt)(loaded, i.content, video) for i in asked]
            for asked in chunk
        ]
        shared = [split_common_prefix(loaded, asked) for asked in prompts]
        clips = [frames(asked[0].case) for asked in chunk] if video else None
        rows = [
            (number, ending, item)
            for number, (asked, cut) in enumerate(zip(chunk, shared, strict=True))
            for item, ending in zip(asked, cut.endings, strict=True)
        ]
        with torch.inference_mode():
            state = prefill(loaded, encode(loaded, [s.beginning for s in shared], clips))
            for reply in (False, True):
                asked_now = [row for row in rows if row[2].reply is reply]
                if not asked_now:
                    continue
                numbers, endings, _ = zip(*asked_now, strict=True)
                after = extend(loaded, state, numbers, endings)
                texts = decode(loaded, greedy(loaded, after, 6 if reply else 1))
                for (_, _, item), text in zip(asked_now, texts, strict=True):
                    words = set(re.findall(r"\w+", text.lower()))
                    ok = words.issuperset(item.right) and words.isdisjoint(item.wrong)
                    right[item.measure].append(ok)
    # Both sides' statements come in the same order: story by story, room by room.
    right[_FOLLOWED] = [a and b for a, b in zip(*(right[side] for side in _SIDES), strict=True)]
    return {name: sum(found) / len(found) for name, found in right.items() if found}


def run(config: EvaluateConfig) -> None:
    """Measure, print, and write the figures down."""

    if config.out and not config.out.parent.is_dir():
        raise OptionError(f"{config.out} cannot be written: there is no such folder")
    loaded = load_model(config.model)
    test = samples.members(generated(), "test")[: config.stories]
    figures = {
        setting: measure(loaded, generated(stories=test), setting, config.batch_size)
        for setting in ("multimodal", "text", "video")
    }
    rows = [(name, *(f"{100 * figures[s][name]:.1f}" for s in figures)) for name in MEASURES]
    if config.out:
        text = json.dumps({"stories": len(test), "figures": figures}, indent=2)
        write_atomic(config.out, f"{text}\n".encode())
    title = f"{config.model}, {len(test)} test stories, % right"
    print_table(Console(), title, ["measure", *figures], rows)
