"""Steering vectors from a finished probing run (GridToM paper, sections 4.3 and 4.4), and gates.

Heads by validation accuracy, directions and sigma from the training samples: no test sample enters.
A gate is a probe that lets a vector act at questions of one condition only. It reads one head at
the last token of a question, not later than the first steered layer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import torch
from scipy.special import expit
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from sally_anne.core.bootstrap import Estimate, draw_groups, estimate_mean
from sally_anne.core.console import Bars, Console, print_lines
from sally_anne.core.errors import SteeringError
from sally_anne.core.files import read_object
from sally_anne.core.folder import RESULTS, require_own
from sally_anne.core.options import flag_name
from sally_anne.core.processes import here
from sally_anne.core.run import HEADS, Head, Run, heads_of
from sally_anne.data.pairs import PairSet
from sally_anne.data.samples import SEEN, SPLITS, Split
from sally_anne.data.tasks import open_pairs
from sally_anne.hooks.edit import Gate
from sally_anne.hooks.identity import ALLOW_MISMATCH
from sally_anne.hooks.positions import LAST_PROMPT, LAST_PROMPT_GENERATED
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel
from sally_anne.probing.activations import Reopened, items_table, reopen
from sally_anne.probing.config import DEFAULT_C, DEFAULT_MAX_ITER, ProbeConfig
from sally_anne.probing.interchange import outputs_of
from sally_anne.probing.patching import NO_PAIRS
from sally_anne.probing.probes import Activations, HeadProbes, best_heads, towards_class, vector_on
from sally_anne.steering.config import CONTROLS, FOUND, Direction, RankBy, VectorConfig

# A head's normalised effect on the belief question's answer, over validation pairs.
PATCHED = "question_effect_validation"
DIRECTIONS: tuple[str, ...] = get_args(Direction)
# At most so many test pairs measure a gate.
TEST_PAIRS = 100
# What a vector keeps of the run's options, and of its model where that is known.
_PROBE = ("position", "c", "max_iter", "normalise")
_OPTIONS = ("order", "contrast", "setting", "stories", *_PROBE, "split_seed", "data_seed")
_MODEL = ("revision", "model_type", "dtype", "quantization", "fingerprint", "prompt")
_OPEN = "open"


def fit_vector(
    run: Path | str | Run,
    k: int,
    alpha: float | None = None,
    direction: str = "logistic",
    label: str | None = None,
    positions: str | None = None,
    seed: int = 0,
    towards: str | None = None,
    rank_by: RankBy = "probe_accuracy",
    norm_matched_to: SteeringVector | None = None,
    patched: Activations | None = None,
) -> SteeringVector:
    """Make a vector from a run folder of ``sally-anne probe``, or an opened run.

    Args:
        k: number of heads: the best by validation accuracy on the label, ties by log-loss. Heads
            whose probe has no weights have no direction and are passed over.
        alpha, positions: 1 and last_prompt+generated, of a control those of what it controls.
        direction: ``logistic``: the probe's unit weight. ``mass_mean``: difference of the class
            means. ``patched_mean``: the mean difference within training pairs at the token where
            patching exchanges heads. ``pca``: first principal component, turned towards the class.
            ``lda``: difference of the means, whitened by the shrunk common covariance.
            ``multinomial:oNpM``: weight of that class of GridToM's four-way probe. ``random``:
            random directions in the same heads. ``random_heads``: directions of the same kind in
            K other heads. Both control ``norm_matched_to``, head by head with steps as long.
        label: ranks heads and gives directions; the run's first by default.
        towards: value of the label to steer towards; of two values the second (true) by default.
        rank_by: ``probe_accuracy``; ``worst_condition``, the lowest of any condition; or
            ``patching``: the normalised effect on validation pairs.
        patched: of ``patched_mean``, as of :func:`read_patched`, which reads it by default.
    """
    run = run if isinstance(run, Run) else Run.open(run)
    if norm_matched_to is not None:
        alpha = norm_matched_to.alpha if alpha is None else alpha
        positions = positions or norm_matched_to.positions
    label = label or next(iter(run.labels), "")
    directions = DIRECTIONS if norm_matched_to is None else CONTROLS
    for name, value, known in (("direction", direction, directions), ("label", label, run.labels)):
        if value not in known:
            raise SteeringError(f"unknown {name} {value!r}: choose one of {', '.join(known)}")
    samples = run.samples
    train = ((samples["split"] == "train") & samples[label].notna()).to_numpy()
    values = samples[label].to_numpy()[train].tolist()
    place = sorted(set(values)).index(target := class_towards(values, label, towards))
    coef = towards_class(run.probes[f"{label}.coef"], place)
    table, facts = run.ranked(label), _provenance(run, label)
    if rank_by != "probe_accuracy":
        facts["rank_by"] = rank_by
        if rank_by == "patching":
            require_patching(run)
        by = PATCHED if rank_by == "patching" else f"{label}_validation_worst"
        if by not in table:
            raise SteeringError(f"{run.folder / HEADS} has no {by}: samples need `condition`")
        table = table.sort_values(by, ascending=False, kind="stable")
    ranked = heads_of(table)
    heads = best_heads(ranked, coef, k)
    rng = np.random.default_rng(seed)
    if towards is not None and not direction.startswith("multinomial"):  # which names a class
        facts["towards"] = target
    kind = direction
    if norm_matched_to is not None:
        kind = norm_matched_to.direction
        facts |= {"seed": seed, "norm_matched_to": kind}
        if direction == "random":
            theta = torch.from_numpy(rng.standard_normal(tuple(norm_matched_to.theta.shape)))
            theta /= theta.norm(dim=1, keepdim=True)
            changes: dict[str, Any] = {"alpha": alpha, "positions": positions, "fitted": facts}
            return replace(norm_matched_to, theta=theta, direction=direction, **changes)
        # Sorted: the same draw whatever the ranking of heads that are not steered.
        others = sorted(h for h in ranked if coef[h].any() and h not in norm_matched_to.heads)
        if norm_matched_to.k > len(others):
            why = f"only {len(others)} other heads have a probe with weights"
            raise SteeringError(f"K = {k}: {why}; lower K, or sweep with --no-controls")
        heads = [others[i] for i in rng.permutation(len(others))[: norm_matched_to.k]]
    if kind.startswith("multinomial"):
        number = 2 * int(kind[-3]) + int(kind[-1])
        at = np.flatnonzero(run.probes.get("op.classes", np.empty(0)) == number)
        if not len(at):
            raise SteeringError(f"{kind}: training has no sample of that class")
        coef = run.probes["op.coef"][:, :, at[0]]
    if kind == "patched_mean":
        patched = patched or read_patched(reopen(run.folder), label, Console())
        at, values = np.array(heads).T, patched.items[label].tolist()
        x = patched.x[:, at[0], at[1]].astype(np.float64)
    else:
        own = {layer: run.activations([layer])[train, 0] for layer in {h.layer for h in heads}}
        x = np.stack([own[h.layer][:, h.head] for h in heads], axis=1).astype(np.float64)
    inside = np.array([value == target for value in values])
    vector = vector_on(
        heads,
        x,
        [direction_of(kind, x[:, i], inside, coef[head]) for i, head in enumerate(heads)],
        coef.shape[:2],
        alpha=1.0 if alpha is None else alpha,
        direction=direction,
        site=run.config.get("site", run.store.meta.site),
        positions=positions or LAST_PROMPT_GENERATED,
        fitted=facts,
    )
    if norm_matched_to is None:
        return vector
    return replace(vector, sigma=norm_matched_to.sigma, site=norm_matched_to.site)


def class_towards(values: Sequence[Any], label: str, towards: str | None = None) -> Any:
    """The value of a label to steer towards; of two values the second by default."""
    classes = sorted(set(values))
    names = list(map(str, classes))
    leads_to = names[1] if towards is None and len(names) == 2 else towards
    if leads_to not in names:
        raise SteeringError(f"label {label!r}: give --towards one of {', '.join(names)}")
    return classes[names.index(leads_to)]


def require_patching(run: Run) -> None:
    """SteeringError for a run whose heads were not patched."""
    if PATCHED not in run.heads or run.heads[PATCHED].isna().any():
        why = f"has no patching effects: run `sally-anne patch {run.folder}` first"
        raise SteeringError(f"{run.folder / HEADS} {why}, or take --rank-by probe_accuracy")


def direction_of(kind: str, x: np.ndarray, inside: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Direction ``[D]`` of one head, of whose activations ``x [N, D]`` some are ``inside [N]``."""
    if kind == "lda":
        lda = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(x, inside)
        return np.asarray(lda.coef_[0])
    if kind not in ("mass_mean", "patched_mean", "pca"):
        return weights
    between = x[inside].mean(axis=0) - x[~inside].mean(axis=0)
    if kind != "pca":
        return np.asarray(between)
    first = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)[2][0]
    return -first if between @ first < 0 else first


