"""The one place where this room reaches up: a vector's file.

The room itself knows a vector by what it does alone. Steering is imported when it is asked for, so
that --help answers at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sally_anne.benchmarks.lineage import SEEN, Lineage
from sally_anne.core.errors import HarnessError
from sally_anne.core.files import read_object
from sally_anne.models.identity import require_fitted

if TYPE_CHECKING:
    from sally_anne.models.loading import LoadedModel


def open_vector(folder: str | Path, force: bool | str = False) -> Any:
    """The steering vector of a folder.

    Args:
        folder: where it is.
        force: steer another model than it was fitted on as well; also as a word.

    Raises:
        SteeringError: there is none, or it is damaged.
    """
    from steering.saving import load_vector

    return load_vector(folder, force=str(force).lower() in ("true", "1", "yes"))


def facts_of(folder: str | Path | None) -> dict[str, Any] | None:
    """What the vector of a folder says about itself; None without a folder.

    Raises:
        SteeringError: there is none, or it is damaged.
    """
    return None if folder is None else dict(open_vector(folder).fitted)


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
    from steering.bake import RECORD

    record = Path(model).expanduser() / RECORD
    if not record.exists():
        return facts
    made_by = "python -m steering.bake"
    baked = read_object(record, HarnessError, made_by, {"vector": ("fitted",)})["vector"]["fitted"]
    if facts is None:
        return dict(baked)
    first, second = Lineage.read(facts, "the vector"), Lineage.read(baked, str(record))
    if first is None or second is None:
        return {name: fact for name, fact in facts.items() if name != SEEN}
    return {**facts, SEEN: first.chosen_on(second.seen).facts()}


def require_fits(steering: Any, loaded: LoadedModel, alpha: float | None) -> str:
    """That a vector fits a model, as far as it can be known before the weights are read.

    Returns:
        What the model differs in from the one that it was fitted on, where that was insisted on.

    Raises:
        OtherModelError: it was fitted on another model.
        SteeringError: another shape, or an alpha that cannot be used.
    """
    found = require_fitted(steering, loaded.identity)
    steering.apply(loaded.skeleton, alpha)
    return found


def described(vector: Any) -> dict[str, Any]:
    """What identifies a vector."""
    from steering.saving import describe

    return describe(vector)
