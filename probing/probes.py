"""One logistic probe per head (GridToM paper, section 4.3, equation 3), all heads at once."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

from probing.config import DEFAULT_C, DEFAULT_MAX_ITER, Solver
from probing.goal import SKLEARN_TOLERANCE
from probing.solver import Problems, Settings, solve
from sally_anne.core.errors import ProbingError


@dataclass
class HeadProbes:
    """A logistic regression for each head, with scikit-learn's interface.

    Binary labels give one direction a head; more than two classes give multinomial probes with
    one direction a class.

    Attributes:
        C: inverse strength of the L2 penalty; the intercept is not penalised.
        max_iter: limit of the solver's iterations.
        solver: sklearn fits head after head with scikit-learn, to its default tolerance. batched
            fits all heads at once, to the optimum, which scikit-learn reaches with a tolerance of
            1e-10; some predictions next to the boundary differ. A head whose gradient at zero
            weights is within scikit-learn's default tolerance keeps them with either.
        classes_: ``[n_classes]`` sorted labels.
        coef_: ``[L, H, D]``, or ``[L, H, n_classes, D]`` if multinomial.
        intercept_: ``[L, H]``, or ``[L, H, n_classes]``.
        unconverged_: number of heads whose solver stopped at ``max_iter``.
    """

    C: float = DEFAULT_C
    max_iter: int = DEFAULT_MAX_ITER
    solver: Solver = "sklearn"
    classes_: np.ndarray = field(init=False, repr=False)
    coef_: np.ndarray = field(init=False, repr=False)
    intercept_: np.ndarray = field(init=False, repr=False)
    unconverged_: int = field(init=False, repr=False, default=0)

    def fit(self, x: np.ndarray, y: np.ndarray) -> HeadProbes:
        """Fit every head's probe.

        Args:
            x: activations ``[N, L, H, D]``.
            y: labels ``[N]``.

        Returns:
            self.

        Raises:
            ProbingError: fewer than two classes, sizes that do not agree, C not positive, a solver
                that is not known, or NaN or infinity in a head's activations (batched).
        """
        x, y = np.asarray(x), np.asarray(y)
        if x.ndim != 4 or len(x) != len(y):
            raise ProbingError(f"need x [N, L, H, D] and y [N], got {x.shape} and {y.shape}")
        if not self.C > 0:  # NaN, too
            raise ProbingError(f"C must be positive, got {self.C}")
        if self.solver not in ("sklearn", "batched"):
            raise ProbingError(f"solver must be sklearn or batched, got {self.solver!r}")
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ProbingError(
                f"all {len(y)} training samples have label {self.classes_.tolist()}; "
                "a probe needs both: use more stories"
            )
        if self.solver == "batched":
            self._fit_at_once(x, codes)
        else:
            self._fit_in_turn(x, y)
        return self

    def _fit_in_turn(self, x: np.ndarray, y: np.ndarray) -> None:
        _, layers, heads, width = x.shape
        binary = len(self.classes_) == 2
        outputs = () if binary else (len(self.classes_),)
        self.coef_ = np.empty((layers, heads, *outputs, width))
        self.intercept_ = np.empty((layers, heads, *outputs))
        self.unconverged_ = 0
        for layer in range(layers):
            block = x[:, layer].astype(np.float64)
            for head in range(heads):
                model = LogisticRegression(C=self.C, max_iter=self.max_iter)
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always", ConvergenceWarning)
                    model.fit(block[:, head], y)
                self.unconverged_ += any(c.category is ConvergenceWarning for c in caught)
                self.coef_[layer, head] = model.coef_[0] if binary else model.coef_
                self.intercept_[layer, head] = model.intercept_[0] if binary else model.intercept_

    def _fit_at_once(self, x: np.ndarray, codes: np.ndarray) -> None:
        n, layers, heads, width = x.shape
        outputs = () if len(self.classes_) == 2 else (len(self.classes_),)
        problems = Problems(
            torch.from_numpy(np.require(x, requirements=["C", "W"])).reshape(
                n, layers * heads, width
            ),
            torch.from_numpy(codes.reshape(1, n)),
            len(self.classes_),
            self.C,
            name=lambda index: f"layer {index // heads} head {index % heads}",
        )
        fits = solve(problems, Settings(max_iter=self.max_iter, quiet=SKLEARN_TOLERANCE))
        self.coef_ = fits.coef.numpy().reshape(layers, heads, *outputs, width)
        self.intercept_ = fits.intercept.numpy().reshape(layers, heads, *outputs)
        self.unconverged_ = int((~fits.converged).sum())

    def decision_function(self, x: np.ndarray) -> np.ndarray:
        """Logits ``[N, L, H]``, or ``[N, L, H, n_classes]`` if multinomial."""
        return _project(x, self.coef_) + self.intercept_

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        """Class probabilities ``[N, L, H, n_classes]`` (equation 3 for two classes)."""
        logits = self.decision_function(x)
        if len(self.classes_) == 2:
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
        if len(self.classes_) != 2:
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