def _provenance(run: Run, label: str) -> dict[str, Any]:
    """What the vector was fitted on; enough to fit it again."""
    model, data = run.saved["model"], run.saved["data"]
    own = {name: run.config.get(name) for name in ("samples", "task")}
    return {
        "model": model["source"],
        **{name: model[name] for name in _MODEL if name in model},
        **({SEEN: run.saved[SEEN]} if SEEN in run.saved else {}),
        "data": data["source"],
        "data_hash": data["fingerprint"],
        "split": "heads by validation stories, directions and sigma from training stories",
        "label": label,
        **{name: run.config[name] for name in _OPTIONS},
        **{n: value for n, value in own.items() if value not in (None, getattr(ProbeConfig, n))},
    }


def run(config: VectorConfig) -> None:
    """Make and save a vector."""
    if config.gate is not None and config.positions not in (None, LAST_PROMPT):
        raise SteeringError(f"--gate goes with --positions {LAST_PROMPT}, not {config.positions}")
    sweep = None
    if config.sweep is not None:
        keys = {"config": ("direction", "label", "towards"), "about": ("fitted",)}
        keys["chosen"] = ("k", "alpha", "rank_by")
        sweep = read_object(config.sweep / RESULTS, SteeringError, "sally-anne sweep", keys)
    config = settled(config, sweep)
    require_own(config.folder, "a steering vector", "vector.safetensors")
    names = ("run", "k", "alpha", "direction", "label", "positions", "towards", "rank_by")
    options = {name: value for name in names if (value := getattr(config, name)) is not None}
    vector = fit_vector(**options)
    if sweep is not None:
        swept, own = sweep["about"]["fitted"], json.loads(json.dumps(dict(vector.fitted)))
        # What only one of them knows is not compared.
        known = own.keys() & swept.keys() - {SEEN, ALLOW_MISMATCH, "rank_by"}
        if differ := sorted(name for name in known if swept[name] != own[name]):
            why = f"was of another probing run than {config.run}: {', '.join(differ)}"
            raise SteeringError(f"--sweep {config.sweep} {why}")
        # The sweep chose K and alpha on its own validation stories; what it found is of these.
        chosen = *(sweep["chosen"][name] for name in ("k", "alpha")), LAST_PROMPT_GENERATED
        same = (vector.k, vector.alpha, vector.positions) == chosen and config.gate is None
        more = {name: sweep[name] for name in (SEEN, FOUND)[: 1 + same] if sweep.get(name)}
        site = sweep["config"].get("steer_site") or vector.site
        vector = replace(vector, site=site, fitted={**vector.fitted, **more})
    console = Console()
    if config.gate is not None:
        assert config.run is not None
        vector = gated(vector, config.run, config.gate, console)
    folder = vector.save(config.folder)
    print_lines(console, [f"the vector is in {folder}"])


