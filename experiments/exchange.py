"""Causal heads and vectors of a source in the target's model: read at its belief questions.

A pair of the target's twins is read up to its last token; there heads are exchanged between the
twins (`sally_anne.probing.interchange`), or the source's vector is added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sally_anne.core.bootstrap import draw_groups, estimate_mean, estimate_shares
from sally_anne.data.twins import Twins
from sally_anne.experiments.between import Part, Plan, beside, cell, codes, note_on
from sally_anne.hooks.edit import Edit
from sally_anne.hooks.positions import ALL
from sally_anne.models.loading import LoadedModel
from sally_anne.probing.interchange import COLUMNS, Prompt, read_twins


def why_not(measure: str, source: Part, target: Part, plan: Plan) -> str:
    """Why ``share`` or ``steered`` cannot be measured between two parts; empty if it can."""
    if why := source.unlike(target):
        return f"heads and directions are of one model and site: {why}"
    if measure == "share":
        return source.lacks("question")
    if not source.probes.binary:
        return f"{source.label} has more than two classes, and a vector leads to one"
    if len(source.top) < plan.k:
        return f"only {len(source.top)} heads of the source have a direction"
    return ""


def measured(
    loaded: LoadedModel,
    pairs: Sequence[Twins],
    reply: bool,
    site: str,
    asked: Sequence[tuple[str, Part]],
    kept: Sequence[np.ndarray],
    plan: Plan,
    alpha: float,
    random_sets: int,
    on_pair: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Cells of one target.

    Args:
        loaded: its model.
        pairs: its test twins.
        reply: as of `sally_anne.data.twins.TwinSet`.
        site: where heads are exchanged and steered.
        asked: measure and source of each cell.
        kept: for each, which pairs the source has not seen, bool ``[P]``, some of them.
        plan: how.
        alpha: strength of vectors.
        random_sets: of heads, and random directions of a vector's heads and lengths.
        on_pair: called when a pair is done.
    """
    shape, random = asked[0][1].shape, np.random.default_rng(plan.seed)
    count = shape[0] * shape[1]
    sets = [s.causes["question"].ranked[: plan.k] for measure, s in asked if measure == "share"]
    if sets:
        sets += [random.choice(count, plan.k, replace=False).tolist() for _ in range(random_sets)]
    chosen = torch.zeros(len(sets), count, dtype=torch.bool)
    for row, members in zip(chosen, sets, strict=True):
        row[members] = True
    deltas = [
        directions(s.probes.to_vector(plan.k, alpha).delta(), random_sets, plan.seed)
        for measure, s in asked
        if measure == "steered"
    ]
    gaps, along, both = [], [], []
    for pair in pairs:
        a, b = read_twins(loaded, pair, reply, site)
        gaps.append((a.logit_diff, b.logit_diff))
        swapped = chosen.unflatten(1, shape)
        to_b, to_a = a.replaced(b.heads, swapped), b.replaced(a.heads, swapped)
        along.append((a.logit_diff - to_b + to_a - b.logit_diff) / 2)
        if deltas:
            first, second = (steered(side, torch.cat(deltas)) for side in (a, b))
            both.append((first > 0) & (second < 0))
        on_pair()
    gap, plain = np.array([a - b for a, b in gaps]), np.array([a > 0 > b for a, b in gaps])
    every = np.stack(along)
    own, drawn = np.split(every, [every.shape[1] - random_sets if sets else 0], axis=1)
    right = iter(np.stack(both).T.reshape(len(deltas), -1, len(pairs)) if deltas else ())
    carried_by, found = iter(own.T), []
    for (measure, _), rows in zip(asked, kept, strict=True):
        clusters = [pair.cluster for pair, keep in zip(pairs, rows, strict=True) if keep]
        if measure == "share":
            found.append(carried(gap[rows], next(carried_by)[rows], drawn[rows], clusters, plan))
        else:
            found.append(gained(plain[rows], next(right)[:, rows], clusters, plan))
    return found


def steered(side: Prompt, values: Tensor, columns: int = COLUMNS) -> np.ndarray:
    """Gaps ``[C]`` of one of two twins with values ``[C, L, H, D]`` added at its last token."""
    found = []
    for part in values.split(columns):
        edit = Edit(side.loaded.model, part[None], side.site, ALL)
        with torch.no_grad(), edit:
            found.append(side.logit_diffs(len(part)).cpu())
    return torch.cat(found).numpy()


def directions(delta: Tensor, count: int, seed: int) -> Tensor:
    """A vector, and C random ones that have its length in each head, ``[1 + C, L, H, D]``."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(count, *delta.shape, generator=generator)
    drawn = drawn / drawn.norm(dim=-1, keepdim=True) * delta.norm(dim=-1, keepdim=True)
    return torch.cat([delta[None], drawn])


def carried(
    gap: np.ndarray, own: np.ndarray, random: np.ndarray, clusters: Sequence[str], plan: Plan
) -> dict[str, Any]:
    """Share of the gap that a set of heads carries between twins; beside random sets.

    Args:
        gap: between the twins of each pair, ``[P]``, in logits.
        own: of it what goes along with the set, ``[P]``.
        random: with random sets, ``[P, R]``.
        clusters: of each pair.
        plan: how.
    """
    if gap.mean() <= 0:
        return {"why": "the model does not tell the target's twins apart: no gap to be carried"}
    number, count = codes(clusters)
    times = draw_groups(count, seed=plan.seed)
    share, *ends = (float(each) for each in estimate_shares(own, gap, number, times))
    control = beside(random.sum(0) / gap.sum())
    return cell(share, ends, control, count, n=len(gap), note=note_on(gap))


def gained(
    plain: np.ndarray, steered: np.ndarray, clusters: Sequence[str], plan: Plan
) -> dict[str, Any]:
    """Share of pairs that a vector sets right in both twins, less what it spoils.

    Args:
        plain: whether both are right without it, ``[P]``.
        steered: likewise with the vector, and with random ones of its length, ``[1 + R, P]``.
        clusters: of each pair.
        plan: how.
    """
    gains = steered.astype(float) - plain
    number, count = codes(clusters)
    found = estimate_mean(gains[0], number, draw_groups(count, seed=plan.seed))
    more = {"n": len(plain), "note": f"without {plain.mean():.2f}"}
    return cell(found.value, (found.low, found.high), beside(gains[1:].mean(1)), count, **more)
