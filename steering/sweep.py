"""``sally-anne sweep``: steer with every K and alpha in one process."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from sally_anne.core.options import Natural, Seed
from sally_anne.data.items import Setting
from sally_anne.models.options import ModelOptions

# By what heads are ranked: the probe's validation accuracy, or what they carry between twins.
Heads = Literal["probe", "cause"]
# What steering should leave alone.
Side = Literal["initial", "reality"]
Direction = Literal[
    "logistic",
    "mass_mean",
    "pca",
    "lda",
    "multinomial:o0p0",
    "multinomial:o0p1",
    "multinomial:o1p0",
    "multinomial:o1p1",
    "random",
    "random_heads",
]


@dataclass(frozen=True)
class SweepConfig(ModelOptions):
    """Steer with every K and alpha, choose on validation stories, report once on test stories.

    Attributes:
        k: numbers of heads; by default half as many as the model has layers, as many, and twice as
            many, halved while the largest is more than an eighth of all heads.
        alpha: strengths, in standard deviations; 0 is always in, once. By default up to 10 either
            way and fine around 1 for models of fewer than 256 heads, up to 50 for larger ones.
        direction: how directions are found.
        label: the label that ranks heads and gives directions.
        towards: value of the label to steer towards; of two values the second (true) by default.
        heads: rank heads by their probe, or by cause: what they carry between validation twins, as
            `sally-anne patch` writes it into the run's table. Of several the best is chosen.
        controls: also random directions in the same heads, and random heads, each head's step as
            long as that of the vector.
        draws: of each kind of control at the chosen K and alpha; among them the vector is ranked.
        control_stories: test stories on which draws are compared, spread over all of them.
        leave_out: so many of the chosen heads, the best first, are left out one at a time on the
            same stories.
        order: belief of first or second order.
        setting: what the model is given: frames and text, frames, or text.
        run: probing run that gives heads and directions; made if it is not there.
        limit: only so many stories of each split, drawn evenly over maps; a probing run that has to
            be made then has three times so many in all, at least 20.
        style: plain questions, or questions that ask for a JSON object.
        parser: who reads the answers that choose K and alpha.
        max_initial_drop: K and alpha may lower the accuracy on initial-belief questions, which
            steering should leave alone, by so much at most (a share, on validation stories); none
            does not ask them. Where the model can but guess them this is no condition.
        max_reality_drop: the same of the question where the participant is in reality.
        test: report the chosen K and alpha on the test stories.
        full: print every setting, not the best alone.
        data: folder in the release layout; stories are generated if none is given.
        out: run folder; named after the options by default. An existing one is resumed.
        batch_size: prompts that are read together.
        decode_batch_size: answers that are given together; auto takes as many as fit in memory, 64
            at most.
        max_new_tokens: length of a reply; 16 by default, and 64 for a JSON object.
        seed: of random directions and heads.
        split_seed: which stories test, train and validate.
        data_seed: seed of generated stories.
        dry_run: say what the run would ask and need (tokens, memory), and do nothing. Of the
            catalogue's models no weights are needed.
        allow_mismatch: take a probing run of another model, or one without a record of its
            training stories.
    """

    k: Annotated[tuple[int, ...] | None, tyro.conf.arg(name="K")] = None
    alpha: tuple[float, ...] | None = None
    direction: Direction = "logistic"
    label: str = "y_p"
    towards: str | None = None
    heads: tuple[Heads, ...] = ("probe",)
    controls: bool = True
    draws: int = 20
    control_stories: int = 100
    leave_out: Natural = 8
    order: Literal["1", "2"] = "1"
    setting: Setting = "multimodal"
    run: Path | None = None
    limit: int | None = None
    style: Literal["plain", "json"] = "plain"
    parser: Literal["robust", "official"] = "robust"
    max_initial_drop: float | None = 0.01
    max_reality_drop: float | None = 0.01
    test: bool = True
    full: bool = False
    data: Path | None = None
    out: Path | None = None
    batch_size: int = 8
    decode_batch_size: int | Literal["auto"] = "auto"
    max_new_tokens: int | None = None
    seed: Seed = 0
    split_seed: Seed = 0
    data_seed: Seed = 2025
    dry_run: bool = False
    allow_mismatch: bool = False

    @property
    def reply_tokens(self) -> int:
        """The most tokens that a reply may have."""
        return self.max_new_tokens or (64 if self.style == "json" else 16)

    @property
    def sides(self) -> dict[Side, float]:
        """How far the accuracy on each kind of side question that is asked may fall."""
        most: dict[Side, float | None] = {
            "initial": self.max_initial_drop,
            "reality": self.max_reality_drop,
        }
        return {side: drop for side, drop in most.items() if drop is not None}

    @property
    def folder(self) -> Path:
        """Where the sweep is kept."""
        if self.out is not None:
            return self.out
        parts = [Path(self.model).name or "model", f"order{self.order}", self.setting]
        parts += [self.direction.replace(":", "-")]
        for name in ("label", "towards", "heads", "style", "split_seed", "data_seed"):
            if (value := getattr(self, name)) != getattr(SweepConfig, name):
                told = "-".join(value) if isinstance(value, tuple) else value
                parts.append(f"{name.replace('_', '')}{told}")
        if self.data is not None:
            parts.append(f"data-{own_name(self.data)}")
        if self.limit is not None:
            parts.append(f"{self.limit}drawn")
        return Path("runs") / "sweep" / "-".join(parts)


def own_name(path: Path) -> str:
    """A folder in the name of another: of . and .., too, its own name."""
    return Path(os.path.abspath(path)).name or "root"
