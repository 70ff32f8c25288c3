"""Contrasts: labelled pairs of inputs (GridToM paper, appendix B, figures 6 and 7).

``matched``: both sides share the very same context and differ in the belief statement alone.
``paper``: as the paper builds them; in first-order false-belief stories the true side is seen and
told from the protagonist's perspective, the false side from the omniscient one, so that a probe
can tell them apart without any belief.

Labels. First order: Y_p says whether the statement fits the protagonist's belief, Y_o whether it
is so. Second order: Y_p is the participant's view of the protagonist's belief, Y_o the
protagonist's actual belief. In second order the paper's pairs share their context, so both
contrasts are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sally_anne.benchmarks.gridtom import splits
from sally_anne.benchmarks.gridtom.records import (
    BeliefCase,
    Order,
    StoryRecord,
    StorySet,
    context_text,
)
from sally_anne.benchmarks.gridtom.render import CLIP_SHAPE, Perspective
from sally_anne.benchmarks.items import Setting
from sally_anne.benchmarks.samples import Sample, SampleSet, Split
from sally_anne.core.errors import BenchmarkError

Contrast = Literal["matched", "paper"]
# In second order the two views are the participant's and the protagonist's.
MEANING = {
    1: {
        "y_p": "does the statement fit the protagonist's belief?",
        "y_o": "does the statement fit reality?",
    },
    2: {
        "y_p": "does the statement fit the participant's idea of the protagonist's belief?",
        "y_o": "does the statement fit the protagonist's belief?",
    },
}
FEATURES = {
    "perspective": "perspective of frames and caption",
    "room": "room named by the statement (first or last)",
}


@dataclass(frozen=True)
class Scene:
    """The key frames of one version of a story, seen from one perspective."""

    case: BeliefCase
    perspective: Perspective
    shape = CLIP_SHAPE

    def frames(self) -> np.ndarray:
        """Draw them, ``uint8 [F, height, width, 3]``."""
        return self.case.frames(self.perspective)


def sample_set(
    stories: StorySet,
    order: Order = 1,
    contrast: Contrast = "matched",
    setting: Setting = "multimodal",
    count: int | None = None,
    split_seed: int = 0,
) -> SampleSet:
    """The samples of a probing run.

    Args:
        stories: the data.
        order, contrast, setting: see :func:`build`.
        count: use only so many stories, of the three splits in proportion.
        split_seed: which stories test, train and validate.

    Raises:
        BenchmarkError: more stories than there are, or too few for three splits.
    """
    chosen = choose_stories(stories, count, split_seed)
    records = [stories.story(i) for i in chosen]
    return SampleSet(
        samples=build(records, chosen, order, contrast, setting),
        source=stories.source,
        fingerprint=stories.fingerprint,
        noun="stories",
        facts={
            "order": str(order),
            "contrast": contrast,
            "setting": setting,
            "stories": str(len(chosen)),
            "splits": f"seed {split_seed}",
        },
        meaning=MEANING[order],
        features=FEATURES,
        content=("room",),
        identities={record.group: stories.identity(record.index).content for record in records},
    )


def choose_stories(
    stories: StorySet, count: int | None = None, split_seed: int = 0
) -> dict[int, Split]:
    """Split of each story that takes part; arguments and errors as of :func:`sample_set`."""
    by_split: dict[Split, list[int]] = {name: [] for name in splits.SPLITS}
    for index, split in splits.assign(stories, split_seed).items():
        by_split[split].append(index)
    if empty := [name for name, members in by_split.items() if not members]:
        raise BenchmarkError(splits.why_none(stories, empty[0]))
    if count is not None:
        wanted = _in_proportion(count, {name: len(found) for name, found in by_split.items()})
        by_split = {name: members[: wanted[name]] for name, members in by_split.items()}
    if empty := [name for name, members in by_split.items() if not members]:
        raise BenchmarkError(
            f"no {empty[0]} stories among {sum(map(len, by_split.values()))}: "
            f"--stories {count} is too few; 20 is the least that makes sense"
        )
    return {i: name for name, members in by_split.items() for i in sorted(members)}


def _in_proportion(total: int, sizes: dict[Split, int]) -> dict[Split, int]:
    """``total`` in parts that are to each other as ``sizes``, by largest remainder."""
    whole = sum(sizes.values())
    if total > whole:
        raise BenchmarkError(f"--stories {total} is more than the {whole} that there are")
    parts = {name: total * size // whole for name, size in sizes.items()}
    by_remainder = sorted(sizes, key=lambda name: total * sizes[name] % whole, reverse=True)
    for name in by_remainder[: total - sum(parts.values())]:
        parts[name] += 1
    return parts


def build(
    records: Iterable[StoryRecord],
    splits: Mapping[int, Split],
    order: Order,
    contrast: Contrast,
    setting: Setting,
) -> list[Sample]:
    """All samples of the stories that have a split, in the order of the stories.

    Args:
        records: the stories.
        splits: split of each story's index; stories without one are left out.
        order: 1 or 2.
        contrast: how the two sides of a pair differ.
        setting: whether frames are shown (``multimodal``, ``video``), and whether the text holds
            the caption (``multimodal``, ``text``) or only the description of the world.

    Returns:
        Four samples a story in first order (TB, FB x two rooms), eight in second order. Tags:
        ``condition``, TB or FB, in second order first/second; ``perspective``, whose view film and
        caption show; ``room``, first or last, the room named by the statement.
    """
    return [
        _sample(record, case, room, splits[record.index], contrast, setting)
        for record in records
        if record.index in splits
        for case in record.cases(order)
        for room in ("first", "last")
    ]


def _sample(
    record: StoryRecord,
    case: BeliefCase,
    room: str,
    split: Split,
    contrast: Contrast,
    setting: Setting,
) -> Sample:
    cast = record.cast
    colour = cast.first_room if room == "first" else cast.last_room
    held, reference = (
        (case.believed, case.reality) if case.order == 1 else (case.thought, case.believed)
    )
    perspective: Perspective = "omniscient"
    # Figure 6: the statement that is right for the protagonist comes with what it saw and knows.
    if contrast == "paper" and case.order == 1 and case.first == "FB" and colour == held:
        perspective = "protagonist"
    condition = case.first if case.order == 1 else f"{case.first}/{case.second}"
    return Sample(
        item_id=f"{record.group}/{condition}/{room}",
        text=statement_text(record, case, perspective, setting, case.statement(colour)),
        video=None if setting == "text" else Scene(case, perspective),
        labels={"y_p": colour == held, "y_o": colour == reference},
        group=record.group,
        split=split,
        tags={"condition": condition, "perspective": perspective, "room": room},
        context=f"{condition}/{perspective}",
    )


def statement_text(
    record: StoryRecord,
    case: BeliefCase,
    perspective: Perspective,
    setting: Setting,
    statement: str,
) -> str:
    """Context and ``Belief: <statement>`` (paper, section 4.2 and figure 6)."""
    return f"{context_text(record, case, perspective, setting)} Belief: {statement.strip()}"
