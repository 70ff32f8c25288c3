"""A steering vector: heads, directions, widths and strength (GridToM paper, equation 4)."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from sally_anne.core.console import Shown, many
from sally_anne.core.errors import SallyAnneError, SteeringError
from sally_anne.core.files import read_object, reading, write_atomic
from sally_anne.core.folder import RESULTS, make_own
from sally_anne.core.hub import CARD, Shared, at_hand, card, without_paths
from sally_anne.core.run import Head
from sally_anne.hooks.edit import Edit, Gate
from sally_anne.hooks.geometry import HEAD_OUT, SITES, Geometry, find_geometry, slice_width
from sally_anne.hooks.identity import ALLOW_MISMATCH, SEEN, ModelIdentity, require_fitted
from sally_anne.hooks.positions import LAST_PROMPT_GENERATED, check_spec

FILE = "vector.safetensors"
# In a checkpoint that a vector is baked into: the vector's facts.
RECORD = "steering.json"
FORMAT = "sally-anne steering vector 3"
# What a vector holds but for its tensors ``theta`` and ``sigma``.
FACTS = ("heads", "n_layers", "n_heads", "alpha", "direction", "site", "positions", "fitted")
# The one entry of the file's metadata: with more, safetensors leaves their order to chance.
_ENTRY = "sally-anne"


@dataclass(frozen=True)
class TensorFile:
    """How something is saved: a card, and facts in JSON and tensors, sealed by their SHA-256."""

    what: str  # a file holds, e.g. ``steering vector``
    name: str  # of the file in its folder
    form: str  # its format
    part: str  # what the facts are called in the file
    made_by: str  # what writes it, for messages
    error: type[SallyAnneError]

    def write(
        self, folder: Path | str, facts: Mapping[str, Any], tensors: dict[str, Tensor], card: bytes
    ) -> Path:
        """Write it into a folder, which is given back; FolderError, StoreError if it cannot be."""
        folder = Path(folder)
        make_own(folder, f"a {self.what}", self.name)
        text = json.dumps(facts, default=dict)
        entry = {"format": self.form, "sha256": _digest(text, tensors), self.part: text}
        write_atomic(folder / self.name, save(tensors, {_ENTRY: json.dumps(entry)}))
        write_atomic(folder / CARD, card)
        return folder

    @contextmanager
    def reading(self, path: Path | str) -> Iterator[tuple[dict[str, Any], dict[str, Tensor]]]:
        """Facts and tensors of a folder, a file, or a hub's repository ``user/name[@revision]``.

        An ``error`` names what is wrong there, also in the block.
        """
        place = at_hand(path, (self.name, CARD))
        file = place / self.name if place.is_dir() else place
        with reading(file, self.error, self.made_by):
            with safe_open(file, "pt") as stored:
                tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
                entry = json.loads(stored.metadata()[_ENTRY])
            text = str(entry[self.part])
            if entry["format"] != self.form or entry["sha256"] != _digest(text, tensors):
                why = f"is altered, or no {self.what}; write it again with `{self.made_by}`"
                raise self.error(f"{file} {why}")
            yield json.loads(text), tensors


def _digest(facts: str, tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of the facts and of every tensor with its name, type and shape."""
    digest = hashlib.sha256(facts.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


_FILE = TensorFile("steering vector", FILE, FORMAT, "vector", "sally-anne steer", SteeringError)


@dataclass(frozen=True, eq=False, repr=False)
class SteeringVector(Shown, Shared):
    """What is added to the outputs of K heads: ``alpha * sigma * theta``.

        with vector.apply(model):  # apply(model, alpha=5.0): another strength, once
            model.generate(question)

    Attributes:
        heads: the K heads, best first; pairs (layer, head) become a :class:`Head`.
        theta: ``[K, D]`` unit directions.
        sigma: ``[K]`` standard deviation of the training activations along theta.
        n_layers, n_heads: L and H of the model it is for.
        alpha: strength, in standard deviations.
        direction: how theta was made, e.g. ``logistic``.
        site, positions: where it is added, see :mod:`hooks.geometry` and :mod:`hooks.positions`.
        fitted: where it comes from: model and revision, contrast, splits, probe settings, data.
        gate: a probe that decides where it is added, see :class:`hooks.edit.Gate`.
    """

    SIGN: ClassVar[str] = FILE

    heads: tuple[Head, ...]
    theta: Tensor
    sigma: Tensor
    n_layers: int
    n_heads: int
    alpha: float = 1.0
    direction: str = "logistic"
    site: str = HEAD_OUT
    positions: str = LAST_PROMPT_GENERATED
    fitted: Mapping[str, Any] = field(default_factory=dict)
    gate: Gate | None = None

    def __post_init__(self) -> None:
        """Raise SteeringError or HookError, and name the part that does not fit."""
        object.__setattr__(self, "heads", tuple(Head(*head) for head in self.heads))
        k = len(self.heads)
        if not k or len(set(self.heads)) != k:
            raise SteeringError("a steering vector has at least one head, and none twice")
        shapes = list(self.theta.shape), list(self.sigma.shape)
        if len(shapes[0]) != 2 or [shapes[0][0], shapes[1]] != [k, [k]]:
            theirs = "{} and {}".format(*shapes)
            raise SteeringError(f"{k} heads need theta [{k}, D] and sigma [{k}], got {theirs}")
        norms, widths = self.theta.norm(dim=1).tolist(), self.sigma.tolist()
        for head, norm, sigma in zip(self.heads, norms, widths, strict=True):
            if not (0 <= head.layer < self.n_layers and 0 <= head.head < self.n_heads):
                there = f"{self.n_layers} layers of {self.n_heads} heads"
                raise SteeringError(f"{head} is not among {there}")
            if not abs(norm - 1) <= 1e-3:
                raise SteeringError(f"theta of {head} is not a unit vector (norm {norm:.4g})")
            if not (math.isfinite(sigma) and sigma >= 0):
                raise SteeringError(f"sigma of {head} is {sigma}")
        if self.site not in SITES:
            raise SteeringError(f"unknown site {self.site!r}: choose one of {', '.join(SITES)}")
        check_spec(self.positions)
        _finite(self.alpha)

    def _shown(self) -> dict[str, object]:
        shape = f"of {self.n_layers} layers x {self.n_heads} heads x {self.width}"
        facts: dict[str, object] = {"heads": f"{', '.join(map(str, self.heads))} {shape}"}
        facts |= {name: getattr(self, name) for name in ("alpha", "direction", "site", "positions")}
        facts |= {name: self.fitted[name] for name in ("label", "model") if name in self.fitted}
        return facts | ({"gate": Head(self.gate.layer, self.gate.head)} if self.gate else {})

    @property
    def k(self) -> int:
        """Number of heads."""
        return len(self.heads)

    @property
    def width(self) -> int:
        """D."""
        return self.theta.shape[1]

    def with_alpha(self, alpha: float) -> SteeringVector:
        """The same with another strength."""
        return replace(self, alpha=alpha)

    def delta(self, alpha: float | None = None) -> Tensor:
        """What is added to each head, ``[L, H, D]``, zero at others; by default its own alpha."""
        strength = _finite(self.alpha if alpha is None else alpha)
        steps = self.sigma.cpu().double()[:, None] * self.theta.cpu().double()
        full = torch.zeros(self.n_layers, self.n_heads, self.width, dtype=torch.float64)
        full[torch.tensor(self.heads).unbind(1)] = steps
        return (strength * full).float()

    def check(self, model: nn.Module, allow_mismatch: bool = False) -> Geometry:
        """The model's geometry; SteeringError names both shapes or types if it does not fit."""
        geometry, config = find_geometry(model), cast(Any, model.config)
        shape = (self.n_layers, self.n_heads, self.width)
        there = (geometry.n_layers, geometry.n_heads, slice_width(geometry, self.site))
        fitted, here = ModelIdentity.of_vector(self.fitted), config.model_type or ""
        if shape != there:
            of = f"for {shape} layers, heads, width; this {type(model).__name__} has {there}"
            raise SteeringError(f"the vector is {of} at {self.site}: fit it on this model")
        same = fitted.same_type(ModelIdentity(model_type=here))
        if not (same or allow_mismatch or self.fitted.get(ALLOW_MISMATCH)):
            raise SteeringError(f"the vector was fitted on a {fitted.model_type}, not a {here}")
        return geometry

    def apply(self, model: Any, alpha: float | None = None, allow_mismatch: bool = False) -> Edit:
        """Steer ``model`` while a ``with`` block is open.

        Args:
            model: the Hugging Face model whose forward will be called, or what holds it.
            alpha: as of :meth:`delta`; with 0 the logits keep their bits.
            allow_mismatch: also a model with other weights than it was fitted on.

        Raises:
            ModelError: it was fitted on other weights or in another dtype; both are named.
            SteeringError, HookError: vector or gate do not fit, or alpha is not finite.
        """
        module = _module(model)
        if not allow_mismatch:
            require_fitted(self, ModelIdentity.of_module(module))
        self.check(module, allow_mismatch)
        applied = _Applied(module, self.delta(alpha), self.site, self.positions, self.gate)
        applied.opened = False
        return applied

    def describe(self) -> dict[str, Any]:
        """Its facts but for ``fitted``, and a hash of its numbers."""
        numbers = b"".join(tensor.numpy().tobytes() for tensor in self._tensors().values())
        facts = {name: fact for name, fact in self._facts().items() if name != "fitted"}
        return {**facts, "numbers": hashlib.sha256(numbers).hexdigest()[:16]}

    def save(self, folder: Path | str) -> Path:
        """Write ``vector.safetensors`` (the same bytes for the same vector) and a card."""
        return _FILE.write(folder, self._facts(), self._tensors(), _card(self))

    @classmethod
    def load(cls, path: Path | str, model: Any = None, allow_mismatch: bool = False) -> Self:
        """Read a vector.

        Args:
            path: the folder, or that of the sweep that chose it, the safetensors file itself, or a
                repository of a hub, ``user/name`` or ``user/name@revision``.
            model: refuse a vector that does not fit this model, or was fitted on another one.
            allow_mismatch: take a vector that was fitted on another model, and note that.

        Raises:
            ModelError: as of :meth:`apply`.
            FolderError, SteeringError: there is none, or it is damaged, or does not fit.
        """
        chosen = [] if (Path(path) / FILE).exists() else [*Path(path).glob(f"*/{FILE}")]
        if len(chosen) > 1 and (results := Path(path) / RESULTS).exists():
            # A sweep that went on may have chosen again.
            last = read_object(results, SteeringError, "sally-anne sweep").get("vector")
            chosen = [file for file in chosen if file.parent.name == last]
        with _FILE.reading(chosen[0] if len(chosen) == 1 else path) as (facts, tensors):
            if "gate" in facts:
                facts["gate"] = Gate(weight=tensors["gate"], **facts["gate"])
            vector = cls(theta=tensors["theta"], sigma=tensors["sigma"], **facts)
        if allow_mismatch:
            vector = replace(vector, fitted={**vector.fitted, ALLOW_MISMATCH: True})
        if model is not None:
            module = _module(model)
            vector.check(module)
            require_fitted(vector, ModelIdentity.of_module(module))
        return vector

    def to_give(self) -> Self:
        """The same without paths of this machine."""
        return replace(self, fitted=without_paths(dict(self.fitted)))

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {"theta": self.theta, "sigma": self.sigma}
        if self.gate is not None:
            tensors["gate"] = self.gate.weight
        return {name: tensor.double().contiguous().cpu() for name, tensor in tensors.items()}

    def _facts(self) -> dict[str, Any]:
        facts = {name: getattr(self, name) for name in FACTS}
        if self.gate is not None:
            facts["gate"] = {n: fact for n, fact in vars(self.gate).items() if n != "weight"}
        return facts


class _Applied(Edit):
    """The edit of a vector, which warns if it goes without having been opened."""

    opened = True

    def __enter__(self) -> Self:
        self.opened = True
        return super().__enter__()

    def __del__(self) -> None:
        if not self.opened:
            remedy = "write `with vector.apply(model):` around what runs"
            warnings.warn(f"nothing was steered: {remedy}", stacklevel=2)


def _module(model: Any) -> nn.Module:
    module = model if isinstance(model, nn.Module) else getattr(model, "model", None)
    if not isinstance(module, nn.Module):
        raise SteeringError(f"give a model, as sa.load_model opens one, not {model!r:.60}")
    return module


def _finite(alpha: Any) -> float:
    try:
        strength = float(alpha)
    except (TypeError, ValueError, RuntimeError):
        strength = math.nan
    if not math.isfinite(strength):
        raise SteeringError(f"alpha must be a finite number, got {alpha!r:.60}")
    return strength


def _card(vector: SteeringVector) -> bytes:
    """The README of a saved vector."""
    model = vector.fitted.get("model", "unknown")
    own = {"direction": vector.direction, "alpha": f"{vector.alpha:g}", "K": str(vector.k)}
    own |= {"heads, best first": ", ".join(map(str, vector.heads)), **vector.fitted}
    rows = "\n".join(f"| {name} | {_cell(name, value)} |" for name, value in own.items())
    given = {name: vector.fitted.get(name) for name in ("dtype", "quantization", "prompt")}
    opened = json.dumps(model) + "".join(f', {name}="{it}"' for name, it in given.items() if it)
    where = f"at `{vector.positions}`"
    if gate := vector.gate:
        bound = f"{'>' if gate.above else '<='} {gate.threshold:.4g}"
        where += f",\nthere only where the probe of {Head(gate.layer, gate.head)} says p {bound}"
    body = f"""# Steering vector for {model}

Adds `alpha * sigma * theta` to the `{vector.site}` of {many(vector.k, "attention heads")}
({vector.n_layers} layers x {vector.n_heads} heads x {vector.width}), {where}.

| | |
|---|---|
{rows}

## Use

```python
import sally_anne as sa

model = sa.load_model({opened})
vector = sa.SteeringVector.load(".", model)  # this folder; "user/name" of a hub
question = "Where is the red agent? Answer:"
print("without the vector:", model.generate(question))
with vector.apply(model):
    print("with it:", model.generate(question))
```
"""
    return card(body, vector.fitted, "steering-vector")


def _cell(name: str, value: Any) -> str:
    if name == SEEN:
        parts = (f"{len(hashes)} {part}" for part, hashes in value.items())
        return f"{' and '.join(parts)} stories, whose hashes are in {FILE}"
    return value if isinstance(value, str) else f"`{json.dumps(value)}`"
