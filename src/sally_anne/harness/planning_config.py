"""Options of the commands of inverse planning: ``sally-anne limp`` and ``bip-alm``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, get_args

from sally_anne.core.options import Seed
from sally_anne.harness.config import DEFAULT_BATCH, EndpointOptions, changed, run_folder, steered
from sally_anne.models.options import ModelOptions

# How steps are weighed, see :class:`sally_anne.harness.planning.Posterior`.
Mode = Literal["log", "official"]
MODES: tuple[Mode, ...] = get_args(Mode)
Latents = Literal["rules", "model"]
Likelihood = Literal["reply", "judged"]


@dataclass(frozen=True)
class PlanningConfig(ModelOptions, EndpointOptions):
    """Which questions are asked, and of whom.

    Attributes:
        data: the benchmark's folder.
        steer: folder of a steering vector, or user/name[@revision] on a hub. It steers
            the judging of likelihoods alone.
        alpha: strength of the vector; its own by default.
        mode: how steps are weighed: log sums logarithms; official is what the released code does.
            Both are computed, and this one is the run's answer.
        limit: only so many episodes, sampled evenly over what accuracy is broken down by.
        limit_seed: which of them are sampled.
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

    # The name of the method, and below which folder its runs are.
    title: ClassVar[str]
    method: ClassVar[str]

    @property
    def folder(self) -> Path:
        limit = []
        if self.limit is not None:
            limit = [f"{self.limit}drawn", *changed(self, "limit_seed")]
        return run_folder(self, self.method, [*self.parts, *steered(self), *limit])

    @property
    def parts(self) -> list[str]:
        """What a folder's name says of the command's own options."""
        return []


@dataclass(frozen=True)
class LimpConfig(PlanningConfig):
    """Answer MuMA-ToM's questions by inverse planning.

    The model, or the one behind --endpoint, reads texts and judges what is likely; an endpoint must
    give the probabilities of its likeliest first tokens (top_logprobs).

    Attributes:
        data: folder with questions.json, texts.json and videos/.
        actions: what the films show, in the form of actions_extracted.json with its fields action
            filled in; the model watches the films if none is given.
        perceiver: who watches the films (paper: Gemini 1.5 Pro, with GPT-4o): a model's name, or
            the address of an endpoint; by default the model that reads. A model here is opened as
            the one that reads: its dtype, quantization and attention.
        perceiver_model: model to ask for at the address.
        perceiver_key: name of the environment variable that holds its key, if it needs one.
        perceiver_prices: of a million tokens that it reads and of a million that it writes;
            --endpoint-limit holds for both models together, --endpoint-rate for each.
        parsed: episodes that need no reading, as in a run's episodes.json.
        latents: what an option says of a mind is read by rules where they know its wording, else
            by the model; model has it read every option, as in the paper, and counts how often it
            and the rules agree.
        utterance_goal: whether the prompt of an utterance says what its speaker thinks that the
            other wants, as in the paper; the released code leaves it out.
        choice: who chooses in the end: the posterior, or the model given the posterior, as in the
            released code.
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
    title: ClassVar = "LIMP"
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


@dataclass(frozen=True)
class BipAlmConfig(PlanningConfig):
    """Answer MMToM-QA's questions by inverse planning.

    What is in the apartment and what its person does are read from the text by rules; the model
    says how likely each action is under the goal and the belief of each option. Films are not used.

    Attributes:
        data: folder with questions.json.
        likelihood: reply takes the probability of the action as the model's reply, as in the paper;
            judged asks whether it is likely, as LIMP does. By default reply, and judged at an
            endpoint, which must give the probabilities of its likeliest first tokens
            (top_logprobs) and scores no given reply.
    """

    likelihood: Likelihood | None = None
    title: ClassVar = "BIP-ALM"
    method: ClassVar = "bip-alm"

    @property
    def judges(self) -> Likelihood:
        """How likelihoods are taken."""
        return self.likelihood or ("reply" if self.endpoint is None else "judged")

    @property
    def parts(self) -> list[str]:
        return ["mmtom_qa"] if self.likelihood is None else ["mmtom_qa", self.likelihood]
