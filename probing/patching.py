"""``sally-anne patch RUN``: which heads of a probing run are used, beside which are readable."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import tyro
from rich.markup import escape
from rich.table import Table

from sally_anne.core.console import Bars, Console, stage
from sally_anne.core.errors import ProbingError
from sally_anne.core.files import write_atomic, write_json
from sally_anne.core.folder import claimed
from sally_anne.core.options import Seed, check_options
from sally_anne.core.run import CONFIG, HEADS, LEVEL, PATCHING, Run, conclusions, in_words
from sally_anne.probing.config import ProbeConfig, ScanOptions
from sally_anne.probing.nulls import null_columns, selectivity_columns

if TYPE_CHECKING:
    import pandas as pd

    from sally_anne.data.pairs import PairSet
    from sally_anne.data.samples import SampleSet
    from sally_anne.models.loading import LoadedModel
    from sally_anne.probing.scan import PatchingResult

FOLDER = "patching"
Kind = Literal["question", "statement"]
# What each kind of pairs adds to the table of heads, after its name.
COLUMNS = (
    *("effect_validation", "effect", "effect_low", "effect_high", "ablate", "dla", "attribution"),
    "conclusion",
)
# The entry of config.json that says which null the table of heads has.
NULLS = "nulls"
# Clusters below which an interval says little.
FEW = 5
NO_PAIRS = (
    "no samples are pairs, so that heads cannot be exchanged between them: give two samples of one "
    "group that differ in one thing a common pair, and each its answer"
)


@dataclass(frozen=True)
class PatchingConfig:
    """Exchange every head's output within pairs of one story: which heads does the answer need?

    Attributes:
        run: folder of a finished probing run; columns are added to its heads.parquet, which
            `sally-anne figures` draws. `sally-anne probe --dry-run` says what a scan costs.
        kinds: question exchanges at the last token of the belief question, between the true-belief
            and the false-belief version; statement at the end of one, between two statements
            of one context, which is what probes read. All that the samples have by default.
        pairs, validation_pairs, sizes, random_sets, exact, seed: as of `sally-anne probe`; as in
            the run by default.
        device, device_map: where the model is put; as in the run by default.
    """

    run: tyro.conf.Positional[Path]
    kinds: tuple[Kind, ...] = get_args(Kind)
    pairs: int | None = None
    validation_pairs: int | None = None
    sizes: tuple[int, ...] | None = None
    random_sets: int | None = None
    exact: bool | None = None
    seed: Seed | None = None
    device: str | None = None
    device_map: str | None = None


def conclusion(
    cause: PatchingResult, label: str, k: int, readable: Sequence[bool] | None, which: str
) -> str:
    """Whether the heads that a label is read from best are those that are used, in words.

    Args:
        cause: what was found.
        label: by which heads were ranked.
        k: size of the sets.
        readable: of each row of ``cause.heads``, whether its probe is above its null. The best
            ``k`` by probe are if so many are, those by patching if half of them are. None where
            that was not tested.
        which: what pairs decide, e.g. "the belief question's answer".
    """
    if not _told(cause.facts):
        told = f"{cause.facts['pair_accuracy']:.0%}"
        return f"The model tells {told} of the pairs apart: {which} shows nothing to be carried."
    few = cause.facts["clusters_drawn"]
    if few < 2:
        return f"For {which}, all pairs are of one of the {cause.facts['clusters']}: no interval."
    sets = cause.sets.set_index(["by", "k"])
    probed, causal, drawn = (sets.loc[(by, k)] for by in (label, "patching", "random"))
    order = cause.heads["effect_validation"].to_numpy().argsort(kind="stable")[::-1][:k]
    found = None if readable is None else sum(bool(readable[i]) for i in order)
    enough = None if readable is None else sum(readable) >= k
    half = None if found is None else 2 * found >= k
    counted = "" if found is None else f" ({found} of {k} are readable)"
    return (
        f"For {which}, the {k} heads from which {label} is read best carry {_range(probed)} of the "
        f"difference; random sets of {k} carry {drawn['effect']:.2f}, and 97.5 % of them at most "
        f"{causal['random_high']:.2f}: {in_words(enough, _is_used(probed))}. The {k} "
        f"that carry most on validation pairs carry {_range(causal)}: "
        f"{in_words(half, _is_used(causal))}{counted}."
        + (f" Intervals are over {few} {cause.facts['clusters']}, too few." if few < FEW else "")
    )


def _told(facts: Mapping[str, Any]) -> bool:
    """Whether the model tells most pairs apart, so that there is something to carry."""
    return bool(facts["pair_accuracy"] >= 0.75 and facts["mean_logit_diff"] > 0)


def _is_used(row: pd.Series) -> bool:
    return bool(row["effect"] > row["random_high"] and row["low"] > 0)


def _range(row: pd.Series) -> str:
    return f"{row['effect']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"


def print_patching(console: Console, said: Mapping[str, Any], spoken: Mapping[str, str]) -> None:
    """What ``patching.json`` holds: for each kind of pairs the sets of heads, and the conclusion.

    Args:
        console: where it prints.
        said: the contents.
        spoken: how labels are written.
    """
    for kind, facts in said.items():
        if kind in get_args(Kind):
            _print_cause(console, kind, facts, spoken)
            console.print(f"[bold]{escape(facts['conclusion'])}[/bold]")


def _print_cause(
    console: Console, kind: str, facts: Mapping[str, Any], spoken: Mapping[str, str]
) -> None:
    table = Table(
        title=f"{kind}: normalised effect at {facts['place']}",
        title_justify="left",
    )
    for name in ("heads", "K", "effect", "95 %", "random sets above"):
        table.add_column(name, justify="right")
    for row in facts["sets"]:
        by = {"patching": "by patching", "random": "random"}.get(row["by"])
        above = "" if row["by"] == "random" else f"{row['above']:.0%}"
        ends = f"{row['low']:.2f} to {row['high']:.2f}" if "low" in row else "one cluster"
        name = by or f"by {spoken.get(row['by'], row['by'])} probe"
        table.add_row(name, str(row["k"]), f"{row['effect']:.2f}", ends, above)
    console.print(table)
    told = round(facts["pair_accuracy"] * facts["pairs"])
    console.print(
        f"{facts['pairs']} test pairs of {facts['clusters_drawn']} {facts['clusters']}, of which "
        f"the model tells {told} apart (mean difference {facts['mean_logit_diff']:.2f} logits)"
    )
    with_what = {"attribution": "attribution patching"} | {
        label: f"validation accuracy of {name}" for label, name in spoken.items()
    }
    said = [
        f"{facts[f'{name}_spearman']:.2f} with {words}"
        for name, words in with_what.items()
        if facts.get(f"{name}_spearman") is not None
    ]
    if said:
        console.print(f"rank correlation of what heads carry: {', '.join(said)}")


def explain(
    loaded: LoadedModel,
    pair_sets: Mapping[str, PairSet],
    heads: pd.DataFrame,
    how: ScanOptions,
    folder: Path,
    console: Console,
    spoken: Mapping[str, str],
    site: str = "head_out",
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Scan all kinds of pairs and say what is used.

    Args:
        loaded: the model.
        pair_sets: by kind.
        heads: the table of a run, with the columns of its nulls.
        how: how much is exchanged.
        folder: of the run; effects on each pair are kept in its folder ``patching``.
        console: where it shows how far it is.
        spoken: how labels are written.
        site: where heads are exchanged, as their probes read them.

    Returns:
        The table with ``{kind}_effect`` and the other columns of :class:`PatchingResult`, and
        ``{kind}_conclusion`` of each head; and what ``patching.json`` holds of each kind.
    """
    from sally_anne.probing.scan import scan

    labels = [str(c).removesuffix("_rank") for c in heads if str(c).endswith("_rank")]
    ranked = {label: heads.sort_values([f"{label}_rank", "layer", "head"]) for label in labels}
    null = heads.sort_values(["layer", "head"])[f"{labels[0]}_p_fwer"]
    # None where labels do not vary within groups, so that there is nothing to permute.
    readable = None if null.isna().any() else (null <= LEVEL).tolist()
    said: dict[str, Any] = {}
    for kind, found in pair_sets.items():
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
        own = cause.heads.rename(columns={name: f"{kind}_{name}" for name in COLUMNS})
        heads = heads.drop(columns=[f"{kind}_{name}" for name in COLUMNS], errors="ignore")
        heads = heads.merge(own, on=["layer", "head"], how="left", validate="1:1")
        # Where nothing can be said of the pairs, nothing is said of heads.
        asked = how.exact and _told(cause.facts) and cause.facts["clusters_drawn"] > 1
        heads[f"{kind}_conclusion"] = conclusions(heads, kind, first) if asked else ""
        words = conclusion(cause, first, max(how.sizes), readable, which)
        words = words.replace(first, spoken.get(first, first))
        said[kind] = {
            "scan": how.scan_options,
            "pair_set": found.fingerprint,
            **cause.facts,
            "sets": [
                {name: value for name, value in row.items() if value == value}
                for row in cause.sets.to_dict("records")
            ],
            "conclusion": words,
        }
    return heads, said


