"""Options of ``sally-anne train-tiny`` and ``sally-anne evaluate-tiny``.

In stages, each resumable: a text decoder (shared by both families), looking up in films that are
given in the decoder's own words, the vision tower, and the whole model on frames and text.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sally_anne.core.options import Natural, Seed
from sally_anne.models.options import DEFAULT_MODEL


@dataclass(frozen=True)
class TrainConfig:
    """Train one tiny model.

    Attributes:
        family: which model class.
        out: folder for checkpoints, loss curves and the finished model.
        start: catalogue name or folder of a model to go on from, in place of one trained from
            nothing; of a model of the other family the text decoder alone is taken.
        seed: of weights and documents.
        threads: CPU threads; results depend on their number in the last bits.
        looking_steps: steps of looking up in whole films, after all levels before; 0 leaves all of
            them out.
        seeing_steps: steps of the vision stage; 800 of qwen2-vl, 1200 of llava-next-video.
        reading_steps: steps of one statement or question a story, mostly about frames alone.
        checking_steps: steps of statements and verdicts, with frames, text and both.
        narrating_steps: steps at most of each level of reliable and unreliable narrators, in words,
            fewer if learned; twice as many of the last, in which no statement is marked.
        mixing_steps: steps of all that, and interviews.
    """

    family: Literal["qwen2-vl", "llava-next-video"]
    out: Path = Path("runs/train_tiny")
    start: str | None = None
    seed: Seed = 0
    threads: int = 2
    looking_steps: Natural = 300
    seeing_steps: Natural | None = None
    reading_steps: Natural = 600
    checking_steps: Natural = 100
    narrating_steps: Natural = 300
    mixing_steps: Natural = 700

    @property
    def folder(self) -> Path:
        """Where the stages are kept; both families go on from one decoder there."""
        return self.out


@dataclass(frozen=True)
class EvaluateConfig:
    """Measure a tiny model on the test stories.

    Attributes:
        model: catalogue name or folder.
        stories: so many test stories; 500 are all.
        batch_size: contexts that are read together.
        out: write the figures to this JSON file as well.
        card: write the model card to this file as well (tiny models only).
    """

    model: str = DEFAULT_MODEL
    stories: int = 100
    batch_size: int = 16
    out: Path | None = None
    card: Path | None = None
