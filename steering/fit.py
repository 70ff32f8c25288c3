"""Steering vectors from a finished probing run (GridToM paper, sections 4.3 and 4.4).

Heads by validation accuracy, directions and sigma from the training samples: no test sample enters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from rich.markup import escape
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from sally_anne.core.console import Console
from sally_anne.core.errors import SteeringError
from sally_anne.core.files import read_object
from sally_anne.core.folder import RESULTS, require_own
from sally_anne.core.head import Head
from sally_anne.core.options import command_line
from sally_anne.core.run import HEADS, PROBES, Run
from sally_anne.data.samples import SEEN
from sally_anne.hooks.identity import ALLOW_MISMATCH
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.options import ModelOptions
from sally_anne.probing.probes import best_heads, towards_class, vector_on
from sally_anne.steering.config import Direction, RankBy, SweepConfig, VectorConfig
from sally_anne.steering.gate import gated

CONTROLS = ("random", "random_heads")
# What a head carries of the belief question's answer between validation pairs.
PATCHED = "question_effect_validation"
DIRECTIONS: tuple[str, ...] = get_args(Direction)
_CLASS = re.compile(r"multinomial:o([01])p([01])")
# What a vector keeps of the run's options, and of its model where that is known.
_OPTIONS = ("order", "contrast", "setting", "stories", "c", "max_iter", "split_seed", "data_seed")
_MODEL = ("revision", "model_type", "dtype", "quantization", "fingerprint")
_REQUIRED = ("revision", "dtype")


def fit_vector(
    run: Path | str | Run,
    k: int,
    alpha: float = 1.0,
    direction: str = "logistic",
    label: str | None = None,
    positions: str = "last_prompt+generated",
    seed: int = 0,
    towards: str | None = None,
    rank_by: RankBy = "probe_accuracy",
    norm_matched_to: SteeringVector | None = None,
) -> SteeringVector:
    """Make a vector from a run folder of ``sally-anne probe``, or an opened run.

    Args:
        k: number of heads: the best by validation accuracy on the label, ties by log-loss. Heads
            whose probe has no weights have no direction and are passed over.
        direction: ``logistic``: the probe's unit weight. ``mass_mean``: difference of the class
            means. ``pca``: first principal component, turned towards the class. ``lda``: difference
            of the means, whitened by the classes' common covariance, shrunk after Ledoit and Wolf.
            ``multinomial:oNpM``: weight of that class of GridToM's four-way probe. ``random``:
            random unit directions in the same heads. ``random_heads``: directions of the same kind
            in K heads drawn from all but the steered ones. Of both the i-th head's step is as long
            as that of the i-th head of ``norm_matched_to``.
        label: ranks heads and gives directions; the run's first by default.
        positions: where it will be applied.
        towards: value of the label to steer towards; of two values the second (true) by default.
        rank_by: ``probe_accuracy``, or ``patching``: the normalised effect on validation pairs.
        norm_matched_to: the vector that random directions and heads control; by default the
            logistic one.

    Raises:
        SteeringError: an unknown direction, label or value, heads without a direction, or a run
            whose heads were not patched.
        ProbingError: K without so many usable heads.
        RunFolderError, StoreError: not a finished run, or its files are damaged.
    """
    if direction not in DIRECTIONS:
        raise SteeringError(
            f"unknown direction {direction!r}: choose one of {', '.join(DIRECTIONS)}"
        )
    run = run if isinstance(run, Run) else Run.open(run)
    label = label or next(iter(run.labels), "")
    if label not in run.labels:
        raise SteeringError(f"unknown label {label!r}: choose one of {', '.join(run.labels)}")
    probes, samples = run.probes, run.samples
    train = ((samples["split"] == "train") & samples[label].notna()).to_numpy()
    values = samples[label].to_numpy()[train].tolist()
    place, target = _class(label, sorted(set(values)), towards)
    inside = np.array([value == target for value in values])
    coef = towards_class(_weights(run, label), place)
    ranked = _ranked(run, label, rank_by)
    chosen = best_heads(ranked, coef, k)
    rng = np.random.default_rng(seed)
    facts = _provenance(run, label) | ({} if rank_by == "probe_accuracy" else {"rank_by": rank_by})
    if towards is not None:
        facts["towards"] = target
    kind = direction
    if direction in CONTROLS:
        norm_matched_to = norm_matched_to or fit_vector(
            run, k, alpha, "logistic", label, positions, towards=towards, rank_by=rank_by
        )
        facts |= {"seed": seed, "norm_matched_to": norm_matched_to.direction}
        if direction == "random":
            theta = torch.from_numpy(rng.standard_normal(tuple(norm_matched_to.theta.shape)))
            theta /= theta.norm(dim=1, keepdim=True)
            return replace(
                norm_matched_to, theta=theta, alpha=alpha, direction=direction, fitted=facts
            )
        kind = norm_matched_to.direction
        chosen = _others(ranked, coef, norm_matched_to.heads, rng)
    if name := _CLASS.fullmatch(kind):
        number = 2 * int(name[1]) + int(name[2])
        at = np.flatnonzero(probes.get("op.classes", np.empty(0)) == number)
        if not len(at):
            raise SteeringError(f"{kind}: training has no sample of that class")
        coef = _weights(run, "op")[:, :, at[0]]
    x = _activations(run, chosen, train)
    found = [direction_of(kind, x[:, i], inside, coef[at]) for i, at in enumerate(chosen)]
    vector = vector_on(
        chosen,
        x,
        found,
        coef.shape[:2],
        alpha=alpha,
        direction=direction,
        site=run.config.get("site", run.store.meta.site),
        positions=positions,
        fitted=facts,
    )
    if direction in CONTROLS:
        assert norm_matched_to is not None
        return replace(vector, sigma=norm_matched_to.sigma)
    return vector


def _ranked(run: Run, label: str, by: RankBy) -> list[Head]:
    """All heads, best first."""
    table = run.ranked(label)
    if by == "patching":
        require_patching(run)
        table = table.sort_values(PATCHED, ascending=False, kind="stable")
    return [Head(int(row.layer), int(row.head)) for row in table.itertuples()]


def require_patching(run: Run) -> None:
    """SteeringError, which says what to do, for a run that does not say what each head carries."""
    if PATCHED not in run.heads or run.heads[PATCHED].isna().any():
        raise SteeringError(
            f"{run.folder / HEADS} does not say what each head carries (column {PATCHED}): run "
            f"`sally-anne patch {run.folder}` first, or rank heads by --rank-by probe_accuracy"
        )


def _others(
    ranked: Sequence[Head],
    coef: np.ndarray,
    steered: Sequence[Head],
    rng: np.random.Generator,
) -> list[Head]:
    """As many heads that are not steered, so that none of those is its own control."""
    # Sorted: the same draw whatever the ranking of heads that are not steered.
    k, others = len(steered), sorted(h for h in ranked if coef[h].any() and h not in steered)
    if k > len(others):
        raise SteeringError(
            f"K = {k}: besides the best {k}, only {len(others)} of {len(ranked)} heads have a "
            "probe with weights, too few for random heads; lower K, or leave this control out (in "
            "a sweep with --no-controls)"
        )
    return [others[i] for i in rng.permutation(len(others))[:k]]


def direction_of(kind: str, x: np.ndarray, inside: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Direction ``[D]`` of one head, of whose activations ``x [N, D]`` some are ``inside [N]``."""
    if kind == "lda":
        found = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(x, inside)
        return np.asarray(found.coef_[0])
    if kind not in ("mass_mean", "pca"):
        return weights
    between = x[inside].mean(axis=0) - x[~inside].mean(axis=0)
    if kind == "mass_mean":
        return np.asarray(between)
    first = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)[2][0]
    return -first if between @ first < 0 else first


