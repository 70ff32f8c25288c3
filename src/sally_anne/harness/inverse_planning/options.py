"""What the commands of inverse planning have in common."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from sally_anne.core.options import Seed
from sally_anne.harness.config import DEFAULT_BATCH, changed, run_folder, steered
from sally_anne.harness.endpoint.options import EndpointOptions
from sally_anne.harness.inverse_planning import Mode
from sally_anne.models.options import ModelOptions


@dataclass(frozen=True)
class PlanningOptions(ModelOptions, EndpointOptions):
    """Which questions are asked, and of whom.

    Attributes:
        data: the benchmark's folder.
        steer: folder of a steering vector, or user/name[@revision] on a hub. It steers
            the judging of likelihoods alone.
        alpha: strength of the vector; its own by default.
        mode: how steps are weighed: log sums logarithms; official is what the released code does.
            Both are computed, and this one is the run's answer.
        limit: only so many episodes, drawn evenly over what accuracy is broken down by.
        limit_seed: which of them are drawn.
        out: run folder; named after the options by default. An existing one is resumed.
        batch_size: prompts that go through the model together, or requests that are made to an
            endpoint at once.
        allow_mismatch: steer a model that the vector was not fitted on.
    """

    data: Path
    steer: Path | None = None
    alpha: float | None = None
    mode: Mode = "log"
    limit: int | None = None
    limit_seed: Seed = 0
    out: Path | None = None
    batch_size: int = DEFAULT_BATCH
    allow_mismatch: bool = False

    # The command, and below which folder its runs are.
    method: ClassVar[str]

    @property
    def folder(self) -> Path:
        few = []
        if self.limit is not None:
            few = [f"{self.limit}drawn", *changed(self, "limit_seed")]
        return run_folder(self, self.method, [*self.parts, *steered(self), *few])

    @property
    def parts(self) -> list[str]:
        """What a folder's name says of the command's own options."""
        return []
