"""One logistic probe per head (GridToM paper, section 4.3, equation 3), all heads at once."""

from __future__ import annotations

import warnings
from copy import copy
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.utils.validation import check_is_fitted

from sally_anne.core.errors import ProbingError
from sally_anne.core.head import Head
from sally_anne.core.hub import Shared, without_paths
from sally_anne.hooks.positions import LAST_PROMPT_GENERATED
from sally_anne.hooks.vector import SteeringVector
from sally_anne.probing.activations import Activations
from sally_anne.probing.config import DEFAULT_C, DEFAULT_MAX_ITER, Solver
from sally_anne.probing.directions import best_heads, towards_class
from sally_anne.probing.probe_file import FILE, KEPT, read, write
from sally_anne.probing.solver import SKLEARN_TOLERANCE, fit_heads

MEASURED = ("validation", "test")


class HeadProbes(Shared, BaseEstimator):
    """A logistic regression for each head, with scikit-learn's interface.

    Binary labels give one direction a head; more than two classes give multinomial probes with
    one direction a class.

        probes = HeadProbes().fit(x.train, label="y_p")
        heads = probes.rank(x.validation)
        vector = probes.to_vector(k=4, alpha=1.0)
        probes.push_to_hub("user/name")  # or probes.save(folder); HeadProbes.load("user/name")

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
        sigma_: ``[L, H]``, or ``[L, H, n_classes]``: standard deviation of these activations along
            ``theta_``.
        site_, model_: where these were read, and of which model.
        ranked_: the heads, best first, once :meth:`rank` was asked.
    """

    classes_: np.ndarray
    coef_: np.ndarray
    intercept_: np.ndarray
    unconverged_: int
    label_: str
    sigma_: np.ndarray
    site_: str
    model_: dict[str, Any]
    ranked_: list[Head]

    SIGN = FILE

    def __init__(
        self, c: float = DEFAULT_C, max_iter: int = DEFAULT_MAX_ITER, solver: Solver = "batched"
    ) -> None:
        self.c = c
        self.max_iter = max_iter
        self.solver = solver

    def fit(
        self, x: Activations | np.ndarray, y: np.ndarray | None = None, label: str | None = None
    ) -> HeadProbes:
        """Fit every head's probe on activations and the name of a label, or on arrays.

        Args:
            x: training activations, or an array ``[N, L, H, D]``.
            y: labels ``[N]``, for an array.
            label: name of the label, for activations.

        Raises:
            ProbingError: no such label, fewer than two classes, sizes that do not agree, c not
                positive, a solver that is not known, or NaN or infinity in a head's activations
                (batched).
        """
        for name in (*KEPT, "_train"):
            self.__dict__.pop(name, None)
        if isinstance(x, Activations):
            if label is None:
                raise ProbingError(f"say which label to fit: one of {', '.join(x.labels)}")
            self._train, self.label_ = x, label
            self.site_, self.model_ = x.site, dict(x.model)
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
            coef, intercept, self.unconverged_ = self._fit_at_once(x, codes)
        else:
            coef, intercept, self.unconverged_ = self._fit_in_turn(x, y)
        # Two classes have one direction.
        self.coef_ = coef[:, :, 0] if self.binary else coef
        self.intercept_ = intercept[:, :, 0] if self.binary else intercept
        if hasattr(self, "_train"):
            self.sigma_ = self.sigma(x)
        return self

    def rank(self, x: Activations) -> pd.DataFrame:
        """The table of heads: accuracy, log-loss, AUC, sigma and rank of every head.

        Heads are ranked by validation accuracy, ties by validation log-loss. Test samples, which
        may be among ``x``, enter their own columns only. AUC and sigma are of binary labels; chance
        is the accuracy of guessing what most training samples are, the same in all rows.

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
        told = train.values(self.label_)
        most = self.classes_[np.unique(told, return_counts=True)[1].argmax()]
        own = {"train_accuracy": self.score(train.x, told)}
        guessed = {"train": np.mean(told == most)}
        for split in MEASURED:
            part = x.part(split)
            y = part.values(self.label_)
            if split == "validation" and not len(part):
                raise ProbingError("no validation samples: give more samples, or other splits")
            own[f"{split}_accuracy"] = self.score(part.x, y) if len(part) else blank
            guessed[split] = np.mean(y == most) if len(part) else np.nan
            own[f"{split}_log_loss"] = self.log_loss(part.x, y) if len(part) else blank
            own[f"{split}_auc"] = self.auc(part.x, y) if len(part) and self.binary else blank
        own["sigma"] = self.sigma_ if self.binary else blank
        order = np.lexsort(
            (own["validation_log_loss"].ravel(), -own["validation_accuracy"].ravel())
        )
        self.ranked_ = [Head(*divmod(int(at), heads)) for at in order]
        layer, head = np.indices((layers, heads)).reshape(2, -1)
        columns = {f"{self.label_}_{name}": value.ravel() for name, value in own.items()}
        chance = {f"{self.label_}_{split}_chance": share for split, share in guessed.items()}
        rank = {f"{self.label_}_rank": np.argsort(order) + 1}
        return pd.DataFrame({"layer": layer, "head": head, **columns, **chance, **rank})

    def to_vector(
        self,
        k: int,
        alpha: float = 1.0,
        towards: Any = None,
        positions: str = LAST_PROMPT_GENERATED,
    ) -> SteeringVector:
        """The directions of the best ``k`` heads, to steer with.

        Args:
            k: number of heads; those whose probe has no weights are passed over.
            alpha: strength, in standard deviations of the training activations along theta.
            towards: class to steer towards; of a binary label the second one (True) by default.
            positions: where it will be applied, see :mod:`hooks.positions`.

        Raises:
            ProbingError: the heads are not ranked, fewer than ``k`` have a direction, or
                ``towards`` is not a class, or is needed.
        """
        self._require_samples()
        if not hasattr(self, "ranked_"):
            raise ProbingError("rank the heads first: probes.rank(x.validation)")
        classes = self.classes_.tolist()
        wanted = classes[1] if towards is None and self.binary else towards
        if wanted not in classes:
            raise ProbingError(f"towards must be one of the classes {classes}, got {towards!r}")
        place = classes.index(wanted)
        chosen = best_heads(self.ranked_, towards_class(self.coef_, place), k)
        at = tuple(np.transpose(chosen))
        sigma = self.sigma_ if self.binary else self.sigma_[:, :, place]
        return SteeringVector(
            heads=tuple(chosen),
            theta=torch.from_numpy(towards_class(self.theta_, place)[at]),
            sigma=torch.from_numpy(sigma[at]),
            n_layers=self.coef_.shape[0],
            n_heads=self.coef_.shape[1],
            alpha=alpha,
            site=self.site_,
            positions=positions,
            fitted={
                **self.model_,
                "label": self.label_,
                "split": "heads by validation samples, directions and sigma from training samples",
                "c": self.c,
                "max_iter": self.max_iter,
                **({} if towards is None else {"towards": classes[place]}),
            },
        )

    def save(self, folder: Path | str) -> Path:
        """Write ``head_probes.safetensors`` and a card, see :mod:`probing.probe_file`.

        Probes that are read again predict and make vectors, and rank no more. Gives the folder.

        Raises:
            ProbingError: they were not fitted on activations.
            StoreError, FolderError: it cannot be written there.
        """
        self._require_samples()
        names = (*self.get_params(), *KEPT)
        return write(folder, {name: getattr(self, name) for name in names if hasattr(self, name)})

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read probes from a folder, or from a hub's repository ``user/name[@revision]``.

        Raises:
            HubError: there is no such folder, and no such repository can be had.
            ProbingError: no such file, or one that is cut short, altered or of another kind.
        """
        probes = cls()
        probes.__dict__.update(read(path, probes.get_params()))
        return probes

    def to_give(self) -> Self:
        """The same, which names no paths of this machine."""
        found = copy(self)
        found.model_ = without_paths(getattr(self, "model_", {}))
        return found

    @property
    def binary(self) -> bool:
        """Whether there are two classes, and so one direction a head."""
        check_is_fitted(self)
        return len(self.classes_) == 2

    def fitted_on(self) -> Activations:
        """The training activations; a ProbingError says if they are not known."""
        self._require_samples()
        if not hasattr(self, "_train"):
            raise ProbingError("these probes were read from a file, which has no samples: fit anew")
        return self._train

    def _require_samples(self) -> None:
        if not hasattr(self, "label_"):
            raise ProbingError('fit the probes on activations first: fit(x.train, label="...")')

    def _fit_in_turn(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        """Weights ``[L, H, K, D]``, intercepts ``[L, H, K]`` and how many did not converge."""
        layers, heads = x.shape[1:3]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            models = []
            for layer in range(layers):
                block = x[:, layer].astype(np.float64)
                blank = LogisticRegression(C=self.c, max_iter=self.max_iter)
                models += [clone(blank).fit(block[:, head], y) for head in range(heads)]
        coef = np.stack([model.coef_ for model in models])
        intercept = np.stack([model.intercept_ for model in models])
        stopped = sum(c.category is ConvergenceWarning for c in caught)
        return (
            coef.reshape(layers, heads, *coef.shape[1:]),
            intercept.reshape(layers, heads, -1),
            stopped,
        )

    def _fit_at_once(self, x: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        """As :meth:`_fit_in_turn`."""
        _, layers, heads, width = x.shape
        fits = list(
            fit_heads(
                torch.from_numpy(np.ascontiguousarray(x)).flatten(1, 2),
                torch.from_numpy(codes.reshape(1, -1)),
                len(self.classes_),
                self.c,
                max_iter=self.max_iter,
                zero_tolerance=SKLEARN_TOLERANCE,
                name=lambda index: Head(*divmod(index, heads)),
            )
        )
        return (
            np.stack([fit.coef[0] for fit in fits]).reshape(layers, heads, -1, width),
            np.stack([fit.intercept[0] for fit in fits]).reshape(layers, heads, -1),
            sum(not bool(fit.converged[0]) for fit in fits),
        )

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
        """Area under the ROC curve of every head ``[L, H]``; NaN if ``y`` has one class only."""
        if not self.binary:
            raise ProbingError("AUC is defined for binary probes only")
        logits = self.decision_function(x)
        if len(np.unique(y)) < 2:
            return np.full(logits.shape[1:], np.nan)
        return np.apply_along_axis(lambda one: roc_auc_score(y, one), 0, logits)

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
