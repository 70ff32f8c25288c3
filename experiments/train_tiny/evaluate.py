"""What a tiny model can and cannot do on the test stories: ``sally-anne evaluate-tiny``."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from rich.progress import track

from sally_anne.core.console import Console, print_table
from sally_anne.data.gridtom import samples
from sally_anne.data.gridtom.stories import context_text, generated
from sally_anne.data.items import Setting
from sally_anne.experiments.config import EvaluateConfig
from sally_anne.experiments.train_tiny.documents import RIGHT, WRONG, Scene, place
from sally_anne.models.decoding import decode, greedy
from sally_anne.models.loading import load_model
from sally_anne.models.prefix import extend, prefill, split_common_prefix
from sally_anne.models.prompts import encode, open_prompt, reply_prompt

# What follows one text: what it measures, and words that must, and that must not be said after it.
# After questions the model answers in its own turn, statements it goes on with.
Item = tuple[str, str, tuple[str, ...], tuple[str, ...]]


def contexts(record: Any, setting: Setting) -> Iterator[tuple[Any, str, list[Item]]]:
    """Of a story each case that is shown, its text, and what is asked behind it."""
    rng, cast, plain = random.Random(f"evaluate/{record.index}"), record.cast, record.cases(1)[0]
    # Where colours are asked for, the description of the world names none.
    colourless = replace(record, environment=record.initial_environment)
    items: list[Item] = []
    for q in record.initial:
        wrong = tuple(c for c in q.choices if c not in q.answer)
        items.append(("initial belief", f"Question: {q.question} Answer:", q.answer, wrong))
    yield plain, context_text(colourless, plain, "omniscient", setting), items
    verdicts = ((WRONG,), (RIGHT,)), ((RIGHT,), (WRONG,))
    for order, case in [(n, case) for n in (1, 2) for case in record.cases(n)]:
        first, believed = order == 1, case.believed if order == 1 else case.thought
        stated = f"statements {case.first}" if first else "second-order statements"
        asked = f"belief {case.first}" if first else f"second-order belief {case.second}"
        items = []
        for room in (cast.first_room, cast.last_room):
            said = case.statement(room)
            items.append((stated, f"Belief: {said}", *verdicts[room == believed]))
            if first:
                true = verdicts[room == cast.last_room]
                items.append(("location statements", f"Really: {said}", *true))
        a, b = rng.sample(case.question.options, 2)
        question = f"Question: {case.question.question} Choose one: {a} or {b}. Answer:"
        right = case.question.answer
        answers = (right,), (a if right == b else b,)
        items.append((asked, question, *answers))
        for truth in (True, False) if first else ():
            # About other facts than the belief: where both agents went first.
            scene = Scene(cast, case.first, None)
            parts = [place(rng, scene, kind, truth) for kind in ("first", "own")]
            said = " ".join(f"{head} {room} room." for head, room in parts)
            after = f"{asked} after {'true' if truth else 'false'} statements"
            items.append((after, f"{said} {question}", *answers))
        yield case, context_text(record, case, "omniscient", setting), items


@torch.inference_mode()
def measure(loaded: Any, stories: Iterable[Any], setting: Setting) -> dict[str, float]:
    """Share of right answers of each measure, by greedy decoding; a context is read once."""
    right = defaultdict[str, list[bool]](list)
    every = [one for record in stories for one in contexts(record, setting)]
    for case, text, items in track(every, f"{loaded.name} {setting}"):
        prompts = []
        for _, ending, *_ in items:
            layout = reply_prompt if ending.endswith("Answer:") else open_prompt
            prompts.append(layout(loaded, f"{text} {ending}", setting != "text"))
        shared = split_common_prefix(loaded, prompts)
        clips = None if setting == "text" else [case.frames()]
        state = prefill(loaded, encode(loaded, [shared.beginning], clips))
        after = extend(loaded, state, [0] * len(items), shared.endings)
        replies = decode(loaded, greedy(loaded, after, 6))
        for (name, ending, needed, wrong), reply in zip(items, replies, strict=True):
            words = re.findall(r"\w+", reply.lower())
            # Of what follows a statement the first word is the verdict.
            words = words if ending.endswith("Answer:") else words[:1]
            right[name].append({*needed} <= {*words} and not {*wrong} & {*words})
    # Both sides of a pair, story by story and room by room: where frames alone are given, verdicts
    # that follow the film shown.
    both = zip(right["statements TB"], right["statements FB"], strict=True)
    right["statements TB and FB"] = [a and b for a, b in both]
    return {name: sum(found) / len(found) for name, found in right.items()}


def run(config: EvaluateConfig) -> None:
    loaded = load_model(config.model)
    test = samples.members(generated(), "test")[: config.stories]
    settings: tuple[Setting, ...] = ("multimodal", "text", "video")
    figures = {s: measure(loaded, generated(stories=test), s) for s in settings}
    rows = [
        (name, *(f"{100 * own[name]:.1f}" for own in figures.values())) for name in figures["text"]
    ]
    title = f"{config.model}, {len(test)} test stories, % right"
    print_table(Console(), title, ["measure", *figures], rows)
