"""What is true of a planted model, by exact exchanges between twins of stories it has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.localisation.planted import open_planted
from hooks.geometry import find_geometry
from probing.interchange import effects_of, read_twins
from sally_anne.benchmarks.twins import Twins


def verified(folder: Path, twins: Sequence[Twins]) -> dict[str, Any]:
    """``carried, other, together, right, pairs`` of :class:`planted.GroundTruth`.

    Decoys are at work. A twin is answered rightly if its answer is likelier than the other's.
    """
    loaded, truth = open_planted(folder)
    geometry = find_geometry(loaded.model)
    planted = truth.mask((geometry.n_layers, geometry.n_heads))
    every = torch.from_numpy(planted)[None]
    found = [effects_of(loaded, pair, True, every) for pair in twins]
    gap = sum(float(one.gap[0]) for one in found)
    share = sum(one.patch[0] for one in found) / gap
    sides = [read_twins(loaded, pair, True) for pair in twins]
    return {
        "carried": tuple(float(share[head]) for head in truth.heads),
        "other": float(np.abs(share[~planted]).max()),
        "together": sum(float(one.sets[0, 0]) for one in found) / gap,
        "right": {
            "TB": float(np.mean([first.gap > 0 for first, _ in sides])),
            "FB": float(np.mean([second.gap < 0 for _, second in sides])),
        },
        "pairs": len(twins),
    }
