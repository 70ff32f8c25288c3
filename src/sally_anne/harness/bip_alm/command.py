"""``sally-anne bip-alm``: MMToM-QA by inverse planning with a model here or at an endpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from sally_anne.core.commands import command
from sally_anne.harness.inverse_planning.options import PlanningOptions

Likelihood = Literal["reply", "judged"]


@dataclass(frozen=True)
class BipAlmConfig(PlanningOptions):
    """Answer MMToM-QA's questions by inverse planning.

    What is in the apartment and what its person does are read from the text by rules; the model
    says how likely each action is under the goal and the belief of each option. Films are not used.

    Attributes:
        data: folder with questions.json.
        likelihood: reply takes the probability of the action as the model's reply, as in the paper;
            judged asks whether it is likely, as LIMP does. By default reply, and judged at an
            endpoint, which must give the probabilities of its likeliest first tokens
            (top_logprobs) and tells that of no given reply.
    """

    likelihood: Likelihood | None = None
    method: ClassVar = "bip-alm"

    @property
    def judges(self) -> Likelihood:
        """How likelihoods are taken."""
        return self.likelihood or ("reply" if self.endpoint is None else "judged")

    @property
    def parts(self) -> list[str]:
        return ["mmtom_qa"] if self.likelihood is None else ["mmtom_qa", self.likelihood]


main = command(
    "sally-anne bip-alm",
    BipAlmConfig,
    "sally_anne.harness.bip_alm.pipeline:run",
    resumes=True,
    page=True,
)


if __name__ == "__main__":
    main()
