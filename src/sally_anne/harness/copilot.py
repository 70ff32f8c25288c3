"""``sally-anne copilot``: wrong options for new questions, until options alone do not tell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sally_anne.core.options import Seed
from sally_anne.harness.config import DEFAULT_BATCH, EndpointOptions, changed, run_folder
from sally_anne.harness.distractors import DistractorConfig
from sally_anne.models.options import ModelOptions


@dataclass(frozen=True)
class CopilotConfig(ModelOptions, EndpointOptions):
    """A model writes three wrong options for each question, and again while they give it away.

    Attributes:
        data: questions, one a line of JSON: question, answer, transcript (or transcript_file, SRT,
            VTT or WhisperX's JSON, with start and end in seconds), and if you like id and
            distractors, three of your own that are looked at first.
        checker: model that tries to answer without the transcript; by default the one that writes.
        rounds: sets that are looked at for a question at most. More rounds go on where fewer ended.
        trials: number of drawn orders (N of the paper's algorithm 1).
        threshold: right answers from which on a set is biased (k).
        seed: draws the orders.
        out: run folder; named after the options by default. An existing one is resumed, also with
            more questions.
        batch_size: prompts that go through the model together, or requests that are made to an
            endpoint at once.
        max_new_tokens: length of a reply with three options.
    """

    data: Path
    checker: str | None = None
    rounds: int = 4
    trials: int = DistractorConfig.trials
    threshold: int = DistractorConfig.threshold
    seed: Seed = 0
    out: Path | None = None
    batch_size: int = DEFAULT_BATCH
    max_new_tokens: int = 256

    @property
    def folder(self) -> Path:
        checker = [f"checker-{Path(self.checker).name}"] if self.checker else []
        asked = changed(self, "trials", "threshold", "seed", "max_new_tokens")
        return run_folder(self, "copilot", [self.data.stem, *checker, *asked])
