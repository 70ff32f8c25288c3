"""``python -m harness.run``: ask a model, steered or not, the questions of a task."""

from __future__ import annotations

import sys
from typing import Any

from harness.config import EvalConfig


def run(config: EvalConfig) -> None:
    """Carry out an evaluation, or show a finished one.

    Raises:
        HarnessError, SteeringError, ModelError, GridToMError, SallyAnneError: bad input, named.
    """
    # Heavy libraries are imported here, so that --help answers at once.
    from harness.pipeline import carry_out, check

    check(config)
    vector: Any = None
    about = None
    if config.steer is not None:
        # Upwards, and only here: the room itself knows a vector by what it does alone.
        from steering.saving import describe, load_vector

        vector = load_vector(config.steer)
        about = describe(vector)
    carry_out(config, vector, about_steering=about)


def main() -> None:
    """The command line."""
    import tyro

    config = tyro.cli(EvalConfig, prog="python -m harness.run")
    from benchmarks.gridtom.errors import GridToMError
    from harness.errors import HarnessError
    from hooks.errors import SallyAnneError
    from models.errors import ModelError
    from steering.errors import SteeringError

    try:
        run(config)
    except (GridToMError, HarnessError, ModelError, SallyAnneError, SteeringError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        print(f"\nstopped; the same command goes on from {config.folder}", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
