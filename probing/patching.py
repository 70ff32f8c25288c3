"""``sally-anne patch RUN``: which heads of a probing run are used, next to which are readable."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy.stats import median_abs_deviation
from torch import Tensor

from sally_anne.core import console as shown
from sally_anne.core import run as saved_run
from sally_anne.core.bootstrap import draw_groups, estimate_shares, percentile_interval, too_few
from sally_anne.core.console import Console, counting, in_python, many, number, percent
from sally_anne.core.errors import ProbingError
from sally_anne.core.files import write_atomic, write_json
from sally_anne.core.folder import claimed
from sally_anne.core.options import check_options, checked, with_options
from sally_anne.core.processes import in_batches
from sally_anne.core.run import AGAINST, USED, Run, labels_of, symbol, verdicts
from sally_anne.data.items import KINDS
from sally_anne.data.pairs import ContrastPair, PairSet, own_pairs
from sally_anne.data.samples import Sample, SampleSet, with_splits
from sally_anne.hooks.geometry import HEAD_OUT, find_geometry
from sally_anne.models.loading import LoadedModel
from sally_anne.probing import interchange
from sally_anne.probing.activations import Activations, reopen
from sally_anne.probing.config import PatchingConfig, ProbeConfig, ScanOptions
from sally_anne.probing.extraction import each_piece
from sally_anne.probing.interchange import Effects
from sally_anne.probing.reporting import null_columns

FOLDER = "patching"
# What each kind of pairs adds to the table of heads, after its name.
SINGLE = ("ablate", "dla", "attribution")
EFFECTS = ("effect_validation", "effect", "effect_low", "effect_high")
MEASURES = (*EFFECTS, *SINGLE, "used", "against_below", "used_above")
COLUMNS = (*MEASURES, "conclusion")
# Standard deviations to either side between which 95 % lie.
NORMAL_95 = 1.96
# The entry of config.json that says which null the table of heads has.
NULLS = "nulls"
# Single heads that are printed.
SINGLY = 5
NO_PAIRS = "no samples are pairs: give two of one group a common pair, and each its answer"


class PatchingResult(NamedTuple):
    """What one kind of pairs shows of all heads.

    Attributes:
        heads: a row a head: ``layer, head`` and :data:`MEASURES`, shares of the logit difference;
            all but the first on test pairs. ``used`` is a verdict, empty where nothing can be said;
            the last two are the ends that an effect must pass.
        sets: a row a set of heads: ``by`` (patching, a label, or random), ``k, effect, low, high``
            (over clusters, or the middle 95 % of random draws), ``random_low, random_high``,
            ``above``, the share of random sets with as much, and ``used``.
        facts: of pairs, answers and clusters; Spearman's correlations of ``effect_validation``.
    """

    heads: pd.DataFrame
    sets: pd.DataFrame
    facts: dict[str, Any]


def _answered(facts: Mapping[str, Any]) -> bool:
    """Whether the model answers most pairs rightly, so that there is an effect to measure."""
    return bool(facts["pair_accuracy"] >= 0.75 and facts["mean_logit_diff"] > 0)


def scan(
    loaded: LoadedModel,
    pair_set: PairSet,
    ranked: Mapping[str, pd.DataFrame],
    how: ScanOptions,
    folder: Path | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    site: str = HEAD_OUT,
) -> PatchingResult:
    """Exchange heads within pairs of one kind: ranked on validation, reported on test pairs.

    ``ranked`` has each label's heads, best by probe first, with ``layer`` and ``head``. ``folder``
    keeps the effects on each pair, so that a scan that was stopped goes on. ProbingError for no
    pairs in a split, a size above the number of heads, or an answer that is how the other begins;
    ModelError for a model that cannot read tokens side by side.
    """
    geometry = find_geometry(loaded.skeleton)
    shape = geometry.n_layers, geometry.n_heads
    if taken := {"patching", "random"} & set(ranked):
        raise ProbingError(f"a label is called {taken.pop()!r}, as sets of heads are: rename it")
    how = replace(how, sizes=tuple(dict.fromkeys(how.sizes)))
    if not how.sizes or max(how.sizes) > np.prod(shape):
        sizes = " ".join(map(str, how.sizes))
        raise ProbingError(f"--sizes {sizes}: {loaded.name} has {np.prod(shape)} heads")
    validation = pair_set.choose("validation", how.validation_pairs)
    test = pair_set.choose("test", how.pairs)
    if not (validation and test):
        split = "test" if validation else "validation"
        raise ProbingError(f"there are no {pair_set.kind} pairs in the {split} split")
    ids: dict[str, list[int]] = {}
    for pair in (*validation, *test):
        for prompt in interchange.prompts_of(loaded, pair, pair_set.reply):
            said = interchange.answer_ids(loaded, pair, prompt)
        ids |= dict(zip(pair.answers, said, strict=True))
    total = len(validation) + len(test)
    key = "whole", loaded.identity.facts(), loaded.changes, pair_set.kind, site, how.exact
    about = [repr(key), *(pair.fingerprint for pair in validation)]
    at_once = interchange.PAIRS if loaded.accelerated else 1

    def effects(
        pairs: Sequence[ContrastPair], sets: Tensor, mean: Tensor | None, before: int
    ) -> tuple[Effects, list[str]]:
        members = sets.numpy().tobytes().hex()
        keys = [chr(0).join((*about, pair.fingerprint, members)) for pair in pairs]
        files = [f"{hashlib.sha256(k.encode()).hexdigest()[:24]}.safetensors" for k in keys]
        every = {file: Effects.read(folder and folder / file) for file in files}
        pending = {f: pair for f, pair in zip(files, pairs, strict=True) if every[f] is None}
        stored = before + len(pairs) - len(pending)
        on_progress(stored, total)
        asked = pair_set.reply, sets, mean, how.exact, site
        made = each_piece(
            loaded,
            lambda some: interchange.draw_pairs(loaded, some, pair_set.reply),
            lambda some, drawn: interchange.effects_of(loaded, some, *asked, drawn),
            in_batches([*pending.values()], at_once),
        )
        single = (one for some in made for one in some.apart())
        for done, (file, one) in enumerate(zip(pending, single, strict=True), 1):
            every[file] = one
            if folder is not None:
                one.write(folder / file)
            on_progress(stored + done, total)
        return Effects.joined(every.values()), files

    on_validation, _ = effects(validation, torch.zeros(0, *shape, dtype=torch.bool), None, 0)
    ranking = (on_validation.effect if how.exact else on_validation.attribution).sum(0)
    # Where the model has them the wrong way round, the order is still by effect.
    causal = ranking / abs(on_validation.logit_diff.sum())
    order, draw = np.argsort(-causal.ravel(), kind="stable"), np.random.default_rng(how.seed)
    chosen: dict[str, np.ndarray] = {}  # numbers of the heads of each set
    for k in how.sizes:
        chosen[f"patching {k}"] = order[:k]
        for label, table in ranked.items():
            best = table.head(k)
            chosen[f"{label} {k}"] = (best["layer"] * shape[1] + best["head"]).to_numpy()
        for i in range(how.random_sets):
            chosen[f"random {k} {i}"] = draw.choice(causal.size, k, replace=False)
    each = np.eye(causal.size, dtype=bool)
    sets = torch.from_numpy(np.array([each[members].any(0) for members in chosen.values()]))
    mean = torch.from_numpy(on_validation.mean.mean(0))
    on_test, files = effects(test, sets.unflatten(1, shape), mean, len(validation))

    cluster = np.unique([pair.cluster for pair in test], return_inverse=True)[1]
    clusters, whole = int(cluster.max()) + 1, on_test.logit_diff
    times = draw_groups(clusters, seed=how.seed)

    def share(effect: np.ndarray) -> list[np.ndarray]:
        """Normalised effect and the ends of its interval, NaN of one cluster."""
        value, *ends = estimate_shares(effect, whole, cluster, times)
        return [value, *(end if clusters > 1 else end * np.nan for end in ends)]

    facts: dict[str, Any] = {n: getattr(pair_set, n) for n in ("asks", "place", "clusters")}
    facts |= {"pairs": len(test), "clusters_drawn": clusters, "floor": how.floor}
    facts |= {"mean_logit_diff": float(whole.mean()), "pair_accuracy": float((whole > 0).mean())}
    facts["whole_accuracy"] = float((on_test.whole > 0).mean())
    facts |= {"answers": ids, "kept": files if folder else []}

    def judged(effect: Any, ends: Any, random: Any) -> np.ndarray:
        """Empty where the model does not answer the pairs, so that there is no effect to judge."""
        return np.where(_answered(facts), verdicts(effect, ends, random, how.floor), "")

    value, *ends = share(on_test.effect)
    # What a random head reaches, by the spread about the middle: a few that carry much, which are
    # what is looked for, do not widen it.
    spread = NORMAL_95 * median_abs_deviation(value, axis=None, scale="normal")
    middle = np.median(value) - spread, np.median(value) + spread
    single = [getattr(on_test, n).sum(0) / whole.sum() for n in SINGLE]
    passed = min(-how.floor, middle[0]), max(how.floor, middle[1])
    columns = [*np.indices(shape), causal, value, *ends, *single, judged(value, ends, middle)]
    columns += [np.full(shape, end) for end in passed]
    names = ("layer", "head", *MEASURES)
    heads = pd.DataFrame({n: v.ravel() for n, v in zip(names, columns, strict=True)})
    effect = dict(zip(chosen, on_test.sets.T, strict=True))
    rows: list[dict[str, Any]] = []
    for k in how.sizes:
        draws = np.array([effect[f"random {k} {i}"].sum() for i in range(how.random_sets)])
        draws /= whole.sum()
        least, most = percentile_interval(draws)
        for by in ("patching", *ranked):
            moved, low, high = map(float, share(effect[f"{by} {k}"]))
            row = {"by": by, "k": k, "effect": moved, "low": low, "high": high}
            row |= {"random_low": least, "random_high": most, "above": (draws >= moved).mean()}
            rows.append(row | {"used": str(judged(moved, (low, high), (least, most)))})
        rows.append({"by": "random", "k": k, "effect": draws.mean(), "low": least, "high": most})
    others = {"attribution": on_validation.attribution.sum(0)} if how.exact else {}
    for label, table in ranked.items():
        if (column := f"{label}_validation_accuracy") in table:
            others[label] = table.sort_values(["layer", "head"])[column].to_numpy()
    for name, values in others.items():
        rho = pd.Series(causal.ravel()).corr(pd.Series(values.ravel()), "spearman")
        facts[f"{name}_spearman"] = None if np.isnan(rho) else float(rho)
    return PatchingResult(heads, pd.DataFrame(rows), facts)


def conclusion(
    result: PatchingResult, label: str, k: int, readable: Sequence[bool] | None, which: str
) -> str:
    """Whether the ``k`` heads that a label is read from best are those that are used, in words.

    ``readable`` says of each row of ``result.heads`` whether its probe is above its null, if that
    was tested; ``which`` is what pairs decide, e.g. "the belief question's answer".
    """
    facts, heads = result.facts, result.heads
    if not _answered(facts):
        share = f"{facts['pair_accuracy']:.0%}"
        return f"The model tells {share} of the pairs apart: {which} shows nothing to be carried."
    clusters = facts["clusters_drawn"]
    if clusters < 2:
        return f"For {which}, all pairs are of one of the {facts['clusters']}: no interval."
    of_k = result.sets[result.sets["k"] == k].set_index("by")
    probed, patched, random = (of_k.loc[by] for by in (label, "patching", "random"))
    shares = ({**row, "value": row["effect"]} for row in (probed, patched))
    carried = [percent(share, scale=1, digits=2) for share in shares]
    mean, low, high = map(number, random[["effect", "low", "high"]])
    said, counted = [probed["used"], patched["used"]], ""
    if readable is not None:
        order = heads["effect_validation"].to_numpy().argsort(kind="stable")[::-1][:k]
        among = sum(bool(readable[i]) for i in order)
        said = [*map(saved_run.in_words, (sum(readable) >= k, 2 * among >= k), said)]
        counted = f" ({among} of {k} are readable)"
    carry = "carries" if k == 1 else "carry"
    words = (
        f"For {which}, the {many(k, 'heads')} from which {symbol(label)} is read best {carry} "
        f"{carried[0]} of the difference; random sets of {k} carry {mean}, and 95 % of them {low} "
        f"to {high}: as a set {said[0]}. The {k} that {carry} most on validation pairs {carry} "
        f"{carried[1]}: as a set {said[1]}{counted}."
    )
    counts = heads["used"].value_counts()
    if "" not in counts:
        words += f" One by one: {counts.get(USED, 0)} of {len(heads)} heads used, "
        words += f"{counts.get(AGAINST, 0)} used against, by {facts['floor']:.2f} or more."
    return f"{words} {too_few(clusters, facts['clusters'])}".rstrip()


def print_patching(console: Console, saved: Mapping[str, Any], heads: pd.DataFrame) -> None:
    """Print what ``patching.json`` holds: of sets the largest, of single heads those with most."""
    found = {kind: saved[kind] for kind in KINDS if kind in saved}
    rows, lines, first = [], [], labels_of(heads)[0]
    by = {"patching": "by patching", first: f"by {symbol(first)} probe"}
    for kind, facts in found.items():
        sets = [row for row in facts["sets"] if row["by"] in by]
        for row in sets:
            if len(found) == 1 or row["k"] == max(one["k"] for one in sets):
                # Of equal answers there is no share.
                effect = percent(row | {"value": row.get("effect")}, scale=1, digits=2)
                random = " to ".join(number(row.get(f"random_{end}")) for end in ("low", "high"))
                name = f"{kind}: {row['k']} {by[row['by']]}"
                rows.append([name, effect, random, row["used"]])
        used = heads[heads[f"{kind}_used"].isin([USED, AGAINST])]
        most = used.sort_values(f"{kind}_effect", key=np.abs, ascending=False)
        most = most.head(SINGLY // len(found))
        carried = zip(saved_run.heads_of(most), most[f"{kind}_effect"], strict=True)
        listed = "".join(f", {head} {value:.2f}" for head, value in carried)
        right = round(facts["pair_accuracy"] * facts["pairs"])
        told = "" if right == facts["pairs"] else f", {right} told apart"
        clusters = many(facts["clusters_drawn"], facts["clusters"])
        unknown = "no interval, so no verdict: take more pairs" * (facts["clusters_drawn"] < 2)
        untested = "single heads were not tested" * all(heads[f"{kind}_used"] == "")
        said = unknown or untested or f"{len(used)} of {len(heads)} heads used{listed}"
        lines.append(f"{kind} ({many(facts['pairs'], 'pairs')}{told}, {clusters}): {said}")
    if rows:
        columns = ["heads exchanged", "effect [95 %]", "95 % of random sets", "verdict"]
        shown.print_table(console, "Share of the answer that heads carry", columns, rows)
        shown.print_lines(console, lines)


def run(config: PatchingConfig, console: Console | None = None) -> pd.DataFrame:
    """Scan a finished run's model: ``patching.json``, and columns of the table of heads, given.

    Errors as of :func:`reopen` and :func:`scan`; a ProbingError, too, if samples have no pairs.
    """
    console = console or Console()
    check_options(config)
    with claimed(config.run, "a probing run"):
        opened = reopen(config.run, config.device, config.device_map)
        options = opened.probing.scan_options
        given = {n: value for n in options if (value := getattr(config, n)) is not None}
        permutations = opened.probing.permutations or ProbeConfig.permutations
        probing = replace(opened.probing, **given, permutations=permutations)
        if not opened.pair_sets:
            raise ProbingError(f"{config.run}: {NO_PAIRS}")
        loaded = opened.model()
        add_null(probing, opened.data, console)
        saved = add_patching(probing, loaded, opened.pair_sets, console)
    heads = Run.open(config.run).heads
    print_patching(console, saved, heads)
    folder = shlex.quote(str(config.run))
    shown.print_lines(console, [f"next: sally-anne figures {folder} && sally-anne report {folder}"])
    return heads


def add_null(config: ProbeConfig, data: SampleSet, console: Console) -> None:
    """Add what permuted labels and control tasks say to the table of heads, unless it is there."""
    saved = Run.open(config.folder)
    null = {"permutations": config.permutations, "seed": config.seed}
    there = all(f"{label}_p_fwer" in saved.heads for label in saved.labels)
    if not config.permutations or (there and saved.saved.get(NULLS) == null):
        return
    with shown.stage(console, f"{config.permutations} permutations of the labels"):
        x = Activations(saved.activations(), saved.samples, saved.labels)
        heads = null_columns(x, saved.heads, config, data.types)
    _keep(saved, heads, {NULLS: null, "config": saved.config | null})


def add_patching(
    config: ProbeConfig, loaded: LoadedModel, pair_sets: Mapping[str, PairSet], console: Console
) -> dict[str, Any]:
    """Add the scan to a finished run with its null, unless it is there; gives ``patching.json``."""
    saved, path = Run.open(config.folder), config.folder / saved_run.PATCHING
    null, how = json.loads(json.dumps([saved.saved.get(NULLS), config.scan_options]))
    about = {k: {"scan": how, "pair_set": own.fingerprint} for k, own in pair_sets.items()}
    done = {k: facts for k, facts in saved.patching.items() if k != NULLS}
    there = done and all(f"{kind}_used" in saved.heads for kind in about)
    was = {kind: {n: facts.get(n) for n in ("scan", "pair_set")} for kind, facts in done.items()}
    if there and (was, saved.patching.get(NULLS)) == (about, null):
        return done
    stale = [f"{kind}_{name}" for kind in KINDS for name in COLUMNS]
    heads, done = saved.heads.drop(columns=stale, errors="ignore"), {}
    ranked = {label: saved.ranked(label) for label in saved.labels}
    first = saved.labels[0]
    p = heads.sort_values(["layer", "head"])[f"{first}_p_fwer"]
    readable = None if p.isna().any() else (p <= saved_run.LEVEL).tolist()
    for kind, pairs in pair_sets.items():
        with counting(console, f"exchanging heads ({kind})") as show:
            folder = config.folder / FOLDER
            result = scan(loaded, pairs, ranked, config, folder, show, config.site)
        own = result.heads.rename(columns={name: f"{kind}_{name}" for name in MEASURES})
        heads = heads.merge(own, on=["layer", "head"], how="left", validate="1:1")
        heads[f"{kind}_conclusion"] = saved_run.conclusions(heads, kind, first)
        which = f"the {pairs.asks} at {pairs.place}"
        words = conclusion(result, first, max(config.sizes), readable, which)
        sets = [row.dropna().to_dict() for _, row in result.sets.iterrows()]
        done[kind] = {**about[kind], **result.facts, "sets": sets, "conclusion": words}
    # Stopped before it is written anew, it must not stand next to another table.
    path.unlink(missing_ok=True)
    _keep(saved, heads, {"config": saved.config | config.scan_options | {"patching": True}})
    write_json(path, {NULLS: null, **done})
    return done


def _keep(saved: Run, heads: pd.DataFrame, facts: Mapping[str, Any]) -> None:
    """Write a run's table of heads anew, and how it was made."""
    write_atomic(saved.folder / saved_run.HEADS, heads.to_parquet(None, index=False))
    write_json(saved.folder / saved_run.CONFIG, {**saved.saved, **facts})


