"""What a run of LIMP is asked to do: the single source for the command line and the saved run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sally_anne.core.errors import HarnessError
from sally_anne.core.options import check_options
from sally_anne.harness.limp.posterior import Mode
from sally_anne.models.options import ModelOptions


@dataclass(frozen=True)
class LimpConfig(ModelOptions):
    """Answer MuMA-ToM's questions by inverse planning with a local model.

    Attributes:
        data: folder with questions.json, texts.json and videos/.
        actions: what the films show, in the form of actions_extracted.json with its fields action
            filled in; the model watches the films if none is given.
        parsed: episodes that need no reading, as in a run's episodes.json.
        steer: folder of a steering vector. It steers the judging of likelihoods alone: texts and
            films are read by the model as it is.
        alpha: strength of the vector; its own by default.
        mode: log sums logarithms; official is the released code's softmax over raw products. Both
            are computed, and this one is the run's answer.
        limit: only the first so many episodes.
        out: run folder; named after the options by default. An existing one is resumed.
        batch_size: prompts that go through the model together.
        max_new_tokens: length of a list that the model writes.
        force: steer a model that the vector was not fitted on.
    """

    data: Path
    actions: Path | None = None
    parsed: Path | None = None
    steer: Path | None = None
    alpha: float | None = None
    mode: Mode = "log"
    limit: int | None = None
    out: Path | None = None
    batch_size: int = 16
    max_new_tokens: int = 256
    force: bool = False

    @property
    def folder(self) -> Path:
        """Where the run is kept."""
        if self.out is not None:
            return self.out
        parts = [Path(self.model).name or "model", "muma_tom"]
        for name in ("actions", "parsed"):
            if (path := getattr(self, name)) is not None:
                parts.append(f"{name}-{path.stem}")
        if self.steer is not None:
            parts.append(f"steered-{self.steer.name}")
        if self.alpha is not None:
            parts.append(f"alpha{self.alpha:g}")
        if self.limit is not None:
            parts.append(f"{self.limit}episodes")
        return Path("runs") / "limp" / "-".join(parts)

    def check(self) -> None:
        """What is wrong with the options alone.

        Raises:
            OptionError, HarnessError: names the option.
        """
        check_options(self)
        if self.alpha is not None and self.steer is None:
            raise HarnessError("--alpha is the strength of a vector: give one with --steer")
