"""What is true of a planted model, by exact exchanges between twins of stories it has not seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.localisation.planted import open_planted
from experiments.localisation.stories import held_out_twins, sides
from hooks.geometry import find_geometry
from probing.interchange import effects_of, read_twins
from sally_anne.benchmarks.gridtom.stories import generated
from sally_anne.benchmarks.samples import Split
from sally_anne.benchmarks.twins import Twins


def verified(folder: Path, split: Split, most: int) -> dict[str, Any]:
    """``carried, other, rest, together, right, pairs`` of :class:`planted.GroundTruth`.

    On at most so many stories of a split of the benchmark's. Decoys are at work. A question is
    answered rightly if its answer is likelier than the other one.
    """
    loaded, truth = open_planted(folder)
    twins, beside = held_out_twins(split, most), sides(generated(), split, most)
    geometry = find_geometry(loaded.model)
    planted = truth.mask((geometry.n_layers, geometry.n_heads))
    sets = torch.from_numpy(np.stack([planted, ~planted]))
    found = [effects_of(loaded, pair, True, sets) for pair in twins]
    gap = sum(float(one.gap[0]) for one in found)
    share = sum(one.patch[0] for one in found) / gap
    asked = [read_twins(loaded, pair, True) for pair in twins]
    # In side questions the first word is right in both versions.
    kept: dict[str, list[bool]] = {}
    for one in beside:
        pair = Twins(one.samples, one.answers, "")
        kept.setdefault(one.kind, []).extend(x.gap > 0 for x in read_twins(loaded, pair, True))
    return {
        "carried": tuple(float(share[head]) for head in truth.heads),
        "other": float(np.abs(share[~planted]).max()),
        "rest": sum(float(one.sets[0, 1]) for one in found) / gap,
        "together": sum(float(one.sets[0, 0]) for one in found) / gap,
        "right": {
            "TB": float(np.mean([first.gap > 0 for first, _ in asked])),
            "FB": float(np.mean([second.gap < 0 for _, second in asked])),
            **{kind: float(np.mean(right)) for kind, right in kept.items()},
        },
        "pairs": len(twins),
    }
