"""A gate for a steering vector: a probe that opens it at questions of one condition.

It reads one head at the last token of a question, not later than the first layer that is steered.
Probes of a run read statements, so this one is fitted on questions, both of each pair.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from rich.markup import escape
from scipy.special import expit

from sally_anne.core.bootstrap import Estimate, draw_groups, estimate_mean
from sally_anne.core.console import Bars, Console
from sally_anne.core.errors import SteeringError
from sally_anne.core.head import Head
from sally_anne.data.pairs import PairSet
from sally_anne.data.samples import Split
from sally_anne.hooks.edit import Gate
from sally_anne.hooks.positions import LAST_PROMPT
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel
from sally_anne.probing.config import DEFAULT_C, DEFAULT_MAX_ITER
from sally_anne.probing.interchange import read_pair
from sally_anne.probing.probes import Activations, HeadProbes, best_heads
from sally_anne.probing.sources import reopen

# Pairs of test pairs on which a gate is measured.
TEST_PAIRS = 100
OPEN = "open"


@dataclass(frozen=True)
class FittedGate:
    """A gate, its accuracy on validation and test questions, and the number of test clusters."""

    gate: Gate
    validation: float
    test: Estimate
    clusters: int


def gated(vector: SteeringVector, folder: Path, opens_at: str, console: Console) -> SteeringVector:
    """The vector with a gate that is open at questions of one condition; it acts at their end.

    The run's model reads its training and validation questions, and the test questions on which
    the gate is measured. Accuracies are printed, and kept in ``fitted["gate"]``.

    Args:
        folder: of the finished probing run that the vector was fitted on.
        opens_at: the condition, as TB or FB.

    Raises:
        SteeringError: the run's samples have no questions, or none of that condition.
        ProbingError: the samples are not those that the run read, no head is early enough, or none
            has a probe with weights.
        OtherModelError: the model is not the one that was probed.
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
    x = read_questions(opened.model(), pair_set, console)
    found = fit_gate(x, opens_at, min(vector.heads)[0], probing.c, probing.max_iter)
    gate, test = found.gate, found.test
    facts = {
        "opens_at": opens_at,
        "validation_accuracy": found.validation,
        "test_accuracy": test.value,
        "test_interval": [test.low, test.high],
        "test_questions": test.n,
    }
    console.print(
        f"gate: {Head(gate.layer, gate.head)} tells at the last token whether a question is "
        f"{escape(opens_at)}: {test.value:.3f} [{test.low:.3f}, {test.high:.3f}] of {test.n} test "
        f"questions of {found.clusters} {pair_set.clusters} (validation {found.validation:.3f})"
        + ("" if test.low > 0.5 else "; it is not above chance"),
        soft_wrap=True,
    )
    fitted = {**vector.fitted, "gate": facts}
    return replace(vector, gate=gate, positions=LAST_PROMPT, fitted=fitted)


def conditions_of(pair_set: PairSet) -> list[str]:
    """The condition of each sample of each pair, ``2 P``; empty where nothing says it."""
    return [
        sample.tags.get("condition", condition)
        for pair in pair_set.pairs
        for sample, condition in zip(pair.samples, pair_set.conditions, strict=True)
    ]


def read_questions(
    loaded: LoadedModel, pair_set: PairSet, console: Console, pairs: int = TEST_PAIRS
) -> Activations:
    """Head outputs at the last token of questions, ``[N, L, H, D]``, with their ``condition``.

    All that train and validate are read, and at most ``pairs`` for test, from all clusters in turn.
    """
    every = len(pair_set.pairs)
    parts: dict[Split, int] = {"train": every, "validation": every, "test": pairs}
    chosen = [pair for split, most in parts.items() for pair in pair_set.choose(split, most)]
    heads = []
    with Bars(console) as bar:
        for pair in bar.track(chosen, description="reading questions"):
            sides = read_pair(loaded, pair, pair_set.reply)
            heads += [side.heads.float().cpu().numpy() for side in sides]
    items = pd.DataFrame(
        {
            "condition": conditions_of(replace(pair_set, pairs=chosen)),
            "split": [pair.split for pair in chosen for _ in pair.samples],
            "cluster": [pair.cluster for pair in chosen for _ in pair.samples],
        }
    )
    return Activations(np.stack(heads), items, ("condition",))


def fit_gate(
    x: Activations,
    opens_at: str,
    last: int,
    c: float = DEFAULT_C,
    max_iter: int = DEFAULT_MAX_ITER,
) -> FittedGate:
    """The probe of the best head up to layer ``last``.

    Weights are of training questions. Validation questions choose the head, ties by log-loss, and
    the threshold (:func:`best_threshold`); test questions only measure it. ``last`` is the first
    layer that is steered; its heads are read before that.

    Raises:
        ProbingError: training questions of one side alone, no validation questions, or no head with
            weights.
    """
    x = replace(x, items=x.items.assign(**{OPEN: x.items["condition"] == opens_at}), labels=(OPEN,))
    x = replace(x, x=x.x[:, : last + 1])
    probes = HeadProbes(c=c, max_iter=max_iter).fit(x.train, label=OPEN)
    probes.rank(x.validation)
    ((layer, head),) = best_heads(probes.ranked_, probes.coef_, 1)
    weight, bias = probes.coef_[layer, head], float(probes.intercept_[layer, head])

    def likely(part: Activations) -> np.ndarray:
        return expit(part.x[:, layer, head].astype(np.float64) @ weight + bias)

    validation, test = x.validation, x.test
    threshold, accuracy = best_threshold(likely(validation), validation.values(OPEN))
    right = (likely(test) > threshold) == test.values(OPEN)
    cluster, names = pd.factorize(test.items["cluster"])
    share = estimate_mean(right, cluster, draw_groups(len(names)))
    gate = Gate(layer, head, torch.from_numpy(weight.copy()), bias, threshold)
    return FittedGate(gate, accuracy, share, len(names))


def best_threshold(likely: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Where probabilities ``[N]`` divide ``labels [N]`` best, and the accuracy there.

    Of equals it is the middle of the widest gap between neighbours, 0 and 1 among them.
    """
    edges = np.unique([0.0, *likely, 1.0])
    cuts = (edges[1:] + edges[:-1]) / 2
    right = ((likely > cuts[:, None]) == labels).mean(axis=1)
    best = np.lexsort((np.diff(edges), right))[-1]
    return float(cuts[best]), float(right[best])
