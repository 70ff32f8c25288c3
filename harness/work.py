"""What a run has to ask: the items of a task, and what their answers depend on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.benchmark import Benchmark
from benchmarks.gridtom import splits
from benchmarks.gridtom.records import StorySet, open_stories
from benchmarks.items import BenchmarkItem
from harness import gridtom, views
from harness.config import EvalConfig
from harness.errors import HarnessError
from harness.items import Item
from harness.tasks import benchmark


@dataclass(frozen=True)
class Work:
    """Items and what they are.

    Attributes:
        items: what is asked.
        about: what answers depend on beside model and vector.
        breakdowns: kinds of tags by which accuracy is reported.
        missing: ids of items that cannot be asked, as their films or words are not here.
    """

    items: list[Item]
    about: dict[str, Any]
    breakdowns: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def prepare(config: EvalConfig) -> Work:
    """The items of ``config.task``.

    Raises:
        HarnessError, BenchmarkError: bad options or data, named.
    """
    if config.task == "gridtom":
        stories = open_stories(config.data, config.data_seed)
        return Work(
            choose_items(config, stories),
            {
                "order": config.order,
                "setting": config.setting,
                "style": config.style,
                "data": stories.fingerprint,
            },
        )
    known = benchmark(config.task)
    how = views.shown(
        known, config.view, config.window, config.frames, config.template, config.max_pixels
    )
    if config.data is None:
        raise HarnessError(f"--task {config.task} needs --data: a folder that holds {known.layout}")
    records = _chosen(config, known, known.load(config.data))
    lacking = {r.item_id: parts for r in records if (parts := views.missing_parts(known, r, how))}
    here = [r for r in records if r.item_id not in lacking]
    if not here:
        item, parts = next(iter(lacking.items()))
        others = [
            view
            for view in known.views
            if not views.missing_parts(known, records[0], replace(how, view=view))
        ]
        raise HarnessError(
            f"{config.data}: nothing that --view {how.view} shows is there (item {item} lacks "
            f"{' and '.join(parts)}); try --view {' or '.join(others)}"
        )
    items = list(views.items(known, here, how))
    about = {
        "view": how.view,
        "window": how.window,
        "sampling": str(how.sampling),
        "template": how.template,
        "data": _fingerprint(items),
    }
    return Work(items, about, known.breakdowns, tuple(lacking))


def choose_items(config: EvalConfig, stories: StorySet) -> list[Item]:
    """The items of the chosen split of ``stories``.

    Raises:
        HarnessError: there are none.
    """
    wanted = "test" if config.split == "auto" else config.split
    members = splits.members(stories, wanted, config.split_seed)
    chosen = dict.fromkeys(members[: config.limit], wanted)
    if not chosen:
        raise HarnessError(splits.why_none(stories, wanted))
    return list(
        gridtom.items(
            (stories.story(i) for i in chosen), chosen, config.order, config.setting, config.style
        )
    )


def _chosen(
    config: EvalConfig, known: Benchmark, records: Sequence[BenchmarkItem]
) -> list[BenchmarkItem]:
    """Records of the chosen split, of the first so many groups."""
    there = dict.fromkeys(record.split for record in records)
    wanted = config.split
    if wanted == "auto":
        wanted = known.default_split if known.default_split in there else next(iter(there), "")
    members = [record for record in records if record.split == wanted]
    if not members:
        raise HarnessError(
            f"{config.data}: no items of split {wanted or 'any'!r}; it has {', '.join(there)}"
        )
    groups = list(dict.fromkeys(record.group for record in members))[: config.limit]
    return [record for record in members if record.group in set(groups)]


def _fingerprint(items: Sequence[Item]) -> str:
    """Of everything that is asked, frames aside."""
    digest = hashlib.sha256()
    for item in items:
        digest.update(repr((item.item_id, item.text, item.options, item.answer)).encode())
    return digest.hexdigest()
