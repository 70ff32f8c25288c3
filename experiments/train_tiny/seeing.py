"""Stage 3: the vision tower learns what each cell of a frame shows, in the decoder's own words.

A throw-away linear head reads floor, door and agent colours off the video tokens; without it the
tower would have to learn seeing from a few words an answer. The tokens are drawn towards the
vectors from which the decoder has learned to look things up.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from sally_anne.data.gridtom.plot import Trace
from sally_anne.data.gridtom.render import Perspective, key_frames
from sally_anne.data.gridtom.world import COLOURS, COLUMNS, CORRIDOR, DOOR_MARKS, ROOM_MARKS, ROWS
from sally_anne.experiments.train_tiny.multimodal import Cinema
from sally_anne.experiments.train_tiny.trainer import Batch, Level
from sally_anne.models.tiny import HIDDEN, TOKEN_GRIDS, Family, TokenGrid

_N = len(COLOURS)
# Floor, open door, closed door and agent of each colour; corridor; wall; hidden.
CLASSES = 4 * _N + 3
_SHARE = 0.4
# Of the distance from the decoder's words, beside what cells show.
_ALIGNMENT = 5.0


def cell_contents(trace: Trace, perspective: Perspective) -> Tensor:
    """What each cell of the seven key frames shows: ``[7, 10, 7, CLASSES]`` of 0 and 1."""
    layout = trace.staging.layout
    colours = {room: trace.staging.colours[2 + i] for i, room in enumerate(trace.staging.order)}
    ticks = key_frames(trace.nodes)
    out = torch.zeros(len(ticks), ROWS, COLUMNS, CLASSES)
    for f, tick in enumerate(ticks):
        state = trace.states[tick]
        seen = None if perspective == "omniscient" else state.seen[perspective]
        for x, y in layout.cells():
            mark = layout.mark((x, y))
            if mark == "#":
                out[f, y, x, 4 * _N + 1] = 1
            elif seen is not None and (x, y) not in seen:
                out[f, y, x, 4 * _N + 2] = 1
            elif mark == CORRIDOR:
                out[f, y, x, 4 * _N] = 1
            else:
                kind = 0
                if mark in DOOR_MARKS:
                    kind = 1 if state.open_doors[DOOR_MARKS.index(mark)] else 2
                room = (DOOR_MARKS if kind else ROOM_MARKS).index(mark)
                out[f, y, x, kind * _N + COLOURS.index(colours[room])] = 1
        for name, colour in zip(state.agents, trace.staging.colours, strict=False):
            x, y = state.agents[name][0]
            if seen is None or (x, y) in seen:
                out[f, y, x, 3 * _N + COLOURS.index(colour)] = 1
    return out


def token_contents(cells: Tensor, grid: TokenGrid) -> Tensor:
    """What each video token covers: ``[T', R * C, frames_per_token * CLASSES]`` of 0 and 1.

    A token counts a cell in if it covers at least 40 % of it, or the cell 40 % of the token.
    """

    def cover(cells_n: int, tokens_n: int) -> Tensor:
        size = cells_n / tokens_n
        token, cell = torch.arange(tokens_n).double()[:, None], torch.arange(cells_n).double()
        both = torch.minimum((token + 1) * size, cell + 1) - torch.maximum(token * size, cell)
        return (both / min(size, 1.0) >= _SHARE).float()

    frames = cells.shape[0]
    if missing := -frames % grid.frames_per_token:
        cells = torch.cat([cells, cells[-1:].expand(missing, -1, -1, -1)])
    rows, columns = cover(ROWS, grid.rows), cover(COLUMNS, grid.columns)
    shown = torch.einsum("ry,fyxk,cx->frck", rows, cells, columns).clamp(max=1)
    shown = shown.unflatten(0, (-1, grid.frames_per_token))
    return shown.permute(0, 2, 3, 1, 4).flatten(3).flatten(1, 2)


class Looker(nn.Module):
    """The model's vision path, with a linear head on its video tokens."""

    def __init__(self, model: Any, family: Family) -> None:
        super().__init__()
        # Only the vision path is trained here; the decoder has learned to read before.
        self.model: Any = model
        self.head = nn.Linear(HIDDEN, CLASSES * TOKEN_GRIDS[family].frames_per_token)
        # The decoder's words are short vectors; read as they are, they would move the head little.
        words = model.get_input_embeddings().weight.detach()
        self.scale = float(1 / words.square().mean().sqrt())
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("language_model" not in name)

    def forward(self, **pixels: Any) -> tuple[Tensor, Tensor]:
        """Vectors of every video token ``[N, HIDDEN]`` and what it shows, as logits."""
        features = self.model.get_video_features(**pixels).pooler_output
        if isinstance(features, (tuple, list)):
            features = torch.cat([f.flatten(0, -2) for f in features])
        features = features.flatten(0, -2)
        return features, self.head(self.scale * features)


def levels(
    cinema: Cinema, words: Callable[[Tensor], Tensor], steps: int, size: int = 8
) -> list[Level]:
    """One level: clips, what their cells show, and the vectors by which the decoder knows it.

    Args:
        cinema: makes the clips.
        words: from what tokens cover ``[N, frames * CLASSES]`` to the vectors ``[N, HIDDEN]`` with
            which the decoder has learned to look up.
        steps: how many.
        size: clips a batch.
    """
    grid = TOKEN_GRIDS[cinema.family]

    def batch(rng: random.Random) -> Batch:
        clips, contents = [], []
        for _ in range(size):
            perspective: Perspective = rng.choice(("omniscient", "omniscient", "protagonist"))
            trace, clip = cinema.frames(rng, cinema.scene(rng), perspective)
            clips.append(clip)
            contents.append(token_contents(cell_contents(trace, perspective), grid).flatten(0, 1))
        target = torch.cat(contents)
        known = words(target).detach()

        def score(output: tuple[Tensor, Tensor]) -> tuple[Tensor, float]:
            features, logits = output
            # Agents and doors are rare; without weight they would be learned last.
            loss = nn.functional.binary_cross_entropy_with_logits(
                logits, target, pos_weight=torch.tensor(5.0)
            )
            misalignment = nn.functional.mse_loss(features.float(), known) / known.square().mean()
            return 20 * loss + _ALIGNMENT * misalignment, misalignment.item()

        return cinema.pixels(clips), score

    return [Level("cells", batch, 0.0, steps)]
