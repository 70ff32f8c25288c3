"""What a training run is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class TrainConfig:
    """Train one tiny model.

    Attributes:
        family: which model class.
        out: folder for checkpoints, loss curves and the finished model.
        seed: of weights and documents.
        threads: CPU threads; results depend on their number in the last bits.
        seeing_steps: steps of the vision stage.
        watching_steps: most steps of reading frames in words.
        talking_steps: steps of statements and questions in all settings.
        answering_steps: steps of questions and answers turn by turn.
        polishing_steps: the same, mostly with frames.
    """

    family: Literal["qwen2-vl", "llava-next-video"]
    out: Path = Path("runs/train_tiny")
    seed: int = 0
    threads: int = 2
    seeing_steps: int = 160
    watching_steps: int = 101
    talking_steps: int = 230
    answering_steps: int = 150
    polishing_steps: int = 80
