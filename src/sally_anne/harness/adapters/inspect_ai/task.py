"""Every benchmark as a task of inspect-ai, with the harness's parsers as its scorers.

Torch is imported inside of functions: inspect-ai loads its plug-ins in every command.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from inspect_ai import Task, model, scorer, solver, task
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.solver import Generate, TaskState
from rich.text import Text

from sally_anne.core.errors import HarnessError, SallyAnneError
from sally_anne.data.items import Option, Question
from sally_anne.harness.parse import Parser

if TYPE_CHECKING:
    from sally_anne.harness.adapters.questions import TaskQuestions

_FACTS = ("item_id", "split", "condition", "first")
# Facts that logs of earlier versions lack: they are all of GridToM.
_LATER = {"official": "gridtom", "reasons": False, "reference": None}
_MEDIA = ("video", "images")


@contextmanager
def shown_plainly() -> Iterator[None]:
    """Expected errors in the block come out as inspect-ai's own kind, not read as markup."""
    try:
        yield
    except SallyAnneError as error:
        raise PrerequisiteError(Text(str(error))) from error


@task
def gridtom(
    order: str = "1",
    setting: str = "multimodal",
    split: str = "test",
    limit: int | None = None,
    style: str = "plain",
    data: str | None = None,
    data_seed: int | None = None,
    split_seed: int | None = None,
    media: str = "video",
    steer: str | None = None,
    baked: str | None = None,
) -> Task:
    """Who believes whom to be where? Questions, frames and parsers of ``sally-anne evaluate``.

    Args:
        order: belief of first or second order (1, 2), or the initial-belief questions (initial).
        setting: frames and text (multimodal), frames (video), or text.
        split: test, validation or train.
        limit: only so many stories of the split, drawn evenly over maps; a story has two questions
            of first order, four of second.
        style: plain questions, or questions that ask for a JSON object (json).
        data: folder in the release layout; stories are generated if none is given.
        data_seed: seed of generated stories.
        split_seed: which stories test, train and validate.
        media: frames as one lossless video, or as pictures, which more models take (images).
        steer: folder of the vector that steers the model: test stories that it was fitted on are
            left out, and the task's metadata say how many.
        baked: folder of the model, if a vector is baked into it: the same.
    """
    from sally_anne.harness.adapters.questions import prepared

    given: dict[str, Any] = {"order": str(order), "setting": setting, "split": split}
    given |= {"style": style, "data": _word(data), "limit": limit, "steer": steer, "model": baked}
    given |= {"data_seed": data_seed, "split_seed": split_seed}
    with shown_plainly():
        _check_media(media)
        asked = prepared(given)
        samples = [sample_of(item, asked, media) for item in asked.work.items]
    return _task(asked, samples, f"gridtom-{order}-{setting}-{split}")


@task
def benchmark(
    task: str,
    data: str | None = None,
    view: str | None = None,
    window: str | None = None,
    frames: int | None = None,
    max_pixels: int | None = None,
    template: str | None = None,
    protocol: str | None = None,
    prompting: str | None = None,
    shots: int | None = None,
    shots_seed: int | None = None,
    split: str | None = None,
    limit: int | None = None,
    media: str = "video",
) -> Task:
    """The questions of ``sally-anne evaluate --task``; what is not given is as it has it.

    Args:
        task: moments, mmtom_qa, muma_tom, mimeqa, bigtom or another benchmark that is known by
            name; package.module:NAME of one; or a file of one's own questions (JSON lines).
        data: folder in the benchmark's release layout.
        view: frames and words (multimodal), frames (video), words (text), or the question (none).
        window: the whole context (full), or the part that the question is about (focused).
        frames: so many frames, spread evenly.
        max_pixels: most pixels of a frame.
        template: file with the prompt, its fields in braces.
        protocol: official asks as the benchmark's authors do.
        prompting: direct, cot for thoughts first, few-shot after other questions with answers.
        shots: examples of few-shot prompts.
        shots_seed: which examples are drawn.
        split: which items are asked about.
        limit: only the first so many stories of the split; films, episodes.
        media: frames as one lossless video, or as pictures, which more models take (images).
    """
    from sally_anne.harness.adapters.questions import asked_by

    given: dict[str, Any] = {"task": task, "data": _word(data), "view": view, "window": window}
    given |= {"frames": frames, "max_pixels": max_pixels, "template": template, "split": split}
    given |= {"protocol": protocol, "prompting": prompting, "shots": shots, "limit": limit}
    questions = json.dumps(given | {"shots_seed": shots_seed})
    with shown_plainly():
        _check_media(media)
        asked = asked_by(questions)
        if asked.config.prompting == "simtom":
            raise HarnessError("prompting simtom asks in two steps: sally-anne evaluate has it")
    samples = [sample_of(item, asked) for item in asked.work.items]
    # Films are decoded as their questions are asked, so that they are not all held at once.
    return _task(asked, samples, task, shown(questions, media))


def _word(value: Any) -> str | None:
    """A folder, which the command line takes for a number if it looks like one."""
    return None if value is None else str(value)


