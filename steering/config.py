"""Options of the steering commands, their types, and the folders that they name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

import tyro

from sally_anne.core.options import Natural, Seed
from sally_anne.data.gridtom.samples import Published, SplitSeed
from sally_anne.data.items import Setting, short_name
from sally_anne.harness.config import changed
from sally_anne.harness.protocols import PROTOCOLS, ProtocolName
from sally_anne.models.options import DEFAULT_MODEL, ModelOptions, settle
from sally_anne.probing.config import RAW_TEXT, Contrast, Position, ProbeConfig, Site, Solver

CONTROLS = ("random", "random_heads")
RankBy = Literal["probe_accuracy", "worst_condition", "patching"]
# The entry of a sweep's results, and of its vector's facts: effect and rank, in words.
FOUND = "found"
# What steering should leave alone.
ControlTask = Literal["initial", "reality"]
# Options of the probing run that a sweep makes.
OF_PROBES = ("contrast", "site", "normalise", "solver", "split_seed")
# A class of GridToM's four-way probe: o is the omniscient label, p the protagonist's.
Four = Literal["multinomial:o0p0", "multinomial:o0p1", "multinomial:o1p0", "multinomial:o1p1"]
Direction = Literal["logistic", "mass_mean", "patched_mean", "pca", "lda", Four]


@dataclass(frozen=True)
class SteeringOptions(ModelOptions, Published):
    """Options of every command that chooses K and alpha.

    Attributes:
        k: numbers of heads; by default half, once and twice the layers, at most 1/8 of all heads.
        alpha: strengths, in standard deviations; by default to 10 either way, or 50 (256 heads on).
        direction: how directions are found.
        rank_by: what ranks heads: probe accuracy, that in TB or FB, whichever is worse, or patching
            (`sally-anne patch`). Of several the best is chosen.
        random_controls: controls of each kind at the chosen K and alpha; the vector is ranked among
            them.
        control_stories: test stories on which they are compared, spread over all of them.
        leave_out: so many of the best chosen heads are left out one at a time, on the same stories.
        max_initial_drop: by this share at most K and alpha may lower accuracy on initial beliefs of
            validation stories; none does not ask. What the model but guesses is no condition.
        max_reality_drop: the same of the question where the participant is in reality.
        position: at which token the probes read that give heads and directions, as of `sally-anne
            probe`; by default reply, where the vector acts, of pairs and raw prompts statement.
        contrast, site, normalise, solver: of that probing run.
        steer_site: where the vector is added; where the probes read by default.
        limit: only so many stories of each split, drawn evenly over maps; three times so many, at
            least 20, of a probing run that has to be made.
        protocol: official asks for beliefs as the paper's authors do.
        parser: who reads the answers that choose K and alpha.
        data: folder in the release layout; stories are generated if none is given.
        out: run folder; named after the options by default. An existing one is resumed.
        batch_size: prompts that are read together.
        decode_batch_size: answers that are given together; auto takes as many as fit, 64 at most.
        max_new_tokens: length of a reply; by default 16, of the official protocol 20.
        seed: of random directions and heads.
        split_seed: which stories test, train and validate; or published, as of `sally-anne probe`.
        data_seed: seed of generated stories.
        allow_mismatch: take a probing run of another model, or one without a record of its stories.
    """

    k: Annotated[tuple[int, ...] | None, tyro.conf.arg(name="K")] = None
    alpha: tuple[float, ...] | None = None
    direction: Direction = "logistic"
    rank_by: tuple[RankBy, ...] = ("probe_accuracy",)
    random_controls: int = 20
    control_stories: int = 100
    leave_out: Natural = 8
    max_initial_drop: float | None = 0.01
    max_reality_drop: float | None = 0.01
    position: Position | None = None
    contrast: Contrast = "matched"
    site: Site = "head_out"
    normalise: bool = True
    solver: Solver = "batched"
    steer_site: Site | None = None
    limit: int | None = None
    protocol: ProtocolName = "sally-anne"
    parser: Literal["robust", "official"] = "robust"
    data: Path | None = None
    out: Path | None = None
    batch_size: int = 8
    decode_batch_size: int | Literal["auto"] = "auto"
    max_new_tokens: int | None = None
    seed: Seed = 0
    split_seed: SplitSeed = 0
    data_seed: Seed = 2025
    allow_mismatch: bool = False

    def named(self, *parts: str) -> str:
        """The name of a folder: these parts, and what is other than by default."""
        own = "label", "towards", "rank_by", "protocol", "position", "steer_site"
        names = *own, *OF_PROBES, "data_seed", "prompt", "data", "limit"
        return "-".join([*parts, *changed(self, *(name for name in names if hasattr(self, name)))])


@dataclass(frozen=True)
class SweepConfig(SteeringOptions):
    """Steer with every K and alpha, choose on validation stories, report once on test stories.

    Attributes:
        label: the label that ranks heads and gives directions; of pairs the first by default.
        towards: value of the label to steer towards; of two values the second (true) by default.
        task: what is asked: gridtom's questions; or the pairs of any other task of `sally-anne
            probe`, by the logit difference of their answers.
        samples: pairs of your own samples, each with its answer, in place of a task.
        max_text_drop: of pairs: by so many nats a token may the log-probability of plain text fall;
            none does not read any.
        max_other_drop: of pairs: by this share may those of another task that are told apart fall;
            none, the default, does not read them.
        controls: also random directions in the same heads, and random heads, with steps as long.
        order: belief of first or second order.
        setting: frames and text, frames, or text; auto is text where models only read or tasks show
            nothing, else frames and text.
        run: probing run that gives heads and directions; made if it is not there.
        also: directions that are tried, too, and never chosen: kinds, or another label (y_o: the
            omniscient view), which then ranks heads.
        curves: test asks at every K and alpha on test stories, too, and draws these.
        dry_run: say what the run would ask and need (tokens, memory), and do nothing.
    """

    label: str = "y_p"
    towards: str | None = None
    controls: bool = True
    order: Literal["1", "2"] = "1"
    setting: Literal["auto"] | Setting = "auto"
    run: Path | None = None
    task: str = "gridtom"
    samples: Path | None = None
    max_text_drop: float | None = 0.2
    max_other_drop: float | None = None
    also: tuple[Direction | Literal["y_p", "y_o"], ...] = ()
    curves: Literal["validation", "test"] = "validation"
    dry_run: bool = False

    def __post_init__(self) -> None:
        settle(self, self.samples is None and self.task in RAW_TEXT)

    @property
    def on_pairs(self) -> bool:
        """Whether pairs are read; else stories are asked about."""
        return self.samples is not None or self.task != SweepConfig.task

    def probing(self, position: Position) -> ProbeConfig:
        """The probing run that is made for this: without nulls, and without patching if unused."""
        names = ("task", "samples", "setting", "data", "batch_size", "data_seed", *OF_PROBES)
        options = self.model_options(*names) | {"position": self.position or position}
        if "patching" not in self.rank_by:
            options |= {"permutations": 0, "patching": False}
        return ProbeConfig(order=1 if self.order == "1" else 2, **options)

    @property
    def reply_tokens(self) -> int:
        """The most tokens that a reply may have."""
        official = self.protocol == "official" and PROTOCOLS["gridtom"].reply_tokens
        return self.max_new_tokens or official or 16

    @property
    def tasks(self) -> dict[str, float]:
        """How far what is measured may fall of each kind that steering should leave alone."""
        names = ("text", "other") if self.on_pairs else get_args(ControlTask)
        drops = {task: getattr(self, f"max_{task}_drop") for task in names}
        return {task: drop for task, drop in drops.items() if drop is not None}

    @property
    def part(self) -> str:
        """What is asked, in the names of folders."""
        if self.samples is not None:
            return f"samples-{self.samples.stem}"
        return short_name(self.task) if self.on_pairs else f"order{self.order}-{self.setting}"

    @property
    def folder(self) -> Path:
        """Where the sweep is kept."""
        model, direction = Path(self.model).name or "model", self.direction.replace(":", "-")
        return self.out or Path("runs") / "sweep" / self.named(model, self.part, direction)


def neutral_prompts() -> list[str]:
    """Plain sentences that ask for nothing, in which nothing should change."""
    file = Path(__file__).with_name("neutral_prompts.txt")
    return file.read_text(encoding="utf-8").splitlines()


@dataclass(frozen=True)
class VectorConfig:
    """Make a steering vector from a probing run and save it; K and alpha as a sweep chose them.

    Attributes:
        run: folder of a finished probing run; the sweep's by default.
        sweep: folder of a finished sweep, which gives K and alpha.
        k: number of heads; what the sweep chose by default.
        alpha: strength, in standard deviations; what the sweep chose by default.
        direction: how directions are found; as in the sweep by default, or logistic.
        label: ranks heads and gives directions; the sweep's, or the run's first, by default.
        towards: value of the label to steer towards; the sweep's, or of two the second, by default.
        rank_by: as of `sally-anne sweep`; the sweep's by default, or probe accuracy.
        positions: where the vector is applied; last_prompt+generated, with a gate last_prompt.
        gate: steer only at questions of this condition, TB or FB (or your own tag condition), as a
            probe says that is fitted on the run's training questions.
        out: folder of the vector; inside the run's by default.
    """

    run: Path | None = None
    sweep: Path | None = None
    k: Annotated[int | None, tyro.conf.arg(name="K")] = None
    alpha: float | None = None
    direction: Direction | None = None
    label: str | None = None
    towards: str | None = None
    rank_by: RankBy | None = None
    positions: Literal["last_prompt", "generated", "last_prompt+generated", "all"] | None = None
    gate: str | None = None
    out: Path | None = None

    @property
    def folder(self) -> Path:
        """Where the vector is kept, once run, label, K and alpha are known."""
        by = None if self.rank_by == "probe_accuracy" else self.rank_by
        gate = self.gate and f"gate-{self.gate.replace('/', '-')}"
        parts = [
            (self.direction or "logistic").replace(":", "-"),
            self.label,
            self.towards,
            by,
            gate,
            None if self.positions == "last_prompt+generated" else self.positions,
        ]
        name = "-".join(filter(None, [*parts, f"K{self.k}", f"alpha{self.alpha:g}"]))
        return self.out or (self.run or Path()) / "vectors" / name


@dataclass(frozen=True)
class SideEffectsConfig(ModelOptions):
    """Measure the side effects of a steering vector.

    Attributes:
        vector: folder of a steering vector, or user/name[@revision] on a hub.
        alpha: strength; the vector's own by default.
        tasks: of `sally-anne evaluate`, asked with and without the vector; an order stands after a
            colon (gridtom:initial), a folder after an equals sign (bigtom=FOLDER).
        setting: GridToM: frames and text, frames, or text; auto is text for models that only read.
        limit: only so many stories of each task, drawn as in `sally-anne evaluate`.
        out: folder; named after vector and model by default. An existing one is resumed.
        batch_size: prompts that go through the model together.
        max_new_tokens: length of a reply; by default 16 to neutral prompts, and what a task needs.
        allow_mismatch: steer a model that the vector was not fitted on.
    """

    vector: Path
    alpha: float | None = None
    tasks: tuple[str, ...] = ("gridtom:1", "gridtom:initial")
    setting: Literal["auto"] | Setting = "auto"
    limit: int | None = 50
    out: Path | None = None
    batch_size: int = 8
    max_new_tokens: int | None = None
    allow_mismatch: bool = False

    def __post_init__(self) -> None:
        settle(self)

    @property
    def folder(self) -> Path:
        """Where the measurement is kept."""
        parts = [Path(self.model).name or "model", self.vector.resolve().name]
        parts += [] if self.alpha is None else [f"alpha{self.alpha:g}"]
        return self.out or Path("runs") / "side-effects" / "-".join(parts)


@dataclass(frozen=True)
class BakeConfig:
    """Write a checkpoint with a steering vector in its weights, which acts at all positions.

    Heads that share keys and values may get their own in it: the cache then takes more memory.

    Attributes:
        vector: folder of a steering vector, or user/name[@revision] on a hub.
        out: folder of the checkpoint; must be empty, or not there yet.
        model: catalogue name, hub id or folder.
        alpha: strength, in standard deviations; the vector's own by default.
        dtype: of the weights that are written: auto, float32, bfloat16 or float16.
        revision: branch, tag or commit on the hub.
        allow_mismatch: bake a vector that was fitted on another model.
    """

    vector: Path
    out: Path
    model: str = DEFAULT_MODEL
    alpha: float | None = None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    revision: str | None = None
    allow_mismatch: bool = False
