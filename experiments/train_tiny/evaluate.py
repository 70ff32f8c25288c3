"""What a tiny model can and cannot do: ``python -m experiments.train_tiny.evaluate``.

Prints, on the test stories, how it answers the initial-belief questions, judges statements and
answers the belief questions, in each setting.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.catalogue import DEFAULT_MODEL

MEASURES = (
    "initial belief",
    "statements TB",
    "statements FB",
    "belief TB",
    "belief FB",
    "second-order statements",
    "second-order belief TB",
    "second-order belief FB",
)


@dataclass(frozen=True)
class EvaluateConfig:
    """Measure a tiny model on the test stories.

    Attributes:
        model: catalogue name or folder.
        stories: so many test stories; 500 are all.
        batch_size: prompts that go through the model together.
        out: write the figures to this JSON file as well.
        card: write the model card to this file as well (tiny models only).
    """

    model: str = DEFAULT_MODEL
    stories: int = 100
    batch_size: int = 16
    out: Path | None = None
    card: Path | None = None


@dataclass(frozen=True)
class Item:
    """One prompt and what counts as right.

    Attributes:
        measure: which figure it belongs to.
        content: the user's text.
        reply: whether the model answers in its own turn (questions) or goes on (statements).
        right: words that must all be said.
        wrong: words that must not be said.
        case: where the frames come from.
    """

    measure: str
    content: str
    reply: bool
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    case: Any


def items(stories: Iterable[Any], setting: str) -> Iterator[Item]:
    """The prompts of all measures for each story."""
    from probing.contrasts import context_text, statement_text

    for record in stories:
        rng = random.Random(f"evaluate/{record.index}")
        plain = record.cases(1)[0]
        for question in record.initial:
            text = context_text(record, plain, "omniscient", setting)  # type: ignore[arg-type]
            wrong = tuple(c for c in question.choices if c not in question.answer)
            content = f"{text} Question: {question.question} Answer:"
            yield Item("initial belief", content, True, question.answer, wrong, plain)
        for order, prefix in ((1, ""), (2, "second-order ")):
            for case in record.cases(order):
                held = case.believed if order == 1 else case.thought
                cast = record.cast
                for room in (cast.first_room, cast.last_room):
                    text = statement_text(
                        record,
                        case,
                        "omniscient",
                        setting,  # type: ignore[arg-type]
                        case.statement(room),
                    )
                    said = ("right", "wrong") if room == held else ("wrong", "right")
                    name = f"statements {case.first}" if order == 1 else f"{prefix}statements"
                    yield Item(name, text, False, said[:1], said[1:], case)
                a, b = rng.sample(case.question.options, 2)
                text = context_text(record, case, "omniscient", setting)  # type: ignore[arg-type]
                content = (
                    f"{text} Question: {case.question.question} Choose one: {a} or {b}. Answer:"
                )
                other = a if case.question.answer == b else b
                condition = case.first if order == 1 else case.second
                yield Item(
                    f"{prefix}belief {condition}",
                    content,
                    True,
                    (case.question.answer,),
                    (other,),
                    case,
                )


def measure(loaded: Any, stories: Iterable[Any], setting: str, batch_size: int) -> dict[str, float]:
    """Share of right answers of each measure, by greedy decoding."""
    import torch
    from rich.progress import track

    from models.prompts import encode, open_prompt, reply_prompt

    video = setting != "text"
    # Prompts of a kind together: their lengths are nearly equal.
    todo = sorted(items(stories, setting), key=lambda item: (item.reply, item.measure))
    right: dict[str, list[bool]] = {name: [] for name in MEASURES}
    chunks = [todo[i : i + batch_size] for i in range(0, len(todo), batch_size)]
    for chunk in track(chunks, f"{loaded.name} {setting}"):
        prompts = [
            (reply_prompt if item.reply else open_prompt)(loaded, item.content, video)
            for item in chunk
        ]
        clips = [item.case.frames() for item in chunk] if video else None
        inputs = encode(loaded, prompts, clips)
        with torch.inference_mode():
            said = loaded.model.generate(
                **inputs, max_new_tokens=6 if any(i.reply for i in chunk) else 1, do_sample=False
            )
        texts = loaded.processor.batch_decode(
            said[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True
        )
        for item, text in zip(chunk, texts, strict=True):
            words = set(re.findall(r"\w+", text.lower()))
            ok = words.issuperset(item.right) and words.isdisjoint(item.wrong)
            right[item.measure].append(ok)
    return {name: sum(found) / len(found) for name, found in right.items() if found}


def main() -> None:
    """The command line."""
    import tyro

    config = tyro.cli(EvaluateConfig, prog="python -m experiments.train_tiny.evaluate")
    from rich.console import Console
    from rich.table import Table

    from benchmarks.gridtom import splits
    from benchmarks.gridtom.records import generated
    from models.errors import ModelError
    from models.loading import load_model

    try:
        loaded = load_model(config.model)
    except ModelError as error:
        sys.exit(f"error: {error}")
    test = [i for i, split in splits.assign().items() if split == "test"][: config.stories]
    figures = {
        setting: measure(loaded, generated(stories=test), setting, config.batch_size)
        for setting in ("multimodal", "text", "video")
    }
    table = Table(title=f"{config.model}, {len(test)} test stories, % right")
    table.add_column("measure")
    for setting in figures:
        table.add_column(setting, justify="right")
    for name in MEASURES:
        table.add_row(name, *(f"{100 * figures[s][name]:.1f}" for s in figures))
    Console().print(table)
    if config.out:
        config.out.write_text(
            json.dumps({"stories": len(test), "figures": figures}, indent=2) + "\n"
        )
    if config.card:
        from experiments.train_tiny.card import write_card

        write_card(config.card, loaded.family.name, len(test), figures)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