def _class(label: str, values: list[Any], towards: str | None) -> tuple[int, Any]:
    """Which of a label's values a vector leads to: its place among them, and the value."""
    if towards is None:
        if len(values) != 2:
            raise SteeringError(
                f"label {label!r} has {len(values)} values: say with --towards which one to steer "
                f"towards: {', '.join(map(str, values))}"
            )
        return 1, values[1]
    for place, value in enumerate(values):
        if str(value) == towards:
            return place, value
    raise SteeringError(
        f"label {label!r} has no value {towards!r}: choose one of {', '.join(map(str, values))}"
    )


def _weights(run: Run, label: str) -> np.ndarray:
    """Weights ``[L, H, D]`` of a label's probes, or ``[L, H, C, D]`` of one with C > 2 values."""
    name = f"{label}.coef"
    if name not in run.probes:
        raise SteeringError(f"{run.folder / PROBES} has no probes of {label!r}")
    return run.probes[name]


def _activations(run: Run, heads: list[Head], rows: np.ndarray) -> np.ndarray:
    """Training activations of the chosen heads ``[N, K, D]``, a layer read at a time."""
    out: list[np.ndarray] = [np.empty(0)] * len(heads)
    for layer in sorted({layer for layer, _ in heads}):
        block = run.activations([layer])[rows, 0].astype(np.float64)
        for i, (at, head) in enumerate(heads):
            if at == layer:
                out[i] = block[:, head]
    return np.stack(out, axis=1)


def _provenance(run: Run, label: str) -> dict[str, Any]:
    """What the vector was fitted on; enough to fit it again."""
    try:
        model, data = run.saved["model"], run.saved["data"]
        facts: dict[str, Any] = {"model": model["source"]}
        facts |= {name: model[name] for name in _MODEL if name in model or name in _REQUIRED}
        facts |= {SEEN: run.saved[SEEN]} if SEEN in run.saved else {}
        facts |= {
            "data": data["source"],
            "data_hash": data["fingerprint"],
            "split": "heads by validation stories, directions and sigma from training stories",
            "label": label,
        }
        facts |= {name: run.config[name] for name in _OPTIONS}
    except KeyError as error:
        raise SteeringError(
            f"{run.folder}: config.json is damaged (no {error}); run `sally-anne probe` again"
        ) from error
    own = {name: run.config.get(name) for name in ("samples", "task")}
    return facts | {name: value for name, value in own.items() if value not in (None, "gridtom")}


