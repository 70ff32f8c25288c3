"""Batches of frames and text, and stage 3: the vision tower learns what each cell shows.

Stories are played on random maps, none of them one of the benchmark's 27. In stage 3 a throw-away
linear head reads floor, door and agent colours off the video tokens; the tokens are moved towards
the vectors from which the decoder has learned to look things up.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from sally_anne.data.gridtom import plot
from sally_anne.data.gridtom.plot import COLOURS, Perspective
from sally_anne.data.gridtom.render import key_frames, render
from sally_anne.data.items import Setting
from sally_anne.experiments.train_tiny import documents
from sally_anne.experiments.train_tiny.conversations import Example, Maker, speech
from sally_anne.experiments.train_tiny.documents import Batch, Level, Scene, encode, score_text
from sally_anne.models.tiny import HIDDEN, TOKEN_GRIDS, Family, TokenGrid

TRAINING_MAPS = 400
_MAP_SEED = 20_000
# Share of stories in which the participant has been in the last room before.
RETURNING = 0.3
# Documents in a batch with frames, and in one of text alone.
FILMED, TEXTS = 8, 14
# Shares of batches with frames and text, frames alone, and text.
_SHARES: dict[Setting, float] = {"multimodal": 0.25, "video": 0.5, "text": 0.25}
# Of captions next to frames: how many tell another story, and how many break off. The frames are
# right, so whoever reads the caption alone is wrong.
_CONTRADICTED, _CURTAILED = 0.12, 0.2
_MASKED = 0.15


@cache
def training_maps() -> list[plot.Layout]:
    """Random maps, disjoint from the benchmark's."""
    return list(itertools.islice(plot.random_layouts(_MAP_SEED), TRAINING_MAPS))


def random_trace(rng: random.Random, scene: Scene) -> plot.Trace:
    """Play ``scene`` on a random map from random starts."""
    layout = rng.choice(training_maps())
    one, two, three = rng.sample(range(3), 3)
    starts, facing = rng.choice(plot.start_pairs(layout)), (rng.randrange(4), rng.randrange(4))
    story = plot.Story(layout, scene.cast, (one, two, three), starts, facing, scene.plot)
    return plot.play(story, scene.first, scene.second)


class VideoData:
    """Makes multimodal batches in one family's chat layout, by its processor, for its model."""

    def __init__(self, family: Family, processor: Any, model: Any) -> None:
        self.family, self.processor, self.model = family, processor, model
        self.words = speech(family, processor)

    def scene(self, rng: random.Random) -> Scene:
        """Random colours, plots and beliefs, some with second-order captions."""
        return documents.random_scene(rng, 0.4, RETURNING)

    def pixels(self, clips: Sequence[tuple[plot.Trace, Perspective]]) -> dict[str, Tensor]:
        """The processor's own preprocessing of the seven frames of each clip."""
        videos = [render(trace, seen, key_frames(trace.nodes)) for trace, seen in clips]
        processed = self.processor.video_processor
        return dict(processed(videos=videos, return_tensors="pt", do_sample_frames=False))

    def example(self, rng: random.Random, setting: Setting) -> Example:
        """A story in one setting; next to frames, captions cannot be relied on."""
        scene = self.scene(rng)
        perspective: Perspective = "protagonist" if rng.random() < _MASKED else "omniscient"
        captioned, share = scene, 1.0
        if setting == "multimodal" and perspective == "omniscient":
            drawn = rng.random()
            if drawn < _CONTRADICTED:
                captioned = contradicted(rng, scene)
            elif drawn < _CONTRADICTED + _CURTAILED:
                share = rng.random()
        return Example(rng, scene, perspective, setting, self.words, captioned, share)

    def batch(
        self, make: Maker, setting: Setting, rng: random.Random, filmed: int = FILMED
    ) -> Batch:
        """Documents of one setting with their frames, if any: ``filmed`` of them.

        Truth is also needed in layers in the middle of the model.
        """
        texts, clips = [], []
        for _ in range(TEXTS if setting == "text" else filmed):
            example = self.example(rng, setting)
            texts.append(make(example))
            if setting != "text":
                clips.append((random_trace(rng, example.scene), example.perspective))
        encoded = encode(self.processor.tokenizer, texts)
        inputs: dict[str, Any] = {
            "input_ids": encoded.ids,
            "attention_mask": torch.ones_like(encoded.ids),
            "output_hidden_states": True,
        }
        if clips:
            inputs |= self.pixels(clips)
            if self.family == "qwen2-vl":
                shown = encoded.ids == self.processor.video_token_id
                inputs["mm_token_type_ids"] = 2 * shown.int()

        def unembed(stream: Tensor) -> Tensor:
            return self.model.lm_head(self.model.model.language_model.norm(stream))

        return inputs, score_text(encoded, unembed)

    def level(self, name: str, make: Maker, steps: int, filmed: int = FILMED) -> Level:
        """Batches with frames and text, frames alone, and text."""

        def batch(rng: random.Random) -> Batch:
            (setting,) = rng.choices([*_SHARES], [*_SHARES.values()])
            return self.batch(make, setting, rng, filmed)

        return Level(name, batch, 0.0, steps)


