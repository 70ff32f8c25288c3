"""``sally-anne train-tiny --family qwen2-vl``: train a shipped tiny model from scratch.

In stages, each resumable: a text decoder (shared by both families), the vision tower, the whole
model on frames and text, answering in turns, and with a deeper decoder statements and narrators.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sally_anne.core.commands import command
from sally_anne.core.options import Natural, Seed


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
        finishing_steps: statements, lists and turns with a deeper decoder.
        carrying_steps: verdicts wanted at once, some words later and in the answer's turn.
        settling_steps: the same with more interviews, for the habit.
        narrating_steps: reliable and unreliable narrators, mostly in words.
        trusting_steps: the same, mostly with frames and with few verdicts shown.
        keeping_steps: the same with more interviews, for the habit.
        localising_steps: the truth of statements left to few heads (qwen2-vl).
    """

    family: Literal["qwen2-vl", "llava-next-video"]
    out: Path = Path("runs/train_tiny")
    seed: Seed = 0
    threads: int = 2
    seeing_steps: Natural = 160
    watching_steps: Natural = 101
    talking_steps: Natural = 230
    answering_steps: Natural = 150
    polishing_steps: Natural = 80
    finishing_steps: Natural = 420
    carrying_steps: Natural = 250
    settling_steps: Natural = 70
    narrating_steps: Natural = 300
    trusting_steps: Natural = 400
    keeping_steps: Natural = 80
    localising_steps: Natural = 390

    @property
    def folder(self) -> Path:
        """Where the stages are kept; both families go on from one decoder there."""
        return self.out


_WORK = "experiments.train_tiny.stages:train_family"
main = command("sally-anne train-tiny", TrainConfig, _WORK, resumes=True)


if __name__ == "__main__":
    main()
