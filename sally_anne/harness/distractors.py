"""``sally-anne distractors``: are options alone enough to answer?"""

from __future__ import annotations

from sally_anne.core.commands import command
from sally_anne.harness.config import DistractorConfig


def run(config: DistractorConfig) -> None:
    """Carry out a check; what is done already is not done again."""
    # Heavy libraries are imported here, so that --help answers at once.
    from sally_anne.harness.distractors_run import run as work

    work(config)


main = command("sally-anne distractors", DistractorConfig, run, resumes=True)


if __name__ == "__main__":
    main()