def settled(config: VectorConfig, sweep: dict[str, Any] | None) -> VectorConfig:
    """The options with run, label, K and alpha, as far as they are left out, from a sweep."""
    if sweep is None:
        if config.run is None or config.k is None or config.alpha is None:
            raise SteeringError("give --run, --K and --alpha, or a finished sweep with --sweep")
        # The folder that is made by default bears the label's name; a given one is claimed first.
        if config.label is None and config.out is None:
            return replace(config, label=next(iter(Run.open(config.run).labels), None))
        return config
    chosen = {name: sweep["chosen"][name] for name in ("k", "alpha", "rank_by")}
    swept = {name: sweep["config"][name] for name in ("direction", "label", "towards")} | chosen
    own = {name: value for name in swept if (value := getattr(config, name)) is not None}
    for name in own.keys() - {"k", "alpha"}:
        if swept[name] not in (None, own[name]):
            words = f"{flag_name(name)} {swept[name]}, not {own[name]}"
            raise SteeringError(f"--sweep {config.sweep}: {words}")
    return replace(config, **swept | own, run=config.run or Path(sweep["run"]))


def gated(vector: SteeringVector, folder: Path, opens_at: str, console: Console) -> SteeringVector:
    """The vector with a gate that is open at questions of one condition (as TB); it acts there.

    The model of the probing run in ``folder`` reads its questions again.
    """
    opened = reopen(folder)
    probing, pair_set = opened.probing, opened.pair_sets.get("question")
    conditions = [] if pair_set is None else conditions_of(pair_set)
    if pair_set is None or opens_at not in conditions:
        known = ", ".join(sorted(set(filter(None, conditions)))) or "none"
        raise SteeringError(
            f"--gate {opens_at}: the questions of {folder} have the conditions {known} (your own "
            "samples need a tag `condition`)"
        )
    x, last = read_questions(opened.model(), pair_set, console), min(vector.heads)[0]
    how = probing.c, probing.max_iter, probing.normalise
    gate, validation, test = fit_gate(x, opens_at, last, *how)
    facts = {"opens_at": opens_at, "validation_accuracy": validation, "test_accuracy": test.value}
    facts |= {"test_interval": [test.low, test.high], "test_questions": test.n}
    line = (
        f"gate: {Head(gate.layer, gate.head)} tells at the last token whether a question is "
        f"{opens_at}: {test.value:.3f} [{test.low:.3f}, {test.high:.3f}] of {test.n} test questions"
    )
    print_lines(console, [line + ("" if test.low > 0.5 else "; it is not above chance")])
    fitted = {**vector.fitted, "gate": facts}
    return replace(vector, gate=gate, positions=LAST_PROMPT, fitted=fitted)


