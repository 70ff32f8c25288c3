"""Every benchmark as a task of inspect-ai, with the harness's parsers as its scorers.

Torch is imported inside of functions: inspect-ai loads its plug-ins in every command.
"""

from __future__ import annotations

import base64
import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import anyio.to_thread
import numpy as np
from inspect_ai import Task, model, scorer, solver, task
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.solver import Generate, TaskState
from PIL import Image
from rich.text import Text

from sally_anne.core.errors import HarnessError, SallyAnneError
from sally_anne.data.items import Question
from sally_anne.harness.parse import Parser

_WORDS = ("order", "data", "steer", "model")


@contextmanager
def shown_plainly() -> Iterator[None]:
    """Expected errors in the block come out as inspect-ai's own kind, not read as markup."""
    try:
        yield
    except SallyAnneError as error:
        raise PrerequisiteError(Text(str(error))) from error


@task
def gridtom(order: str = "1", setting: str = "multimodal", **options: Any) -> Task:
    """Who believes whom to be where? Questions, frames and parsers of ``sally-anne evaluate``.

    ``options`` are its split, limit, style, data, data_seed and split_seed, and ``steer``: test
    stories that this vector was fitted on are left out, as are those of one ``baked`` into a model.
    """
    return _task({"task": "gridtom", "order": order, "setting": setting} | options)


@task
def benchmark(task: str, **options: Any) -> Task:
    """The questions of ``sally-anne evaluate --task``; what is not given is as it has it.

    Args:
        task: a benchmark by name, package.module:NAME of one, or a file of one's own questions.
        options: of :data:`sally_anne.harness.adapters.common.OPTIONS`.
    """
    return _task({"task": task} | options)


def _task(options: dict[str, Any]) -> Task:
    from sally_anne.harness.adapters.common import asked_by

    if "baked" in options:
        options["model"] = options.pop("baked")
    # The command line takes a word for a number if it looks like one.
    words = {n: str(options[n]) for n in _WORDS if options.get(n) is not None}
    questions = json.dumps(options | words)
    with shown_plainly():
        asked = asked_by(questions)
        if asked.config.prompting == "simtom":
            raise HarnessError("prompting simtom asks in two steps: sally-anne evaluate has it")
    authors = any(metric.startswith("official_") for metric in asked.metrics)
    unseen = asked.work.left_out
    samples = [
        Sample(
            id=item.item_id,
            input=item.text,
            target=list(item.key) or item.reference or "",
            metadata={"questions": questions, "group": item.group, "condition": item.condition}
            | {"first": item.first, "options": [option.text for option in item.options]},
        )
        for item in asked.work.items
    ]
    return Task(
        dataset=MemoryDataset(samples, name=options["task"]),
        setup=shown(),
        scorer=[robust(), official()] if authors else [robust()],
        config=model.GenerateConfig(temperature=0, max_tokens=asked.config.reply_tokens),
        metadata=None if unseen is None else {"unseen": asdict(unseen)},
    )


@solver.solver
def shown() -> solver.Solver:
    """Puts the frames of an item before its words, decoded as it is asked."""

    async def show(state: TaskState, generate: Generate) -> TaskState:
        from sally_anne.harness.adapters.common import asked_by

        item = asked_by(state.metadata["questions"]).items[str(state.sample_id)]
        state.messages = await anyio.to_thread.run_sync(messages_of, item)
        return state

    return show


def messages_of(item: Question) -> list[model.ChatMessage]:
    """What is said, with the frames before it as pictures, which keep every bit."""
    from sally_anne.harness.evaluate import prompt_of

    prompt = prompt_of(item)
    parts: list[model.Content] = []
    if prompt.clip is not None:
        parts += [model.ContentImage(image=picture_uri(frame)) for frame in prompt.clip]
    parts.append(model.ContentText(text=prompt.text))
    system = [model.ChatMessageSystem(content=prompt.system)] if prompt.system else []
    return [*system, model.ChatMessageUser(content=parts)]


def measures(scores: Sequence[scorer.SampleScore]) -> dict[str, float]:
    """The harness's metrics by name; those that have no items are left out."""
    from sally_anne.harness.adapters.common import asked_by, figures

    times: Counter[str] = Counter()
    rows: list[dict[str, Any]] = []
    kinds: tuple[Any, ...] = ()
    for score in scores:
        value = score.score.value
        if value not in (scorer.CORRECT, scorer.INCORRECT, scorer.NOANSWER):
            continue
        if not (facts := score.sample_metadata) or "questions" not in facts:
            continue  # of a log of before
        asked = asked_by(facts["questions"])
        kinds = (asked.work.breakdowns, asked.work.cells, asked.work.beliefs)
        item = asked.items[str(score.sample_id)]
        # A repeated item makes a pair with the other side of its own epoch.
        times[item.item_id] += 1
        epoch = times[item.item_id]
        row = {"item_id": f"{item.item_id} {epoch}", "story": f"{item.group} {epoch}"}
        row |= {name: getattr(item, name) for name in ("split", "condition", "first", "hidden")}
        row |= {f"tag_{kind}": "|".join(values) for kind, values in item.tags.items()}
        right, invalid = value == scorer.CORRECT, value == scorer.NOANSWER
        rows.append(row | {"robust_correct": right, "robust_invalid": invalid})
    return figures(rows, "robust", *kinds) if rows else {}


@scorer.metric(scores="unreduced")
def belief() -> scorer.Metric:
    """What an evaluation prints; every epoch counts by itself: TB and FB are paired within it."""
    return measures


@scorer.scorer(metrics=[belief()])
def robust() -> scorer.Scorer:
    """Reads JSON, labels and the texts of options, see :mod:`sally_anne.harness.parse`."""
    return _read_by("robust")


@scorer.scorer(metrics=[belief()])
def official() -> scorer.Scorer:
    """Reads as the benchmark's authors do, see :mod:`sally_anne.harness.parse`."""
    return _read_by("official")


def _read_by(parser: Parser) -> scorer.Scorer:
    async def read(state: TaskState, target: scorer.Target) -> scorer.Score:
        from sally_anne.harness.adapters.common import asked_by
        from sally_anne.harness.score import score as score_items

        reply = state.output.completion
        item = asked_by(state.metadata["questions"]).items[str(state.sample_id)]
        if item.hidden or not item.options:
            return scorer.Score.unscored(
                reason="open question" if item.reference else "hidden key", explanation=reply
            )
        ended = state.output.stop_reason not in ("max_tokens", "model_length")
        row = score_items([item], [{"reply": reply, "ended": ended}]).iloc[0]
        value = scorer.CORRECT if row[f"{parser}_correct"] else scorer.INCORRECT
        return scorer.Score(
            value=scorer.NOANSWER if row[f"{parser}_invalid"] else value,
            answer=row[f"{parser}_label"],
            explanation=reply,
        )

    return read


def picture_uri(frame: np.ndarray) -> str:
    """A frame ``uint8 [height, width, 3]`` as the data URI of a PNG picture."""
    file = io.BytesIO()
    Image.fromarray(frame).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
