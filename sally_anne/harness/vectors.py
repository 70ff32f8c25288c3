"""Which vector steers an evaluation, what it has seen, and whether it fits the model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hooks.identity import SEEN, require_fitted
from hooks.vector import SteeringVector
from hooks.vector_file import RECORD, baked_facts
from sally_anne.benchmarks.lineage import Lineage
from sally_anne.core.errors import HarnessError

if TYPE_CHECKING:
    from sally_anne.models.loading import LoadedModel


def open_vector(folder: str | Path, force: bool | str = False) -> SteeringVector:
    """The steering vector of a folder; ``force``, also as a word, takes it for another model.

    Raises:
        SteeringError: there is none, or it is damaged.
    """
    return SteeringVector.load(folder, force=str(force).lower() in ("true", "1", "yes"))


def facts_of(folder: str | Path | None) -> dict[str, Any] | None:
    """What the vector of a folder says about itself; None without a folder.

    Raises:
        SteeringError: there is none, or it is damaged.
    """
    return None if folder is None else dict(SteeringVector.load(folder).fitted)


def fitted_on(model: str, facts: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """What steers an evaluation was fitted on: a vector, and one that is baked into the model.

    Args:
        model: catalogue name, hub id or folder; a folder of ``steering.bake`` says what is in it.
        facts: of the vector; None without one.

    Returns:
        The facts, with what either has seen; None where nothing steers.

    Raises:
        HarnessError: the folder's record is damaged.
    """
    baked = baked_facts(model, HarnessError)
    if baked is None:
        return facts
    if facts is None:
        return baked
    first = Lineage.read(facts, "the vector")
    second = Lineage.read(baked, str(Path(model).expanduser() / RECORD))
    if first is None or second is None:
        return {name: fact for name, fact in facts.items() if name != SEEN}
    return {**facts, SEEN: first.chosen_on(second.seen).facts()}


def require_fits(vector: SteeringVector, loaded: LoadedModel, alpha: float | None) -> str:
    """That a vector fits a model, as far as it can be known before the weights are read.

    Returns:
        What the model differs in from the one that it was fitted on, where that was insisted on.

    Raises:
        OtherModelError: it was fitted on another model.
        SteeringError: another shape, or an alpha that cannot be used.
    """
    found = require_fitted(vector, loaded.identity)
    vector.apply(loaded.skeleton, alpha)
    return found
