"""``sally-anne side-effects``: what else a vector changes.

KL divergence on prompts that have nothing to do with beliefs, and any task of the harness with and
without the vector, in one table.
"""

from __future__ import annotations

from sally_anne.core.commands import command
from steering.config import SideEffectsConfig


def run(config: SideEffectsConfig) -> None:
    """Measure, print and save.

    Raises:
        SallyAnneError: bad input, named.
    """
    # Heavy libraries are imported here, so that --help answers at once.
    from steering.measuring import measure

    measure(config)


main = command("sally-anne side-effects", SideEffectsConfig, run, resumes=True)


if __name__ == "__main__":
    main()
