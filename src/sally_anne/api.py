"""What a notebook calls: samples, figures, and a finished run that makes vectors."""

from __future__ import annotations

import warnings
from collections.abc import KeysView, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd

from sally_anne.core import run as saved_run
from sally_anne.core.console import Shown, in_python, percent, stage
from sally_anne.core.errors import HarnessError, RecordError, SallyAnneError
from sally_anne.core.hub import at_hand, push
from sally_anne.core.options import Seed, check_options, checked, with_options
from sally_anne.core.run import HEADS, SHARED, copy_run
from sally_anne.data import datasets as datasets
from sally_anne.data.gridtom.release import open_stories
from sally_anne.data.gridtom.samples import Contrast, Order, plots_of, sample_set
from sally_anne.data.items import Setting
from sally_anne.data.samples import Frames, Label, Sample, Samples, Split, paired, with_splits
from sally_anne.figures.draw import ANSWERS, SWEEP, results_in, table_in
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.evaluate import evaluate as evaluation
from sally_anne.hooks.edit import refuse_edited
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel
from sally_anne.models.options import ModelOptions
from sally_anne.models.processor import Unknown
from sally_anne.probing.activations import Activations
from sally_anne.probing.config import ProbeConfig
from sally_anne.probing.extraction import extract
from sally_anne.probing.pipeline import fit_probes, rank_heads
from sally_anne.probing.probes import HeadProbes
from sally_anne.probing.reporting import null_columns
from sally_anne.steering.config import SweepConfig
from sally_anne.steering.fit import fit_vector
from sally_anne.steering.sweep import run as sweep_in

# What is known of a model that is open, of a vector in memory and of the folder.
_OPENED = *ModelOptions.__dataclass_fields__, "steer", "out", "dry_run"
# What is asked of a model and samples in memory, of the options of a probing run.
_READ = "site", "backend", "batch_size", "c", "max_iter", "solver", "normalise", "permutations"
_others = ProbeConfig.__dataclass_fields__.keys() - {*_READ, "split_seed", "seed"}
__version__ = version("sally-anne")


@checked
def gridtom(
    stories: int | None = None,
    order: Order = 1,
    contrast: Contrast = "matched",
    setting: Setting = "multimodal",
    data: str | Path | None = None,
    seed: Seed = 0,
) -> Samples:
    """Labelled statements about what agents believe, each in its split (GridToM, appendix B).

    Four a story in first order, eight in second, with the labels ``y_p`` and ``y_o``.

    Args:
        stories: use only so many, of the three splits in proportion; all by default.
        order: 1, where does the protagonist believe the participant is; 2, what does the
            participant think that the protagonist believes.
        contrast: matched, both sides of a pair share all but the statement; crossed, the same with
            stories in which the participant comes back; paper; or released.
        data: a folder in the release layout; otherwise stories are made here.
        seed: which stories test, train and validate.

    Raises:
        OptionError, BenchmarkError: an option that is wrong; too many or too few stories, or a
            damaged folder.
    """
    records = open_stories(None if data is None else Path(data), plots=plots_of(contrast))
    return Samples(sample_set(records, order, contrast, setting, stories, seed).samples)


def samples(
    texts: Sequence[str],
    labels: Mapping[str, Sequence[Label]],
    groups: Sequence[object] | None = None,
    videos: Sequence[Path | str | Frames | None] | None = None,
    splits: Sequence[Split] | None = None,
    pairs: Sequence[str | None] | None = None,
    answers: Sequence[str | None] | None = None,
    sounds: Sequence[Path | str | np.ndarray | None] | None = None,
) -> Samples:
    """Labelled inputs of your own; files of them are read by ``read_samples``.

    Args:
        texts: N texts; activations are read at their last tokens.
        labels: name to N values, each true or false, a whole number or a text; or a table.
        groups: N names; samples of one group are never split. By default each is its own, and the
            two of a pair are one.
        videos: N videos, as files or frames ``uint8 [F, height, width, 3]``.
        splits: N of train, validation and test; drawn by group at extraction by default.
        pairs: N keys; the two samples of a key differ in one thing, and ``sa.patching`` exchanges
            heads between them.
        answers: N words that the model should say, unlike ones in a pair.
        sounds: N sounds, as files or ``float [S]`` at 16,000 samples a second.

    Raises:
        RecordError: sizes that do not agree, a value of another kind, a group in two splits, or a
            pair that is none; names the argument, the sample or the pair.
    """
    if not hasattr(labels, "items"):
        raise RecordError("give a list of texts, and labels by name, such as {'fits': [True, ...]}")
    if wrong := [name for name in labels if not isinstance(name, str)]:
        raise RecordError(f"labels are called by texts, not {wrong[0]!r:.60}")
    given: dict[str, Any] = {"texts": texts, **{f"labels[{n!r}]": v for n, v in labels.items()}}
    others = {"groups": groups, "videos": videos, "splits": splits, "pairs": pairs}
    others |= {"answers": answers, "sounds": sounds}
    given |= {name: column for name, column in others.items() if column is not None}
    columns: dict[str, list[Any]] = {}
    for name, column in given.items():
        # A mapping gives its keys, a set its values in any order.
        if isinstance(column, str | Mapping | Set) and not isinstance(column, KeysView):
            raise RecordError(f"{name} is {column!r:.60}: give a list with a value for each sample")
        try:
            columns[name] = [_plain(value) for value in column]
        except TypeError as error:
            raise RecordError(f"{name} is {column!r:.60}: give a list of values") from error
        if (count := len(columns["texts"])) != len(columns[name]):
            raise RecordError(f"{name} has {len(columns[name])} values for {count} texts")
    made = Samples()
    for i, values in enumerate(zip(*columns.values(), strict=True)):
        row = dict(zip(columns, values, strict=True))
        known: dict[str, Any] = {name.removesuffix("s"): row.get(name) for name in others}
        for name in ("pair", "answer"):
            known[name] = "" if known[name] is None else str(known[name])
        known["labels"] = {name: row[f"labels[{name!r}]"] for name in labels}
        made.append(Sample(f"sample-{i:05d}", row["texts"], **known))
    paired(made)
    if made and all(sample.split for sample in made):
        with_splits(made)
    return made