def run(config: PatchingConfig, console: Console | None = None) -> pd.DataFrame:
    """Scan a finished run's model; adds columns to its ``heads.parquet``, and ``patching.json``.

    Returns:
        The table of heads.

    Raises:
        RunFolderError, FolderError: the folder is not that of a finished run, or a run is writing.
        ProbingError: the samples have no pairs; or as :func:`scan`.
        OtherModelError: the model is not the one that was probed.
    """
    from sally_anne.probing.sources import reopen

    console = console or Console()
    check_options(config)
    with claimed(config.run, "a probing run"):
        opened = reopen(config.run, config.device, config.device_map)
        asked = {name: getattr(config, name) for name in opened.probing.scan_options}
        given = {name: value for name, value in asked.items() if value is not None}
        permutations = opened.probing.permutations or ProbeConfig.permutations
        probing = replace(opened.probing, **given, permutations=permutations)
        pair_sets = {
            str(kind): opened.pair_sets[kind] for kind in config.kinds if kind in opened.pair_sets
        }
        if not pair_sets:
            raise ProbingError(f"{config.run}: {NO_PAIRS}")
        loaded = opened.model()
        spoken = {label: label.upper() for label in opened.data.meaning}
        add_null(probing, opened.data, console)
        said = add_patching(probing, loaded, pair_sets, console, spoken)
    print_patching(console, said, spoken)
    folder = escape(shlex.quote(str(config.run)))
    again = f"sally-anne figures {folder} && sally-anne report {folder}"
    console.print(f"next, figures and page with it: {again}", soft_wrap=True)
    return Run.open(config.run).heads


