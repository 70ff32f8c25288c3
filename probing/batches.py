"""Batches of samples: which go together, and what the model is given of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from hooks.batch_size import in_batches
from probing.contrasts import Sample
from sally_anne.models.decoding import split_common_prefix
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prompts import process


@dataclass(frozen=True)
class Prepared:
    """A batch ready for the model.

    Attributes:
        inputs: the contexts with their frames, each once; whole prompts where nothing is shared.
        rows: for each sample, its context.
        endings: token ids of each sample's own end.
    """

    inputs: dict[str, np.ndarray]
    rows: list[int]
    endings: list[tuple[int, ...]]


@dataclass(frozen=True)
class Cut:
    """Prompts of a batch, cut where those of one context part.

    Attributes:
        beginnings: text of each context.
        firsts: the first sample of each context, whose frames are those of all.
        rows: for each sample, its context.
        endings: token ids of each sample's own end.
    """

    beginnings: list[str]
    firsts: list[Sample]
    rows: list[int]
    endings: list[tuple[int, ...]]


def plan_batches(samples: Sequence[Sample], batch_size: int) -> list[Sequence[int]]:
    """Rows of each batch.

    Contexts of one condition and perspective are nearly equally long, so they go together: without
    padding, attention computes half as much. Samples of one context stay together, too.
    """
    rows = sorted(
        range(len(samples)), key=lambda i: (samples[i].condition, samples[i].perspective, i)
    )
    return in_batches(rows, batch_size)


def prepare_shared(
    loaded: LoadedModel, chosen: Sequence[tuple[Sample, str]], video: bool
) -> Prepared:
    """Samples with their prompts, cut where those of one context part; contexts stand together.

    Raises:
        ModelError: the processor dropped frames.
    """
    cut = cut_shared(loaded, chosen)
    inputs = process(loaded, cut.beginnings, _clips(cut.firsts, video))
    return Prepared(inputs, cut.rows, cut.endings)


def cut_shared(loaded: LoadedModel, chosen: Sequence[tuple[Sample, str]]) -> Cut:
    """Texts of :func:`prepare_shared`; frames are left where they are."""
    cut = Cut([], [], [], [])
    for _, members in groupby(chosen, lambda m: (m[0].group, m[0].condition, m[0].perspective)):
        group = list(members)
        shared = split_common_prefix(loaded, [prompt for _, prompt in group])
        cut.rows.extend([len(cut.beginnings)] * len(group))
        cut.endings.extend(shared.endings)
        cut.beginnings.append(shared.beginning)
        cut.firsts.append(group[0][0])
    return cut


def prepare_whole(
    loaded: LoadedModel, chosen: Sequence[tuple[Sample, str]], video: bool
) -> Prepared:
    """Every prompt uncut, with frames of its own.

    Raises:
        ModelError: the processor dropped frames.
    """
    clips = _clips([sample for sample, _ in chosen], video)
    return Prepared(process(loaded, [prompt for _, prompt in chosen], clips), [], [])


def _clips(samples: Sequence[Sample], video: bool) -> list[np.ndarray] | None:
    return [s.case.frames(s.perspective) for s in samples] if video else None