def _check_media(media: str) -> None:
    if media not in _MEDIA:
        raise HarnessError(f"media must be one of {', '.join(_MEDIA)}, is {media!r}")


def _task(
    asked: TaskQuestions, samples: list[Sample], name: str, setup: solver.Solver | None = None
) -> Task:
    authors = any(metric.startswith("official_") for metric in asked.metrics)
    unseen = asked.work.left_out
    return Task(
        dataset=MemoryDataset(samples, name=name),
        setup=setup,
        scorer=[robust(), official()] if authors else [robust()],
        config=model.GenerateConfig(temperature=0, max_tokens=asked.config.reply_tokens),
        metadata=None if unseen is None else {"unseen": asdict(unseen)},
    )


@solver.solver
def shown(questions: str, media: str) -> solver.Solver:
    """Puts the frames of an item before its words; ``questions`` are the task's options as JSON."""

    async def show(state: TaskState, generate: Generate) -> TaskState:
        from sally_anne.harness.adapters.questions import asked_by

        item = asked_by(questions).items[str(state.sample_id)]
        state.messages = await anyio.to_thread.run_sync(partial(messages_of, item, media))
        return state

    return show


def messages_of(item: Question, media: str) -> list[model.ChatMessage]:
    """What is said, with the frames before it as one video or as images, which keep every bit."""
    from sally_anne.harness.adapters.inspect_ai.provider import picture_uri, video_uri
    from sally_anne.harness.evaluate import prompt_of

    prompt = prompt_of(item)
    parts: list[model.Content] = []
    if prompt.clip is not None and media == "video":
        parts.append(model.ContentVideo(video=video_uri(prompt.clip), format="mov"))
    elif prompt.clip is not None:
        parts += [model.ContentImage(image=picture_uri(frame)) for frame in prompt.clip]
    parts.append(model.ContentText(text=prompt.text))
    system = [model.ChatMessageSystem(content=prompt.system)] if prompt.system else []
    return [*system, model.ChatMessageUser(content=parts)]


def sample_of(item: Question, asked: TaskQuestions, media: str | None = None) -> Sample:
    """An item as a sample; without ``media``, :func:`shown` gives its messages as it is asked."""
    return Sample(
        id=item.item_id,
        input=item.text if media is None else messages_of(item, media),
        target=list(item.key) or item.reference or "",
        metadata={
            **{name: getattr(item, name) for name in (*_FACTS, *_LATER)},
            "story": item.group,
            "names": item.names,
            "options": {option.label: option.text for option in item.options},
            "answer": list(item.key),
            "tags": {kind: list(values) for kind, values in item.tags.items()},
            "task": asked.config.task,
            "breakdowns": list(asked.work.breakdowns),
            "cells": list(asked.work.cells),
            "beliefs": asked.work.beliefs,
        },
    )


def item_of(metadata: Mapping[str, Any]) -> Question:
    """What a parser has to know of an item, from the metadata of its sample."""
    key = tuple(metadata["answer"])
    return Question(
        **{name: metadata[name] for name in _FACTS},
        benchmark="",
        group=metadata["story"],
        question="",
        **{name: metadata.get(name, older) for name, older in _LATER.items()},
        options=tuple(Option(label, text) for label, text in metadata["options"].items()),
        answer=None if metadata["names"] or not key else key[0],
        answers=key if metadata["names"] else (),
        tags={kind: tuple(values) for kind, values in metadata.get("tags", {}).items()},
    )


def measures(scores: Sequence[scorer.SampleScore]) -> dict[str, float]:
    """The harness's metrics by name; those that have no items are left out."""
    from sally_anne.harness.adapters.questions import figures

    times: Counter[str] = Counter()
    rows, facts = [], {}
    for score in scores:
        value = score.score.value
        if value not in (scorer.CORRECT, scorer.INCORRECT, scorer.NOANSWER):
            continue
        if score.sample_metadata is None:
            continue
        facts = score.sample_metadata
        item = item_of(facts)
        # A repeated item makes a pair with the other side of its own epoch.
        times[item.item_id] += 1
        epoch = times[item.item_id]
        row = {"item_id": f"{item.item_id} {epoch}", "story": f"{item.group} {epoch}"}
        row |= {name: getattr(item, name) for name in ("split", "condition", "first", "hidden")}
        row |= {f"tag_{kind}": "|".join(values) for kind, values in item.tags.items()}
        right, invalid = value == scorer.CORRECT, value == scorer.NOANSWER
        rows.append(row | {"robust_correct": right, "robust_invalid": invalid})
    if not rows:
        return {}
    kinds = facts["breakdowns"], facts["cells"], facts["beliefs"]
    return figures(rows, "robust", *kinds)


@scorer.metric(scores="unreduced")
def belief() -> scorer.Metric:
    """TB, FB, Both and invalid of GridToM's belief questions, accuracy and invalid of its others.

    Of other benchmarks all of these, and accuracy by tags.
    Every epoch counts by itself: TB and FB are paired within it.
    """
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
        from sally_anne.harness.score import score as score_items

        reply = state.output.completion
        item = item_of(state.metadata)
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
