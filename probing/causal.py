"""``sally-anne causal RUN``: which heads of a probing run are used, beside which are readable."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import tyro
from rich.markup import escape
from rich.table import Table

from hooks.saved_run import CONFIG, HEADS, Run
from probing.config import ProbeConfig, ScanOptions
from probing.nulls import LEVEL, null_columns, selectivity_columns
from sally_anne.core.commands import command, read_options
from sally_anne.core.console import Bars, Console, stage
from sally_anne.core.errors import ProbingError, RunFolderError
from sally_anne.core.files import read_object, require_sealed, write_atomic, write_sealed
from sally_anne.core.run_folder import PROBING, claimed

if TYPE_CHECKING:
    import pandas as pd

    from probing.scan import Cause
    from sally_anne.benchmarks.samples import SampleSet
    from sally_anne.benchmarks.twins import TwinSet
    from sally_anne.models.loading import LoadedModel

FOLDER, SAVED = "causal", "causal.json"
Kind = Literal["question", "verdict"]
# The entry of config.json that says which null the table of heads has.
NULLS = "nulls"
# Clusters below which an interval says little.
FEW = 5
NO_TWINS = (
    "no samples are twins, so that heads cannot be exchanged between them: give two samples of one "
    "group that differ in one thing a common twin, and each its answer"
)


@dataclass(frozen=True)
class CausalConfig(ScanOptions):
    """Exchange every head's output between twins of one story: which heads does the answer need?

    Attributes:
        run: folder of a finished probing run; columns are added to its heads.parquet.
        kinds: question exchanges at the last token of the belief question, between the true-belief
            and the false-belief version; verdict at the end of a statement, between two statements
            of one context, which is what probes read. All that the samples have by default.
        device, device_map: where the model is put; as in the run by default.
    """

    run: tyro.conf.Positional[Path]
    kinds: tuple[Kind, ...] = ("question", "verdict")
    device: str | None = None
    device_map: str | None = None


def verdict(cause: Cause, label: str, k: int, readable: Sequence[bool] | None, which: str) -> str:
    """Whether the heads that a label is read from best are those that are used, in words.

    Args:
        cause: what was found.
        label: by which heads were ranked.
        k: size of the sets.
        readable: of each row of ``cause.heads``, whether its probe is above its null. The best
            ``k`` by probe are if so many are, those by cause if half of them are. None where
            that was not tested.
        which: what twins decide, e.g. "the belief question's answer".
    """
    if not _told(cause.facts):
        told = f"{cause.facts['told_apart']:.0%}"
        return f"The model tells {told} of the twins apart: {which} shows nothing to be carried."
    sets = cause.sets.set_index(["by", "k"])
    probed, causal, drawn = (sets.loc[(by, k)] for by in (label, "cause", "random"))
    order = cause.heads["patch_validation"].to_numpy().argsort(kind="stable")[::-1][:k]
    found = None if readable is None else sum(bool(readable[i]) for i in order)
    enough = None if readable is None else sum(readable) >= k
    half = None if found is None else 2 * found >= k
    counted = "" if found is None else f" ({found} of {k} are readable)"
    few = cause.facts.get("clusters_drawn", FEW)
    return (
        f"For {which}, the {k} heads from which {label} is read best carry {_range(probed)} of the "
        f"gap; random sets of {k} carry {drawn['share']:.2f}, and 97.5 % of them at most "
        f"{causal['random_high']:.2f}: {_named(enough, _is_used(probed))}. The {k} "
        f"that carry most on validation twins carry {_range(causal)}: "
        f"{_named(half, _is_used(causal))}{counted}."
        + (f" Intervals are over {few} {cause.facts['clusters']}, too few." if few < FEW else "")
    )


def _told(facts: Mapping[str, Any]) -> bool:
    """Whether the model tells most twins apart, so that there is something to carry."""
    return bool(facts["told_apart"] >= 0.75 and facts["mean_gap"] > 0)


def _is_used(row: pd.Series) -> bool:
    return bool(row["share"] > row["random_high"] and row["low"] > 0)


def _named(readable: bool | None, used: bool) -> str:
    if readable is None:
        return "used" if used else "not used"
    if readable:
        return "readable and used" if used else "readable, not used"
    return "used, not readable" if used else "neither readable nor used"


def _range(row: pd.Series) -> str:
    return f"{row['share']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"


def print_causes(console: Console, said: Mapping[str, Any], spoken: Mapping[str, str]) -> None:
    """What ``causal.json`` holds: for each kind of twins the sets of heads, and the verdict.

    Args:
        console: where it prints.
        said: the contents.
        spoken: how labels are written.
    """
    for kind, facts in said.items():
        if kind in get_args(Kind):
            _print_cause(console, kind, facts, spoken)
            console.print(f"[bold]{escape(facts['verdict'])}[/bold]")


def _print_cause(
    console: Console, kind: str, facts: Mapping[str, Any], spoken: Mapping[str, str]
) -> None:
    table = Table(
        title=f"{kind}: share of the gap carried at {facts['place']}", title_justify="left"
    )
    for name in ("heads", "K", "share", "95 %", "random sets above"):
        table.add_column(name, justify="right")
    for row in facts["sets"]:
        by = {"cause": "by cause", "random": "random"}.get(row["by"])
        above = "" if row["by"] == "random" else f"{row['above']:.0%}"
        ends = f"{row['low']:.2f} to {row['high']:.2f}"
        name = by or f"by {spoken.get(row['by'], row['by'])} probe"
        table.add_row(name, str(row["k"]), f"{row['share']:.2f}", ends, above)
    console.print(table)
    told = round(facts["told_apart"] * facts["pairs"])
    console.print(
        f"{facts['pairs']} test twins of {facts['clusters_drawn']} {facts['clusters']}, of which "
        f"the model tells {told} apart (mean gap {facts['mean_gap']:.2f} logits)"
    )


def twin_sets(config: ProbeConfig, samples: Sequence[Any]) -> dict[str, TwinSet]:
    """The twins that a run's samples have, by kind; none where nothing says which are twins.

    Raises:
        RecordError: samples of the user's own name twins that are none.
        BenchmarkError: the stories cannot be read.
    """
    from sally_anne.benchmarks.gridtom.contrasts import question_twins
    from sally_anne.benchmarks.gridtom.stories import open_stories
    from sally_anne.benchmarks.twins import own_twins, statement_twins

    found, clusters = {}, {}
    if config.samples is None and config.task == "gridtom":
        stories = open_stories(config.data, config.data_seed)
        found["question"] = question_twins(
            stories, config.order, config.setting, config.stories, config.split_seed
        )
        clusters = {twins.samples[0].group: twins.cluster for twins in found["question"].twins}
    elif config.samples is not None:
        found["question"] = own_twins(samples)
    found["verdict"] = statement_twins(samples, next(iter(samples[0].labels)), clusters)
    return {kind: twins for kind, twins in found.items() if twins.twins}


def explain(
    loaded: LoadedModel,
    twins: Mapping[str, TwinSet],
    heads: pd.DataFrame,
    how: ScanOptions,
    folder: Path,
    console: Console,
    spoken: Mapping[str, str],
    site: str = "head_out",
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Scan all kinds of twins and say what is used.

    Args:
        loaded: the model.
        twins: by kind.
        heads: the table of a run, with the columns of its nulls.
        how: how much is exchanged.
        folder: of the run; effects on each pair are kept in its folder ``causal``.
        console: where it shows how far it is.
        spoken: how labels are written.
        site: where heads are exchanged, as their probes read them.

    Returns:
        The table with ``{kind}_patch`` and the other columns of :class:`Cause`, and
        ``{kind}_verdict`` of each head; and what ``causal.json`` holds of each kind.
    """
    from probing.scan import scan

    labels = [str(c).removesuffix("_rank") for c in heads if str(c).endswith("_rank")]
    ranked = {label: heads.sort_values([f"{label}_rank", "layer", "head"]) for label in labels}
    null = heads[f"{labels[0]}_p_family"]
    # None where labels do not vary within groups, so that there is nothing to permute.
    readable = None if null.isna().any() else (null <= LEVEL).to_numpy()
    said: dict[str, Any] = {}
    for kind, found in twins.items():
        with Bars(console) as bar:
            task = bar.add_task(f"exchanging heads ({kind})", total=None)
            cause = scan(
                loaded,
                found,
                ranked,
                how,
                folder / FOLDER,
                lambda done, total, bar=bar, task=task: bar.update(  # type: ignore[misc]
                    task, completed=done, total=total
                ),
                site,
            )
        which = f"the {kind} at {found.place}"
        first = labels[0]
        names = {c: f"{kind}_{c}" for c in cause.heads if c not in ("layer", "head")}
        own = cause.heads.rename(columns=names)
        heads = heads.drop(columns=[*names.values(), f"{kind}_verdict"], errors="ignore")
        heads = heads.merge(own, on=["layer", "head"], how="left", validate="1:1")
        used = heads[f"{kind}_patch_low"].to_numpy() > 1 / len(heads)
        each = [None] * len(heads) if readable is None else readable.tolist()
        asked = how.exact and _told(cause.facts)
        heads[f"{kind}_verdict"] = [
            _named(r, bool(u)) if asked else "" for r, u in zip(each, used, strict=True)
        ]
        in_order = heads.assign(readable=each).sort_values(["layer", "head"])["readable"]
        above = None if readable is None else in_order.tolist()
        words = verdict(cause, first, max(how.sizes), above, which)
        words = words.replace(first, spoken.get(first, first))
        said[kind] = {
            **cause.facts,
            "sets": [
                {name: value for name, value in row.items() if value == value}
                for row in cause.sets.to_dict("records")
            ],
            "verdict": words,
        }
    return heads, said


