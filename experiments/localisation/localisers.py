"""Localisers: what gives every head a score, from a model and pairs.

A localiser of your own is a function of a model and pairs that returns scores ``[L, H]``, higher
for heads that matter more:

    def my_localiser(loaded: LoadedModel, contrast_pairs: Sequence[ContrastPair]) -> np.ndarray: ...

Its null is what it gives where some pairs are turned: their samples change places and their answers
do not.
"""

from __future__ import annotations

import os
import pkgutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from sally_anne.core.errors import OptionError, ProbingError
from sally_anne.core.run import LEVEL
from sally_anne.data.pairs import ContrastPair
from sally_anne.hooks.geometry import find_geometry
from sally_anne.models.loading import LoadedModel
from sally_anne.probing.interchange import Effects, effects_of, outputs_of
from sally_anne.probing.probes import HeadProbes
from sally_anne.probing.solver import PermutationTest

Scores = Callable[[LoadedModel, Sequence[ContrastPair]], np.ndarray]
NAMES = ("probe", "probe_answer", "patching", "attribution", "ablation", "direct", "random")
# Of these that are means over pairs, the part of :class:`probing.interchange.Effects`.
CAUSAL = dict(patching="effect", attribution="attribution", ablation="ablate", direct="dla")
# True belief, false belief: the labels of a pair's inputs.
VERSIONS = np.array([True, False])


@dataclass(frozen=True)
class PairStats:
    """What built-in localisers look at: outputs ``[N, 2, L, H, D]``, effects of the first pairs."""

    effects: Effects
    outputs: np.ndarray
    answers: np.ndarray


def collect(loaded: LoadedModel, contrast_pairs: Sequence[ContrastPair], pairs: int) -> PairStats:
    """Keep head outputs of all pairs; exchange and ablate every head in the first ``pairs``."""
    geometry = find_geometry(loaded.model)
    none = torch.zeros(0, geometry.n_layers, geometry.n_heads, dtype=torch.bool)
    outputs = np.stack(list(outputs_of(loaded, contrast_pairs, True)))
    mean = torch.from_numpy(outputs.mean((0, 1)))
    found = (effects_of(loaded, [pair], True, none, mean) for pair in contrast_pairs[:pairs])
    answers = np.array([pair.answers for pair in contrast_pairs])
    return PairStats(Effects.joined(found), outputs, answers)


def swap_pairs(contrast_pairs: Sequence[ContrastPair], turned: np.ndarray) -> list[ContrastPair]:
    """Pairs of which those in ``turned``, bool ``[P]``, have their samples the other way round."""
    return [
        replace(pair, samples=pair.samples[::-1]) if turns else pair
        for pair, turns in zip(contrast_pairs, turned, strict=True)
    ]


def random_swaps(pairs: int, draws: int, seed: int) -> np.ndarray:
    """None turned, then R draws in which each pair is turned or not, bool ``[1 + R, N]``."""
    drawn = np.random.default_rng(seed).random((draws, pairs)) < 0.5
    return np.concatenate([np.zeros((1, pairs), dtype=bool), drawn])


def scores_of(name: str, seen: PairStats, turns: np.ndarray, seed: int = 0) -> np.ndarray:
    """What a built-in localiser gives for each row of ``turns``, ``[1 + R, L, H]``."""
    shape = seen.effects.effect.shape
    if name in CAUSAL:
        effect = getattr(seen.effects, CAUSAL[name]).reshape(shape[0], -1)
        signs = np.where(turns[:, : shape[0]], -1.0, 1.0)
        return (signs @ effect / shape[0]).reshape(-1, *shape[1:])
    if name == "random":
        return np.random.default_rng(seed).random((len(turns), *shape[1:]))
    labels = VERSIONS if name == "probe" else seen.answers
    return np.stack([probe_accuracy(seen.outputs, labels, turned) for turned in turns])


def train_part(pairs: int) -> int:
    """Of so many pairs, how many a probe is fitted on."""
    return round(0.6 * pairs)


def probe_accuracy(
    outputs: np.ndarray, labels: np.ndarray = VERSIONS, turned: np.ndarray | bool = False
) -> np.ndarray:
    """Held-out accuracy of heads' probes ``[L, H]``, labels exchanged in the pairs ``turned``."""
    x = outputs.reshape(-1, *outputs.shape[2:])
    turned = np.broadcast_to(turned, len(outputs))[:, None]
    y = np.where(turned, labels[..., ::-1], labels).ravel()
    cut = 2 * train_part(len(outputs))
    return HeadProbes().fit(x[:cut], y[:cut]).score(x[cut:], y[cut:])


def scores_by(
    given: Scores, name: str, loaded: LoadedModel, pairs: Sequence[ContrastPair], turns: np.ndarray
) -> np.ndarray:
    """What a localiser of somebody's own gives for each row of ``turns``, ``[1 + R, L, H]``."""
    geometry = find_geometry(loaded.model)
    shape = geometry.n_layers, geometry.n_heads
    found = [np.array(given(loaded, swap_pairs(pairs, t)), dtype=float) for t in turns]
    for scores in found:
        if scores.shape != shape or not np.isfinite(scores).all():
            raise ProbingError(
                f"localiser {name}: wants finite scores of shape {list(shape)} (layers, heads), "
                f"got {list(scores.shape)}"
            )
    return np.stack(found)


def localiser_named(name: str) -> Scores:
    """A function by ``package.module:NAME``; an OptionError if it cannot be had."""
    try:
        # Modules of the working folder come after all others, so that none stands in their way.
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())
        found = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise OptionError(f"--localiser {name}: {error}") from error
    if not callable(found):
        raise OptionError(f"--localiser {name} is not a function")
    return found


def recall_at(scores: np.ndarray, truth: np.ndarray) -> float:
    """Share of the K* planted heads among the K* best; its expectation where heads tie."""
    flat, planted = scores.ravel(), truth.ravel()
    k = int(planted.sum())
    edge = np.sort(flat)[-k]
    above, level = flat > edge, flat == edge
    room = k - above.sum()
    return float((planted[above].sum() + planted[level].sum() * room / level.sum()) / k)


def score(scores: np.ndarray, null: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """All measures of one localiser on one model; ``null [R, L, H]``, the others as above.

    ``hits`` of the heads claimed at a family-wise 5 % are planted, ``false`` ones are not: of heads
    above what the best of all heads reaches without a cause.
    """
    found = PermutationTest(scores, null).p_fwer <= LEVEL
    return {
        "recall": recall_at(scores, truth),
        "auroc": float(roc_auc_score(truth.ravel(), scores.ravel())),
        "average_precision": float(average_precision_score(truth.ravel(), scores.ravel())),
        "hits": int((found & truth).sum()),
        "false": int((found & ~truth).sum()),
    }
