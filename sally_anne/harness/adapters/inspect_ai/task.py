"""GridToM as a task of inspect-ai, with the harness's readers as its scorers.

Torch is imported inside of functions: inspect-ai loads its plug-ins in every command.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from inspect_ai import Task, task
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import (
    ChatMessageUser,
    Content,
    ContentImage,
    ContentText,
    ContentVideo,
    GenerateConfig,
)
from inspect_ai.scorer import (
    CORRECT,
    INCORRECT,
    NOANSWER,
    Metric,
    SampleScore,
    Score,
    Scorer,
    Target,
    Value,
    metric,
    scorer,
)
from inspect_ai.solver import TaskState
from rich.text import Text

from sally_anne.benchmarks.items import Option
from sally_anne.core.errors import HarnessError, SallyAnneError
from sally_anne.harness.answers import Reader
from sally_anne.harness.items import Item

if TYPE_CHECKING:
    import pandas as pd

_FACTS = ("item_id", "story", "split", "condition", "first", "names")
_MEDIA = ("video", "images")


@contextmanager
def shown_plainly() -> Iterator[None]:
    """Expected errors in the block come out as inspect-ai's own kind.

    Raises:
        PrerequisiteError: with the message of the error, which no longer reads as markup.
    """
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
        limit: only the first so many stories of the split; a story has two questions of first
            order, four of second.
        style: plain questions, or questions that ask for a JSON object (json).
        data: folder in the release layout; stories are generated if none is given.
        data_seed: seed of generated stories.
        split_seed: which stories test, train and validate.
        media: frames as one lossless video, or as pictures, which more models take (images).
        steer: folder of the vector that steers the model: test stories that it was fitted on are
            left out, and the task's metadata say how many.
        baked: folder of the model, if a vector is baked into it: the same.

    Raises:
        PrerequisiteError: an option that there is not, or data that cannot be used.
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
        config=GenerateConfig(temperature=0, max_tokens=reply_tokens("gridtom", style)),
        metadata=None if work.unseen is None else {"unseen": asdict(work.unseen)},
    )


def sample_of(item: Item, media: str) -> Sample:
    """An item with its frames, which keep every bit.

    Args:
        item: what is asked.
        media: ``video`` gives the frames as one video, ``images`` as pictures, one a frame.
    """
    from sally_anne.harness.adapters.inspect_ai.messages import picture_uris, video_uri
    from sally_anne.harness.evaluate import prompt_of

    prompt = prompt_of(item)
    parts: list[Content] = []
    if prompt.clip is not None and media == "video":
        parts.append(ContentVideo(video=video_uri(prompt.clip), format="mov"))
    elif prompt.clip is not None:
        parts += [ContentImage(image=uri) for uri in picture_uris(prompt.clip)]
    parts.append(ContentText(text=prompt.text))
    return Sample(
        id=item.item_id,
        input=[ChatMessageUser(content=parts)],
        target=list(item.answer),
        metadata={
            **{name: getattr(item, name) for name in _FACTS},
            "options": {option.label: option.text for option in item.options},
            "answer": list(item.answer),
        },
    )


def item_of(metadata: Mapping[str, Any]) -> Item:
    """What a reader has to know of an item, from the metadata of its sample.

    Raises:
        KeyError: they are of another task.
    """
    return Item(
        **{name: metadata[name] for name in _FACTS},
        text="",
        options=tuple(Option(label, text) for label, text in metadata["options"].items()),
        answer=tuple(metadata["answer"]),
    )


@metric(scores="unreduced")
def belief() -> Metric:
    """TB, FB, Both and invalid of belief questions; accuracy and invalid of others.

    Every epoch counts by itself: TB and FB are paired within it.
    """

    def measure(scores: list[SampleScore]) -> Value:
        return measures(scores)

    return measure


@scorer(metrics=[belief()])
def robust() -> Scorer:
    """Reads JSON, labels and the texts of options, see :mod:`sally_anne.harness.answers`."""
    return _read_by("robust")


@scorer(metrics=[belief()])
def official() -> Scorer:
    """Reads nothing but a JSON object with an ``answer`` field."""
    return _read_by("official")


def _read_by(reader: Reader) -> Scorer:
    async def read(state: TaskState, target: Target) -> Score:
        from sally_anne.harness.results import score as score_items

        reply = state.output.completion
        row = score_items([item_of(state.metadata)], [{"reply": reply}]).iloc[0]
        value = CORRECT if row[f"{reader}_correct"] else INCORRECT
        return Score(
            value=NOANSWER if row[f"{reader}_invalid"] else value,
            answer=row[f"{reader}_label"],
            explanation=reply,
        )

    return read


def measures(scores: Sequence[SampleScore]) -> dict[str, float]:
    """The harness's metrics by name; those that have no items are left out."""
    from sally_anne.core.bootstrap import Estimate
    from sally_anne.harness.metrics import accuracy, belief_metrics

    sheet = _sheet(scores)
    if sheet.empty:
        return {}
    measured = belief_metrics if all(sheet["condition"]) else accuracy
    found: Any = measured(sheet, bootstrap=1)
    estimates = {name: getattr(found, name) for name in (f.name for f in fields(found))}
    return {
        "accuracy" if name == "overall" else name: estimate.value
        for name, estimate in estimates.items()
        if isinstance(estimate, Estimate) and estimate.n
    }


def _sheet(scores: Sequence[SampleScore]) -> pd.DataFrame:
    """Scored items for :mod:`sally_anne.harness.metrics`; what was not scored is left out."""
    import pandas as pd

    times: Counter[str] = Counter()
    rows = []
    for score in scores:
        value = score.score.value
        if value not in (CORRECT, INCORRECT, NOANSWER) or score.sample_metadata is None:
            continue
        item = item_of(score.sample_metadata)
        # A repeated item makes a pair with the other side of its own epoch.
        times[item.item_id] += 1
        epoch = times[item.item_id]
        rows.append(
            {
                "item_id": f"{item.item_id} {epoch}",
                "story": f"{item.story} {epoch}",
                "condition": item.condition,
                "first": item.first,
                "correct": value == CORRECT,
                "invalid": value == NOANSWER,
            }
        )
    return pd.DataFrame(rows)
