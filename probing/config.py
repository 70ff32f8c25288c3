"""What a probing run is asked to do: the single source for the command line and the saved run."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from sally_anne.core.options import Natural, Positive, Range, Seed
from sally_anne.data.gridtom.samples import Contrast, Published, SplitSeed
from sally_anne.data.items import TEXT_SETS, View, short_name
from sally_anne.models.options import ModelOptions, settle

Site = Literal["head_out", "attn_out", "resid"]
Solver = Literal["sklearn", "batched"]
Position = Literal["statement", "reply"]
# Tasks of texts that go on: made here, and benchmarks of stories in words.
RAW_TEXT = ("ioi", "statements", "beliefs", *TEXT_SETS)

# The released GridToM code's settings (equation 3 is the same model without a penalty).
DEFAULT_C = 0.015
DEFAULT_MAX_ITER = 400
# Share of the logit difference that what is called used moves at the least.
FLOOR = 0.05
# Samples that go through the model together.
DEFAULT_BATCH = 8
# Options that stand in a run folder's name, in this order, where they are not the default.
_NAMED = (
    *("stories", "fps", "most_frames", "data", "split_seed", "data_seed", "backend", "prompt"),
    *("position", "solver", "c", "max_iter", "normalise"),
)


@dataclass(frozen=True, kw_only=True)
class ScanOptions:
    """How many heads and pairs are exchanged, to see which are used.

    Attributes:
        pairs: test pairs in which heads are exchanged, from all clusters (maps) in turn.
        validation_pairs: pairs by whose exchange heads are ranked.
        sizes: how many of the best heads are exchanged together.
        random_sets: sets of random heads of each size, on the same pairs.
        exact: exchange each head by itself; else rank them by attribution patching, one gradient
            an input, as models of many heads need.
        floor: share of the pairs' logit difference that what is called used moves at the least.
        seed: of random sets, and of permutations.
    """

    pairs: int = 32
    validation_pairs: int = 16
    sizes: tuple[int, ...] = (4, 8)
    random_sets: int = 100
    exact: bool = True
    floor: Annotated[float, Range("from 0 to 1", lambda share: 0 <= share <= 1)] = FLOOR
    seed: Seed = 0

    @property
    def scan_options(self) -> dict[str, Any]:
        return {option.name: getattr(self, option.name) for option in fields(ScanOptions)}


@dataclass(frozen=True)
class ProbeConfig(ScanOptions, ModelOptions, Published):
    """Cache last-token activations of every head, fit a probe on each, rank the heads.

    Then say which heads score more than chance, and which are used: see the options of the scan.

    Attributes:
        task: gridtom; mmtom_qa, belief pairs of MMToM-QA's official files in --data; made here:
            ioi, to whom something is given, statements, true and false, beliefs, in plain
            sentences; or any other task of `sally-anne evaluate` whose questions have options, with
            its --data: is an option the right answer? Of texts --prompt auto is raw.
        samples: labelled texts or chats of your own, with pictures or films, in place of a task: a
            file of JSON lines with the fields text or messages, images or video, labels, group,
            split. All its labels are probed.
        order: 1 asks where the protagonist believes the participant is, 2 what the participant
            thinks that the protagonist believes.
        contrast: matched shares the context within a pair; crossed does, too, and has as many
            stories in which the participant comes back; paper follows the paper's figure 6;
            released has the released code's form, too, which gives false-belief labels away.
        setting: what the model is given: frames and text, frames, or text; of a benchmark with
            sound also that (audio, audiovisual), or the question alone (none); auto is text for
            models that only read and tasks of text alone, else frames and text. Order, contrast,
            stories and data-seed are GridToM's.
        site: where activations are read. head_out is the paper's definition; the others
            reproduce released code.
        position: at which token. statement is the text's last one, its turn still open, the paper's
            final token; reply the last before the model's answer, where released code reads, and
            where vectors act.
        backend: which library reads the activations; all give the same numbers.
        data: folder in the benchmark's own layout; without one GridToM's stories are generated.
        stories: use only so many stories, test, train and validation in proportion; of ioi,
            statements (of each kind), beliefs and questions with options so many pairs.
        fps: frames a second of films in files; by default 8 frames, spread evenly.
        most_frames: frames of a film at most, then spread evenly.
        out: run folder; named after the options by default. An existing one is resumed.
        batch_size: inputs that go through the model together; auto takes as many as fit on a GPU,
            64 at most, and 8 on a CPU. A run that goes on keeps its own.
        solver: batched fits the probes of all heads at once, to the optimum; sklearn head after
            head with scikit-learn, to its default tolerance.
        c: inverse strength of the probes' penalty.
        normalise: divide a head's activations by their standard deviation, one number a head,
            before the penalty, so that heads' units do not decide rankings; released code does not.
        max_iter: limit of the solver's iterations.
        permutations: of the labels within stories, for each head's null; 0 for none.
        patching: exchange every head within pairs, and say whether what is readable is used.
        split_seed: which stories, or groups of samples, test, train and validate; or published, of
            GridToM: the last 148 of the file for probes, all others for tests.
        data_seed: seed of generated stories.
        figures: draw the figures.
        dry_run: say what the run would do and need (tokens, memory, disk), and do nothing. Of the
            catalogue's models no weights are needed.
    """

    task: str = "gridtom"
    samples: Path | None = None
    order: Literal[1, 2] = 1
    contrast: Contrast = "matched"
    setting: Literal["auto"] | View = "auto"
    site: Site = "head_out"
    position: Position = "statement"
    backend: Literal["native", "nnsight", "transformer_lens"] = "native"
    data: Path | None = None
    stories: int | None = None
    fps: Positive | None = None
    most_frames: int | None = None
    out: Path | None = None
    batch_size: int | Literal["auto"] = "auto"
    solver: Solver = "batched"
    c: Positive = DEFAULT_C
    max_iter: int = DEFAULT_MAX_ITER
    normalise: bool = True
    permutations: Natural = 1000
    patching: bool = True
    split_seed: SplitSeed = 0
    data_seed: Seed = 2025
    figures: bool = True
    dry_run: bool = False

    def __post_init__(self) -> None:
        settle(self, self.samples is None and self.task in RAW_TEXT)

    @property
    def folder(self) -> Path:
        """Where the run is kept; each option that decides its results shows in the default name."""
        if self.out is not None:
            return self.out
        parts = [f"order{self.order}", self.contrast, self.setting, self.site]
        if self.samples is not None:
            parts[:2] = [f"samples-{self.samples.stem}"]
        elif self.task != ProbeConfig.task:
            parts[: 3 if self.task in RAW_TEXT else 2] = [short_name(self.task)]
        for name in _NAMED:
            if (value := getattr(self, name)) != getattr(ProbeConfig, name):
                if isinstance(value, Path):  # of . and .., too, the folder's own name
                    value = Path(os.path.abspath(value)).name or "root"
                parts.append(f"{name.replace('_', '')}-{value}")
        return Path("runs") / "-".join([Path(self.model).name or "model", *parts])


@dataclass(frozen=True)
class NullsConfig:
    """Test every head of a probing run against permuted labels, and draw its groups anew.

    Attributes:
        run: folder of a finished probing run; the table nulls-SPLIT.parquet is written into it.
        permutations: of the labels within groups, the same for all heads.
        bootstraps: draws of groups with replacement, for 95 % intervals; 0 for none.
        split: samples that score. Heads are chosen by validation; test is for the report.
        seed: of permutations and draws.
    """

    run: tyro.conf.Positional[Path]
    permutations: int = 1000
    bootstraps: Natural = 0
    split: Literal["validation", "test"] = "validation"
    seed: Seed = 0


@dataclass(frozen=True)
class PatchingConfig:
    """Exchange every head's output within pairs of inputs: which heads does the answer need?

    Attributes:
        run: folder of a finished probing run; columns are added to its heads.parquet, which
            `sally-anne figures` draws. `sally-anne probe --dry-run` says what a scan costs.
        pairs, validation_pairs, sizes, random_sets, exact, floor, seed: as of `sally-anne probe`;
            as in the run by default.
        device, device_map: where the model is put; as in the run by default.
    """

    run: tyro.conf.Positional[Path]
    pairs: int | None = None
    validation_pairs: int | None = None
    sizes: tuple[int, ...] | None = None
    random_sets: int | None = None
    exact: bool | None = None
    floor: float | None = None
    seed: Seed | None = None
    device: str | None = None
    device_map: str | None = None


@dataclass(frozen=True)
class AuditConfig:
    """Measure what should not suffice to predict a run's labels: could it explain the result?

    Attributes:
        run: folder of a finished probing run; audit.parquet and audit.json are written into it.
        stories: groups of samples, from all maps in turn, for rows in which the model reads
            anew (random weights, text alone, other films, its own answer); half of them train.
        seed: of random weights, films and shuffling.
        device, device_map: where the model is put; as in the run by default.
    """

    run: tyro.conf.Positional[Path]
    stories: int = 96
    seed: Seed = 0
    device: str | None = None
    device_map: str | None = None
