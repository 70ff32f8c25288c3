"""Which vector steers an evaluation, what it has seen, and whether it fits the model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sally_anne.core.errors import HarnessError
from sally_anne.core.files import read_object
from sally_anne.data.lineage import Lineage
from sally_anne.hooks.identity import SEEN, require_fitted
from sally_anne.hooks.vector import RECORD, SteeringVector

if TYPE_CHECKING:
    from sally_anne.models.loading import LoadedModel


def open_vector(folder: str | Path, allow_mismatch: bool | str = False) -> SteeringVector:
    """The steering vector of a folder; ``allow_mismatch`` (bool or word) takes it for any model."""
    return SteeringVector.load(
        folder, allow_mismatch=str(allow_mismatch).lower() in ("true", "1", "yes")
    )


def facts_of(folder: str | Path | None) -> dict[str, Any] | None:
    """What the vector of a folder says about itself; None without a folder."""
    return None if folder is None else dict(SteeringVector.load(folder).fitted)


def fitted_on(model: str, facts: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Facts of a vector, with what it and one that is baked into the model's folder have seen.

    None where nothing steers.
    """
    record = Path(model).expanduser() / RECORD
    if not record.exists():
        return facts
    saved = read_object(record, HarnessError, "sally-anne bake", {"vector": ("fitted",)})
    baked = dict(saved["vector"]["fitted"])
    if facts is None:
        return baked
    first = Lineage.read(facts, "the vector")
    second = Lineage.read(baked, str(record))
    if first is None or second is None:
        return {name: fact for name, fact in facts.items() if name != SEEN}
    return {**facts, SEEN: first.chosen_on(second.seen).facts()}


def require_fits(vector: SteeringVector, loaded: LoadedModel, alpha: float | None) -> str:
    """How a model differs from the one that a vector was fitted on, if that was allowed.

    OtherModelError where it was not; SteeringError for another shape or an unusable alpha.
    """
    found = require_fitted(vector, loaded.identity)
    vector.apply(loaded.skeleton, alpha)
    return found
