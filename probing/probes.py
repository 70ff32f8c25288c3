"""One logistic probe a head (equation 3 of the GridToM paper), and steering vectors of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from copy import copy
from numbers import Real
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from scipy.special import log_softmax, softmax
from scipy.stats import rankdata
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted

from sally_anne.core.console import Shown
from sally_anne.core.errors import ProbingError, SteeringError
from sally_anne.core.hub import Shared, card, without_paths
from sally_anne.core.options import checked
from sally_anne.core.run import BEST, Head, heads_of
from sally_anne.hooks.positions import LAST_PROMPT_GENERATED
from sally_anne.hooks.vector import SteeringVector, TensorFile
from sally_anne.probing.activations import Activations
from sally_anne.probing.config import DEFAULT_C, DEFAULT_MAX_ITER, Solver
from sally_anne.probing.solver import EXACT, fit_heads, placed, scale_of

# Above it the penalty is lost in rounding, and with it the one solution.
MOST_C = 1e12

FILE, FORMAT = "head_probes.safetensors", "sally-anne probes 1"
_FILE = TensorFile("set of probes", FILE, FORMAT, "probes", "HeadProbes.save", ProbingError)
# What fitting and ranking leave, and what a file keeps; the last is there once they are ranked.
_WEIGHTS = ("coef_", "intercept_", "sigma_")
_FACTS = ("classes_", "unconverged_", "label_", "site_", "model_", "ranked_")
_CARD = """# Probes of {label} for {model}

A logistic probe on the `{site}` of each attention head: classes {classes}; best heads {best heads}.

