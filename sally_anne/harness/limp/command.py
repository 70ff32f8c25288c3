"""``sally-anne limp``: MuMA-ToM by inverse planning with a model here or at an endpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sally_anne.core.commands import command
from sally_anne.core.options import Seed
from sally_anne.harness.config import DEFAULT_BATCH, changed, run_folder, steered
from sally_anne.harness.endpoint.options import EndpointOptions
from sally_anne.models.options import ModelOptions

# How the steps are weighed, see :class:`sally_anne.harness.limp.likelihood.Posterior`.
Mode = Literal["log", "official"]


@dataclass(frozen=True)
class LimpConfig(ModelOptions, EndpointOptions):
    """Answer MuMA-ToM's questions by inverse planning.

    The model, or the one behind --endpoint, reads texts and judges what is likely; an endpoint must
    give the probabilities of its likeliest first tokens (top_logprobs).

    Attributes:
        data: folder with questions.json, texts.json and videos/.
        actions: what the films show, in the form of actions_extracted.json with its fields action
            filled in; the model watches the films if none is given.
        perceiver: who watches the films (paper: Gemini 1.5 Pro, beside GPT-4o): a model's name, or
            the address of an endpoint; by default the model that reads. A model here is opened as
            the one that reads: its dtype, quantization and attention.
        perceiver_model: model to ask for at the address.
        perceiver_key: name of the environment variable that holds its key, if it wants one.
        perceiver_prices: of a million tokens that it reads and of a million that it writes;
            --endpoint-limit holds for both models together, --endpoint-rate for each.
        parsed: episodes that need no reading, as in a run's episodes.json.
        steer: folder of a steering vector, or user/name[@revision] on a hub. It steers the judging
            of likelihoods alone: texts and films are read by the model as it is.
        alpha: strength of the vector; its own by default.
        mode: log sums logarithms; official is the released code's softmax over raw products. Both
            are computed, and this one is the run's answer.
        limit: only so many episodes, drawn evenly over the questions' types.
        limit_seed: which of them are drawn.
        out: run folder; named after the options by default. An existing one is resumed.
        batch_size: prompts that go through the model together, or requests that are made to an
            endpoint at once.
        max_new_tokens: length of a list that the model writes.
        force: steer a model that the vector was not fitted on.
    """

    data: Path
    actions: Path | None = None
    perceiver: str | None = None
    perceiver_model: str = ""
    perceiver_key: str | None = None
    perceiver_prices: tuple[float, float] | None = None
    parsed: Path | None = None
    steer: Path | None = None
    alpha: float | None = None
    mode: Mode = "log"
    limit: int | None = None
    limit_seed: Seed = 0
    out: Path | None = None
    batch_size: int = DEFAULT_BATCH
    max_new_tokens: int = 256
    force: bool = False

    @property
    def folder(self) -> Path:
        parts = ["muma_tom"]
        for name in ("actions", "parsed"):
            if (path := getattr(self, name)) is not None:
                parts.append(f"{name}-{path.stem}")
        if (who := self.perceiver_model or self.perceiver) is not None:
            parts.append(f"perceiver-{Path(who).name}")
        parts += steered(self)
        if self.limit is not None:
            parts += [f"{self.limit}drawn", *changed(self, "limit_seed")]
        return run_folder(self, "limp", parts)


main = command("sally-anne limp", LimpConfig, "sally_anne.harness.limp.pipeline:run", resumes=True)


if __name__ == "__main__":
    main()
