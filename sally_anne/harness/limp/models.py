"""LIMP's two models, here or behind an endpoint: one watches films, the other reads and judges."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.special import logsumexp

from hooks.batch_size import in_batches
from sally_anne.core.errors import HarnessError
from sally_anne.harness.endpoint.limits import Budget
from sally_anne.harness.endpoint.model import EndpointModel, open_second
from sally_anne.harness.endpoint.replies import FILTERED
from sally_anne.harness.limp.command import LimpConfig
from sally_anne.harness.limp.likelihood import HeldBack, Judged
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.models.loading import load_model

AnyModel = SteeredModel | EndpointModel

# First tokens of which an endpoint tells the probability (paper, appendix 11.4).
TOP = 5
# Sums of rounded probabilities may leave nothing for tokens that are not listed.
_LEAST = 1e-9


def open_perceiver(config: LimpConfig, budget: Budget) -> AnyModel | None:
    """Who watches films in the place of the model that reads, if anybody does."""
    if config.perceiver is None:
        return None
    if "://" in config.perceiver:
        return open_second(config, "perceiver", budget)
    own = {"name": config.perceiver, "revision": None}
    return SteeredModel(load_model(**config.opening() | own, videos=True))


def log_probs(
    model: AnyModel, batch_size: int, prompts: Sequence[str], answers: tuple[str, str]
) -> list[Judged]:
    """Log-probabilities of both answers as the beginning of each reply, in nats."""
    if isinstance(model, EndpointModel):
        asked = [Prompt(text) for text in prompts]
        found = []
        for said in model.replies(asked, 1, logprobs=True, top_logprobs=TOP):
            if said.finish == FILTERED:
                raise HeldBack("the endpoint's filter held a step back")
            if not said.first:
                raise HarnessError(
                    f"{model.endpoint.model} at {model.endpoint.url} does not tell how probable "
                    "its first tokens are (top_logprobs), by which LIMP judges; take a model that "
                    "does. What was gathered is kept"
                )
            found.append(among(said.first, answers))
        return found
    found = []
    for texts in in_batches(prompts, batch_size):
        batch = [Prompt(text) for text in texts]
        scores = model.option_log_probs(batch, [answers] * len(batch))
        found += [(likely, unlikely) for likely, unlikely in scores]
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
