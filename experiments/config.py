"""Options of the experiments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from sally_anne.core.options import Seed
from sally_anne.data.items import Kind, Setting
from sally_anne.harness.protocols import Baseline
from sally_anne.models.options import DEFAULT_MODEL
from sally_anne.steering.config import SteeringOptions

SETTINGS: tuple[Setting, ...] = ("multimodal", "video", "text")


@dataclass(frozen=True)
class Table1Config(SteeringOptions):
    """Measure table 1.

    Attributes:
        prompting: ways to put the questions that are measured as well, on the same stories: cot,
            simtom, few-shot, as of `sally-anne evaluate`. In AxBench prompts steer better than
            any vector.
        baselines: finished runs of `sally-anne evaluate`, of other models and of endpoints, whose
            rows stand in the table.
        settings: which settings.
        orders: which orders.
    """

    prompting: tuple[Baseline, ...] = ()
    baselines: tuple[Path, ...] = ()
    settings: tuple[Setting, ...] = SETTINGS
    orders: tuple[Literal["1", "2"], ...] = ("1", "2")

    @property
    def folder(self) -> Path:
        return self.out or Path("runs") / self.named("table1", Path(self.model).name)


@dataclass(frozen=True)
class TransferConfig:
    """Fit on one run, test on another: do heads, probes and directions carry over?

    Attributes:
        runs: folders of finished probing runs; one is enough with --by.
        by: a tag by which each run's samples are parted, as condition (TB and FB).
        label: what probes read; each run's first by default, or where it has no such label.
        k: size of sets of heads.
        pairs: of the target's test pairs in which the heads that `sally-anne patch` found in the
            source are exchanged.
        random_sets: random sets of heads, on the same pairs.
        draws: refits on drawn clusters, and on shuffled labels.
        seed: of all draws.
        out: folder for transfer.parquet, the figure and results.json.
        device, device_map: where models are put; as in the runs by default.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    by: str | None = None
    label: str | None = None
    k: Annotated[int, tyro.conf.arg(name="K")] = 8
    pairs: int = 60
    random_sets: int = 100
    draws: int = 200
    seed: Seed = 0
    out: Path | None = None
    device: str | None = None
    device_map: str | None = None

    @property
    def folder(self) -> Path:
        names = [run.resolve().name for run in self.runs]
        parted = [f"by-{self.by}"] if self.by else []
        return self.out or Path("runs") / "-".join(["transfer", *names, *parted])


@dataclass(frozen=True)
class LooksConfig:
    """Where do heads look? The attention that they give to frames and sentences.

    Attributes:
        run: folder of a finished probing run; shares, table and figure are written into its folder
            looks.
        kind: of which pairs both inputs are read, where the scan exchanges heads: at the end of the
            prompt, or of the statement. Where samples have no such pairs, they are read themselves.
        pairs: so many test pairs, or test samples.
        k: size of the set of heads that carry most of the answer, and of random sets.
        random_sets: random sets of heads.
        knock_out: parts, as "frame 7", to which the set may not attend, one after the other: which
            share of the pairs' logit difference is lost, next to random sets?
        seed: of random sets and intervals.
        batch_size: inputs that go through the model together.
        device, device_map: where the model is put; as in the run by default.
    """

    run: tyro.conf.Positional[Path]
    kind: Kind = "question"
    pairs: int = 60
    k: Annotated[int, tyro.conf.arg(name="K")] = 8
    random_sets: int = 1000
    knock_out: tuple[str, ...] = ()
    seed: Seed = 0
    batch_size: int = 8
    device: str | None = None
    device_map: str | None = None


@dataclass(frozen=True)
class LocalisationConfig:
    """Score localisers on models of which the heads that carry a belief are known.

    Attributes:
        models: folders of `sally-anne plant`; all that are shipped by default.
        localiser: a localiser of your own, besides the built-in ones, as package.module:NAME: a
            function of a model and pairs that returns a score for every head.
        draws: of the null, in which pairs are turned at random; 19 are the fewest for 5 %.
        workers: processes; each has a model.
        seed: of the draws.
        out: folder. A run that was stopped goes on with the models that are left; a finished one
            is made anew.
    """

    models: tyro.conf.Positional[tuple[Path, ...]] = ()
    localiser: tuple[str, ...] = ()
    draws: int = 19
    workers: int = 2
    seed: Seed = 0
    out: Path = Path("runs/localisation")

    @property
    def folder(self) -> Path:
        return self.out


@dataclass(frozen=True)
class PlantConfig:
    """Train the upper layers of a shipped tiny model until chosen heads carry the belief.

    Attributes:
        family: which model class.
        k: number of heads that carry it.
        says: what planted heads say: whether the belief is true, or hidden, which of the two rooms
            in the question's order is believed. Of true and false belief that says nothing.
        seed: of the choice of heads and of the training.
        out: where the model's folder is made. An existing one is resumed.
    """

    family: Literal["qwen2-vl", "llava-next-video"] = "qwen2-vl"
    k: Annotated[int, tyro.conf.arg(name="K")] = 2
    says: Literal["belief", "hidden"] = "belief"
    seed: Seed = 0
    out: Path = Path("runs/planted")

    @property
    def name(self) -> str:
        hidden = "-hidden" if self.says == "hidden" else ""
        return f"{self.family}{hidden}-k{self.k}-s{self.seed}"

    @property
    def folder(self) -> Path:
        return self.out / self.name


@dataclass(frozen=True)
class TrainConfig:
    """Train one tiny model.

    Attributes:
        family: which model class.
        start: catalogue name or folder of a model to go on from, in place of a text decoder that is
            trained from nothing; of a model of the other family the decoder alone is taken.
        seed: of weights and documents.
        out: folder for checkpoints, loss curves and the finished model.
    """

    family: Literal["qwen2-vl", "llava-next-video"]
    start: str | None = None
    seed: Seed = 0
    out: Path | None = None

    @property
    def folder(self) -> Path:
        return self.out or Path("runs") / "train_tiny" / self.family


@dataclass(frozen=True)
class EvaluateConfig:
    """Measure a tiny model on the test stories.

    Attributes:
        model: catalogue name or folder.
        stories: so many test stories; 500 are all.
    """

    model: str = DEFAULT_MODEL
    stories: int = 100
