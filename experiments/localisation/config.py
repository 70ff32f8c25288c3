"""``sally-anne localisation``: how well localisers find heads that are known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from sally_anne.core.options import Natural, Seed


@dataclass(frozen=True)
class LocalisationConfig:
    """Score localisers on models of which the heads that carry a belief are known.

    Attributes:
        models: folders of ``sally-anne plant``; all that are shipped by default.
        localiser: a localiser of your own beside the built-in ones, as package.module:NAME: a
            function of a model and twins that returns a score for every head.
        twins: test twins that localisers are given.
        pairs: of these, so many in which the built-in ones exchange every head.
        draws: of the null, in which twins are turned at random; 19 are the fewest for 5 %.
        decoys: also each model with its decoys at work.
        steered: further test stories that are steered, and asked the side questions; 0 for none.
        controls: random directions with steps of the same lengths, for each direction.
        strengths: to which the output of planted heads is weakened, for the curve of recovery, on
            half the twins and pairs.
        workers: processes; each has a model.
        seed: of the draws.
        out: folder. A run that was stopped goes on with the models that are left; a finished one
            is made anew.
    """

    models: tyro.conf.Positional[tuple[Path, ...]] = ()
    localiser: tuple[str, ...] = ()
    twins: int = 64
    pairs: int = 16
    draws: int = 19
    decoys: bool = True
    steered: Natural = 24
    controls: Natural = 20
    strengths: tuple[float, ...] = (1.0, 0.3, 0.1, 0.03)
    workers: int = 2
    seed: Seed = 0
    out: Path = Path("runs/localisation")

    @property
    def folder(self) -> Path:
        """Where the leaderboard is kept."""
        return self.out