def run(config: CausalConfig, console: Console | None = None) -> pd.DataFrame:
    """Scan a finished run's model; adds columns to its ``heads.parquet``, and ``causal.json``.

    Returns:
        The table of heads.

    Raises:
        RunFolderError, FolderError: the folder is not that of a finished run, or a run is writing.
        ProbingError: the samples have no twins; or as :func:`scan`.
        OtherModelError: the model is not the one that was probed.
    """
    from hooks.identity import ModelIdentity, require_same
    from probing.sources import open_samples
    from sally_anne.models.loading import load_model

    console = console or Console()
    saved = Run.open(config.run)
    words = ["--config", str(config.run)]
    for option in ("device", "device_map"):
        if (value := getattr(config, option)) is not None:
            words += [f"--{option.replace('_', '-')}", value]
    probing: ProbeConfig = read_options(ProbeConfig, "sally-anne probe", words)
    how = {name: getattr(config, name) for name in ScanOptions.__dataclass_fields__}
    probing = replace(probing, **how, permutations=probing.permutations or 1000, out=config.run)
    with claimed(config.run, PROBING):
        data = open_samples(probing)
        found = twin_sets(probing, data.samples)
        twins = {str(kind): found[kind] for kind in config.kinds if kind in found}
        if not twins:
            raise ProbingError(f"{config.run}: {NO_TWINS}")
        shows = any(sample.shows for sample in data.samples)
        loaded = load_model(**probing.opening(), videos=shows)
        made_with = ModelIdentity.of_run(saved.saved["model"])
        require_same(str(config.run), made_with, loaded.identity, "give it the model of the run")
        if saved.saved.get("data", {}).get("fingerprint") not in (None, data.fingerprint):
            raise ProbingError(f"{config.run} was made of other samples than {data.source} holds")
        spoken = {label: label.upper() for label in data.meaning}
        add_null(probing, data, console)
        said = add_causes(probing, loaded, twins, console, spoken)
    print_causes(console, said, spoken)
    return Run.open(config.run).heads


