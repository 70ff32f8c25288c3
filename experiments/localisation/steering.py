"""Steering where the heads are known: how far answers move, and at what price.

At a set of heads, `alpha * sigma * theta` is added at the last token, towards what the other of a
story says; theta is fitted on other stories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sally_anne.core.run import Head
from sally_anne.data.pairs import ContrastPair
from sally_anne.experiments.localisation.localisers import PairStats, train_part
from sally_anne.experiments.localisation.planted import GroundTruth
from sally_anne.hooks.edit import Edit
from sally_anne.hooks.positions import ALL
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.decoding import read_side_by_side
from sally_anne.models.loading import LoadedModel
from sally_anne.probing.interchange import Prompts, read_pair
from sally_anne.probing.probes import HeadProbes, vector_on
from sally_anne.steering.fit import direction_of

ALPHAS = (0.5, 1.0, 2.0, 4.0)
DIRECTIONS = ("logistic", "mass_mean", "lda", "pca")
# Variants of one token that are read at once.
_COLUMNS = 64


def vectors_at(heads: Sequence[Head], seen: PairStats) -> dict[str, SteeringVector]:
    """Vectors from the second version to the first, on heads that differ, by each direction."""
    part = train_part(len(seen.outputs))
    x = seen.outputs[:part].reshape(-1, *seen.outputs.shape[2:]).astype(np.float64)
    inside = np.tile([True, False], part)
    weights = HeadProbes().fit(x, inside).coef_
    at = np.stack([x[:, layer, head] for layer, head in heads], axis=1)
    found = {}
    for kind in DIRECTIONS:
        own = [direction_of(kind, at[:, i], inside, weights[h]) for i, h in enumerate(heads)]
        # A head that says the same in both versions, as those of layer 0 do, has no direction.
        alike = torch.tensor([not np.any(one) for one in own])
        own = [one if np.any(one) else np.eye(len(one))[0] for one in own]
        vector = vector_on(heads, at, own, x.shape[1:3], kind)
        found[kind] = replace(vector, sigma=vector.sigma.masked_fill(alike, 0.0))
    return found


def turned_at_random(vector: SteeringVector, draws: int, seed: int) -> list[SteeringVector]:
    """The same steps at the same heads in random directions: norm-matched controls."""
    made = []
    for i in range(draws):
        generator = torch.Generator().manual_seed(seed * 1_000 + i)
        theta = torch.randn(vector.theta.shape, generator=generator, dtype=torch.float64)
        theta /= theta.norm(dim=1, keepdim=True)
        made.append(replace(vector, theta=theta, direction="random"))
    return made


def _logits(reading: Prompts, deltas: Tensor) -> tuple[Tensor, Tensor]:
    """Logits ``[C, V]`` with each of ``deltas [C, L, H, D]`` added, and the answers' difference."""
    at = reading.loaded, reading.state, reading.rows, reading.tokens
    found = []
    for part in deltas.split(_COLUMNS):
        with torch.no_grad(), Edit(reading.loaded.model, part[None], positions=ALL):
            found.append(read_side_by_side(*at, len(part))[0])
    logits, ((first,), (second,)) = torch.cat(found).double(), reading.words
    return logits, logits[:, first] - logits[:, second]


def steered(
    loaded: LoadedModel,
    contrast_pairs: Sequence[ContrastPair],
    questions: Sequence[ContrastPair],
    vectors: Sequence[SteeringVector],
    alphas: Sequence[float] = ALPHAS,
) -> dict[str, np.ndarray]:
    """What each of V vectors at each of A strengths does to answers: ``[V, A]`` each.

    ``moved``: share of right belief answers that become the counterpart's; ``kept``: of right side
    answers that stay; ``kl``: mean divergence of the side questions' next token, in nats.
    """
    ups = torch.stack([vector.delta(alpha) for vector in vectors for alpha in alphas])
    parts: dict[str, list[Tensor]] = {"moved": [], "kept": [], "kl": []}
    for pair in contrast_pairs:
        for reading, sign in zip(read_pair(loaded, pair, True), (1, -1), strict=True):
            if sign * reading.logit_diff > 0:
                parts["moved"].append(sign * _logits(reading, -sign * ups)[1] < 0)
    both = torch.cat([torch.zeros_like(ups[:1]), ups, -ups])
    for reading in (prompt for pair in questions for prompt in read_pair(loaded, pair, True)):
        logits, gaps = _logits(reading, both)
        said = logits.log_softmax(-1)
        far = (said[0].exp() * (said[0] - said[1:])).sum(-1)
        parts["kl"].append(far.view(2, -1).mean(0))
        if gaps[0] > 0:
            parts["kept"].append((gaps[1:] > 0).double().view(2, -1).mean(0))
    shape, nothing = (len(vectors), len(alphas)), torch.full((1, len(ups)), torch.nan)
    return {
        name: (torch.stack(found) if found else nothing).double().mean(0).view(shape).numpy()
        for name, found in parts.items()
    }


def true_directions(heads: Sequence[Head], seen: PairStats) -> np.ndarray:
    """What exchanging planted heads adds, on stories that vectors are not fitted on: ``[K, D]``."""
    part = train_part(len(seen.outputs))
    far = (seen.outputs[part:, 0] - seen.outputs[part:, 1]).mean(0)
    found = np.stack([far[head] for head in heads])
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def steering_rows(
    loaded: LoadedModel,
    truth: GroundTruth,
    seen: PairStats,
    best: Mapping[str, Sequence[Head]],
    contrast_pairs: Sequence[ContrastPair],
    questions: Sequence[ContrastPair],
    draws: int = 20,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Rows of all sets of heads, directions and strengths on one model.

    Vectors are fitted on what localisers have ``seen``, and steer other stories. At planted heads
    ``cosine`` is of theta with :func:`true_directions`, and ``rank`` of ``moved`` among random
    directions (1 is best; ties count against it).
    """
    sets = {"planted": truth.heads} | ({"decoys": truth.slots} if truth.decoys else {}) | {**best}
    named = [
        (name, kind, vector)
        for name, heads in sets.items()
        for kind, vector in vectors_at(heads[: len(truth.heads)], seen).items()
    ]
    planted = {kind: vector for name, kind, vector in named if name == "planted"}
    named += [
        ("planted", f"random, as {kind}", turned)
        for kind, vector in planted.items()
        for turned in turned_at_random(vector, draws, seed)
    ]
    found = steered(loaded, contrast_pairs, questions, [vector for *_, vector in named])
    keys = ["heads", "direction", "alpha"]
    cells = [(name, kind, alpha) for name, kind, _ in named for alpha in ALPHAS]
    table = pd.DataFrame(cells, columns=keys).assign(**{n: v.ravel() for n, v in found.items()})
    true = true_directions(truth.heads, seen)
    rows = table.groupby(keys, sort=False, as_index=False).mean().to_dict("records")
    for row in rows:
        if row["heads"] == "planted" and (vector := planted.get(row["direction"])):
            same = (f"random, as {row['direction']}", row["alpha"])
            drawn = table[(table[keys[1:]] == same).all(axis=1)]
            row["cosine"] = float((vector.theta.numpy() * true).sum(1).mean())
            row |= {"rank": 1 + int((drawn["moved"] >= row["moved"]).sum()), "of": 1 + draws}
    return [{str(name): value for name, value in row.items()} for row in rows]
