"""One logistic probe per head (GridToM paper, section 4.3, equation 3), all heads at once."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.utils.validation import check_is_fitted

from hooks.positions import LAST_PROMPT_GENERATED
from hooks.vector import SteeringVector
from probing.activations import Activations
from probing.config import DEFAULT_C, DEFAULT_MAX_ITER, Solver
from probing.logistic import SKLEARN_TOLERANCE, Problems, Settings, solve
from sally_anne.core.errors import ProbingError

MEASURED = ("validation", "test")


class HeadProbes(BaseEstimator):
    """A logistic regression for each head, with scikit-learn's interface.

    Binary labels give one direction a head; more than two classes give multinomial probes with
    one direction a class.

        probes = HeadProbes().fit(x.train, label="y_p")
        heads = probes.rank(x.validation)
        vector = probes.to_vector(k=4, alpha=1.0)

    Args:
        c: inverse strength of the L2 penalty; the intercept is not penalised.
        max_iter: limit of the solver's iterations.
        solver: sklearn fits head after head with scikit-learn, to its default tolerance. batched
            fits all heads at once, to the optimum, which scikit-learn reaches with a tolerance of
            1e-10; some predictions next to the boundary differ. A head whose gradient at zero
            weights is within scikit-learn's default tolerance keeps them with either.

    Attributes:
        classes_: ``[n_classes]`` sorted labels.
        coef_: ``[L, H, D]``, or ``[L, H, n_classes, D]`` if multinomial.
        intercept_: ``[L, H]``, or ``[L, H, n_classes]``.
        unconverged_: number of heads whose solver stopped at ``max_iter``.
        label_: what was fitted, if it was fitted on :class:`probing.activations.Activations`.
        ranked_: the heads as (layer, head), best first, once :meth:`rank` was asked.
    """

    classes_: np.ndarray
    coef_: np.ndarray
    intercept_: np.ndarray
    unconverged_: int
    label_: str
    ranked_: list[tuple[int, int]]

    def __init__(
        self, c: float = DEFAULT_C, max_iter: int = DEFAULT_MAX_ITER, solver: Solver = "batched"
    ) -> None:
        self.c = c
        self.max_iter = max_iter
        self.solver = solver

    def fit(
        self, x: Activations | np.ndarray, y: np.ndarray | None = None, label: str | None = None
    ) -> HeadProbes:
        """Fit every head's probe.

        Args:
            x: training activations, or an array ``[N, L, H, D]``.
            y: labels ``[N]``, for an array.
            label: name of the label, for activations.

        Returns:
            self.

        Raises:
            ProbingError: no such label, fewer than two classes, sizes that do not agree, c not
                positive, a solver that is not known, or NaN or infinity in a head's activations
                (batched).
        """
        for name in ("label_", "ranked_", "_train"):
            self.__dict__.pop(name, None)
        if isinstance(x, Activations):
            if label is None:
                raise ProbingError(f"say which label to fit: one of {', '.join(x.labels)}")
            self._train, self.label_ = x, label
            y = x.values(label)
        x, y = np.asarray(x.x if isinstance(x, Activations) else x), np.asarray(y)
        if x.ndim != 4 or y.shape != (len(x),):
            raise ProbingError(f"need x [N, L, H, D] and y [N], got {x.shape} and {y.shape}")
        if not self.c > 0:  # NaN, too
            raise ProbingError(f"c must be positive, got {self.c}")
        if self.solver not in ("sklearn", "batched"):
            raise ProbingError(f"solver must be sklearn or batched, got {self.solver!r}")
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ProbingError(
                f"all {len(y)} training samples have label {self.classes_.tolist()}; "
                "a probe needs both: use more samples"
            )
        if self.solver == "batched":
            self._fit_at_once(x, codes)
        else:
            self._fit_in_turn(x, y)
        return self

    def rank(self, x: Activations) -> pd.DataFrame:
        """The table of heads: accuracy, log-loss, AUC, sigma and rank of every head.

        Heads are ranked by validation accuracy, ties by validation log-loss. Other samples enter
        their own columns only. AUC and sigma are of binary labels.

        Args:
            x: activations of validation samples; test samples may be among them.

        Returns:
            One row a head, in the order of layers and heads: ``layer``, ``head`` and columns that
            begin with the label's name.

        Raises:
            ProbingError: the probes were not fitted on activations, or there is no validation
                sample.
        """
        train = self.fitted_on()
        layers, heads = self.intercept_.shape[:2]
        blank = np.full((layers, heads), np.nan)
        own = {"train_accuracy": self.score(train.x, train.values(self.label_))}
        for split in MEASURED:
            part = x.part(split)
            y = part.values(self.label_)
            if split == "validation" and not len(part):
                raise ProbingError("no validation samples: give more samples, or other splits")
            own[f"{split}_accuracy"] = self.score(part.x, y) if len(part) else blank
            own[f"{split}_log_loss"] = self.log_loss(part.x, y) if len(part) else blank
            own[f"{split}_auc"] = self.auc(part.x, y) if len(part) and self.binary else blank
        own["sigma"] = self.sigma(train.x) if self.binary else blank
        order = np.lexsort(
            (own["validation_log_loss"].ravel(), -own["validation_accuracy"].ravel())
        )
        rank = np.empty(layers * heads, dtype=int)
        rank[order] = np.arange(1, layers * heads + 1)
        self.ranked_ = [(int(at // heads), int(at % heads)) for at in order]
        return pd.DataFrame(
            {
                "layer": np.repeat(np.arange(layers), heads),
                "head": np.tile(np.arange(heads), layers),
                **{f"{self.label_}_{name}": value.ravel() for name, value in own.items()},
                f"{self.label_}_rank": rank,
            }
        )

    def to_vector(
        self,
        k: int,
        alpha: float = 1.0,
        towards: Any = None,
        positions: str = LAST_PROMPT_GENERATED,
    ) -> SteeringVector:
        """The directions of the best ``k`` heads, to steer with.

        Args:
            k: number of heads; those whose probe has no weights have no direction and are passed
                over.
            alpha: strength, in standard deviations of the training activations along theta.
            towards: class to steer towards; of a binary label the second one (True) by default.
            positions: where it will be applied, see :mod:`hooks.positions`.

        Raises:
            ProbingError: the heads are not ranked, fewer than ``k`` have a direction, or
                ``towards`` is not a class, or is needed.
        """
        train = self.fitted_on()
        if not hasattr(self, "ranked_"):
            raise ProbingError("rank the heads first: probes.rank(x.validation)")
        coef = self._weights_towards(towards)
        chosen = best_heads(self.ranked_, coef, k)
        classes = self.classes_.tolist()
        asked = {} if towards is None else {"towards": classes[classes.index(towards)]}
        x = np.stack([train.x[:, layer, head].astype(np.float64) for layer, head in chosen], axis=1)
        theta = np.stack([unit(coef[head]) for head in chosen])
        return SteeringVector(
            heads=tuple(chosen),
            theta=torch.from_numpy(theta),
            sigma=torch.from_numpy(spread(x, theta)),
            n_layers=coef.shape[0],
            n_heads=coef.shape[1],
            alpha=alpha,
            site=train.site,
            positions=positions,
            fitted={
                **train.model,
                "label": self.label_,
                "split": "heads by validation samples, directions and sigma from training samples",
                "c": self.c,
                "max_iter": self.max_iter,
                **asked,
            },
        )

    @property
    def binary(self) -> bool:
        """Whether there are two classes, and so one direction a head."""
        check_is_fitted(self)
        return len(self.classes_) == 2

    def fitted_on(self) -> Activations:
        """The training activations.

        Raises:
            ProbingError: the probes were fitted on an array, or not at all.
        """
        if not hasattr(self, "_train"):
            raise ProbingError('fit the probes on activations first: fit(x.train, label="...")')
        return self._train

    def _weights_towards(self, towards: Any) -> np.ndarray:
        """Weights ``[L, H, D]`` that point to one class."""
        classes = self.classes_.tolist()
        if towards is None and self.binary:
            towards = classes[1]
        if towards not in classes:
            raise ProbingError(f"towards must be one of the classes {classes}, got {towards!r}")
        place = classes.index(towards)
        if self.binary:
            return self.coef_ if place else -self.coef_
        return self.coef_[:, :, place]

    def _fit_in_turn(self, x: np.ndarray, y: np.ndarray) -> None:
        _, layers, heads, width = x.shape
        binary = self.binary
        outputs = () if binary else (len(self.classes_),)
        self.coef_ = np.empty((layers, heads, *outputs, width))
        self.intercept_ = np.empty((layers, heads, *outputs))
        self.unconverged_ = 0
        for layer in range(layers):
            block = x[:, layer].astype(np.float64)
            for head in range(heads):
                model = LogisticRegression(C=self.c, max_iter=self.max_iter)
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always", ConvergenceWarning)
                    model.fit(block[:, head], y)
                self.unconverged_ += any(c.category is ConvergenceWarning for c in caught)
                self.coef_[layer, head] = model.coef_[0] if binary else model.coef_
                self.intercept_[layer, head] = model.intercept_[0] if binary else model.intercept_

    def _fit_at_once(self, x: np.ndarray, codes: np.ndarray) -> None:
        n, layers, heads, width = x.shape
        outputs = () if self.binary else (len(self.classes_),)
        problems = Problems(
            torch.from_numpy(np.require(x, requirements=["C", "W"])).reshape(
                n, layers * heads, width
            ),
            torch.from_numpy(codes.reshape(1, n)),
            len(self.classes_),
            self.c,
            name=lambda index: f"layer {index // heads} head {index % heads}",
        )
        fits = solve(problems, Settings(max_iter=self.max_iter, zero_weight_tol=SKLEARN_TOLERANCE))
        self.coef_ = fits.coef.numpy().reshape(layers, heads, *outputs, width)
        self.intercept_ = fits.intercept.numpy().reshape(layers, heads, *outputs)
        self.unconverged_ = int((~fits.converged).sum())

    def decision_function(self, x: np.ndarray) -> np.ndarray:
        """Logits ``[N, L, H]``, or ``[N, L, H, n_classes]`` if multinomial."""
        return _project(x, self.coef_) + self.intercept_

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        """Class probabilities ``[N, L, H, n_classes]`` (equation 3 for two classes)."""
        logits = self.decision_function(x)
        if self.binary:
            logits = np.stack([np.zeros_like(logits), logits], axis=-1)
        logits = logits - logits.max(axis=-1, keepdims=True)
        odds = np.exp(logits)
        return odds / odds.sum(axis=-1, keepdims=True)

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Predicted labels ``[N, L, H]``."""
        return self.classes_[self.predict_proba(x).argmax(axis=-1)]

    def score(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Accuracy of every head ``[L, H]``."""
        return (self.predict(x) == np.asarray(y)[:, None, None]).mean(axis=0)

    def log_loss(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Mean negative log-likelihood of every head ``[L, H]``, in nats."""
        probabilities = self.predict_proba(x)
        _, layers, heads, _ = probabilities.shape
        return np.array(
            [
                [log_loss(y, probabilities[:, i, h], labels=self.classes_) for h in range(heads)]
                for i in range(layers)
            ]
        )

    def auc(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Area under the ROC curve of every head ``[L, H]``; NaN if ``y`` has one class only.

        Raises:
            ProbingError: multinomial probes have no single curve.
        """
        if not self.binary:
            raise ProbingError("AUC is defined for binary probes only")
        logits = self.decision_function(x)
        _, layers, heads = logits.shape
        if len(np.unique(y)) < 2:
            return np.full((layers, heads), np.nan)
        return np.array(
            [[roc_auc_score(y, logits[:, i, h]) for h in range(heads)] for i in range(layers)]
        )

    @property
    def theta_(self) -> np.ndarray:
        """Unit directions, shaped as ``coef_``; a zero weight stays zero."""
        norm = np.linalg.norm(self.coef_, axis=-1, keepdims=True)
        return np.divide(self.coef_, norm, out=np.zeros_like(self.coef_), where=norm > 0)

    def sigma(self, x: np.ndarray) -> np.ndarray:
        """Standard deviation of ``x`` projected on theta: ``[L, H]`` (equation 4).

        Give the training activations alone; the released code also takes the validation rows.
        """
        return _project(x, self.theta_).std(axis=0)


def _project(x: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """``x [N, L, H, D]`` on each head's direction ``[L, H, D]`` or directions ``[L, H, K, D]``.

    Computed in float64 a layer at a time, so that no second copy of ``x`` is made.

    Raises:
        ProbingError: the shapes do not belong together.
    """
    x = np.asarray(x)
    wanted = (*directions.shape[:2], directions.shape[-1])
    if x.ndim != 4 or x.shape[1:] != wanted:
        raise ProbingError(f"need activations [N, *{list(wanted)}], got {list(x.shape)}")
    spec = "nhd,hd->nh" if directions.ndim == 3 else "nhd,hkd->nhk"
    out = np.empty((len(x), *directions.shape[:-1]))
    for layer in range(x.shape[1]):
        out[:, layer] = np.einsum(spec, x[:, layer].astype(np.float64), directions[layer])
    return out


def best_heads(
    ranked: Sequence[tuple[int, int]], coef: np.ndarray, k: int
) -> list[tuple[int, int]]:
    """The first ``k`` of the ranked heads whose probe has weights, and thus a direction.

    Args:
        ranked: (layer, head), best first.
        coef: weights ``[L, H, D]``.
        k: number of heads.

    Raises:
        ProbingError: there are fewer.
    """
    if not 1 <= k <= len(ranked):
        layers, heads = coef.shape[:2]
        raise ProbingError(f"K = {k}: the model has {layers} x {heads} = {len(ranked)} heads")
    usable = [head for head in ranked if coef[head].any()]
    if k > len(usable):
        raise ProbingError(
            f"K = {k}: only {len(usable)} of {len(ranked)} heads have a probe with weights, and "
            "thus a direction"
        )
    return usable[:k]


def unit(weights: np.ndarray) -> np.ndarray:
    """Weights ``[D]`` of one head as a direction of length 1.

    Raises:
        ProbingError: they are zero.
    """
    norm = np.linalg.norm(weights)
    if not norm > 0:
        raise ProbingError("weights of zero have no direction")
    return np.asarray(weights / norm, dtype=np.float64)


def spread(x: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Standard deviation of activations ``x [N, K, D]`` along unit directions: ``[K]``."""
    return np.einsum("nkd,kd->nk", x, theta).std(axis=0)