def add_null(config: ProbeConfig, data: SampleSet, console: Console) -> bool:
    """Add what permuted labels and control tasks say to the table of heads, unless it is there.

    Returns:
        Whether something was added.
    """
    from probing.activations import Activations

    saved = Run.open(config.folder)
    wanted = {"permutations": config.permutations, "seed": config.seed}
    there = all(f"{label}_p_family" in saved.heads for label in saved.labels)
    if not config.permutations or (there and saved.saved.get(NULLS) == wanted):
        return False
    begun = time.monotonic()
    with stage(console, f"{config.permutations} permutations of the labels"):
        x = Activations(saved.activations(), saved.samples, saved.labels)
        heads = null_columns(
            x, saved.heads, config.c, config.max_iter, config.permutations, config.seed
        )
        heads = selectivity_columns(x, heads, data.types, config.c, config.seed)
    _keep(saved, heads, {NULLS: wanted, "config": saved.config | wanted})
    console.print(f"[dim]permutations: {time.monotonic() - begun:.0f} s[/dim]")
    return True


def add_causes(
    config: ProbeConfig,
    loaded: LoadedModel,
    twins: Mapping[str, TwinSet],
    console: Console,
    spoken: Mapping[str, str],
) -> dict[str, Any]:
    """Add the scan to a finished run with its null, unless it is there; what ``causal.json`` holds.

    Raises:
        ProbingError, ModelError: as :func:`probing.scan.scan`.
    """

    saved, path = Run.open(config.folder), config.folder / SAVED
    how = {name: getattr(config, name) for name in ScanOptions.__dataclass_fields__}
    asked = {kind: found.fingerprint for kind, found in twins.items()}
    about = {"scan": how, NULLS: saved.saved.get(NULLS), "twins": asked}
    wanted = json.loads(json.dumps(about))
    if path.exists():
        kept = read_object(path, RunFolderError, "sally-anne causal")
        require_sealed(path, kept, f"Delete that file and run `sally-anne causal {config.folder}`.")
        done = all(kind in kept and f"{kind}_patch" in saved.heads for kind in twins)
        if done and all(kept.get(name) == value for name, value in wanted.items()):
            return kept
    begun = time.monotonic()
    heads, said = explain(
        loaded, twins, saved.heads, config, config.folder, console, spoken, config.site
    )
    _keep(saved, heads, {"config": saved.config | how | {"causal": True}})
    write_sealed(path, wanted | said)
    console.print(f"[dim]causal scan: {time.monotonic() - begun:.0f} s[/dim]")
    return said


def _keep(saved: Run, heads: pd.DataFrame, facts: Mapping[str, Any]) -> None:
    """Write a run's table of heads anew, and how it was made."""

    files = {name: digest for name, digest in saved.saved.get("files", {}).items() if name != HEADS}
    # Stopped half-way, either table is taken.
    write_sealed(saved.folder / CONFIG, {**saved.saved, "files": files})
    write_atomic(saved.folder / HEADS, heads.to_parquet(None, index=False))
    write_sealed(saved.folder / CONFIG, {**saved.saved, **facts, "files": files}, (HEADS,))


def causal(folder: Path | str, **options: Any) -> pd.DataFrame:
    """:func:`run` in a notebook: ``sa.causal("runs/...", pairs=20)``; options as of the command.

    Returns:
        The table of heads of the run, with the columns of the scan.
    """
    return run(CausalConfig(run=Path(folder), **options), Console(quiet=True))


main = command("sally-anne causal", CausalConfig, run)


if __name__ == "__main__":
    main()