```python
probes = sally_anne.HeadProbes.load("this/folder")  # or "user/name" of a hub
probes.predict(x)  # [N, L, H] from activations [N, L, H, D]
```
"""


class NoDirectionError(ProbingError):
    """Fewer heads than asked for have a probe with weights: nothing linear was found."""


class HeadProbes(Shown, Shared, BaseEstimator):
    """A logistic regression for each head, with scikit-learn's interface.

    Of two classes one direction a head; of more, multinomial probes with one direction a class.

        probes = HeadProbes().fit(x.train, label="y_p")
        heads = probes.rank(x.validation)
        vector = probes.to_vector(k=4, alpha=1.0)
        probes.push_to_hub("user/name")  # or probes.save(folder); HeadProbes.load("user/name")

    Solver sklearn fits heads one after another, to scikit-learn's default tolerance; batched all at
    once, to the optimum. A head whose gradient at zero weights is within that tolerance keeps them
    with either. The penalty ``c`` is on activations divided by one number a head, so that a head's
    unit decides nothing; ``normalise=False`` leaves them as they are, as the paper does.

    Attributes:
        classes_: ``[n_classes]`` sorted labels.
        coef_: ``[L, H, D]``, or ``[L, H, n_classes, D]`` if multinomial.
        intercept_: ``[L, H]``, or ``[L, H, n_classes]``.
        unconverged_: number of heads whose solver stopped at ``max_iter``.
        label_: the label, if they were fitted on :class:`Activations`.
        sigma_: shaped as ``intercept_``: standard deviation of these along ``theta_``.
        site_, model_: where these were read, and of which model.
        ranked_: the heads, best first, after :meth:`rank`.
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
    # scikit-learn's own, which would come before the table.
    _repr_mimebundle_ = None

    def __init__(
        self,
        c: float = DEFAULT_C,
        max_iter: int = DEFAULT_MAX_ITER,
        solver: Solver = "batched",
        normalise: bool = True,
    ) -> None:
        self.c = c
        self.max_iter = max_iter
        self.solver = solver
        self.normalise = normalise

    def _shown(self) -> dict[str, object]:
        facts: dict[str, object] = dict(self.get_params())
        if hasattr(self, "coef_"):
            layers, heads, *_, width = self.coef_.shape
            ranked = ", ".join(map(str, getattr(self, "ranked_", ())[:BEST]))
            classes = ", ".join(map(str, self.classes_[:6]))
            facts = {"label": getattr(self, "label_", "unknown"), **facts, "classes": classes}
            facts["heads"] = f"{layers} layers x {heads} heads x {width}"
            facts["best heads"] = ranked or "not ranked"
        return facts

    def fit(
        self, x: Activations | np.ndarray, y: np.ndarray | None = None, label: str | None = None
    ) -> HeadProbes:
        """Fit every head's probe on activations and the name of a label, or on arrays.

        Arrays are ``x [N, L, H, D]`` and labels ``y [N]``. Of activations only the training samples
        are taken, with a warning if there are others. A ProbingError for no such label, fewer than
        two classes, wrong sizes or parameters; with solver batched also for NaN or infinity.
        """
        for name in (*_WEIGHTS, *_FACTS, "_train"):
            self.__dict__.pop(name, None)
        if isinstance(x, Activations):
            if label is None:
                raise ProbingError(f"say which label to fit: one of {', '.join(x.labels)}")
            if not len(x.train) and len(x):
                raise ProbingError(f"none of the {len(x)} samples is for training: give x.train")
            if len(x.train) < len(x):
                words = f"fitted on the {len(x.train)} training samples of {len(x)}"
                warnings.warn(f"{words}; give x.train to say so", stacklevel=2)
                x = x.train
            self._train, self.label_ = x, label
            self.site_, self.model_ = x.site, dict(x.model)
            y, x = x.values(label), x.x
        x, y = np.asarray(x), np.asarray(y)
        if x.ndim != 4 or y.shape != (len(x),):
            raise ProbingError(f"need x [N, L, H, D] and y [N], got {x.shape} and {y.shape}")
        number = isinstance(self.c, Real) and 0 < self.c <= MOST_C
        if not number or self.solver not in ("sklearn", "batched"):
            words = f"c must be positive, at most {MOST_C:.0e}, and solver sklearn or batched"
            raise ProbingError(f"{words}, got {self.c!r}, {self.solver!r}")
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            words = f"the {len(y)} training samples have labels {self.classes_.tolist()}"
            raise ProbingError(f"{words}; a probe needs two: use more samples")
        fit = self._fit_batched if self.solver == "batched" else self._fit_sklearn
        coef, intercept, converged = zip(*fit(x, codes), strict=True)
        shape = (*x.shape[1:3], *([] if self.binary else [len(self.classes_)]))
        self.coef_ = np.reshape(coef, (*shape, x.shape[3]))
        self.intercept_ = np.reshape(intercept, shape)
        self.unconverged_ = x.shape[1] * x.shape[2] - int(np.sum(converged))
        if hasattr(self, "_train"):
            self.sigma_ = self.sigma(x)
        return self

    def _fit_sklearn(self, x: np.ndarray, codes: np.ndarray) -> Iterator[tuple[Any, Any, bool]]:
        """Weights and intercepts of all heads in turn, and whether they converged."""
        for layer, head in np.ndindex(*x.shape[1:3]):
            model = LogisticRegression(C=self.c, max_iter=self.max_iter)
            values = x[:, layer, head].astype(np.float64)
            scale = float(scale_of(torch.from_numpy(values))) if self.normalise else 1.0
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", ConvergenceWarning)
                model.fit(values / scale, codes)
            stopped = any(c.category is ConvergenceWarning for c in caught)
            yield model.coef_ / scale, model.intercept_, not stopped

    def _fit_batched(self, x: np.ndarray, codes: np.ndarray) -> Iterator[tuple[Any, Any, bool]]:
        z, labels = placed(x), torch.from_numpy(codes[None])
        how = self.c, None, EXACT, self.max_iter, self.normalise
        for fit in fit_heads(z, labels.to(z.device), len(self.classes_), *how):
            yield fit.coef.cpu().numpy(), fit.intercept.cpu().numpy(), bool(fit.converged)

    def rank(self, x: Activations) -> pd.DataFrame:
        """The table of heads, a row each: ``layer``, ``head``, and columns of the label's name.

        They are accuracy, log-loss, AUC, sigma, rank and, the same in all rows, :func:`chance`.
        Heads are ranked by validation accuracy, ties by validation log-loss. Test samples, which
        may be among ``x``, enter their own columns only. Where samples have a tag ``condition``,
        there are the accuracies in each and the worst of them (equation 2: heads good in all). A
        ProbingError if probes were not fitted on activations, or no sample validates.
        """
        train, label = self.fitted_on(), self.label_
        if not isinstance(x, Activations):
            raise ProbingError("give activations, such as x.validation, not their array")
        if not len(x.validation):
            raise ProbingError("no validation samples: give more samples, or other splits")
        if unseen := set(x.values(label)) - set(self.classes_):
            words = f"no training sample has the label {label} = {', '.join(map(str, unseen))}"
            raise ProbingError(f"{words}; leave these samples out, or train on some of them")
        own: dict[str, Any] = {"train_accuracy": self.score(train)}
        parts = {"validation": x.validation, "test": x.test}
        measures = {"accuracy": self._accuracy, "log_loss": self.log_loss}
        measures |= {"auc": self.auc} if self.binary else {}
        for split, part in parts.items():
            own |= {f"{split}_{name}": np.nan for name in ("accuracy", "log_loss", "auc")}
            if len(part):
                logits, y = self.decision_function(part), part.values(label)
                own |= {f"{split}_{name}": of(logits, y) for name, of in measures.items()}
                tags = part.items.drop(columns=[*x.labels])  # "condition" may be a label, too
                for condition in sorted({*tags.get("condition", pd.Series()).dropna()}):
                    at = (tags["condition"] == condition).to_numpy()
                    own[f"{split}_{condition}"] = right = self._accuracy(logits[at], y[at])
                    own[f"{split}_worst"] = np.minimum(own.get(f"{split}_worst", 1.0), right)
        own["sigma"] = self.sigma_ if self.binary else np.nan
        for split, part in {"train": train, **parts}.items():
            own[f"{split}_chance"] = chance(train.values(label), part.values(label))
        layer, head = np.indices(shape := self.intercept_.shape[:2]).reshape(2, -1)
        columns = {f"{label}_{n}": np.broadcast_to(v, shape).ravel() for n, v in own.items()}
        table = pd.DataFrame({"layer": layer, "head": head, **columns})
        by = [f"{label}_validation_accuracy", f"{label}_validation_log_loss"]
        best = table.sort_values(by, ascending=[False, True], kind="stable").index
        table[f"{label}_rank"] = np.argsort(best) + 1
        self.ranked_ = heads_of(table.loc[best])
        return table

    @checked
    def to_vector(
        self,
        k: int,
        alpha: float = 1.0,
        towards: Any = None,
        positions: str = LAST_PROMPT_GENERATED,
    ) -> SteeringVector:
        """The directions of the best ``k`` heads with weights, to steer ``alpha`` sigma along.

        They go ``towards`` a class, of two the second (True) by default. A ProbingError says that
        heads are not ranked, too few have a direction, or there is no such class.
        """
        self._require_samples()
        if not hasattr(self, "ranked_"):
            raise ProbingError("rank the heads first: probes.rank(x.validation)")
        classes = self.classes_.tolist()
        target = classes[1] if towards is None and self.binary else towards
        if target not in classes:
            raise ProbingError(f"towards must be one of the classes {classes}, got {towards!r}")
        place = classes.index(target)
        chosen = best_heads(self.ranked_, towards_class(self.coef_, place), k)
        at = tuple(np.transpose(chosen))
        sigma = self.sigma_ if self.binary else self.sigma_[:, :, place]
        fitted = {**self.model_, "label": self.label_}
        fitted["split"] = "heads by validation samples, directions and sigma from training samples"
        fitted |= {name: getattr(self, name) for name in ("c", "max_iter", "normalise")}
        fitted |= {} if towards is None else {"towards": classes[place]}
        theta, spread = map(torch.from_numpy, (towards_class(self.theta_, place)[at], sigma[at]))
        layers, heads = self.coef_.shape[:2]
        how: Any = {"alpha": alpha, "site": self.site_, "positions": positions, "fitted": fitted}
        return SteeringVector(tuple(chosen), theta, spread, layers, heads, **how)

    def save(self, folder: Path | str) -> Path:
        """Write ``head_probes.safetensors``, without training samples, and a card in a folder."""
        self._require_samples()
        facts = self.get_params() | {n: getattr(self, n) for n in _FACTS if hasattr(self, n)}
        facts["classes_"] = self.classes_.tolist()
        tensors = {n: torch.from_numpy(getattr(self, n)).contiguous() for n in _WEIGHTS}
        about = self._shown() | {"model": self.model_.get("model", "unknown"), "site": self.site_}
        body = _CARD.format_map(about | {"classes": ", ".join(map(str, facts["classes_"]))})
        return _FILE.write(folder, facts, tensors, card(body, self.model_, "probes"))

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read probes from a folder, or from a hub's repository ``user/name[@revision]``."""
        probes = cls()
        with _FILE.reading(path) as (facts, tensors):
            for name in (*probes.get_params(), *_FACTS[:-1]):
                setattr(probes, name, facts[name])
            for name in _WEIGHTS:
                setattr(probes, name, tensors[name].numpy())
            probes.classes_ = np.array(probes.classes_)
            if "ranked_" in facts:
                probes.ranked_ = [Head(*map(int, head)) for head in facts["ranked_"]]
        return probes

    def to_give(self) -> Self:
        """The same, which names no paths of this machine."""
        probes = copy(self)
        probes.model_ = without_paths(getattr(self, "model_", {}))
        return probes

    @property
    def binary(self) -> bool:
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

    def decision_function(self, x: Activations | np.ndarray) -> np.ndarray:
        """Logits ``[N, L, H]``, or ``[N, L, H, n_classes]`` if multinomial."""
        check_is_fitted(self)
        x = x.x if isinstance(x, Activations) else x
        return _project(x, self.coef_) + self.intercept_

    def predict_proba(self, x: Activations | np.ndarray) -> np.ndarray:
        """Class probabilities ``[N, L, H, n_classes]`` (equation 3 for two classes)."""
        logits = self.decision_function(x)
        if self.binary:
            logits = np.stack([np.zeros_like(logits), logits], axis=-1)
        return softmax(logits, axis=-1)

    def predict(self, x: Activations | np.ndarray) -> np.ndarray:
        """Predicted labels ``[N, L, H]``."""
        return self._predicted(self.decision_function(x))

    def score(self, x: Activations | np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
        """Accuracy of every head ``[L, H]``; ``y [N]`` by default the activations' own label."""
        if y is None:
            if not isinstance(x, Activations):
                raise ProbingError("give y [N] with x [N, L, H, D], or activations, as x.test")
            self._require_samples()
            y = x.values(self.label_)
        if np.shape(y) != (len(x),):
            raise ProbingError(f"need y [{len(x)}], one for each sample, got {list(np.shape(y))}")
        return self._accuracy(self.decision_function(x), np.asarray(y))

    # Of logits, as `decision_function` gives them.

    def _predicted(self, logits: np.ndarray) -> np.ndarray:
        best = (logits > 0).astype(int) if self.binary else logits.argmax(axis=-1)
        return self.classes_[best]

    def _accuracy(self, logits: np.ndarray, y: np.ndarray) -> np.ndarray:
        return (self._predicted(logits) == y[:, None, None]).mean(axis=0)

    def log_loss(self, logits: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Mean negative log-likelihood of every head ``[L, H]``, in nats."""
        if self.binary:
            wrong = np.where(y == self.classes_[1], -1.0, 1.0)[:, None, None]
            return np.logaddexp(0, wrong * logits).mean(axis=0)
        codes = np.searchsorted(self.classes_, y)[:, None, None, None]
        return -np.take_along_axis(log_softmax(logits, -1), codes, -1)[..., 0].mean(axis=0)

    def auc(self, logits: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Of two classes, the area under the ROC curve ``[L, H]``; NaN if ``y`` has only one."""
        # The share of pairs of one sample of each class that it has in their order (Mann-Whitney).
        positive = np.asarray(y) == self.classes_[1]
        n = int(positive.sum())
        if n in (0, len(positive)):
            return np.full(logits.shape[1:], np.nan)
        ranks = rankdata(logits, axis=0)[positive].sum(0)
        return (ranks - n * (n + 1) / 2) / (n * (len(positive) - n))

    @property
    def theta_(self) -> np.ndarray:
        """Unit directions, shaped as ``coef_``; a zero weight stays zero."""
        norm = np.linalg.norm(self.coef_, axis=-1, keepdims=True)
        return np.divide(self.coef_, norm, out=np.zeros_like(self.coef_), where=norm > 0)

    def sigma(self, x: np.ndarray) -> np.ndarray:
        """Standard deviation ``[L, H]`` of training activations ``x`` on theta (equation 4)."""
        return _project(x, self.theta_).std(axis=0)


def chance(train: np.ndarray, y: np.ndarray) -> float:
    """Accuracy on ``y [N]`` of always train's commonest class, or any at random; NaN of none."""
    classes, counts = np.unique(train, return_counts=True)
    common = np.mean(np.asarray(y) == classes[counts.argmax()]) if len(y) else np.nan
    return float(np.maximum(common, 1 / len(classes)))


def _project(x: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """``x [N, L, H, D]`` on each head's direction ``[L, H, D]`` or directions ``[L, H, K, D]``."""
    x = np.asarray(x)
    shape = (*directions.shape[:2], directions.shape[-1])
    if x.ndim != 4 or x.shape[1:] != shape:
        raise ProbingError(f"need activations [N, *{list(shape)}], got {list(x.shape)}")
    spec = "nhd,hd->nh" if directions.ndim == 3 else "nhd,hkd->nhk"
    # A layer at a time, so that no second copy of x is made in float64.
    layers = zip(np.moveaxis(x, 1, 0), directions, strict=True)
    return np.stack([np.einsum(spec, z.astype(np.float64), own) for z, own in layers], axis=1)


def best_heads(ranked: Sequence[Head], coef: np.ndarray, k: int) -> list[Head]:
    """The first ``k`` of ranked heads with weights ``[L, H, D]``; NoDirectionError if too few."""
    if not 1 <= k <= len(ranked):
        layers, heads = coef.shape[:2]
        raise ProbingError(f"K = {k}: the model has {layers} x {heads} = {len(ranked)} heads")
    usable = [head for head in ranked if coef[head].any()]
    if k > len(usable):
        words = f"only {len(usable)} of {len(ranked)} heads have a probe with weights"
        raise NoDirectionError(f"K = {k}: {words}, and thus a direction")
    return usable[:k]


def towards_class(coef: np.ndarray, place: int) -> np.ndarray:
    """Weights ``[L, H, D]`` that point to one class of probes, by its place among them."""
    if coef.ndim == 4:
        return coef[:, :, place]
    return coef if place else -coef


def vector_on(
    heads: Sequence[Head],
    x: np.ndarray,
    directions: Sequence[np.ndarray],
    shape: tuple[int, ...],
    direction: str = "logistic",
    **facts: Any,
) -> SteeringVector:
    """A vector on K ``heads``, best first, of a model with ``shape`` (L, H); ``facts`` are its own.

    Each of the ``directions [D]``, found as ``direction`` says, may have any length, zero is a
    SteeringError; ``x [N, K, D]`` are the heads' training activations in float64, for sigma.
    """
    theta = np.array(directions, dtype=np.float64)
    for head, row in zip(heads, theta, strict=True):
        norm = np.linalg.norm(row)
        if not norm > 0:
            raise SteeringError(f"{direction} has no direction at {Head(*head)}; lower K")
        row /= norm
    unit, sigma = map(torch.from_numpy, (theta, np.einsum("nkd,kd->nk", x, theta).std(axis=0)))
    facts["direction"] = direction
    return SteeringVector(tuple(heads), unit, sigma, shape[0], shape[1], **facts)
