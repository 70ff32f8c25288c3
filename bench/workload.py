"""What extractions are timed on: the paper's first-order probe set, in the planner's batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from bench.errors import PerfError
from sally_anne.data.gridtom import contrasts, splits
from sally_anne.data.gridtom.records import StorySet
from sally_anne.data.gridtom.stories import generated
from sally_anne.data.items import Setting
from sally_anne.data.samples import Sample, Split
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.prompts import open_prompt
from sally_anne.probing.extraction import Prepared, plan_batches, prepare

Item = TypeVar("Item")


@dataclass(frozen=True)
class Workload:
    """Samples for one model.

    Attributes:
        loaded: the model.
        samples: in the order of the stories.
        video: whether frames are shown.
        batch_size: samples that go through the model together.
    """

    loaded: LoadedModel
    samples: Sequence[Sample]
    video: bool
    batch_size: int

    @cached_property
    def batches(self) -> list[Sequence[int]]:
        """Rows of each batch, as `sally_anne.probing.extraction` plans them."""
        return plan_batches(self.samples, self.batch_size)

    @cached_property
    def prompts(self) -> list[str]:
        """The rendered prompt of each sample."""
        return [open_prompt(self.loaded, s.turns, s.shows) for s in self.samples]

    def part(self, stories: int) -> Workload:
        """The same with only so many of its stories, evenly spread; all if there are fewer."""
        chosen = set(spread(list(dict.fromkeys(s.group for s in self.samples)), stories))
        return replace(self, samples=[s for s in self.samples if s.group in chosen])

    def whole(self, rows: Sequence[int]) -> dict[str, np.ndarray]:
        """Every prompt uncut, with frames of its own: what `models.prompts.process` makes."""
        return prepare(self.loaded, self._chosen(rows), shared=False).inputs

    def beginnings(self, rows: Sequence[int]) -> Prepared:
        """Samples with the same frames and caption share them."""
        return prepare(self.loaded, self._chosen(rows))

    def _chosen(self, rows: Sequence[int]) -> list[tuple[Sample, str]]:
        return [(self.samples[i], self.prompts[i]) for i in rows]


def probe_set(
    model: str, stories: int | None, setting: Setting = "multimodal", batch_size: int = 8
) -> Workload:
    """The 148 stories that are not tested (paper, section 3.2), contrast matched.

    Textual twins among them are kept: what is measured here is speed alone.

    Args:
        model: catalogue name, hub id or folder.
        stories: only so many of them, evenly spread.
        setting: what the model is given.
        batch_size: samples that go through the model together.

    Raises:
        PerfError: more stories than there are.
        ModelError: the model cannot be had.
    """
    everything: StorySet = generated()
    tested = set(splits.members(everything, "test"))
    probing = [i for i in everything.indices if i not in tested]
    if stories is not None and not 1 <= stories <= len(probing):
        raise PerfError(f"--stories must be 1 to {len(probing)}, got {stories}")
    chosen: dict[int, Split] = dict.fromkeys(spread(probing, stories or len(probing)), "train")
    samples = contrasts.build((everything.story(i) for i in chosen), chosen, 1, "matched", setting)
    return Workload(load_model(model), samples, setting != "text", batch_size)


def spread(items: Sequence[Item], count: int) -> list[Item]:
    """``count`` of the items, evenly spread and in their order."""
    count = min(count, len(items))
    return [items[i * len(items) // count] for i in range(count)]
