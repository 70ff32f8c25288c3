"""GridToM as a task of inspect-ai."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, cast, get_args, get_type_hints

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset
from inspect_ai.model import GenerateConfig

from sally_anne.core.errors import HarnessError
from sally_anne.harness.adapters.inspect_ai.errors import shown_plainly
from sally_anne.harness.adapters.inspect_ai.samples import Media, sample_of
from sally_anne.harness.adapters.inspect_ai.scorers import official, robust


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
) -> Task:
    """Who believes whom to be where? The same questions, frames and readers as `harness.run`.

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
        media: frames as one lossless film (video), or as pictures, which more models take (images).
        steer: folder of the vector that steers the model: test stories that it was fitted on are
            left out, and the task's metadata say how many.

    Raises:
        PrerequisiteError: an option that there is not, or data that cannot be used.
    """
    # Torch is imported here: inspect-ai loads its plug-ins in every command.
    from sally_anne.benchmarks.gridtom.stories import open_stories
    from sally_anne.harness.config import EvalConfig
    from sally_anne.harness.vectors import facts_of
    from sally_anne.harness.work import choose_unseen, items_of

    given: dict[str, Any] = {
        "order": str(order),
        "setting": setting,
        "split": split,
        "limit": limit,
        "style": style,
        "data": None if data is None else Path(str(data)),
        "data_seed": data_seed,
        "split_seed": split_seed,
    }
    kinds = get_type_hints(EvalConfig)
    with shown_plainly():
        for name in ("order", "setting", "style"):
            _one_of(name, given[name], get_args(kinds[name]))
        _one_of("split", split, ("test", "validation", "train"))
        _one_of("media", media, get_args(Media))
        for name in ("limit", "data_seed", "split_seed"):
            _number(name, given[name], 1 if name == "limit" else 0)
        config = EvalConfig(**{name: value for name, value in given.items() if value is not None})
        stories = open_stories(config.data, config.data_seed)
        chosen, unseen = choose_unseen(config, stories, facts_of(steer))
        items = items_of(config, stories, chosen)
        samples = [sample_of(item, cast(Media, media)) for item in items]
    return Task(
        dataset=MemoryDataset(samples, name=f"gridtom-{config.order}-{setting}-{split}"),
        scorer=[robust(), official()],
        config=GenerateConfig(temperature=0, max_tokens=config.reply_tokens),
        metadata=None if unseen is None else {"unseen": asdict(unseen)},
    )


def _one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise HarnessError(f"task argument {name}: {value!r} is none of {', '.join(known)}")


def _number(name: str, value: object, least: int) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if value is not None and not (whole and value >= least):  # type: ignore[operator]
        raise HarnessError(f"task argument {name} must be a number from {least}, got {value!r}")
