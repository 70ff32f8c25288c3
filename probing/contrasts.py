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

from probing.config import Contrast
from sally_anne.benchmarks.gridtom.records import BeliefCase, StoryRecord, context_text
from sally_anne.benchmarks.gridtom.render import Perspective
from sally_anne.benchmarks.items import Setting


@dataclass(frozen=True)
class Sample:
    """One labelled input.

    Attributes:
        item_id: unique name, e.g. ``story-0012/FB/last``.
        story: index of the story.
        group: all samples of one story share it.
        split: train, validation or test.
        condition: TB or FB, of first order; in second order ``TB/FB`` is first/second.
        perspective: whose view video and caption show.
        room: ``first`` or ``last``, the room named by the statement.
        content: the text, ending with the statement.
        y_p, y_o: the labels.
        case: where the frames come from.
    """

    item_id: str
    story: int
    group: str
    split: str
    condition: str
    perspective: Perspective
    room: str
    content: str
    y_p: bool
    y_o: bool
    case: BeliefCase


def build(
    records: Iterable[StoryRecord],
    splits: Mapping[int, str],
    order: Literal[1, 2],
    contrast: Contrast,
    setting: Setting,
) -> list[Sample]:
    """All samples of the stories that have a split, in the order of the stories.

    Args:
        records: the stories.
        splits: split of each story's index; stories without one are left out.
        order: 1 or 2.
        contrast: how the two sides of a pair differ.
        setting: whether the text holds the caption (``multimodal``, ``text``) or only the
            description of the world (``video``).

    Returns:
        Four samples a story in first order (TB, FB x two rooms), eight in second order.
    """
    samples = []
    for record in records:
        if record.index not in splits:
            continue
        for case in record.cases(order):
            for room in ("first", "last"):
                samples.append(_sample(record, case, room, splits[record.index], contrast, setting))
    return samples


def _sample(
    record: StoryRecord,
    case: BeliefCase,
    room: str,
    split: str,
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
        story=record.index,
        group=record.group,
        split=split,
        condition=condition,
        perspective=perspective,
        room=room,
        content=statement_text(record, case, perspective, setting, case.statement(colour)),
        y_p=colour == held,
        y_o=colour == reference,
        case=case,
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
