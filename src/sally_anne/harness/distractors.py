"""``sally-anne distractors``: are options alone enough to answer?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sally_anne.core.options import Seed
from sally_anne.harness.config import DEFAULT_BATCH, changed, run_folder
from sally_anne.models.options import ModelOptions


@dataclass(frozen=True)
class DistractorConfig(ModelOptions):
    """Which questions of MoMentS does a model answer without any context?

    Attributes:
        data: folder with moments_<split>_questions.json and moments_<split>_keys.json.
        exact: ask all orders of the options rather than a few drawn ones.
        trials: number of drawn orders (N of the paper's algorithm 1).
        threshold: right answers from which on a set is biased (k).
        seed: draws the orders, and the questions of a limit.
        split: which questions; the benchmark's own choice is validation.
        limit: only so many questions of the split, drawn evenly over abilities and cues.
        out: run folder; named after the options by default. An existing one is resumed.
        batch_size: prompts that go through the model together.
    """

    data: Path
    exact: bool = False
    trials: int = 6
    threshold: int = 5
    seed: Seed = 0
    split: str = "validation"
    limit: int | None = None
    out: Path | None = None
    batch_size: int = DEFAULT_BATCH

    @property
    def folder(self) -> Path:
        parts = [self.data.name or "data", *(["exact"] if self.exact else [])]
        parts += changed(self, "trials", "threshold", "seed", "split")
        if self.limit is not None:
            parts.append(f"{self.limit}drawn")
        return run_folder(self, "distractors", parts)
