"""GridToM as a task of inspect-ai, with the harness's readers as its scorers.

Torch is imported inside of functions: inspect-ai loads its plug-ins in every command.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from inspect_ai import Task, model, scorer, task
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.solver import TaskState
from rich.text import Text

from sally_anne.benchmarks.items import Option
from sally_anne.core.errors import HarnessError, SallyAnneError
from sally_anne.harness.answers import Reader
from sally_anne.harness.items import Item

_FACTS = ("item_id", "story", "split", "condition", "first", "names")
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
    """Who believes whom to be where? Questions, frames and readers of ``sally-anne evaluate``.

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
    from sally_anne.harness.adapters.gridtom import prepared
    from sally_anne.harness.tasks import reply_tokens

    given = {"setting": setting, "split": split, "limit": limit, "style": style}
    given |= {"data_seed": data_seed, "split_seed": split_seed, "steer": steer, "model": baked}
    with shown_plainly():
        if media not in _MEDIA:
            raise HarnessError(f"media must be one of {', '.join(_MEDIA)}, is {media!r}")
        # On the command line, words that look like numbers are some.
        work = prepared(given | {"order": str(order), "data": None if data is None else str(data)})
        samples = [sample_of(item, media) for item in work.items]
    return Task(
        dataset=MemoryDataset(samples, name=f"gridtom-{order}-{setting}-{split}"),
        scorer=[robust(), official()],
        config=model.GenerateConfig(temperature=0, max_tokens=reply_tokens("gridtom", style)),
        metadata=None if work.unseen is None else {"unseen": asdict(work.unseen)},
    )


def sample_of(item: Item, media: str) -> Sample:
    """An item with its frames, as one video or as images, which keep every bit."""
    from sally_anne.harness.adapters.inspect_ai.messages import picture_uris, video_uri
    from sally_anne.harness.evaluate import prompt_of

    prompt = prompt_of(item)
    parts: list[model.Content] = []
    if prompt.clip is not None and media == "video":
        parts.append(model.ContentVideo(video=video_uri(prompt.clip), format="mov"))
    elif prompt.clip is not None:
        parts += [model.ContentImage(image=uri) for uri in picture_uris(prompt.clip)]
    parts.append(model.ContentText(text=prompt.text))
    return Sample(
        id=item.item_id,
        input=[model.ChatMessageUser(content=parts)],
        target=list(item.answer),
        metadata={
            **{name: getattr(item, name) for name in _FACTS},
            "options": {option.label: option.text for option in item.options},
            "answer": list(item.answer),
        },
    )


def item_of(metadata: Mapping[str, Any]) -> Item:
    """What a reader has to know of an item, from the metadata of its sample."""
    return Item(
        **{name: metadata[name] for name in _FACTS},
        text="",
        official="gridtom",
        options=tuple(Option(label, text) for label, text in metadata["options"].items()),
        answer=tuple(metadata["answer"]),
    )


def measures(scores: Sequence[scorer.SampleScore]) -> dict[str, float]:
    """The harness's metrics by name; those that have no items are left out."""
    import pandas as pd

    from sally_anne.core.bootstrap import Estimate
    from sally_anne.harness.metrics import accuracy, belief_metrics

    times: Counter[str] = Counter()
    rows = []
    for score in scores:
        value = score.score.value
        facts = score.sample_metadata
        if value not in (scorer.CORRECT, scorer.INCORRECT, scorer.NOANSWER) or facts is None:
            continue
        item = item_of(facts)
        # A repeated item makes a pair with the other side of its own epoch.
        times[item.item_id] += 1
        epoch = times[item.item_id]
        row = {"item_id": f"{item.item_id} {epoch}", "story": f"{item.story} {epoch}"}
        row |= {"condition": item.condition, "first": item.first}
        right, invalid = value == scorer.CORRECT, value == scorer.NOANSWER
        rows.append(row | {"correct": right, "invalid": invalid})
    if not rows:
        return {}
    measured = belief_metrics if all(row["condition"] for row in rows) else accuracy
    found = vars(measured(pd.DataFrame(rows), bootstrap=1))  # type: ignore[operator]
    return {
        "accuracy" if name == "overall" else name: estimate.value
        for name, estimate in found.items()
        if isinstance(estimate, Estimate) and estimate.n
    }


@scorer.metric(scores="unreduced")
def belief() -> scorer.Metric:
    """TB, FB, Both and invalid of belief questions; accuracy and invalid of others.

    Every epoch counts by itself: TB and FB are paired within it.
    """
    return measures


@scorer.scorer(metrics=[belief()])
def robust() -> scorer.Scorer:
    """Reads JSON, labels and the texts of options, see :mod:`sally_anne.harness.answers`."""
    return _read_by("robust")


@scorer.scorer(metrics=[belief()])
def official() -> scorer.Scorer:
    """Reads nothing but a JSON object with an ``answer`` field."""
    return _read_by("official")


def _read_by(reader: Reader) -> scorer.Scorer:
    async def read(state: TaskState, target: scorer.Target) -> scorer.Score:
        from sally_anne.harness.results import score as score_items

        reply = state.output.completion
        row = score_items([item_of(state.metadata)], [{"reply": reply}]).iloc[0]
        value = scorer.CORRECT if row[f"{reader}_correct"] else scorer.INCORRECT
        return scorer.Score(
            value=scorer.NOANSWER if row[f"{reader}_invalid"] else value,
            answer=row[f"{reader}_label"],
            explanation=reply,
        )

    return read
