"""What the commands of this room are asked to do: for the command line and for the saved run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sally_anne.benchmarks.items import Setting, View, Window
from sally_anne.core.errors import HarnessError
from sally_anne.core.options import Seed, check_options
from sally_anne.harness.tasks import reply_tokens, short_name
from sally_anne.models.options import ModelOptions

# Prompts that go through the model together.
DEFAULT_BATCH = 16
# How LIMP weighs the steps, see :mod:`sally_anne.harness.limp.likelihood`.
Mode = Literal["log", "official"]


@dataclass(frozen=True)
class EvalConfig(ModelOptions):
    """Ask a model, steered or not, the questions of a task.

    Attributes:
        task: gridtom, moments, mmtom_qa, muma_tom, mimeqa or bigtom; a file of one's own questions
            (JSON lines); package.module:NAME of a Benchmark; or an installed package's task.
        order: GridToM: belief of first or second order, or the initial-belief questions.
        setting: GridToM: what the model is given: frames and text, frames, or text.
        view: other tasks: frames and words, frames, words, or the question alone; the benchmark's
            own by default.
        window: other tasks: the whole context or the part that the question is about; the
            benchmark's own by default.
        frames: other tasks: so many frames, spread evenly; by default as the benchmark takes them.
        template: other tasks: file with the prompt, its fields in braces, for a paper's exact one.
        judge: who reads replies to open questions: a model's name, or the address of an endpoint
            that speaks the OpenAI chat protocol. Without a judge they are kept, but not scored. A
            judge's model is opened as the evaluated one is: its dtype, quantization and attention.
        judge_model: model to ask for at the endpoint.
        judge_key: name of the environment variable that holds the endpoint's key, if it wants one.
        human: CSV with people's verdicts on the same replies (item_id, label), with which the judge
            is compared.
        judge_words: what the judge says of a right and of a wrong reply.
        steer: folder of a steering vector; none leaves the model as it is.
        alpha: strength of the vector; its own by default.
        split: which items are asked about; auto is GridToM's test stories, and the benchmark's
            own choice for other tasks.
        limit: only the first so many stories of the split; films, episodes for other tasks.
        style: GridToM: plain questions, or questions that ask for a JSON object.
        options: score the options by their probability as well.
        data: folder in the benchmark's release layout; GridToM's stories are generated if none is
            given.
        out: run folder; named after the options by default. An existing one is resumed.
        batch_size: prompts that go through the model together; auto takes as many as fit on a GPU,
            and 16 on a CPU.
        max_new_tokens: length of a reply; by default as the task's replies need: 16 for a name, 32
            for a letter that may come with words, 64 for a JSON object, 128 for a sentence.
        split_seed: which stories test, train and validate.
        data_seed: seed of generated stories.
        dry_run: say what the run would ask and need (tokens, memory), and do nothing. Of the
            catalogue's models no weights are needed.
        force: steer a model that the vector was not fitted on.
    """

    task: str = "gridtom"
    order: Literal["1", "2", "initial"] = "1"
    setting: Setting = "multimodal"
    view: View | None = None
    window: Window | None = None
    frames: int | None = None
    template: Path | None = None
    judge: str | None = None
    judge_model: str = ""
    judge_key: str | None = None
    human: Path | None = None
    judge_words: tuple[str, str] = ("TRUE", "FALSE")
    steer: Path | None = None
    alpha: float | None = None
    split: str = "auto"
    limit: int | None = None
    style: Literal["plain", "json"] = "plain"
    options: bool = False
    data: Path | None = None
    out: Path | None = None
    batch_size: int | Literal["auto"] = DEFAULT_BATCH
    max_new_tokens: int | None = None
    split_seed: Seed = 0
    data_seed: Seed = 2025
    dry_run: bool = False
    force: bool = False

    @property
    def reply_tokens(self) -> int:
        """The most tokens that a reply may have."""
        if self.max_new_tokens is not None:
            return self.max_new_tokens
        return reply_tokens(self.task, self.style)

    @property
    def folder(self) -> Path:
        """Where the run is kept."""
        parts = [short_name(self.task)]
        if self.task == "gridtom":
            parts += [self.order, self.setting]
        parts += [part for part in (self.view, self.window) if part]
        if self.frames is not None:
            parts.append(f"{self.frames}frames")
        if self.template is not None:
            parts.append(f"template-{self.template.stem}")
        parts += _steered(self)
        for name in ("split", "style", "split_seed", "data_seed"):
            if (value := getattr(self, name)) != getattr(EvalConfig, name):
                parts.append(f"{name.replace('_', '')}{value}")
        if self.data is not None:
            parts.append(f"data-{self.data.name}")
        if self.limit is not None:
            parts.append(f"{self.limit}stories")
        return _folder(self, "eval", parts)


@dataclass(frozen=True)
class DistractorConfig(ModelOptions):
    """Which questions of MoMentS does a model answer without any context?

    Attributes:
        data: folder with moments_<split>_questions.json and moments_<split>_keys.json.
        exact: ask all orders of the options rather than a few drawn ones.
        trials: number of drawn orders (N of the paper's algorithm 1).
        threshold: right answers from which on a set is biased (k).
        seed: draws the orders.
        split: which questions; the benchmark's own choice is validation.
        limit: only the first so many questions of the split.
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
        """Where the run is kept."""
        parts = [self.data.name or "data", *(["exact"] if self.exact else [])]
        for name in ("trials", "threshold", "seed", "split", "limit"):
            if (value := getattr(self, name)) != getattr(DistractorConfig, name):
                parts.append(f"{name}{value}")
        return _folder(self, "distractors", parts)


@dataclass(frozen=True)
class LimpConfig(ModelOptions):
    """Answer MuMA-ToM's questions by inverse planning with a local model.

    Attributes:
        data: folder with questions.json, texts.json and videos/.
        actions: what the films show, in the form of actions_extracted.json with its fields action
            filled in; the model watches the films if none is given.
        parsed: episodes that need no reading, as in a run's episodes.json.
        steer: folder of a steering vector. It steers the judging of likelihoods alone: texts and
            films are read by the model as it is.
        alpha: strength of the vector; its own by default.
        mode: log sums logarithms; official is the released code's softmax over raw products. Both
            are computed, and this one is the run's answer.
        limit: only the first so many episodes.
        out: run folder; named after the options by default. An existing one is resumed.
        batch_size: prompts that go through the model together.
        max_new_tokens: length of a list that the model writes.
        force: steer a model that the vector was not fitted on.
    """

    data: Path
    actions: Path | None = None
    parsed: Path | None = None
    steer: Path | None = None
    alpha: float | None = None
    mode: Mode = "log"
    limit: int | None = None
    out: Path | None = None
    batch_size: int = DEFAULT_BATCH
    max_new_tokens: int = 256
    force: bool = False

    @property
    def folder(self) -> Path:
        """Where the run is kept."""
        parts = ["muma_tom"]
        for name in ("actions", "parsed"):
            if (path := getattr(self, name)) is not None:
                parts.append(f"{name}-{path.stem}")
        parts += _steered(self)
        if self.limit is not None:
            parts.append(f"{self.limit}episodes")
        return _folder(self, "limp", parts)


def check_steered(config: EvalConfig | LimpConfig) -> None:
    """What is wrong with the options alone that all steered runs share.

    Raises:
        OptionError, HarnessError: names the option.
    """
    check_options(config)
    if config.alpha is not None and config.steer is None:
        raise HarnessError("--alpha is the strength of a vector: give one with --steer")


def _steered(config: EvalConfig | LimpConfig) -> list[str]:
    parts = [] if config.steer is None else [f"steered-{config.steer.name}"]
    return parts if config.alpha is None else [*parts, f"alpha{config.alpha:g}"]


def _folder(config: Any, kind: str, parts: list[str]) -> Path:
    """The user's folder, or one named after the model and these options."""
    if config.out is not None:
        return config.out
    return Path("runs") / kind / "-".join([Path(config.model).name or "model", *parts])
