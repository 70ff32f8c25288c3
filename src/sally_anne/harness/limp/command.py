"""``sally-anne limp``: MuMA-ToM by inverse planning with a model here or at an endpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from sally_anne.core.commands import command
from sally_anne.harness.inverse_planning.options import PlanningOptions

Latents = Literal["rules", "model"]


@dataclass(frozen=True)
class LimpConfig(PlanningOptions):
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
        latents: what an option says of a mind is read by rules where they know its wording, else
            by the model; model has it read every option, as in the paper, and counts how often it
            and the rules agree.
        utterance_goal: whether the prompt of an utterance tells what its speaker thinks that the
            other wants, as in the paper; the released code leaves it out.
        choice: who chooses in the end: the posterior, or the model that is shown the posterior, as
            in the released code.
        max_new_tokens: length of a list that the model writes.
    """

    actions: Path | None = None
    perceiver: str | None = None
    perceiver_model: str = ""
    perceiver_key: str | None = None
    perceiver_prices: tuple[float, float] | None = None
    parsed: Path | None = None
    latents: Latents = "rules"
    utterance_goal: bool = True
    choice: Literal["posterior", "model"] = "posterior"
    max_new_tokens: int = 256
    method: ClassVar = "limp"

    @property
    def parts(self) -> list[str]:
        parts = ["muma_tom"]
        for name in ("actions", "parsed"):
            if (path := getattr(self, name)) is not None:
                parts.append(f"{name}-{path.stem}")
        if (who := self.perceiver_model or self.perceiver) is not None:
            parts.append(f"perceiver-{Path(who).name}")
        if self.latents != "rules":
            parts.append(f"latents-{self.latents}")
        if not self.utterance_goal:
            parts.append("no-utterance-goal")
        return parts


main = command(
    "sally-anne limp", LimpConfig, "sally_anne.harness.limp.pipeline:run", resumes=True, page=True
)


if __name__ == "__main__":
    main()
