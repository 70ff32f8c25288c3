"""Who reads and who judges: a model here, steered or not, or one behind an endpoint."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp

from sally_anne.core.errors import HarnessError
from sally_anne.harness.config import check_steered
from sally_anne.harness.endpoint.limits import Budget
from sally_anne.harness.endpoint.model import EndpointModel, open_endpoint
from sally_anne.harness.endpoint.options import check_endpoint
from sally_anne.harness.endpoint.replies import FILTERED
from sally_anne.harness.inverse_planning.options import PlanningOptions
from sally_anne.harness.inverse_planning.posterior import HeldBack, Judged, Said
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.harness.vectors import open_vector, require_fits
from sally_anne.hooks.batch_size import in_batches
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel, load_model

AnyModel = SteeredModel | EndpointModel

LIKELY, UNLIKELY = ANSWERS = ("A", "B")
# First tokens of which an endpoint tells the probability (MuMA-ToM paper, appendix 11.4).
TOP = 5
# Sums of rounded probabilities may leave nothing for tokens that are not listed.
_LEAST = 1e-9


@dataclass(frozen=True)
class Models:
    """A run's model, as it reads and as it judges; a vector steers the judging alone.

    Attributes:
        reading: the model as it is.
        judging: the same one, steered.
        loaded: it, if it is here.
        mismatch: how it differs from the vector's own model, if that was allowed.
    """

    reading: AnyModel
    judging: AnyModel
    loaded: LoadedModel | None
    mismatch: str

    @property
    def about(self) -> dict[str, Any]:
        """What reading depends on, for a run's record."""
        return self.loaded.about if self.loaded else self.reading.about


def check_planning(config: PlanningOptions, vector: SteeringVector | None) -> SteeringVector | None:
    """The vector that steers the run, if one does; HarnessError names an unusable option."""
    check_steered(config)
    check_endpoint(config)
    if vector is None and config.steer is not None:
        vector = open_vector(config.steer, config.allow_mismatch)
    return vector


def open_models(
    config: PlanningOptions,
    vector: SteeringVector | None,
    loaded: LoadedModel | None,
    budget: Budget,
    videos: bool = False,
) -> Models:
    """The model that the options name, unless it is ``loaded`` already."""
    if config.endpoint is not None:
        distant = open_endpoint(config, budget)
        return Models(distant, distant, None, "")
    here = loaded or load_model(**config.opening(), videos=videos)
    mismatch = require_fits(vector, here, config.alpha) if vector else ""
    return Models(SteeredModel(here), SteeredModel(here, vector, config.alpha), here, mismatch)


def likely(lines: Sequence[str], rule: str) -> str:
    """Asks whether the last line is likely after those before it."""
    return (
        "\n".join(lines) + f"\n\n{rule} Is the last line likely?\n"
        f"{LIKELY}) likely\n{UNLIKELY}) unlikely\nReply with {LIKELY} or {UNLIKELY} only."
    )


def judged_by(model: AnyModel, batch_size: int, prompts: Sequence[str]) -> list[Judged]:
    """Log-probabilities of :data:`ANSWERS` as the beginning of each reply, in nats."""
    found: list[Judged] = []
    if isinstance(model, EndpointModel):
        asked = [Prompt(text) for text in prompts]
        for said in model.replies(asked, 1, logprobs=True, top_logprobs=TOP):
            if said.finish == FILTERED:
                raise HeldBack("the endpoint's filter held a step back")
            if not said.first:
                raise HarnessError(
                    f"{model.endpoint.model} at {model.endpoint.url} does not tell how probable "
                    "its first tokens are (top_logprobs), by which steps are judged; take a model "
                    "that does. What was gathered is kept"
                )
            found.append(among(said.first, ANSWERS))
        return found
    for texts in in_batches(prompts, batch_size):
        batch = [Prompt(text) for text in texts]
        scores = model.option_log_probs(batch, [ANSWERS] * len(batch))
        found += [(likely, unlikely) for likely, unlikely in scores]
    return found


def said_by(model: SteeredModel, batch_size: int, asked: Sequence[tuple[str, str]]) -> list[Said]:
    """How probable each text is as the beginning of the reply to its prompt, and its tokens.

    An endpoint does not tell that of a text that it did not write.
    """
    found: list[Said] = []
    for pairs in in_batches(asked, batch_size):
        batch = [Prompt(prompt) for prompt, _ in pairs]
        scores = model.option_log_probs(batch, [[text] for _, text in pairs])
        lengths = [
            len(model.continuations(prompt, [text])[0])
            for prompt, (_, text) in zip(batch, pairs, strict=True)
        ]
        found += [(score, n) for (score,), n in zip(scores, lengths, strict=True)]
    return found


def among(first: Mapping[str, float], answers: tuple[str, str]) -> Judged:
    """Both answers' log-probabilities among the listed first tokens, in nats.

    Spellings of an answer ("A", " A", "A)") count together. One that is not listed is at most as
    probable as the last one that is, and as all that is left: it counts as the smaller of both,
    where the released code takes 0 or stops.
    """
    left = max(_LEAST, 1.0 - math.fsum(map(math.exp, first.values())))
    most = min(*first.values(), math.log(left)) if len(first) > 1 else math.log(left)

    def of(answer: str) -> float:
        spelled = [value for token, value in first.items() if token.strip(" \n*).") == answer]
        return float(logsumexp(np.asarray(spelled))) if spelled else most

    likely, unlikely = map(of, answers)
    return min(likely, 0.0), min(unlikely, 0.0)
