"""Steering vectors from a finished probing run (GridToM paper, sections 4.3 and 4.4).

Heads by validation accuracy, directions and sigma from the training samples: no test sample enters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from sally_anne.core.errors import SteeringError
from sally_anne.core.head import Head
from sally_anne.core.run import HEADS, PROBES, Run
from sally_anne.data.lineage import SEEN
from sally_anne.hooks.vector import SteeringVector
from sally_anne.probing.directions import best_heads, towards_class, vector_on
from sally_anne.steering.sweep import Direction, Heads

CONTROLS = ("random", "random_heads")
# What a head carries of the belief question's answer between validation twins.
CAUSE = "question_effect_validation"
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
    heads: Heads = "probe",
    like: SteeringVector | None = None,
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
            as that of the i-th head of ``like``.
        label: ranks heads and gives directions; the run's first by default.
        positions: where it will be applied.
        towards: value of the label to steer towards; of two values the second (true) by default.
        heads: ``probe``, or ``cause``: best are those that carry most of the answer between
            validation twins, whatever their probes say.
        like: the vector that random directions and heads control; by default the logistic one.

    Raises:
        SteeringError: an unknown direction, label or value, heads without a direction, or a run
            whose heads were not ranked by cause.
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
    ranked = _ranked(run, label, heads)
    chosen = best_heads(ranked, coef, k)
    rng = np.random.default_rng(seed)
    facts = _provenance(run, label) | ({} if heads == "probe" else {"heads_by": heads})
    if towards is not None:
        facts["towards"] = target
    kind = direction
    if direction in CONTROLS:
        like = like or fit_vector(
            run, k, alpha, "logistic", label, positions, towards=towards, heads=heads
        )
        facts |= {"seed": seed, "step_as": like.direction}
        if direction == "random":
            theta = torch.from_numpy(rng.standard_normal(tuple(like.theta.shape)))
            theta /= theta.norm(dim=1, keepdim=True)
            return replace(like, theta=theta, alpha=alpha, direction=direction, fitted=facts)
        kind = like.direction
        chosen = _others(ranked, coef, like.heads, rng)
    if cell := _CELL.fullmatch(kind):
        number = 2 * int(cell[1]) + int(cell[2])
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
        assert like is not None
        return replace(vector, sigma=like.sigma)
    return vector


def _ranked(run: Run, label: str, by: Heads) -> list[Head]:
    """All heads, best first."""
    table = run.ranked(label)
    if by == "cause":
        require_patching(run)
        table = table.sort_values(CAUSE, ascending=False, kind="stable")
    return [Head(int(row.layer), int(row.head)) for row in table.itertuples()]


def require_patching(run: Run) -> None:
    """SteeringError, which says what to do, for a run that does not say what each head carries."""
    if CAUSE not in run.heads or run.heads[CAUSE].isna().any():
        raise SteeringError(
            f"{run.folder / HEADS} does not say what each head carries (column {CAUSE}): run "
            f"`sally-anne patch {run.folder}` first, or rank heads by --heads probe"
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
            f"K = {k}: beside the best {k}, only {len(others)} of {len(ranked)} heads have a probe "
            "with weights, too few for random heads; lower K, or leave this control out (in a "
            "sweep with --no-controls)"
        )
    return [others[i] for i in rng.permutation(len(others))[:k]]


def direction_of(kind: str, x: np.ndarray, inside: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Direction ``[D]`` of one head, of whose activations ``x [N, D]`` some are ``inside [N]``."""
    if kind == "lda":
        from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

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
