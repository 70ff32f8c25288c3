"""``python -m probing.run``: find the heads that tell belief from fact."""

from __future__ import annotations

import sys

from probing.config import ProbeConfig


def run(config: ProbeConfig) -> None:
    """Carry out a probing run, or show a finished one.

    Raises:
        ProbingError, ModelError, GridToMError, SallyAnneError: bad input, named.
    """
    # Heavy libraries are imported here, so that --help answers at once.
    from probing.pipeline import carry_out

    carry_out(config)


def main() -> None:
    """The command line."""
    import tyro

    config = tyro.cli(ProbeConfig, prog="python -m probing.run")
    from probing.failures import expected_errors

    try:
        run(config)
    except expected_errors() as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        print(f"\nstopped; the same command goes on from {config.folder}", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
