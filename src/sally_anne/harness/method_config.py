"""Options of ``describe, limp, bip-alm, distractors, copilot, films``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, get_args

import tyro

from sally_anne.core.options import Seed
from sally_anne.harness.config import EndpointOptions, RunOptions


@dataclass(frozen=True)
class DescribeConfig:
    """Count what the questions of a benchmark, or of a file of your own, are and how long.

    Attributes:
        task: a task of `sally-anne evaluate`, or a file of questions.
        data: folder in the benchmark's release layout.
        split: of the benchmark; auto is its own.
    """

    task: tyro.conf.Positional[str]
    data: Path | None = None
    split: str = "auto"


# How steps are weighed, see :mod:`sally_anne.harness.planning`.
Mode = Literal["log", "official"]
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True)
class PlanningConfig(EndpointOptions, RunOptions):
    """Which questions are asked, and of whom.

    Attributes:
        data: the benchmark's folder.
        steer: folder of a steering vector, or user/name[@revision] on a hub, for the judging alone.
        alpha: strength of the vector; its own by default.
        mode: which of two ways to weigh steps gives the run's answer: log sums logarithms; official
            is what the released code does.
        limit: only so many episodes, sampled evenly over what accuracy is broken down by.
        limit_seed: which of them are sampled.
        allow_mismatch: steer a model that the vector was not fitted on.
    """

    data: Path
    steer: Path | None = None
    alpha: float | None = None
    mode: Mode = "log"
    limit: int | None = None
    limit_seed: Seed = 0
    allow_mismatch: bool = False

    # The name of the method.
    title: ClassVar[str]
    named: ClassVar[tuple[str, ...]] = ("data", "steer", "alpha", "limit", "limit_seed")


@dataclass(frozen=True)
class LimpConfig(PlanningConfig):
    """Answer MuMA-ToM's questions by inverse planning.

    The model, or the one behind --endpoint, reads texts and judges what is likely; an endpoint must
    give the probabilities of its likeliest first tokens (top_logprobs).

    Attributes:
        data: folder with questions.json, texts.json and videos/.
        actions: what the films show, in the form of actions_extracted.json with its fields action
            filled in; the model watches the films if none is given.
        perceiver: who watches the films: a model's name, or the address of an endpoint; by default
            the model that reads.
        perceiver_model: model to ask for at the address.
        perceiver_key: name of the environment variable that holds its key, if it needs one.
        latents: what an option says of a mind is read by rules where they know its wording; or
            always by the model, as in the paper.
        utterance_goal: whether the prompt of an utterance says what its speaker thinks that the
            other wants, as in the paper; the released code leaves it out.
        templates: folder of prompts of your own: watch, text, film, initial, hypotheses, likely
            (.txt), with fields in braces; ours where one is not there.
        choice: posterior, or the model given the posterior, as in the released code.
        max_new_tokens: length of a list that the model writes.
    """

    actions: Path | None = None
    perceiver: str | None = None
    perceiver_model: str = ""
    perceiver_key: str | None = None
    latents: Literal["rules", "model"] = "rules"
    utterance_goal: bool = True
    templates: Path | None = None
    choice: Literal["posterior", "model"] = "posterior"
    max_new_tokens: int = 256
    kind, title = "limp", "LIMP"
    named = (
        *("actions", "perceiver", "perceiver_model", "latents", "utterance_goal", "templates"),
        *PlanningConfig.named,
    )


@dataclass(frozen=True)
class BipAlmConfig(PlanningConfig):
    """Answer MMToM-QA's questions by inverse planning.

    What is in the apartment and what its person does are read from the text by rules; the model
    says how probable each action is as a reply under the goal and the belief of each option; one at
    an endpoint, whether it is likely (by top_logprobs). Films are not used.

    Attributes:
        data: folder with questions.json.
    """

    kind, title = "bip-alm", "BIP-ALM"


@dataclass(frozen=True)
class DistractorConfig(RunOptions):
    """Which questions of MoMentS does a model answer without any context?

    Attributes:
        data: folder with moments_<split>_questions.json and moments_<split>_keys.json.
        trials: number of sampled orders (N of the paper's algorithm 1).
        threshold: right answers from which on a set is biased (k).
        seed: samples the orders.
        split: which questions; the benchmark's own choice is validation.
    """

    data: Path
    trials: int = 6
    threshold: int = 5
    seed: Seed = 0
    split: str = "validation"

    kind = "distractors"
    named = ("data", "trials", "threshold", "seed", "split")


@dataclass(frozen=True)
class CopilotConfig(EndpointOptions, RunOptions):
    """A model writes three wrong options for each question, and again while they give it away.

    Attributes:
        data: questions, one a line of JSON: question, answer, transcript, and if you like id and
            distractors, three of your own that are checked first.
        rounds: sets that are checked for a question at most. More rounds go on where fewer ended.
        trials: number of sampled orders (N of the paper's algorithm 1).
        threshold: right answers from which on a set is biased (k).
        seed: samples the orders.
        max_new_tokens: length of a reply with three options.
    """

    data: Path
    rounds: int = 4
    trials: int = DistractorConfig.trials
    threshold: int = DistractorConfig.threshold
    seed: Seed = 0
    max_new_tokens: int = 256

    kind = "copilot"
    named = ("data", "trials", "threshold", "seed", "max_new_tokens")


@dataclass(frozen=True)
class FilmsConfig(EndpointOptions, RunOptions):
    """Rank films by how social a model takes them to be, from their synopses.

    Attributes:
        data: films, one a line of JSON: title, synopsis (films without one are not ranked), and if
            you like captions, and id, which may be left out where titles differ.
        template: file with a prompt of your own that asks for a number, its fields in braces:
            synopsis, captions, title.
    """

    data: Path
    template: Path | None = None
    kind = "films"
    named = ("data", "template")
