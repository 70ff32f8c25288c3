"""Options of the commands after MoMentS: ``sally-anne distractors``, ``copilot`` and ``films``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sally_anne.core.options import Seed
from sally_anne.harness.config import DEFAULT_BATCH, EndpointOptions, changed, run_folder
from sally_anne.models.options import ModelOptions


@dataclass(frozen=True)
class DistractorConfig(ModelOptions):
    """Which questions of MoMentS does a model answer without any context?

    Attributes:
        data: folder with moments_<split>_questions.json and moments_<split>_keys.json.
        exact: ask all orders of the options rather than a few sampled ones.
        trials: number of sampled orders (N of the paper's algorithm 1).
        threshold: right answers from which on a set is biased (k).
        seed: samples the orders, and the questions of a limit.
        split: which questions; the benchmark's own choice is validation.
        limit: only so many questions of the split, sampled evenly over abilities and cues.
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


@dataclass(frozen=True)
class CopilotConfig(ModelOptions, EndpointOptions):
    """A model writes three wrong options for each question, and again while they give it away.

    Attributes:
        data: questions, one a line of JSON: question, answer, transcript (or transcript_file, SRT,
            VTT or WhisperX's JSON, with start and end in seconds), and if you like id and
            distractors, three of your own that are checked first.
        checker: model that tries to answer without the transcript; by default the one that writes.
        rounds: sets that are checked for a question at most. More rounds go on where fewer ended.
        trials: number of sampled orders (N of the paper's algorithm 1).
        threshold: right answers from which on a set is biased (k).
        seed: samples the orders.
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
        options = changed(self, "trials", "threshold", "seed", "max_new_tokens")
        return run_folder(self, "copilot", [self.data.stem, *checker, *options])


@dataclass(frozen=True)
class FilmsConfig(ModelOptions, EndpointOptions):
    """Rank films by how social a model takes them to be, from their synopses.

    Attributes:
        data: films, one a line of JSON: title, synopsis (films without one are not ranked), and if
            you like id, which may be left out where titles differ.
        out: run folder; named after the options by default. An existing one is resumed, also with
            more films.
        batch_size: prompts that go through the model together, or requests that are made to an
            endpoint at once.
    """

    data: Path
    out: Path | None = None
    batch_size: int = DEFAULT_BATCH

    @property
    def folder(self) -> Path:
        return run_folder(self, "films", [self.data.stem])
