"""Steering vectors from a finished probing run (GridToM paper, sections 4.3 and 4.4).

Heads by validation accuracy, directions and sigma from the training samples: no test sample enters.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from hooks.saved_run import AGAIN, CONFIG, PROBES, Run
from hooks.vector import SteeringVector
from probing.probes import best_heads, spread
from sally_anne.benchmarks.lineage import SEEN
from sally_anne.core.errors import SteeringError
from steering.config import Direction

DIRECTIONS: tuple[str, ...] = get_args(Direction)
_CELL = re.compile(r"multinomial:o([01])p([01])")
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
) -> SteeringVector:
    """Make a vector from a run folder of ``sally-anne probe``.

    Args:
        run: the run folder; opened once, if many vectors are made.
        k: number of heads: the best by validation accuracy on the label, ties by log-loss. Heads
            whose probe has no weights have no direction and are passed over.
        alpha: strength.
        direction: ``logistic``: the probe's unit weight. ``mass_mean``: difference of the class
            means. ``pca``: first principal component, turned towards the class.
            ``multinomial:oNpM``: weight of that class of GridToM's four-way probe. ``random``:
            random unit directions in the same heads. ``random_heads``: the logistic directions of K
            heads drawn from all but the best K, so that none of the steered heads is its own
            control.
        label: ranks heads and gives directions; the run's first by default.
        positions: where it will be applied.
        seed: of random directions and heads.
        towards: value of the label to steer towards; of two values the second (true) by default.

    Returns:
        The vector; sigma is the standard deviation of the training activations along theta.

    Raises:
        SteeringError: an unknown direction, label or value, or heads without a direction.
        ProbingError: K without so many usable heads.
        RunFolderError, StoreError, AlteredError: not a finished run, or its files are damaged.
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
    coef = _weights(run, label)
    if coef.ndim == 4:
        coef = coef[:, :, place]
    elif place == 0:
        coef = -coef
    ranked = [(int(row.layer), int(row.head)) for row in run.ranked(label).itertuples()]
    chosen = best_heads(ranked, coef, k)
    rng = np.random.default_rng(seed)
    if direction == "random_heads":
        others = [head for head in ranked if coef[head].any()][k:]
        if k > len(others):
            raise SteeringError(
                f"K = {k}: beside the best {k}, only {len(others)} of {len(ranked)} heads have a "
                "probe with weights, too few for random heads; lower K, or leave this control out "
                "(in a sweep with --no-controls)"
            )
        chosen = [others[i] for i in rng.permutation(len(others))[:k]]
    if cell := _CELL.fullmatch(direction):
        number = 2 * int(cell[1]) + int(cell[2])
        at = np.flatnonzero(probes.get("op.classes", np.empty(0)) == number)
        if not len(at):
            raise SteeringError(f"{direction}: training has no sample of that class")
        coef = _weights(run, "op")[:, :, at[0]]
    x = _activations(run, chosen, train)
    theta = np.empty((k, x.shape[2]))
    for i, head in enumerate(chosen):
        found = _direction(direction, x[:, i], inside, coef[head], rng)
        norm = np.linalg.norm(found)
        if not norm > 0:
            raise SteeringError(
                f"{direction} has no direction at layer {head[0]} head {head[1]}; lower K"
            )
        theta[i] = found / norm
    facts = _provenance(run, label)
    if towards is not None:
        facts["towards"] = target
    if direction.startswith("random"):
        facts["seed"] = seed
    return SteeringVector(
        heads=tuple(chosen),
        theta=torch.from_numpy(theta),
        sigma=torch.from_numpy(spread(x, theta)),
        n_layers=coef.shape[0],
        n_heads=coef.shape[1],
        alpha=alpha,
        direction=direction,
        site=run.config.get("site", run.store.meta.site),
        positions=positions,
        fitted=facts,
    )


def _direction(
    kind: str, x: np.ndarray, inside: np.ndarray, weights: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Direction ``[D]`` of one head.

    Args:
        kind: of :data:`steering.config.Direction`.
        x: training activations ``[N, D]``.
        inside: which of them are of the class to steer towards ``[N]``.
        weights: the probe's ``[D]``.
        rng: of random directions.
    """
    if kind == "random":
        return np.asarray(rng.standard_normal(x.shape[1]))
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


def _activations(run: Run, heads: list[tuple[int, int]], rows: np.ndarray) -> np.ndarray:
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
            f"{run.folder / CONFIG} is damaged (no {error}). {AGAIN.format(run.folder)}"
        ) from error
    own = {name: run.config.get(name) for name in ("samples", "task")}
    return facts | {name: value for name, value in own.items() if value not in (None, "gridtom")}