def add_null(config: ProbeConfig, data: SampleSet, console: Console) -> bool:
    """Add what permuted labels and control tasks say to the table of heads, unless it is there.

    Returns:
        Whether something was added.
    """
    from sally_anne.probing.probes import Activations

    saved = Run.open(config.folder)
    wanted = {"permutations": config.permutations, "seed": config.seed}
    there = all(f"{label}_p_fwer" in saved.heads for label in saved.labels)
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


def add_patching(
    config: ProbeConfig,
    loaded: LoadedModel,
    pair_sets: Mapping[str, PairSet],
    console: Console,
    spoken: Mapping[str, str],
) -> dict[str, Any]:
    """Add the scan to a finished run with its null, unless it is there; what the file holds.

    Raises:
        ProbingError, ModelError: as :func:`probing.scan.scan`.
    """
    saved, path = Run.open(config.folder), config.folder / PATCHING
    null = {NULLS: json.loads(json.dumps(saved.saved.get(NULLS)))}
    kept = saved.patching
    kept = kept if kept.get(NULLS) == null[NULLS] else {}
    kinds = get_args(Kind)
    done = {kind: kept[kind] for kind in kinds if kind in kept and f"{kind}_effect" in saved.heads}
    how = json.loads(json.dumps(config.scan_options))
    left = {
        kind: found
        for kind, found in pair_sets.items()
        if "kept" not in done.get(kind, {})
        or (done[kind].get("scan"), done[kind].get("pair_set")) != (how, found.fingerprint)
    }
    if left:
        begun = time.monotonic()
        # What was said by another null does not stay beside this one.
        stale = [f"{kind}_{name}" for kind in kinds if kind not in done for name in COLUMNS]
        heads, said = explain(
            loaded,
            left,
            saved.heads.drop(columns=stale, errors="ignore"),
            config,
            config.folder,
            console,
            spoken,
            config.site,
        )
        # Stopped before it is written anew, it must not stand beside another table.
        path.unlink(missing_ok=True)
        _keep(saved, heads, {"config": saved.config | config.scan_options | {"patching": True}})
        done |= said
        write_json(path, null | done)
        console.print(f"[dim]patching scan: {time.monotonic() - begun:.0f} s[/dim]")
    return {kind: done[kind] for kind in pair_sets}


def _keep(saved: Run, heads: pd.DataFrame, facts: Mapping[str, Any]) -> None:
    """Write a run's table of heads anew, and how it was made."""
    write_atomic(saved.folder / HEADS, heads.to_parquet(None, index=False))
    write_json(saved.folder / CONFIG, {**saved.saved, **facts})


def patch(folder: Path | str, **options: Any) -> pd.DataFrame:
    """:func:`run` in a notebook: ``sa.patch("runs/...", pairs=20)``; options as of the command.

    Returns:
        The table of heads of the run, with the columns of the scan.
    """
    return run(PatchingConfig(run=Path(folder), **options), Console(quiet=True))
