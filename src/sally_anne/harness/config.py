"""What an evaluation is asked to do, and what the configs of this room have in common."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sally_anne.core.errors import HarnessError
from sally_anne.core.options import Seed, check_options
from sally_anne.data.items import Setting, View, Window
from sally_anne.harness.endpoint.options import EndpointOptions, named
from sally_anne.harness.prompting import RETOLD, Prompting
from sally_anne.harness.protocols import ProtocolName, protocol_of
from sally_anne.harness.tasks import reply_tokens, short_name
from sally_anne.models.options import ModelOptions

# Prompts that go through the model together.
DEFAULT_BATCH = 16


@dataclass(frozen=True)
class EvalConfig(ModelOptions, EndpointOptions):
    """Ask a model, steered or not, the questions of a task.

    Attributes:
        task: gridtom, moments, mmtom_qa, muma_tom, mimeqa, bigtom, tomi, hi_tom, fantom, opentom
            or tombench; a file of one's own questions (JSON lines); package.module:NAME of a
            Benchmark; or an installed package's task.
        order: GridToM: belief of first or second order, the initial-belief questions, or where the
            participant is in reality.
        setting: GridToM: what the model is given: frames and text, frames, or text.
        view: other tasks: frames and words, frames, the film's sound, frames and sound, words, or
            the question alone; the benchmark's own by default.
        window: other tasks: the whole context or the part that the question is about; the
            benchmark's own by default.
        frames: other tasks: so many frames, spread evenly; by default as the benchmark takes them.
        template: file with the prompt, its fields in braces, for a paper's exact one.
        protocol: official asks as the benchmark's authors do (prompt, system message, order and
            names of options, length of replies), see harness/protocols.py; sally-anne in our own
            words, the same for all benchmarks.
        prompting: how questions are put: direct, for the answer alone; cot, for thoughts first, at
            the end of which the answer is read; few-shot, after other questions with their answers;
            simtom, in two steps: what the person asked about knows is retold, and the question is
            asked on that alone.
        shots: examples that few-shot prompts show, told in words, each of a story that is not asked
            about.
        shots_seed: which examples are drawn.
        judge: who reads replies to open questions: a model's name, or the address of an endpoint
            that speaks the OpenAI chat protocol. Without a judge they are kept, but not scored. A
            judge's model is opened as the evaluated one is: its dtype, quantization and attention.
        judge_model: model to ask for at the endpoint.
        judge_prices: of a million tokens that the endpoint reads and of a million that it writes;
            --endpoint-limit holds for model and judge together, --endpoint-rate for each.
        judge_key: name of the environment variable that holds the endpoint's key, if it wants one.
        human: CSV with people's verdicts on the same replies (item_id, label), with which the judge
            is compared.
        judge_words: what the judge says of a right and of a wrong reply.
        judge_template: file with the judge's prompt, its fields in braces.
        steer: folder of a steering vector, or user/name[@revision] on a hub; none leaves the model
            as it is.
        alpha: strength of the vector; its own by default.
        split: which items are asked about; auto is GridToM's test stories, and the benchmark's
            own choice for other tasks. GridToM's published is the test of its released code: all
            stories but the last 148 of the file.
        limit: only so many stories of the split, drawn evenly over maps; for other tasks so many
            films or episodes, whole, drawn evenly over what accuracy is broken down by.
        limit_seed: which of them are drawn.
        style: GridToM: plain questions, or questions that ask for a JSON object.
        options: score the options by their probability as well.
        data: folder in the benchmark's release layout; GridToM's stories are generated if none is
            given.
        out: run folder; named after the options by default. An existing one is resumed.
        batch_size: prompts that go through the model together, or requests that are made to an
            endpoint at once; auto takes as many as fit on a GPU, and 16 elsewhere.
        max_new_tokens: length of a reply; by default as the task's replies need: 16 for a name, 32
            for a letter that may come with words, 64 for a JSON object, 128 for a sentence, 512
            for thoughts. It holds for both steps of simtom, of which the first has 256 otherwise.
        split_seed: which stories test, train and validate.
        data_seed: seed of generated stories.
        dry_run: say what the run would ask and need (tokens, memory), and do nothing. Of the
            catalogue's models no weights are needed.
        allow_mismatch: steer a model that the vector was not fitted on.
    """

    task: str = "gridtom"
    order: Literal["1", "2", "initial", "reality"] = "1"
    setting: Setting = "multimodal"
    view: View | None = None
    window: Window | None = None
    frames: int | None = None
    template: Path | None = None
    protocol: ProtocolName = "sally-anne"
    prompting: Prompting = "direct"
    shots: int = 4
    shots_seed: Seed = 0
    judge: str | None = None
    judge_model: str = ""
    judge_key: str | None = None
    judge_prices: tuple[float, float] | None = None
    human: Path | None = None
    judge_words: tuple[str, str] = ("TRUE", "FALSE")
    judge_template: Path | None = None
    steer: Path | None = None
    alpha: float | None = None
    split: str = "auto"
    limit: int | None = None
    limit_seed: Seed = 0
    style: Literal["plain", "json"] = "plain"
    options: bool = False
    data: Path | None = None
    out: Path | None = None
    batch_size: int | Literal["auto"] = DEFAULT_BATCH
    max_new_tokens: int | None = None
    split_seed: Seed = 0
    data_seed: Seed = 2025
    dry_run: bool = False
    allow_mismatch: bool = False

    @property
    def reply_tokens(self) -> int:
        """The most tokens that a reply may have."""
        how = (self.style, self.prompting, self.protocol)
        task = self.task if self.protocol == "sally-anne" else protocol_of(self.task, self.order)
        return self.max_new_tokens or reply_tokens(task, *how)

    @property
    def retold_tokens(self) -> int:
        """The most tokens that SimToM's first reply may have."""
        return self.max_new_tokens or RETOLD

    @property
    def folder(self) -> Path:
        parts = [short_name(self.task)]
        if self.task == "gridtom":
            parts += [self.order, self.setting]
        parts += [part for part in (self.view, self.window) if part]
        if self.frames is not None:
            parts.append(f"{self.frames}frames")
        if self.template is not None:
            parts.append(f"template-{self.template.stem}")
        if self.protocol != "sally-anne":
            parts.append(self.protocol)
        if self.prompting != "direct":
            parts += [self.prompting, *changed(self, "shots", "shots_seed")]
        parts += steered(self)
        asked = ("split", "style", "options", "max_new_tokens", "split_seed", "data_seed")
        parts += changed(self, *asked)
        if self.data is not None:
            parts.append(f"data-{self.data.name}")
        if self.limit is not None:
            parts += [f"{self.limit}drawn", *changed(self, "limit_seed")]
        return run_folder(self, "eval", parts)


def check_steered(config: Any) -> None:
    """OptionError or HarnessError if options that all steered runs share are wrong."""
    check_options(config)
    if config.alpha is not None and config.steer is None:
        raise HarnessError("--alpha is the strength of a vector: give one with --steer")


def steered(config: Any) -> list[str]:
    parts = [] if config.steer is None else [f"steered-{config.steer.name}"]
    return parts if config.alpha is None else [*parts, f"alpha{config.alpha:g}"]


def changed(config: Any, *names: str) -> list[str]:
    """The options that are not at their defaults."""
    values = {name: getattr(config, name) for name in names}
    return [
        f"{name.replace('_', '')}{value}"
        for name, value in values.items()
        if value != getattr(type(config), name)
    ]


def run_folder(config: Any, kind: str, parts: list[str]) -> Path:
    """The user's folder, or one named after the model and these options."""
    name = "-".join([Path(named(config)).name or "model", *parts])
    return config.out or Path("runs") / kind / name