def run(config: VectorConfig) -> None:
    """Make and save a vector."""
    if config.gate is not None and config.positions not in (None, "last_prompt"):
        raise SteeringError(
            "--gate reads a question's last token, so its vector acts there alone: leave out "
            f"--positions {config.positions}, or the gate"
        )
    sweep = None if config.sweep is None else read_sweep(config.sweep)
    config = settled(config, sweep)
    require_own(config.folder, "a steering vector", "vector.safetensors")
    names = ("run", "k", "alpha", "direction", "label", "positions", "seed", "towards", "rank_by")
    options = {name: getattr(config, name) for name in names}
    vector = fit_vector(**{name: value for name, value in options.items() if value is not None})
    if sweep is not None:
        _check_same(config, sweep["about"]["fitted"], json.loads(json.dumps(dict(vector.fitted))))
        # The sweep chose K and alpha on its own validation stories.
        if sweep.get(SEEN):
            vector = replace(vector, fitted={**vector.fitted, SEEN: sweep[SEEN]})
    console = Console()
    if config.gate is not None:
        assert config.run is not None
        vector = gated(vector, config.run, config.gate, console)
    folder = vector.save(config.folder)
    console.print(f"the vector is in {escape(str(folder))}", soft_wrap=True)


def read_sweep(folder: Path) -> dict[str, Any]:
    """``results.json`` of a finished sweep."""
    parts = {
        "config": ("direction", "label", "towards"),
        "about": ("fitted",),
        "chosen": ("k", "alpha", "rank_by"),
    }
    return read_object(folder / RESULTS, SteeringError, "sally-anne sweep", parts)


def settled(config: VectorConfig, sweep: dict[str, Any] | None) -> VectorConfig:
    """The options with run, label, K and alpha, as far as they are left out, from a sweep."""
    if sweep is None:
        if config.run is None:
            raise SteeringError("give a finished sweep with --sweep, or a probing run with --run")
        missing = [o for o, v in (("--K", config.k), ("--alpha", config.alpha)) if v is None]
        if missing:
            raise SteeringError(
                f"{' and '.join(missing)}: no number fits every model; {_to_choose(config)}"
            )
        # The folder that is made by default bears the label's name; a given one is claimed first.
        if config.label is None and config.out is None:
            return replace(config, label=next(iter(Run.open(config.run).labels), None))
        return config
    chosen = sweep["chosen"]
    swept = {name: sweep["config"][name] for name in ("direction", "label", "towards")}
    swept["rank_by"] = chosen["rank_by"]
    for option, value in swept.items():
        own = getattr(config, option)
        if None not in (own, value) and own != value:
            raise SteeringError(
                f"--sweep {config.sweep} chose --{option.replace('_', '-')} {value}, not {own}: "
                "give it here too, or another sweep"
            )
    return replace(
        config,
        run=Path(config.run or sweep["run"]),
        label=swept["label"],
        towards=swept["towards"] or config.towards,
        rank_by=swept["rank_by"],
        k=int(chosen["k"]) if config.k is None else config.k,
        alpha=float(chosen["alpha"]) if config.alpha is None else config.alpha,
    )


def _to_choose(config: VectorConfig) -> str:
    """How K and alpha are chosen for a run: the commands of a sweep and of its vector."""
    assert config.run is not None
    probing = Run.open(config.run).config
    task = "FILE" if probing.get("samples") else probing.get("task", "gridtom")
    if task != "gridtom":
        return f"compare vectors of several by `sally-anne evaluate --task {task} --steer`"
    names = (*ModelOptions.__dataclass_fields__, "setting", "data", "split_seed", "data_seed")
    options = {name: probing[name] for name in names if name in probing}
    if options.get("data") is not None:
        options["data"] = Path(options["data"])
    sweep = SweepConfig(
        run=config.run,
        order="2" if probing.get("order") == 2 else "1",
        direction=config.direction,
        label=config.label or SweepConfig.label,
        towards=config.towards,
        rank_by=(config.rank_by or "probe_accuracy",),
        **options,
    )
    first = command_line("sally-anne sweep", sweep)
    second = command_line("sally-anne steer", replace(config, sweep=sweep.folder, run=None))
    return f"let a sweep choose. Run\n  {first}\n  {second}"


def _check_same(config: VectorConfig, swept: dict[str, Any], own: dict[str, Any]) -> None:
    """That the sweep steered by the same run; what only one of them knows is not compared."""
    # Random directions and heads may differ.
    for name in own.keys() & swept.keys() - {"seed", SEEN, ALLOW_MISMATCH}:
        if swept[name] != own[name]:
            raise SteeringError(
                f"--sweep {config.sweep} was of another probing run than {config.run}: {name} is "
                f"{swept[name]!r} there, {own[name]!r} here"
            )