def _plain(value: Any) -> Any:
    """A value as Python has it, of a column of any library; None for one that is missing."""
    if hasattr(value, "as_py"):
        value = value.as_py()
    elif hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        value = value.item()
    return None if pd.api.types.is_scalar(value) and pd.isna(value) else value


@checked
@with_options(ProbeConfig, *_others)
def probe(
    loaded: LoadedModel, samples: Sequence[Sample], folder: Path | str | None = None, **options: Any
) -> Probed:
    """Read samples, fit a probe on each head for each label, rank heads, and permute labels.

    What ``sally-anne probe`` does, in memory; ``sa.patching`` then says which heads are used.

    Args:
        loaded: of ``sa.load_model``.
        samples: as of ``sa.extract``, which draws splits where there are none.
        folder: keeps the activations in a store, which is resumed and read again.

    Raises:
        OptionError, ProbingError: an option that is wrong; one class in training, or no sample to
            validate; the others are those of ``sa.extract``.
    """
    check_options(how := ProbeConfig(**options))
    reading: Any = how.site, how.batch_size, how.backend, how.split_seed
    x = extract(loaded, samples, folder, *reading)
    with stage(console := in_python(), "fitting probes"):
        probes = fit_probes(x, how)
        heads = rank_heads(x, probes)
    if how.permutations:
        with stage(console, f"{how.permutations} permutations of the labels"):
            heads = null_columns(x, heads, how)
    return Probed(x, {label: probes[label] for label in x.labels}, heads)


@dataclass(frozen=True, eq=False, repr=False)
class Probed(Shown):
    """What ``sa.probe`` gives.

    Attributes:
        x: activations of all samples.
        probes: of each label; they are ranked, so that they make vectors.
        heads: a row a head, with the columns of ``heads.parquet``.
    """

    x: Activations
    probes: dict[str, HeadProbes]
    heads: pd.DataFrame

    def _shown(self) -> dict[str, object]:
        return self.x._shown() | saved_run.best_named(self.heads)


@checked
@with_options(EvalConfig, *_OPENED, "alpha", "endpoint", "endpoint_model", "endpoint_key")
def evaluate(
    loaded: LoadedModel,
    task: str | Path = "gridtom",
    vector: SteeringVector | None = None,
    folder: Path | str | None = None,
    **options: Any,
) -> Answered:
    """Ask a model the questions of a task, steered or not: what ``sally-anne evaluate`` does.

    Args:
        loaded: of ``sa.load_model``.
        task: a benchmark's name, a file of your own questions (JSON lines), or the like.
        vector: steers at its own ``alpha``; stories that it has seen are left out.
        folder: run folder, resumed if the same was asked; by default one that is deleted.

    Raises:
        OptionError, HarnessError: an option that is wrong or of another task.
        BenchmarkError, ModelError: the task's files, or what the model or vector cannot do.
    """
    if not isinstance(vector, SteeringVector | None):
        raise HarnessError(f"give a vector, such as SteeringVector.load(...), not {vector!r:.60}")
    with TemporaryDirectory() as passing:
        where = Path(folder or passing)
        config = _config(EvalConfig, loaded, where, {"task": str(task), **options})
        answers = evaluation(config, vector, in_python(), loaded)
        results = results_in(where)
    if note := Unknown(**results["unknown_words"]).warning(loaded.name):
        warnings.warn(note.removeprefix("warning: "), stacklevel=3)
    return Answered(pd.DataFrame(results["results"]), answers, results, vector)


