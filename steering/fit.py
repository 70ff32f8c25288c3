"""Steering vectors from a finished probing run (GridToM paper, sections 4.3 and 4.4).

Heads by validation accuracy, directions and sigma from the training stories: no test story enters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import torch

from hooks.saved_run import AGAIN, CONFIG, HEADS, MANIFEST, Run
from hooks.store import ActivationStore
from hooks.vector import SteeringVector
from sally_anne.benchmarks.lineage import SEEN
from sally_anne.core.errors import SteeringError
from sally_anne.core.files import intact, read_object, require_sealed
from steering.config import Direction, Label

LABELS = ("y_p", "y_o")
DIRECTIONS: tuple[str, ...] = get_args(Direction)
_CELL = re.compile(r"multinomial:o([01])p([01])")
_KEPT = ("order", "contrast", "setting", "stories", "c", "max_iter", "split_seed", "data_seed")


@dataclass(frozen=True)
class FinishedRun:
    """A run folder of ``python -m probing.run`` whose files were checked against their checksums.

    Attributes:
        folder: the run folder.
        saved: what ``config.json`` holds.
        heads: the table of heads.
        probes: as of `hooks.saved_run.Run.probes`.
        store: the activations.
    """

    folder: Path
    saved: dict[str, Any]
    heads: pd.DataFrame
    probes: dict[str, np.ndarray]
    store: ActivationStore

    @classmethod
    def open(cls, folder: Path | str) -> FinishedRun:
        """Open a run folder.

        Raises:
            SteeringError: not a finished run.
            RunFolderError, StoreError, AlteredError: the run's files are damaged.
        """
        folder = Path(folder)
        saved = read_config(folder)
        run = Run.open(folder)
        heads, probes = run.heads, run.probes
        store = ActivationStore.open(folder / "activations")
        intact(folder, MANIFEST, saved, AGAIN.format(folder))
        return cls(folder, saved, heads, probes, store)

    def ranked(self, label: Label) -> pd.DataFrame:
        """The table of heads, best first for this label.

        Raises:
            SteeringError: it lacks a column.
        """
        try:
            return self.heads.sort_values(f"{label}_rank")[["layer", "head"]]
        except KeyError as error:
            raise SteeringError(
                f"{self.folder / HEADS} is damaged (no column {error}). {AGAIN.format(self.folder)}"
            ) from error


def fit_vector(
    run: Path | str | FinishedRun,
    k: int,
    alpha: float = 1.0,
    direction: str = "logistic",
    label: Label = "y_p",
    positions: str = "last_prompt+generated",
    seed: int = 0,
) -> SteeringVector:
    """Make a vector from a run folder of ``python -m probing.run``.

    Args:
        run: the run folder; opened once, if many vectors are made.
        k: number of heads: the best by validation accuracy on ``label``, ties by log-loss. Heads
            whose probe has no weights have no direction and are passed over.
        alpha: strength.
        direction: ``logistic``: the probe's unit weight. ``mass_mean``: difference of the class
            means. ``pca``: first principal component, turned towards the true class.
            ``multinomial:oNpM``: weight of that class of the four-way probe. ``random``: random
            unit directions in the same heads. ``random_heads``: the logistic directions of K heads
            drawn from all but the best K, so that none of the steered heads is its own control.
        label: whose perspective ranks heads and gives directions.
        positions: where it will be applied.
        seed: of random directions and heads.

    Returns:
        The vector; sigma is the standard deviation of the training activations along theta.

    Raises:
        SteeringError: not a finished run, an unknown direction or label, or K without so many
            usable heads.
        RunFolderError, StoreError, AlteredError: the run's files are damaged.
    """
    if direction not in DIRECTIONS:
        raise SteeringError(
            f"unknown direction {direction!r}: choose one of {', '.join(DIRECTIONS)}"
        )
    if label not in LABELS:
        raise SteeringError(f"unknown label {label!r}: choose one of {', '.join(LABELS)}")
    run = run if isinstance(run, FinishedRun) else FinishedRun.open(run)
    table, probes, store = run.ranked(label), run.probes, run.store
    coef = probes[f"{label}.coef"]
    n_layers, n_heads, _ = coef.shape
    if not 1 <= k <= n_layers * n_heads:
        raise SteeringError(
            f"K = {k}: the model has {n_layers} x {n_heads} = {n_layers * n_heads} heads"
        )
    ranked = [
        (int(row.layer), int(row.head))
        for row in table.itertuples()
        if np.any(coef[row.layer, row.head])
    ]
    if k > len(ranked):
        raise SteeringError(
            f"K = {k}: only {len(ranked)} of {n_layers * n_heads} heads have a probe with weights, "
            "and thus a direction"
        )
    rng = np.random.default_rng(seed)
    if direction == "random_heads":
        others = ranked[k:]
        if k > len(others):
            raise SteeringError(
                f"K = {k}: beside the best {k}, only {len(others)} of {n_layers * n_heads} heads "
                "have a probe with weights, too few for random heads; lower K, or leave this "
                "control out (in a sweep with --no-controls)"
            )
        chosen = [others[i] for i in rng.permutation(len(others))[:k]]
    else:
        chosen = ranked[:k]
    train = (store.items["split"] == "train").to_numpy()
    x = _activations(store, chosen, train)
    labels = store.items[label].to_numpy(bool)[train]
    theta = np.stack(
        [
            _direction(direction, x[:, i], labels, probes, label, head, rng)
            for i, head in enumerate(chosen)
        ]
    )
    sigma = np.einsum("nkd,kd->nk", x, theta).std(axis=0)
    return SteeringVector(
        heads=tuple(chosen),
        theta=torch.from_numpy(theta),
        sigma=torch.from_numpy(sigma),
        n_layers=n_layers,
        n_heads=n_heads,
        alpha=alpha,
        direction=direction,
        site=run.saved["config"]["site"],
        positions=positions,
        fitted=_provenance(run.saved, label, direction, seed),
    )


def _direction(
    kind: str,
    x: np.ndarray,
    labels: np.ndarray,
    probes: dict[str, np.ndarray],
    label: Label,
    head: tuple[int, int],
    rng: np.random.Generator,
) -> np.ndarray:
    """Unit direction ``[D]`` of one head, from its training activations ``x [N, D]``."""
    layer, number = head
    if kind in ("logistic", "random_heads"):
        found = probes[f"{label}.coef"][layer, number]
    elif kind == "random":
        found = rng.standard_normal(x.shape[1])
    elif kind == "mass_mean":
        found = x[labels].mean(axis=0) - x[~labels].mean(axis=0)
    elif kind == "pca":
        centred = x - x.mean(axis=0)
        found = np.linalg.svd(centred, full_matrices=False)[2][0]
        if (x[labels].mean(axis=0) - x[~labels].mean(axis=0)) @ found < 0:
            found = -found
    elif cell := _CELL.fullmatch(kind):
        wanted = 2 * int(cell[1]) + int(cell[2])
        rows = np.flatnonzero(probes["op.classes"] == wanted)
        if not len(rows):
            raise SteeringError(f"{kind}: the run's training stories have no sample of that class")
        found = probes["op.coef"][layer, number, rows[0]]
    else:
        raise SteeringError(f"unknown direction {kind!r}")
    norm = np.linalg.norm(found)
    if not norm > 0:
        raise SteeringError(f"{kind} has no direction at layer {layer} head {number}; lower K")
    return np.asarray(found / norm, dtype=np.float64)


def _activations(
    store: ActivationStore, heads: list[tuple[int, int]], rows: np.ndarray
) -> np.ndarray:
    """Training activations of the chosen heads ``[N, K, D]``, a layer read at a time."""
    out: list[np.ndarray] = [np.empty(0)] * len(heads)
    for layer in sorted({layer for layer, _ in heads}):
        block = store.read(layers=[layer]).float().numpy()[rows, 0].astype(np.float64)
        for i, (at, head) in enumerate(heads):
            if at == layer:
                out[i] = block[:, head]
    return np.stack(out, axis=1)


def read_config(run: Path) -> dict[str, Any]:
    """What a finished probing run says of itself: ``config``, ``model`` and ``data``.

    Raises:
        SteeringError: it is not finished, or the file is damaged.
    """
    path = run / CONFIG
    parts = {
        "config": ("site", *_KEPT),
        "model": ("source", "revision", "dtype"),
        "data": ("source", "fingerprint"),
    }
    saved = read_object(path, SteeringError, f"python -m probing.run --out {run}", parts)
    require_sealed(path, saved, AGAIN.format(run))
    return saved


def _provenance(saved: dict[str, Any], label: Label, direction: str, seed: int) -> dict[str, Any]:
    """What the vector was fitted on; enough to fit it again."""
    config = saved["config"]
    facts: dict[str, Any] = {"model": saved["model"]["source"]}
    # Runs of earlier versions lack some of these.
    known = ("revision", "model_type", "dtype", "quantization", "fingerprint")
    facts |= {name: saved["model"][name] for name in known if name in saved["model"]}
    facts |= {SEEN: saved[SEEN]} if SEEN in saved else {}
    facts |= {
        "data": saved["data"]["source"],
        "data_hash": saved["data"]["fingerprint"],
        "split": "heads by validation stories, directions and sigma from training stories",
        "label": label,
    }
    facts |= {name: config[name] for name in _KEPT}
    if direction.startswith("random"):
        facts["seed"] = seed
    return facts