def contradicted(rng: random.Random, scene: Scene) -> Scene:
    """A story that its frames contradict: other rooms' parts, another condition, or both."""
    cast = scene.cast
    if rng.random() < 0.5:
        rooms = rng.choice([p for p in itertools.permutations(cast[2:]) if p != cast[2:]])
        return scene._replace(cast=cast._replace(**dict(zip(cast._fields[2:], rooms, strict=True))))
    return scene._replace(first="FB" if scene.first == "TB" else "TB")


_N = len(COLOURS)
# Floor, open door, closed door and agent of each colour; corridor; wall; hidden.
CLASSES = 4 * _N + 3
_SHARE = 0.4
# Of the distance from the decoder's words, besides what cells show.
_ALIGNMENT = 5.0
_CLIPS = 8


def cell_contents(trace: plot.Trace, perspective: Perspective) -> Tensor:
    """What each cell of the seven key frames shows: ``[7, 10, 7, CLASSES]`` of 0 and 1."""
    story, ticks = trace.story, key_frames(trace.nodes)
    out = torch.zeros(len(ticks), plot.ROWS, plot.COLUMNS, CLASSES)
    for f, state in enumerate(trace.states[tick] for tick in ticks):
        seen = None if perspective == "omniscient" else state.seen[perspective]
        for x, y in story.layout.cells():
            mark, room = story.layout.mark((x, y)), story.layout.room_of((x, y))
            shown = 4 * _N + 1 if mark == plot.WALL else 4 * _N
            if mark != plot.WALL and seen is not None and (x, y) not in seen:
                shown = 4 * _N + 2
            elif room is not None:
                kind = 0 if mark in plot.ROOM_MARKS else 1 if state.open_doors[room] else 2
                shown = kind * _N + COLOURS.index(story.rooms[room])
            out[f, y, x, shown] = 1
        for ((x, y), _), colour in zip(state.agents.values(), story.cast, strict=False):
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

    if missing := -len(cells) % grid.frames_per_token:
        cells = torch.cat([cells, cells[-1:].expand(missing, -1, -1, -1)])
    rows, columns = cover(plot.ROWS, grid.rows), cover(plot.COLUMNS, grid.columns)
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


def cell_level(data: VideoData, words: Callable[[Tensor], Tensor], steps: int) -> Level:
    """Clips, what their cells show, and the vectors by which the decoder knows it.

    ``words`` makes these of what tokens cover, ``[N, HIDDEN]`` of ``[N, frames * CLASSES]``.
    """
    grid = TOKEN_GRIDS[data.family]

    def batch(rng: random.Random) -> Batch:
        clips = []
        for _ in range(_CLIPS):
            seen: Perspective = rng.choice(("omniscient", "omniscient", "protagonist"))
            clips.append((random_trace(rng, data.scene(rng)), seen))
        target = torch.cat([token_contents(cell_contents(*c), grid).flatten(0, 1) for c in clips])
        known = words(target).detach()

        def score(output: tuple[Tensor, Tensor]) -> tuple[Tensor, float]:
            features, logits = output
            # Agents and doors are rare; without weight they would be learned last.
            rare, entropy = torch.tensor(5.0), nn.functional.binary_cross_entropy_with_logits
            loss = entropy(logits, target, pos_weight=rare)
            misalignment = nn.functional.mse_loss(features.float(), known) / known.square().mean()
            return 20 * loss + _ALIGNMENT * misalignment, misalignment.item()

        return data.pixels(clips), score

    return Level("cells", batch, 0.0, steps)
