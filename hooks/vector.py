"""A steering vector: heads, directions, widths and strength (GridToM paper, equation 4)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from hooks.edit import Edit, Gate
from hooks.geometry import HEAD_OUT, SITES, Geometry, find_geometry, slice_width
from hooks.identity import FORCED, ModelIdentity, require_fitted
from hooks.positions import LAST_PROMPT_GENERATED, check_spec
from hooks.vector_file import FACTS, FILE, read_vector, write_vector
from sally_anne.core.errors import PositionError, SteeringError


class HoldsModel(Protocol):
    """Whatever has a Hugging Face model, as a loaded model with its processor does."""

    @property
    def model(self) -> nn.Module:
        """The model whose forward is called."""


@dataclass(frozen=True, eq=False)
class SteeringVector:
    """What is added to the outputs of K heads: ``alpha * sigma * theta``.

        with vector.apply(model):
            model.generate(**inputs)

    Attributes:
        heads: K pairs (layer, head), best first.
        theta: ``[K, D]`` unit directions.
        sigma: ``[K]`` standard deviation of the training activations along theta.
        n_layers, n_heads: L and H of the model it is for.
        alpha: strength, in standard deviations.
        direction: how theta was found, e.g. ``logistic``.
        site: where it is added, see :mod:`hooks.geometry`.
        positions: at which tokens, see :mod:`hooks.positions`.
        fitted: where it comes from: model and revision, contrast, splits, probe settings, data.
    """

    heads: tuple[tuple[int, int], ...]
    theta: Tensor = field(repr=False)
    sigma: Tensor = field(repr=False)
    n_layers: int
    n_heads: int
    alpha: float = 1.0
    direction: str = "logistic"
    site: str = HEAD_OUT
    positions: str = LAST_PROMPT_GENERATED
    fitted: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Check that the parts belong together.

        Raises:
            SteeringError: names the part at fault.
            PositionError: unknown positions.
        """
        k = len(self.heads)
        if not k:
            raise SteeringError("a steering vector needs at least one head")
        if self.theta.ndim != 2 or len(self.theta) != k or tuple(self.sigma.shape) != (k,):
            raise SteeringError(
                f"{k} heads need theta [{k}, D] and sigma [{k}], got {list(self.theta.shape)} and "
                f"{list(self.sigma.shape)}"
            )
        if len(set(self.heads)) != k:
            raise SteeringError("a head is named twice")
        for layer, head in self.heads:
            if not (0 <= layer < self.n_layers and 0 <= head < self.n_heads):
                raise SteeringError(
                    f"layer {layer} head {head} is not among {self.n_layers} layers of "
                    f"{self.n_heads} heads"
                )
        for (layer, head), theta, sigma in zip(self.heads, self.theta, self.sigma, strict=True):
            if not bool(torch.isfinite(theta).all()) or abs(float(theta.norm()) - 1) > 1e-3:
                raise SteeringError(
                    f"theta of layer {layer} head {head} is not a unit vector (norm "
                    f"{float(theta.norm()):.4g})"
                )
            if not (math.isfinite(float(sigma)) and float(sigma) >= 0):
                raise SteeringError(f"sigma of layer {layer} head {head} is {float(sigma)}")
        if self.site not in SITES:
            raise SteeringError(f"unknown site {self.site!r}: choose one of {', '.join(SITES)}")
        check_spec(self.positions)
        _finite(torch.as_tensor(self.alpha))

    @property
    def k(self) -> int:
        """Number of heads."""
        return len(self.heads)

    @property
    def width(self) -> int:
        """D."""
        return self.theta.shape[1]

    def top(self, k: int) -> SteeringVector:
        """The same with its best ``k`` heads alone.

        Raises:
            SteeringError: ``k`` is less than 1 or more than there are.
        """
        if not 1 <= k <= self.k:
            raise SteeringError(f"K = {k}: this vector has {self.k} heads")
        return replace(self, heads=self.heads[:k], theta=self.theta[:k], sigma=self.sigma[:k])

    def with_alpha(self, alpha: float) -> SteeringVector:
        """The same with another strength."""
        return replace(self, alpha=alpha)

    def delta(self, alpha: float | Tensor | None = None) -> Tensor:
        """What is added to each head.

        Args:
            alpha: a strength, or one for each row ``[B]``; the vector's own by default.

        Returns:
            ``[L, H, D]``, or ``[B, L, H, D]``; zero at the other heads.

        Raises:
            SteeringError: a strength is not finite, or has more than one dimension.
        """
        given = self.alpha if alpha is None else alpha
        strength = torch.as_tensor(given, dtype=torch.float64, device="cpu")
        _finite(strength)
        if strength.ndim > 1:
            raise SteeringError(f"alpha is a number or one a row, not {list(strength.shape)}")
        steps = self.sigma.cpu().double()[:, None] * self.theta.cpu().double()
        layers, heads = (torch.tensor(numbers) for numbers in zip(*self.heads, strict=True))
        full = torch.zeros(self.n_layers, self.n_heads, self.width, dtype=torch.float64)
        full[layers, heads] = steps
        return (strength[..., None, None, None] * full).float()

    def check(self, model: nn.Module) -> Geometry:
        """That it fits ``model``: its shape, and the type of model that it was fitted on.

        Raises:
            SteeringError: names both shapes, or both types.
        """
        geometry = find_geometry(model)
        own = (self.n_layers, self.n_heads, self.width)
        wanted = (geometry.n_layers, geometry.n_heads, slice_width(geometry, self.site))
        if own != wanted:
            raise SteeringError(
                f"the vector is for {own[0]} layers x {own[1]} heads x {own[2]}, "
                f"{type(model).__name__} has {wanted[0]} x {wanted[1]} x {wanted[2]} at "
                f"{self.site}; fit it on this model"
            )
        fitted, here = ModelIdentity.of_vector(self.fitted), ModelIdentity.type_of(model)
        if not fitted.same_type(here) and not self.fitted.get(FORCED):
            raise SteeringError(
                f"the vector was fitted on a {fitted.model_type}, {type(model).__name__} is a "
                f"{here.model_type}; fit one on this model"
            )
        return geometry

    def apply(
        self,
        model: nn.Module | HoldsModel,
        alpha: float | Tensor | None = None,
        gate: Gate | None = None,
    ) -> Edit:
        """Steer ``model`` while a ``with`` block is open.

        Args:
            model: the Hugging Face model whose forward will be called, or what holds it as
                ``.model``.
            alpha: a strength, or one for each row of the batch ``[B]``; the vector's own by
                default. Rows with 0 keep their bits.
            gate: steer only where this probe says so, on the same pass.

        Raises:
            SteeringError: the vector does not fit the model, or alpha is not finite.
            EditError: the gate does not fit.
        """
        module = model if isinstance(model, nn.Module) else model.model
        self.check(module)
        return Edit(module, self.delta(alpha), self.site, self.positions, gate)

    def describe(self) -> dict[str, Any]:
        """What identifies it: its facts but for ``fitted``, and a hash of its numbers."""
        digest = hashlib.sha256()
        for tensor in (self.theta, self.sigma):
            digest.update(tensor.double().contiguous().cpu().numpy().tobytes())
        facts = {name: getattr(self, name) for name in FACTS if name != "fitted"}
        return {**facts, "numbers": digest.hexdigest()[:16]}

    def save(self, folder: Path | str) -> Path:
        """Write ``vector.safetensors`` and a card, see :func:`hooks.vector_file.write_vector`.

        Returns:
            The folder.

        Raises:
            StoreError, FolderError, SteeringError: it cannot be written there.
        """
        facts = {name: getattr(self, name) for name in FACTS}
        return write_vector(folder, facts, self.theta, self.sigma)

    @classmethod
    def load(
        cls, path: Path | str, model: nn.Module | HoldsModel | None = None, force: bool = False
    ) -> SteeringVector:
        """Read a vector.

        Args:
            path: the folder, or the safetensors file itself.
            model: refuse a vector that does not fit this model, or was fitted on another one as
                far as the modules can tell.
            force: take a vector that was fitted on another model; its facts say ``forced``.

        Raises:
            OtherModelError: it was fitted on other weights or in another dtype; both are named.
            SteeringError: no such file, a file cut short, altered or of another kind, a part that
                is missing, or a vector for another model (both shapes are named).
        """
        file = Path(path) / FILE if Path(path).is_dir() else Path(path)
        parts = read_vector(file)
        try:
            heads = tuple((int(layer), int(head)) for layer, head in parts["heads"])
            vector = cls(**parts | {"heads": heads})
        except (TypeError, RuntimeError) as error:
            raise SteeringError(f"{file} lacks a part of a steering vector: {error}") from error
        except (ValueError, PositionError) as error:
            raise SteeringError(f"{file}: {error}") from error
        if force:
            vector = replace(vector, fitted={**vector.fitted, FORCED: True})
        if model is not None:
            module = model if isinstance(model, nn.Module) else model.model
            vector.check(module)
            require_fitted(vector, ModelIdentity.of_module(module))
        return vector


def _finite(strength: Tensor) -> None:
    if not bool(torch.isfinite(strength).all()):
        raise SteeringError(f"alpha must be finite, got {strength.tolist()}")
