"""Stage 3: frames and text together, in the family's chat layout, with the belief habit.

Stories are played on random maps that are none of the benchmark's 27, so neither the probe nor
the test stories' maps were ever seen in training.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import numpy as np
import torch

from experiments.train_tiny import documents
from experiments.train_tiny.conversations import (
    Speech,
    checked,
    conversation,
    interview,
    narrated,
    speech,
    watching,
)
from experiments.train_tiny.documents import Document, Scene
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
# Documents in a batch with and without frames.
FILMED, TOLD = 10, 20
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
        (*scene.cast,),
        (order[0], order[1], order[2]),
        rng.choice(start_pairs(layout)),
        (rng.randrange(4), rng.randrange(4)),
    )
    return play(staging, scene.first, scene.second or "TB")


def _beside_interviews(
    share: float, asides: tuple[int, ...], other: Callable[..., Document]
) -> Callable[..., Document]:
    """Interviews (a share, and wherever there are frames alone) and other documents."""

    def make(
        rng: random.Random, scene: Scene, perspective: Perspective, setting: Setting, words: Speech
    ) -> Document:
        if setting == "video" or rng.random() < share:
            return interview(rng, scene, perspective, setting, words, asides=asides, lists=0.2)
        return other(rng, scene, perspective, setting, words)

    return make


class Cinema:
    """Makes multimodal batches for one family.

    Args:
        family: whose chat layout and frames.
        processor: the family's processor.
    """

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
        make: Callable[[Scene, Perspective, Setting], Document],
        setting: Setting,
        size: int,
        unembed: Callable[[torch.Tensor], torch.Tensor] | None = None,
        penalty: Penalty | None = None,
    ) -> Batch:
        """Documents of one setting with their frames."""
        texts, clips = [], []
        for _ in range(size):
            scene = self.scene(rng)
            perspective: Perspective = "protagonist" if rng.random() < 0.15 else "omniscient"
            texts.append(make(scene, perspective, setting))
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
                inputs["mm_token_type_ids"] = 2 * (encoded.ids == self.words.video_token).int()
        if unembed is not None:
            inputs["output_hidden_states"] = True
        return inputs, score_text(encoded, unembed, penalty)

    def levels(self, watch_steps: int, steps: int) -> list[Level]:
        """First only frames, then all settings together with the habit."""

        def watch(rng: random.Random) -> Batch:
            return self.batch(rng, lambda s, p, _: watching(rng, s, self.words), "video", FILMED)

        talk = self._mixed(conversation, (0.4, 0.25, 0.35), TOLD)
        return [Level("watching", watch, 0.15, watch_steps), Level("talking", talk, 0.0, steps)]

    def answering(self, steps: int) -> Level:
        """Questions and answers turn by turn, mostly in words."""
        return Level("answering", self._mixed(interview, (0.35, 0.1, 0.55), 14), 0.0, steps)

    def polishing(self, steps: int) -> Level:
        """The same, mostly with frames."""
        return Level("polishing", self._mixed(interview, (0.8, 0.0, 0.2), 14), 0.0, steps)

    def finishing(self, model: Any, steps: int) -> Level:
        """Statements, lists and turns, with the truth of statements wanted in early layers too."""

        make = partial(interview, asides=(0, 1, 2, 4, 6), lists=0.3)
        return Level("finishing", self._deep(make, model), 0.0, steps)

    def narrating(
        self,
        model: Any,
        steps: int,
        name: str,
        marked: float,
        filmed: float,
        interviews: float,
        scenic: int = 1,
        penalty: Penalty | None = None,
    ) -> Level:
        """Reliable and unreliable narrators, beside checked statements and interviews.

        Args:
            model: whose middle layers are read.
            steps: how long.
            name: of the level.
            marked: share of the narrators' statements that are followed by a verdict.
            filmed: share of batches with frames and text.
            interviews: share of interviews, which keep the habit.
            scenic: how often narrators are asked about the scene itself.
            penalty: on heads that know whether a statement is true.
        """

        def other(
            rng: random.Random,
            scene: Scene,
            perspective: Perspective,
            setting: Setting,
            words: Speech,
        ) -> Document:
            # A fifth of all documents that are not of frames alone.
            if rng.random() < 0.2 / (1 - interviews):
                return checked(rng, scene, perspective, setting, words)
            return narrated(rng, scene, perspective, setting != "text", words, marked, scenic)

        make = _beside_interviews(interviews, (0, 0, 0, 1, 2), other)
        return Level(name, self._deep(make, model, filmed, penalty), 0.0, steps)

    def localising(self, model: Any, steps: int, kept: Collection[tuple[int, int]]) -> Level:
        """Narrators, and the truth of what they say in few heads alone.

        Args:
            model: which is trained.
            steps: how long.
            kept: layer and head of those that may carry truth.
        """
        reader = HeadReader(model, range(min(layer for layer, _ in kept), len(o_projs(model))))
        penalty = localiser(reader, kept, LOCAL_WEIGHT)
        return self.narrating(model, steps, "localising", 0.1, 0.57, 0.38, 4, penalty)

    def carrying(
        self, model: Any, steps: int, name: str = "carrying", interviews: float = 0.4
    ) -> Level:
        """Truth of statements wanted at other places than where they end; some interviews."""

        make = _beside_interviews(interviews, (0, 0, 1, 3), checked)
        return Level(name, self._deep(make, model), 0.0, steps)

    def _deep(
        self,
        make: Callable[..., Document],
        model: Any,
        filmed: float = 0.6,
        penalty: Penalty | None = None,
    ) -> Callable[[random.Random], Batch]:
        """Batches of the stages with a deeper decoder."""
        shares = (filmed, 0.03, 0.97 - filmed)
        return self._mixed(make, shares, 14, 8, _unembedding(model), penalty)

    def _mixed(
        self,
        make: Callable[[random.Random, Scene, Perspective, Setting, Speech], Document],
        shares: tuple[float, float, float],
        told: int,
        filmed: int = FILMED,
        unembed: Callable[[torch.Tensor], torch.Tensor] | None = None,
        penalty: Penalty | None = None,
    ) -> Callable[[random.Random], Batch]:
        def batch(rng: random.Random) -> Batch:
            settings: tuple[Setting, ...] = ("multimodal", "video", "text")
            setting = rng.choices(settings, shares)[0]

            def document(scene: Scene, perspective: Perspective, kind: Setting) -> Document:
                return make(rng, scene, perspective, kind, self.words)

            size = told if setting == "text" else filmed
            return self.batch(rng, document, setting, size, unembed, penalty)

        return batch


def _unembedding(model: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """From a model's residual stream to its logits."""

    def unembed(stream: torch.Tensor) -> torch.Tensor:
        return model.lm_head(model.model.language_model.norm(stream))

    return unembed
