"""The one place where this room reaches up: a vector's file.

The room itself knows a vector by what it does alone. Steering is imported when it is asked for, so
that --help answers at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


def open_vector(folder: str | Path) -> Any:
    """The steering vector of a folder.

    Raises:
        SteeringError: there is none, or it is damaged.
    """
    from steering.saving import load_vector

    return load_vector(folder)


def described(vector: Any) -> dict[str, Any]:
    """What identifies a vector."""
    from steering.saving import describe

    return describe(vector)