@checked
@with_options(PatchingConfig, "run")
def patch(folder: Path | str, **options: Any) -> pd.DataFrame:
    """:func:`run` in a notebook: ``sa.patch("runs/...", pairs=20)``."""
    return run(PatchingConfig(run=Path(folder), **options), in_python())


@checked
@with_options(ScanOptions)
def patching(
    loaded: LoadedModel,
    samples: Sequence[Sample],
    heads: pd.DataFrame | None = None,
    **options: Any,
) -> PatchingResult:
    """Exchange heads within pairs of ``samples`` in a notebook; no run folder is needed.

    Args:
        loaded: of ``sa.load_model``.
        samples: those with a ``pair`` and an ``answer``; splits are drawn as ``sa.extract`` does.
        heads: the table of ``HeadProbes.rank``: sets of the best probes' heads are exchanged, too.

    A RecordError for a pair that is none; ProbingError for no pairs, or as :func:`scan`.
    """
    check_options(how := ScanOptions(**options))
    pair_set = own_pairs(with_splits(samples))
    if not pair_set.pairs:
        raise ProbingError(NO_PAIRS)
    table = pd.DataFrame() if heads is None else heads
    ranked = {label: table.sort_values(f"{label}_rank") for label in labels_of(table)}
    with counting(in_python(), "exchanging heads") as show:
        return scan(loaded, pair_set, ranked, how, on_progress=show)
