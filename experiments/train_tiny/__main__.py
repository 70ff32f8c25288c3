"""``sally-anne train-tiny --family qwen2-vl``: train a shipped tiny model from scratch.

In stages, each resumable: a text decoder (shared by both families), the vision tower, the whole
model on frames and text, answering in turns, and with a deeper decoder statements and narrators.
"""

from __future__ import annotations

from experiments.train_tiny.config import TrainConfig
from sally_anne.core.commands import command


def run(config: TrainConfig) -> None:
    """Train the model, stage after stage."""
    # Heavy libraries are imported here, so that --help answers at once.
    from experiments.train_tiny.stages import train_family

    print(f"the model is in {train_family(config)}")


main = command("sally-anne train-tiny", TrainConfig, run)


if __name__ == "__main__":
    main()
