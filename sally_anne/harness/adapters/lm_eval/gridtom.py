"""GridToM as lm-eval tasks: what the YAML files in ``tasks/gridtom`` refer to.

Items, readers and metrics are those of `harness`, so that a model that replies the same is scored
the same. The prompts are one user's turn, which `harness.run` asks in the model's chat layout:
do the same with ``--apply_chat_template``.

Items stand story by story: two a story in first order, four in second order, three about initial
beliefs. So ``--limit 20`` asks the first-order questions of ten stories. What else there is to
choose is given as ``--metadata stories=10 split=validation style=json data=FOLDER data_seed=1``.

In the multimodal tasks, the key frames are the pictures of a prompt. lm-eval draws them all before
it asks anything: 2.6 MB an item.

A whole run, steered, in Python::

    import sally_anne.harness.adapters.lm_eval as sally_anne
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    results = simple_evaluate(
        model="sally-anne",
        model_args="pretrained=tiny-qwen2-vl,steer=my-vector",
        tasks=["gridtom_first_order_text"],
        task_manager=TaskManager(include_path=sally_anne.TASKS),
        apply_chat_template=True,
        limit=20,
    )
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from sally_anne.benchmarks.gridtom import splits
from sally_anne.benchmarks.gridtom.records import StorySet
from sally_anne.benchmarks.gridtom.render import key_frames
from sally_anne.benchmarks.gridtom.stories import DEFAULT_SEED, open_stories
from sally_anne.benchmarks.items import Option, Setting
from sally_anne.core.errors import HarnessError
from sally_anne.harness import gridtom
from sally_anne.harness.adapters.lm_eval.pictures import MARK
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.items import Item
from sally_anne.harness.metrics import belief_metrics
from sally_anne.harness.results import score
from sally_anne.harness.vectors import facts_of
from sally_anne.harness.work import choose_unseen

LOGGER = logging.getLogger(__name__)
# The readers of replies, and what stands before the names of their metrics.
_READERS = {"robust": "", "official": "official_"}


def documents(
    order: gridtom.Ask,
    setting: Setting,
    stories: int | None = None,
    split: str = "test",
    style: gridtom.Style = "plain",
    data: str | None = None,
    data_seed: int = DEFAULT_SEED,
    split_seed: int = 0,
    steer: str | None = None,
    **_: Any,
) -> dict[str, Any]:
    """The items of a task as lm-eval's ``custom_dataset`` gives them.

    Args:
        order: belief of first order, of second order, or the initial-belief questions.
        setting: frames and words, frames, or words.
        stories: only the first so many stories of the split.
        split: which stories are asked about.
        style: plain questions, or questions that ask for a JSON object.
        data: folder in the release layout; stories are generated if none is given.
        data_seed: seed of generated stories.
        split_seed: which stories test, train and validate.
        steer: folder of the vector that steers the model: test stories that it was fitted on are
            left out. lm-eval's command line gives it from ``--model_args``; give it as metadata
            where a TaskManager is made by hand.
        _: other metadata of a run: options of the model, version of the task.

    Returns:
        ``test``: a `datasets.Dataset` of items.

    Raises:
        HarnessError: an option cannot be used, or no story is left.
        BenchmarkError: the folder is not usable.
    """
    import datasets

    for name, value, allowed in (
        ("split", split, splits.SPLITS),
        ("style", style, ("plain", "json")),
    ):
        if value not in allowed:
            raise HarnessError(f"{name} must be one of {', '.join(allowed)}, is {value!r}")
    for name, number in (("data_seed", data_seed), ("split_seed", split_seed)):
        if isinstance(number, bool) or not isinstance(number, int):
            raise HarnessError(f"{name} must be a whole number, is {number!r}")
    if stories is not None and (not isinstance(stories, int) or stories < 1):
        raise HarnessError(f"stories must be a whole number from 1 on, is {stories!r}")
    folder = "" if data is None else str(data)
    there = _stories(folder, data_seed)
    config = EvalConfig(split=split, limit=stories, split_seed=split_seed)
    members, unseen = choose_unseen(config, there, facts_of(steer))
    if unseen:
        LOGGER.warning("%s", unseen)
    found = []
    for index in members:
        record = there.story(index)
        pictures = 0 if setting == "text" else len(key_frames(record.nodes))
        for item in gridtom.items([record], {index: split}, order, setting, style):
            place = {"index": index, "data": folder, "data_seed": data_seed}
            found.append(_document(item, order, pictures) | place)
    return {"test": datasets.Dataset.from_list(found)}


def pictures(document: Mapping[str, Any]) -> list[Any]:
    """The key frames of an item, as PIL pictures."""
    from PIL import Image

    record = _stories(document["data"], document["data_seed"]).story(document["index"])
    if document["order"] == "initial":
        case = record.cases(1)[0]
    elif document["order"] == "1":
        case = record.case(1, document["first"])
    else:
        case = record.case(2, document["first"], document["condition"])
    return [Image.fromarray(frame) for frame in case.frames()]


def belief_results(document: Mapping[str, Any], replies: Sequence[str]) -> dict[str, Any]:
    """What a belief item gives to each metric.

    Returns:
        ``TB`` or ``FB``, after the item's condition, and ``invalid``: 0 or 1; ``Both``: the item as
        :func:`both` needs it. The same with ``official_`` for the reader of JSON alone.
    """
    found: dict[str, Any] = {}
    for reader, prefix in _READERS.items():
        row = _scored(document, replies[0], reader)
        found[prefix + document["condition"]] = float(row["correct"])
        found[f"{prefix}Both"] = row
        found[f"{prefix}invalid"] = float(row["invalid"])
    return found


def initial_results(document: Mapping[str, Any], replies: Sequence[str]) -> dict[str, float]:
    """``overall`` and ``invalid``, 0 or 1, and the same with ``official_``."""
    found = {}
    for reader, prefix in _READERS.items():
        row = _scored(document, replies[0], reader)
        found[f"{prefix}overall"] = float(row["correct"])
        found[f"{prefix}invalid"] = float(row["invalid"])
    return found


def both(rows: Sequence[Mapping[str, Any]]) -> float:
    """Share of pairs, TB and FB of one story, with both right; NaN without a pair."""
    return belief_metrics(pd.DataFrame(list(rows)), bootstrap=1).Both.value


@lru_cache(maxsize=4)
def _stories(folder: str, seed: int) -> StorySet:
    return open_stories(Path(folder) if folder else None, seed)


def _document(item: Item, order: str, pictures: int) -> dict[str, Any]:
    return {
        "item_id": item.item_id,
        "story": item.story,
        "split": item.split,
        "order": order,
        "condition": item.condition,
        "first": item.first,
        "text": MARK * pictures + item.text,
        "options": [option.label for option in item.options],
        "answer": ", ".join(item.answer),
        "answers": list(item.answer),
        "names": item.names,
    }


def _scored(document: Mapping[str, Any], reply: str, reader: str) -> dict[str, Any]:
    """The item as `sally_anne.harness.metrics` takes it, read by one reader."""
    item = Item(
        item_id=document["item_id"],
        story=document["story"],
        split=document["split"],
        condition=document["condition"],
        first=document["first"],
        text=document["text"],
        options=tuple(Option(label, label) for label in document["options"]),
        answer=tuple(document["answers"]),
        names=document["names"],
    )
    row = score([item], [{"item_id": item.item_id, "reply": reply}]).iloc[0]
    return {
        "item_id": item.item_id,
        "story": item.story,
        "condition": item.condition,
        "first": item.first,
        "correct": bool(row[f"{reader}_correct"]),
        "invalid": bool(row[f"{reader}_invalid"]),
    }
