"""Frames and text together, in the family's chat layout, with the belief habit.

Stories are played on random maps that are none of the benchmark's 27, so neither the probe nor
the test stories' maps were ever seen in training.
"""

from __future__ import annotations

import itertools
import random
from functools import cache
from typing import Any

import numpy as np
import torch

from sally_anne.data.gridtom.plot import Staging, Trace, play
from sally_anne.data.gridtom.render import Perspective, key_frames, render
from sally_anne.data.gridtom.world import Layout, random_layouts, start_pairs
from sally_anne.data.items import Setting
from sally_anne.experiments.train_tiny import documents
from sally_anne.experiments.train_tiny.conversations import Maker, Telling, speech
from sally_anne.experiments.train_tiny.documents import Scene
from sally_anne.experiments.train_tiny.trainer import Batch, Level, encode, score_text
from sally_anne.models.tiny import Family

TRAINING_MAPS = 400
_MAP_SEED = 20_000
# Share of stories in which the participant has been in the last room before.
RETURNING = 0.3
# Documents in a batch with frames, and in one that is told.
FILMED, TOLD = 8, 14
# Shares of batches with frames and text, frames alone, and text.
_SHARES: dict[Setting, float] = {"multimodal": 0.25, "video": 0.5, "text": 0.25}
# Of captions beside frames: how many tell another story, and how many break off. The frames are
# right, so whoever reads the caption alone is wrong.
_CONTRADICTED, _CURTAILED = 0.12, 0.2
_MASKED = 0.15


@cache
def training_maps() -> list[Layout]:
    """Random maps, disjoint from the benchmark's."""
    return list(itertools.islice(random_layouts(_MAP_SEED), TRAINING_MAPS))


def random_trace(rng: random.Random, maps: list[Layout], scene: Scene) -> Trace:
    """Play ``scene`` on a random map from random starts."""
    layout = rng.choice(maps)
    order = rng.sample(range(3), 3)
    staging = Staging(
        layout,
        scene.cast,
        (order[0], order[1], order[2]),
        rng.choice(start_pairs(layout)),
        (rng.randrange(4), rng.randrange(4)),
        scene.plot,
    )
    return play(staging, scene.first, scene.second or "TB")


class Cinema:
    """Makes multimodal batches in one family's chat layout, by its processor."""

    def __init__(self, family: Family, processor: Any) -> None:
        self.family = family
        self.processor = processor
        self.words = speech(family, processor)
        self.maps = training_maps()

    def scene(self, rng: random.Random) -> Scene:
        """Random colours, plots and beliefs, some with second-order captions."""
        return documents.random_scene(rng, 0.4, RETURNING)

    def frames(
        self, rng: random.Random, scene: Scene, perspective: Perspective
    ) -> tuple[Trace, np.ndarray]:
        """A played story and its seven frames."""
        trace = random_trace(rng, self.maps, scene)
        return trace, render(trace, perspective, key_frames(trace.nodes))

    def pixels(self, clips: list[np.ndarray]) -> dict[str, torch.Tensor]:
        """The processor's own preprocessing of clips ``[7, 420, 294, 3]``."""
        return dict(
            self.processor.video_processor(
                videos=clips, return_tensors="pt", do_sample_frames=False
            )
        )

    def telling(self, rng: random.Random, setting: Setting) -> Telling:
        """A story as it is told in one setting: beside frames, captions are not to be relied on."""
        scene = self.scene(rng)
        perspective: Perspective = "protagonist" if rng.random() < _MASKED else "omniscient"
        told, share = scene, 1.0
        if setting == "multimodal" and perspective == "omniscient":
            drawn = rng.random()
            if drawn < _CONTRADICTED:
                told = contradicted(rng, scene)
            elif drawn < _CONTRADICTED + _CURTAILED:
                share = rng.random()
        return Telling(rng, scene, perspective, setting, self.words, told, share)

    def batch(
        self, rng: random.Random, make: Maker, setting: Setting, model: Any, filmed: int = FILMED
    ) -> Batch:
        """Documents of one setting with their frames, scored by :func:`score_text`.

        ``filmed`` documents with frames make a batch. Truth is also wanted in layers in the middle
        of ``model``.
        """
        texts, clips = [], []
        for _ in range(TOLD if setting == "text" else filmed):
            telling = self.telling(rng, setting)
            texts.append(make(telling))
            if setting != "text":
                clips.append(self.frames(rng, telling.scene, telling.perspective)[1])
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

        def unembed(stream: torch.Tensor) -> torch.Tensor:
            return model.lm_head(model.model.language_model.norm(stream))

        return inputs, score_text(encoded, unembed)

    def told(self, name: str, make: Maker, goal: float, most: int, model: Any) -> Level:
        """Batches of text alone."""
        return Level(name, lambda rng: self.batch(rng, make, "text", model), goal, most)

    def level(self, name: str, make: Maker, steps: int, model: Any, filmed: int = FILMED) -> Level:
        """Batches with frames and text, frames alone, and text."""

        def batch(rng: random.Random) -> Batch:
            (setting,) = rng.choices([*_SHARES], [*_SHARES.values()])
            return self.batch(rng, make, setting, model, filmed)

        return Level(name, batch, 0.0, steps)


def contradicted(rng: random.Random, scene: Scene) -> Scene:
    """A story that its frames contradict: other rooms' parts, another condition, or both."""
    cast = scene.cast
    if rng.random() < 0.5:
        rooms = rng.choice([p for p in itertools.permutations(cast[2:]) if p != cast[2:]])
        return scene._replace(cast=cast._replace(**dict(zip(cast._fields[2:], rooms, strict=True))))
    return scene._replace(first="FB" if scene.first == "TB" else "TB")
