"""Stage 3: frames and text together, in the family's chat layout, with the belief habit.

Stories are played on random maps that are none of the benchmark's 27, so neither the probe nor
the test stories' maps were ever seen in training.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import torch

from experiments.train_tiny import documents
from experiments.train_tiny.conversations import Maker, Telling, speech, watching
from experiments.train_tiny.documents import Scene
from experiments.train_tiny.families import Family
from experiments.train_tiny.localising import HeadReader, localiser
from experiments.train_tiny.trainer import Batch, Level, encode, score_text
from hooks.geometry import o_projs
from sally_anne.benchmarks.gridtom.maps import Layout, random_layouts, start_pairs
from sally_anne.benchmarks.gridtom.plot import Staging, Trace, play
from sally_anne.benchmarks.gridtom.render import Perspective, key_frames, render
from sally_anne.benchmarks.items import Setting

Penalty = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

TRAINING_MAPS = 400
FILMED = 10  # documents in a batch with frames
_MAP_SEED = 20_000
# Of the penalty on truth in other heads, a layer.
LOCAL_WEIGHT = 0.35


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
        """Random colours and beliefs, half of them with second-order captions."""
        return documents.random_scene(rng, 0.4)

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

    def batch(
        self,
        rng: random.Random,
        make: Maker,
        setting: Setting,
        size: int,
        unembed: Callable[[torch.Tensor], torch.Tensor] | None = None,
        penalty: Penalty | None = None,
    ) -> Batch:
        """Documents of one setting with their frames, scored by :func:`score_text`."""
        texts, clips = [], []
        for _ in range(size):
            scene = self.scene(rng)
            perspective: Perspective = "protagonist" if rng.random() < 0.15 else "omniscient"
            texts.append(make(Telling(rng, scene, perspective, setting, self.words)))
            if setting != "text":
                clips.append(self.frames(rng, scene, perspective)[1])
        encoded = encode(self.processor.tokenizer, texts)
        inputs: dict[str, Any] = {
            "input_ids": encoded.ids,
            "attention_mask": torch.ones_like(encoded.ids),
        }
        if clips:
            inputs |= self.pixels(clips)
            if self.family == "qwen2-vl":
                shown = encoded.ids == self.processor.video_token_id
                inputs["mm_token_type_ids"] = 2 * shown.int()
        if unembed is not None:
            inputs["output_hidden_states"] = True
        return inputs, score_text(encoded, unembed, penalty)

    def watching(self, steps: int) -> Level:
        """Only frames."""
        return Level(
            "watching", lambda rng: self.batch(rng, watching, "video", FILMED), 0.15, steps
        )

    def level(
        self,
        name: str,
        make: Maker,
        steps: int,
        shares: tuple[float, float, float],
        told: int = 14,
        filmed: int = FILMED,
        **scoring: Any,
    ) -> Level:
        """Batches of ``told`` documents in words, or ``filmed`` with frames.

        ``shares`` are those of frames and text, frames alone, and text; ``scoring`` is as in
        :meth:`batch`.
        """
        settings: tuple[Setting, ...] = ("multimodal", "video", "text")

        def batch(rng: random.Random) -> Batch:
            setting = rng.choices(settings, shares)[0]
            size = told if setting == "text" else filmed
            return self.batch(rng, make, setting, size, **scoring)

        return Level(name, batch, 0.0, steps)

    def deep(
        self,
        name: str,
        make: Maker,
        steps: int,
        filmed: float,
        model: Any,
        kept: Collection[tuple[int, int]] | None = None,
    ) -> Level:
        """A level with a deeper decoder: the truth of statements is wanted in early layers too.

        ``filmed`` is the share of batches with frames and text; ``kept`` are the layer and head of
        those that alone may carry truth.
        """
        penalty: Penalty | None = None
        if kept is not None:
            reader = HeadReader(model, range(min(layer for layer, _ in kept), len(o_projs(model))))
            penalty = localiser(reader, kept, LOCAL_WEIGHT)

        def unembed(stream: torch.Tensor) -> torch.Tensor:
            return model.lm_head(model.model.language_model.norm(stream))

        shares = (filmed, 0.03, 0.97 - filmed)
        return self.level(name, make, steps, shares, filmed=8, unembed=unembed, penalty=penalty)
