"""What the vision stage is taught is what the frames show, on maps that are not the benchmark's."""

from __future__ import annotations

import random

import numpy as np
import torch

from sally_anne.data.gridtom.plot import COLOURS, benchmark_layouts
from sally_anne.data.gridtom.render import MASKED, TILE, key_frames, render
from sally_anne.experiments.train_tiny import documents, videos
from sally_anne.experiments.train_tiny.videos import random_trace, training_maps
from sally_anne.models.tiny import TokenGrid

N = len(COLOURS)


def test_training_maps_are_not_the_benchmarks() -> None:
    maps = training_maps()
    assert len({m.rows for m in maps}) == len(maps)
    assert not {m.rows for m in maps} & {m.rows for m in benchmark_layouts()}


def test_cells_agree_with_the_pixels() -> None:
    rng = random.Random(1)
    scene = documents.random_scene(rng, 0.5)
    trace = random_trace(rng, scene)
    cells = videos.cell_contents(trace, "protagonist")
    frames = render(trace, "protagonist", key_frames(trace.nodes))
    for f, y, x in np.ndindex(*cells.shape[:3]):
        tile = frames[f, y * TILE : (y + 1) * TILE, x * TILE : (x + 1) * TILE]
        for shade, place in ((MASKED, 4 * N + 2), (100, 4 * N + 1)):  # hidden, wall
            assert bool((tile == shade).all()) == bool(cells[f, y, x, place])
    agents = cells[..., 3 * N : 4 * N].sum(dim=(1, 2))
    assert agents.max() == 1 and agents[0].sum() == 2


def test_tokens_gather_their_cells() -> None:
    cells = torch.zeros(3, 10, 7, videos.CLASSES)
    cells[1, 4, 2, 5] = 1
    exact = videos.token_contents(cells, TokenGrid(2, 10, 7))
    assert exact.shape == (2, 70, 2 * videos.CLASSES)
    assert exact.nonzero().tolist() == [[0, 4 * 7 + 2, videos.CLASSES + 5]]
    square = videos.token_contents(cells, TokenGrid(1, 7, 7))
    assert square.shape == (3, 49, videos.CLASSES)
    # Row 4 of ten lies over rows 2.8 to 3.5 of seven.
    assert {tuple(i) for i in square.nonzero().tolist()} <= {(1, 2 * 7 + 2, 5), (1, 3 * 7 + 2, 5)}
    assert square[1].sum() >= 1