@checked
@with_options(SweepConfig, *_OPENED)
def sweep(loaded: LoadedModel, folder: Path | str | None = None, **options: Any) -> Answered:
    """Steer with every K and alpha, choose one, and test it: what ``sally-anne sweep`` does.

    Args:
        loaded: of ``sa.load_model``.
        folder: run folder, resumed if the same was asked; by default one that is deleted.

    Raises:
        OptionError, SteeringError: an option that is wrong, or nothing to choose.
        ProbingError, ModelError: as of the probing run, which is made in ``runs`` if not given.
    """
    with TemporaryDirectory() as passing:
        where = Path(folder or passing)
        config = _config(SweepConfig, loaded, where, options)
        vector = SteeringVector.load(sweep_in(config, in_python(), loaded).vector)
        tables = table_in(where, SWEEP), pd.read_parquet(where / ANSWERS)
        return Answered(*tables, results_in(where), vector)


@dataclass(frozen=True, eq=False, repr=False)
class Answered(Shown):
    """What ``sa.evaluate`` and ``sa.sweep`` give; ``sa.plot.sweep`` draws a sweep.

    Attributes:
        scores: a row a part and measure, and of a sweep a setting: ``value``, ``low``, ``high``.
        answers: a row an answer, with the columns of ``answers.parquet``.
        results: all of ``results.json``.
        vector: what steered, if anything; of a sweep the chosen one.
    """

    scores: pd.DataFrame
    answers: pd.DataFrame
    results: dict[str, Any]
    vector: SteeringVector | None

    def _shown(self) -> dict[str, object]:
        facts: dict[str, object] = {"answers": len(self.answers)}
        if "part" in self.scores:
            whole = self.scores[self.scores["part"] == ""].drop_duplicates("measure")
            facts |= {row["measure"]: percent(row) for row in whole.to_dict("records")}
        facts |= {"found": self.results.get("found"), "vector": self.vector}
        return {name: fact for name, fact in facts.items() if fact is not None}


def _config(kind: type[Any], loaded: LoadedModel, out: Path, options: dict[str, Any]) -> Any:
    """A command's options, with those by which the model was opened."""
    if not isinstance(loaded, LoadedModel):
        raise HarnessError(f"give a model that sa.load_model opened, not {loaded!r:.60}")
    refuse_edited(vars(loaded).get("model"))
    opened: dict[str, Any] = {"revision": loaded.hub_revision, "device_map": loaded.device_map}
    opened |= {"model": loaded.name, "dtype": loaded.dtype, "prompt": loaded.prompt, "out": out}
    for name in ModelOptions.__dataclass_fields__.keys() & loaded.changes.keys():
        opened[name] = (int if name == "max_pixels" else str)(loaded.changes[name])
    hints = get_type_hints(kind)
    for name, value in options.items():
        kinds = {get_origin(part) or part for part in (hints[name], *get_args(hints[name]))}
        if isinstance(value, str) and Path in kinds:
            options[name] = Path(value)
        elif value is not None and tuple in kinds:
            options[name] = tuple(value) if isinstance(value, list | tuple) else (value,)
    return kind(**opened | options)


class Run(Shown, saved_run.Run):
    """A finished probing run: ``Run.open(folder)``, then its config, heads, samples and more."""

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        """Open a run folder, or a hub's repository ``user/name[@revision]``, fetched whole.

        A FolderError if there is neither, a RunFolderError if it is damaged.
        """
        return super().open(at_hand(folder, SHARED))

    def _shown(self) -> dict[str, object]:
        facts: dict[str, object] = {"folder": self.folder}
        with suppress(SallyAnneError):  # of a damaged run what can be read
            facts |= {"of": ", ".join(self.title)}
            parts = self.results.get("results", {}).get("stories", {})
            facts |= {"groups": ", ".join(f"{split} {count}" for split, count in parts.items())}
            facts |= saved_run.best_named(self.heads)
        return facts

    def push_to_hub(
        self, repository: str, private: bool | None = None, activations: bool = False
    ) -> str:
        """Push table, probes and results to ``user/name``, without figures and page.

        ``activations``, with what the samples say, only on demand. A RunFolderError or StoreError
        if the run is damaged.
        """
        return push(repository, HEADS, lambda folder: copy_run(self, folder, activations), private)

    def vector(
        self,
        k: int,
        alpha: float = 1.0,
        label: str | None = None,
        towards: str | None = None,
        direction: str = "logistic",
    ) -> SteeringVector:
        """A steering vector on the best ``k`` heads; see :func:`steering.fit.fit_vector`."""
        return fit_vector(self, k, alpha, direction, label, towards=towards)