def conditions_of(pair_set: PairSet) -> list[str]:
    """The condition of each sample of each pair, ``2 P``; empty where nothing says it."""
    return [
        sample.tags.get("condition", condition)
        for pair in pair_set.pairs
        for sample, condition in zip(pair.samples, pair_set.conditions, strict=True)
    ]


def read_patched(
    opened: Reopened,
    label: str,
    console: Console,
    loaded: LoadedModel | None = None,
    kept: Path | None = None,
) -> Activations:
    """What patching exchanges in training pairs, ``[2 P, L, H, D]``, each with its ``label``.

    It is true of the first condition of belief questions, TB, whose inputs have no label. Read by
    the run's model where none is ``loaded``; once, if there is a folder in which it is ``kept``. A
    SteeringError if no samples are pairs.
    """
    loaded = loaded or opened.model()
    model = loaded.identity.facts()
    if kept is not None and any(kept.glob("*.safetensors")):
        x = Activations.load(kept)
        if (x.labels, dict(x.model)) == ((label,), model):
            return x
    found = open_pairs(opened.probing, opened.data, label)
    if (pair_set := found.get("question") or found.get("statement")) is None:
        raise SteeringError(NO_PAIRS)
    x = read_questions(loaded, pair_set, console, ("train",))
    first = x.items["condition"] == pair_set.conditions[0]
    items = x.items if label in x.items else x.items.assign(**{label: first})
    x = replace(x, items=items, labels=(label,), model=model)[items[label].notna()]
    if kept is not None and here().first:
        x.save(kept)
    return x


def read_questions(
    loaded: LoadedModel, pair_set: PairSet, console: Console, splits: Sequence[Split] = SPLITS
) -> Activations:
    """Head outputs at the last token of questions, ``[N, L, H, D]``, with their ``condition``.

    Of test pairs at most 100 are read, from all clusters in turn, of others all.
    """
    most = {split: TEST_PAIRS if split == "test" else len(pair_set.pairs) for split in splits}
    pairs = [pair for split, many in most.items() for pair in pair_set.choose(split, many)]
    with Bars(console) as bar:
        read = outputs_of(loaded, pairs, pair_set.reply)
        x = np.concatenate([*bar.track(read, len(pairs), description="reading questions")])
    items = items_table([sample for pair in pairs for sample in pair.samples]).assign(
        condition=conditions_of(replace(pair_set, pairs=pairs)),
        cluster=[pair.cluster for pair in pairs for _ in pair.samples],
    )
    return Activations(x, items, ("condition",))


def fit_gate(
    x: Activations,
    opens_at: str,
    last: int,
    c: float = DEFAULT_C,
    max_iter: int = DEFAULT_MAX_ITER,
    normalise: bool = True,
) -> tuple[Gate, float, Estimate]:
    """The probe of the best head up to layer ``last``, with its validation and test accuracy.

    Validation questions choose the head, ties by log-loss, and the threshold; test questions only
    measure it. ``last`` is the first layer that is steered; its heads are read before that.
    """
    is_open = x.items["condition"] == opens_at
    x = replace(x, x=x.x[:, : last + 1], items=x.items.assign(**{_OPEN: is_open}), labels=(_OPEN,))
    probes = HeadProbes(c, max_iter, normalise=normalise).fit(x.train, label=_OPEN)
    probes.rank(x.validation)
    ((layer, head),) = best_heads(probes.ranked_, probes.coef_, 1)
    weight, bias = probes.coef_[layer, head], float(probes.intercept_[layer, head])

    def right(part: Activations, thresholds: np.ndarray) -> np.ndarray:
        likely = expit(part.x[:, layer, head].astype(np.float64) @ weight + bias)
        return (likely > thresholds[:, None]) == part.values(_OPEN)

    logits = x.validation.x[:, layer, head].astype(np.float64) @ weight + bias
    edges = np.unique([0.0, *expit(logits), 1.0])
    cuts = (edges[1:] + edges[:-1]) / 2
    accuracy = right(x.validation, cuts).mean(axis=1)
    # Of thresholds that divide equally well the middle of the widest gap.
    best = np.lexsort((np.diff(edges), accuracy))[-1:]
    cluster, names = pd.factorize(x.test.items["cluster"])
    share = estimate_mean(right(x.test, cuts[best])[0], cluster, draw_groups(len(names)))
    gate = Gate(layer, head, torch.from_numpy(weight.copy()), bias, float(cuts[best][0]))
    return gate, float(accuracy[best][0]), share
