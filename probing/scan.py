"""The patching scan: every head exchanged within pairs, ranked on some, reported on others."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.numpy import load_file, save
from torch import Tensor

from sally_anne.core.bootstrap import draw_groups, estimate_shares, percentile_interval
from sally_anne.core.errors import ProbingError, RunFolderError
from sally_anne.core.files import reading, write_atomic
from sally_anne.data.pairs import ContrastPair, PairSet
from sally_anne.hooks.geometry import HEAD_OUT, find_geometry
from sally_anne.models.loading import LoadedModel
from sally_anne.probing.config import ScanOptions
from sally_anne.probing.extraction import each_piece
from sally_anne.probing.interchange import Effects, effects_of


@dataclass(frozen=True)
class PatchingResult:
    """What one kind of pairs shows of all heads.

    Attributes:
        heads: a row a head: ``layer, head, effect_validation, effect, effect_low, effect_high,
            ablate, dla, attribution``, shares of the logit_diff; all but the first on test pairs.
        sets: a row a set of heads: ``by`` (patching, a label, or random), ``k, effect, low, high``;
            of random ones the middle 95 % of the draws, of the others an interval over clusters,
            ``random_high`` the 97.5 % quantile of random sets, ``above`` the share of them that
            reaches as much.
        facts: numbers of pairs and clusters, mean logit_diff, share answered rightly, Spearman's
            correlations of ``effect_validation`` with ``attribution`` and with each label's
            validation accuracy, and as ``kept`` the files of the test pairs, for `kept_effects`.
    """

    heads: pd.DataFrame
    sets: pd.DataFrame
    facts: dict[str, Any]


def scan(
    loaded: LoadedModel,
    pair_set: PairSet,
    ranked: Mapping[str, pd.DataFrame],
    how: ScanOptions,
    folder: Path | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    site: str = HEAD_OUT,
) -> PatchingResult:
    """Exchange heads within pairs: ranked on validation pairs, reported on test pairs.

    Args:
        loaded: the model.
        pairs: of one kind.
        ranked: for each label its heads, best by probe first, with ``layer`` and ``head``.
        how: how much.
        folder: keeps the effects on each pair, so that a scan that was stopped goes on.
        on_progress: told how many of how many pairs are done.
        site: where heads are exchanged, as their probes read them.

    Raises:
        ProbingError: no pairs in a split, a size above the number of heads, or answers that begin
            alike.
        ModelError: the model cannot read tokens side by side.
    """
    geometry = find_geometry(loaded.skeleton)
    shape = geometry.n_layers, geometry.n_heads
    count = shape[0] * shape[1]
    if taken := {"patching", "random"} & set(ranked):
        raise ProbingError(f"a label is called {taken.pop()!r}, as sets of heads are: rename it")
    how = replace(how, sizes=tuple(dict.fromkeys(how.sizes)))
    if not how.sizes:
        raise ProbingError("--sizes names no size of a set of heads")
    if max(how.sizes) > count:
        raise ProbingError(f"--sizes {max(how.sizes)}: {loaded.name} has {count} heads")
    validation = pair_set.choose("validation", how.validation_pairs)
    test = pair_set.choose("test", how.pairs)
    for split, found in (("validation", validation), ("test", test)):
        if not found:
            raise ProbingError(f"there are no {pair_set.kind} pairs in the {split} split")
    total = len(validation) + len(test)
    facts = loaded.identity.facts(), loaded.changes, pair_set.kind, site, how.exact
    about = [repr(facts), *(pair.fingerprint for pair in validation)]

    def effects(
        pairs: Sequence[ContrastPair], sets: Tensor, mean: Tensor | None, before: int
    ) -> tuple[Effects, list[str]]:
        def work(i: int) -> Mapping[str, np.ndarray]:
            return asdict(effects_of(loaded, pairs[i], pair_set.reply, sets, mean, how.exact, site))

        members = sets.numpy().tobytes().hex()
        files = [_file([*about, pair.fingerprint, members]) for pair in pairs]
        every = [_read(folder, file) for file in files]
        pending = [i for i, one in enumerate(every) if one is None]
        stored = before + len(pairs) - len(pending)
        on_progress(stored, total)
        made = each_piece(loaded, work, pending)
        for done, (i, one) in enumerate(zip(pending, made, strict=True), 1):
            every[i] = _write(folder, files[i], one)
            on_progress(stored + done, total)
        found = [one for one in every if one is not None]
        joined = {name: np.concatenate([one[name] for one in found]) for name in found[0]}
        return Effects(**joined), files

    on_validation, _ = effects(validation, torch.zeros(0, *shape, dtype=torch.bool), None, 0)
    ranking = (on_validation.effect if how.exact else on_validation.attribution).sum(0)
    # Where the model has them the wrong way round, the order is still by effect.
    causal = ranking / abs(on_validation.logit_diff.sum())
    chosen = _chosen(causal, ranked, how)
    sets = torch.zeros(len(chosen), count, dtype=torch.bool)
    for row, members in zip(sets, chosen.values(), strict=True):
        row[torch.from_numpy(members.copy())] = True
    mean = torch.from_numpy(on_validation.mean.mean(0))
    on_test, files = effects(test, sets.unflatten(1, shape), mean, len(validation))
    carried = dict(zip(chosen, on_test.sets.T, strict=True))

    cluster = np.unique([pair.cluster for pair in test], return_inverse=True)[1]
    times = draw_groups(cluster.max() + 1, seed=how.seed)
    share, low, high = estimate_shares(on_test.effect, on_test.logit_diff, cluster, times)
    layer, head = np.indices(shape)
    heads = pd.DataFrame({"layer": layer.ravel(), "head": head.ravel()})
    heads["effect_validation"] = causal.ravel()
    for name, values in (("effect", share), ("effect_low", low), ("effect_high", high)):
        heads[name] = values.ravel()
    if len(np.unique(cluster)) < 2:  # no interval
        heads[["effect_low", "effect_high"]] = np.nan
    for name in ("ablate", "dla", "attribution"):
        heads[name] = (getattr(on_test, name).sum(0) / on_test.logit_diff.sum()).ravel()
    rows = []
    for k in how.sizes:
        draws = np.array([carried[f"random {k} {i}"].sum() for i in range(how.random_sets)])
        draws /= on_test.logit_diff.sum()
        least, most = percentile_interval(draws)
        for by in ("patching", *ranked):
            ends = map(
                float, estimate_shares(carried[f"{by} {k}"], on_test.logit_diff, cluster, times)
            )
            row = dict(zip(("by", "k", "effect", "low", "high"), (by, k, *ends), strict=True))
            if len(np.unique(cluster)) < 2:
                row |= {"low": np.nan, "high": np.nan}
            above = float((draws >= row["effect"]).mean())
            rows.append(row | {"random_high": most, "above": above})
        mean_share = float(draws.mean())
        rows.append({"by": "random", "k": k, "effect": mean_share, "low": least, "high": most})
    said: dict[str, Any] = {
        "place": pair_set.place,
        "clusters": pair_set.clusters,
        "pairs": len(test),
        "clusters_drawn": int(cluster.max()) + 1,
        "mean_logit_diff": float(on_test.logit_diff.mean()),
        "pair_accuracy": float((on_test.logit_diff > 0).mean()),
        "kept": files if folder else [],
    }
    if how.exact:
        said["attribution_spearman"] = _spearman(causal, on_validation.attribution.sum(0))
    for label, table in ranked.items():
        column = f"{label}_validation_accuracy"
        if column in table:
            accuracy = table.sort_values(["layer", "head"])[column].to_numpy()
            said[f"{label}_spearman"] = _spearman(causal, accuracy)
    return PatchingResult(heads, pd.DataFrame(rows), said)


def _spearman(one: np.ndarray, other: np.ndarray) -> float | None:
    """None where either is constant."""
    a, b = (pd.Series(values.ravel()).rank() for values in (one, other))
    return float(a.corr(b)) if min(a.nunique(), b.nunique()) > 1 else None


def _chosen(
    causal: np.ndarray, ranked: Mapping[str, pd.DataFrame], how: ScanOptions
) -> dict[str, np.ndarray]:
    """Numbers of the heads of each set, layer by layer: best by cause and by probe, and random."""
    order, draw = np.argsort(-causal.ravel(), kind="stable"), np.random.default_rng(how.seed)
    chosen: dict[str, np.ndarray] = {}
    for k in how.sizes:
        chosen[f"patching {k}"] = order[:k]
        for label, table in ranked.items():
            best = table.head(k)
            chosen[f"{label} {k}"] = (best["layer"] * causal.shape[1] + best["head"]).to_numpy()
        for i in range(how.random_sets):
            chosen[f"random {k} {i}"] = draw.choice(causal.size, k, replace=False)
    return chosen


def kept_effects(folder: Path, facts: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """What a scan kept of each of its P test pairs, in their order.

    Args:
        folder: where it kept it.
        facts: of one kind of pairs, as in ``patching.json``.

    Returns:
        Gaps ``[P]``, and what goes along with each head ``[P, L, H]``, in logits: exchanged, or by
        attribution patching where heads were not exchanged by themselves.

    Raises:
        RunFolderError: a file is not there, or damaged.
    """
    found = []
    for file in facts["kept"]:
        if (one := _read(folder, file)) is None:
            raise RunFolderError(
                f"{folder / file} is missing; delete {folder}.json and run `sally-anne patch "
                f"{folder.parent}`: it goes on from the pairs that are there"
            )
        found.append(one)
    effect = "effect" if facts["scan"]["exact"] else "attribution"
    logit_diff, carried = (
        np.concatenate([one[name] for one in found]) for name in ("logit_diff", effect)
    )
    return logit_diff, carried


def _file(key: Sequence[str]) -> str:
    return f"{hashlib.sha256(chr(0).join(key).encode()).hexdigest()[:24]}.safetensors"


def _read(folder: Path | None, file: str) -> Mapping[str, np.ndarray] | None:
    """What was kept in this file, if anything."""
    if folder is None or not (path := folder / file).exists():
        return None
    with reading(path, RunFolderError, "sally-anne patch"):
        return load_file(path)


def _write(
    folder: Path | None, file: str, made: Mapping[str, np.ndarray]
) -> Mapping[str, np.ndarray]:
    """Keep it, where there is a folder."""
    if folder is not None:
        folder.mkdir(exist_ok=True)
        arrays = {name: np.ascontiguousarray(value) for name, value in made.items()}
        write_atomic(folder / file, save(arrays))
    return made
