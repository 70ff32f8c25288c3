"""Inverse planning: what a mind must be like for what it does and says to be likely.

Each option of a question is a hypothesis about a mind, a model judges how likely each step is under
it, and the option with the most, or the least, of that is the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
from scipy.special import log_expit, log_softmax, logsumexp

from sally_anne.core.console import Bars, Console, many, print_lines, print_table
from sally_anne.core.errors import HarnessError
from sally_anne.core.folder import Journal, save_config
from sally_anne.core.options import check_options
from sally_anne.core.processes import in_batches
from sally_anne.data.items import Benchmark, Polarity, Question
from sally_anne.harness import chat_endpoint
from sally_anne.harness.chat_endpoint import AnyModel
from sally_anne.harness.config import check_endpoint, check_steered, model_name
from sally_anne.harness.evaluate import require_fits
from sally_anne.harness.method_config import MODES, Mode, PlanningConfig
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.harness.report import save, steered_by
from sally_anne.harness.score import estimates
from sally_anne.harness.tasks import sample_items, subset_note
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel, load_model

# What the journal keeps of a question, with what is wrong in ``problem``.
Answer = dict[str, Any]
T = TypeVar("T")
# Log-probabilities of the answers "likely" and "unlikely", in nats.
LikelyUnlikely = tuple[float, float]
# Log-probability of a text as a reply, in nats, and the number of its tokens.
ScoredText = tuple[float, int]

ANSWERS, TABLE = "answers.jsonl", "answers.parquet"
LIKELY, UNLIKELY = LABELS = ("A", "B")
# First tokens of which an endpoint gives the probability (MuMA-ToM paper, appendix 11.4).
TOP = 5
# Sums of rounded probabilities may leave nothing for tokens that are not listed.
_LEAST = 1e-9


class Session(ExitStack):
    """A run in its folder: its models by role, what they are asked, and what is said in the end."""

    def __init__(self, config: Any, console: Console | None) -> None:
        super().__init__()
        check_options(config)
        if hasattr(config, "endpoint"):
            check_endpoint(config)
        self.config, self.console = config, console or Console()
        self.models: dict[str, AnyModel] = {}

    def open(self, loaded: LoadedModel | None = None, videos: bool = False) -> AnyModel:
        if getattr(self.config, "endpoint", None) is not None:
            return self._add("model", chat_endpoint.open_endpoint(self.config))
        here = loaded or load_model(**self.config.opening(), videos=videos)
        return self._add("model", SteeredModel(here))

    def open_second(self, role: str, videos: bool = False) -> AnyModel:
        """The model that the option ``role`` names, or that of :meth:`open` without one."""
        if getattr(self.config, role) is None:
            return self.models["model"]
        return self._add(role, chat_endpoint.open_second(self.config, role, videos=videos))

    def _add(self, role: str, model: AnyModel) -> AnyModel:
        self.enter_context(model.keeping(self.config.folder, "" if role == "model" else role))
        self.models[role] = model
        return model

    def journal(self, file: str, about: dict[str, Any]) -> Journal:
        journal = self.enter_context(Journal(self.config.folder / file, about))
        loaded = getattr(self.models["model"], "loaded", None)
        save_config(self.config.folder, asdict(self.config), loaded)
        return journal

    def answers(
        self,
        file: str,
        about: dict[str, Any],
        asked: Mapping[str, T],
        answer: Callable[[Sequence[T]], Iterable[Mapping[str, Any]]],
        batch_size: int = 1,
    ) -> dict[str, Answer]:
        journal = self.journal(file, about)
        with Bars(self.console) as bar:
            advance = partial(bar.advance, bar.add_task(Path(file).stem, total=len(asked)))
            return ask_rest(journal, asked, answer, batch_size, advance)

    def end(self, *lines: str) -> None:
        print_lines(self.console, [*lines, f"run folder: {self.config.folder}"])


def ask_rest(
    journal: Journal,
    asked: Mapping[str, T],
    answer: Callable[[Sequence[T]], Iterable[Mapping[str, Any]]],
    batch_size: int = 1,
    advance: Callable[[int], object] = lambda done: None,
) -> dict[str, Answer]:
    """The answers by name; those that the journal lacks are asked in batches and kept at once."""
    todo = [name for name in asked if name not in journal.answers]
    advance(len(asked) - len(todo))
    for batch in in_batches(todo, batch_size):
        found = answer([asked[name] for name in batch])
        journal.add({"item_id": n, **one} for n, one in zip(batch, found, strict=True))
        advance(len(batch))
    return {name: journal.answers[name] for name in asked}


class Planning(Session):
    """A run of inverse planning: its questions, the sample of --limit, the vector that steers."""

    def __init__(
        self,
        config: PlanningConfig,
        vector: SteeringVector | None,
        benchmark: Benchmark,
        console: Console | None,
    ) -> None:
        super().__init__(config, console)
        check_steered(config)
        if vector is None and config.steer is not None:
            vector = SteeringVector.load(config.steer, allow_mismatch=config.allow_mismatch)
        self.vector, self.mismatch = vector, ""
        self.items = sample_items(benchmark.load(config.data), benchmark.breakdowns, config)
        note = subset_note(self.items, benchmark.breakdowns, config)
        print_lines(self.console, [note] if note else [])

    def judging(self) -> AnyModel:
        model = self.models["model"]
        if not isinstance(model, SteeredModel):
            return model
        if self.vector is not None:
            self.mismatch = require_fits(self.vector, model.loaded, self.config.alpha)
        return replace(model, steering=self.vector, alpha=self.config.alpha)

    def finish(self, table: pd.DataFrame, about: Mapping[str, Any]) -> pd.DataFrame:
        """Write, print and return the table; ``config.mode`` answers, or a model that chose."""
        config = self.config
        first = "model" if "model_label" in table else config.mode
        choosers = list(dict.fromkeys((first, config.mode, *MODES)))
        results = summarise(table, choosers)
        kept = {
            "config": asdict(config),
            "about": about,
            "results": results,
            "mismatch": self.mismatch,
        }
        chosen = {name: table[f"{first}_{name}"] for name in ("label", "correct", "invalid")}
        texts = (
            " ".join([*vars(i.context).values(), i.question, *(o.text for o in i.options)])
            for i in self.items
        )
        loaded = getattr(self.models["model"], "loaded", None)
        save(self.console, config.folder / TABLE, table.assign(**chosen), kept, loaded, texts)
        columns = [
            {"all": found["overall"], **found["groups"], "invalid": found["invalid"]}
            for found in (results[chooser] for chooser in choosers)
        ]
        rows = [[kind, columns[0][kind]["n"], *(c[kind] for c in columns)] for kind in columns[0]]
        title = f"{config.title}, {model_name(config)}, {steered_by(config)} (% right)"
        print_table(self.console, title, ["questions", "n", *choosers], rows)
        self.end(
            f"both forms choose the same in {100 * results['agreement']:.1f} % of questions",
            *(f"no answer to {many(n, 'questions')}: {w}" for w, n in results["problems"].items()),
        )
        return table


def likely_prompt(lines: Sequence[str], rule: str) -> str:
    return (
        "\n".join(lines) + f"\n\n{rule} Is the last line likely?\n"
        f"{LIKELY}) likely\n{UNLIKELY}) unlikely\nReply with {LIKELY} or {UNLIKELY} only."
    )


def judge_likely(
    model: AnyModel, batch_size: int, prompts: Sequence[str]
) -> list[LikelyUnlikely | None]:
    """Log-probabilities (nats) of :data:`LABELS` as the beginning of each reply.

    None where an endpoint's filter holds a step back.
    """
    scores: list[LikelyUnlikely | None] = []
    for texts in in_batches(prompts, batch_size):
        batch = [Prompt(text) for text in texts]
        if isinstance(model, SteeredModel):
            found = model.option_log_probs(batch, [LABELS] * len(batch))
            scores += [(likely, unlikely) for likely, unlikely in found]
            continue
        for reply in model.replies(batch, 1, logprobs=True, top_logprobs=TOP):
            filtered = reply.finish == chat_endpoint.FILTERED
            if not reply.first and not filtered:
                raise HarnessError(
                    f"{model.model} at {model.url} gives no probabilities of its first tokens "
                    "(top_logprobs), by which steps are judged"
                )
            scores.append(None if filtered else from_top_tokens(reply.first or {}))
    return scores


def score_replies(
    model: SteeredModel, batch_size: int, requests: Sequence[tuple[str, str]]
) -> list[ScoredText]:
    """How probable each text is as the beginning of the reply to its prompt, and its tokens."""
    scored: list[ScoredText] = []
    for pairs in in_batches(requests, batch_size):
        batch, texts = [Prompt(prompt) for prompt, _ in pairs], [[text] for _, text in pairs]
        lengths = (len(model.continuations(*one)[0]) for one in zip(batch, texts, strict=True))
        scores = model.option_log_probs(batch, texts)
        scored += [(score, n) for (score,), n in zip(scores, lengths, strict=True)]
    return scored


def from_top_tokens(first: Mapping[str, float]) -> LikelyUnlikely:
    """Both answers' log-probabilities among the listed first tokens, in nats.

    Spellings of an answer count together. One that is not listed counts as the last one that is,
    or as all that is left, where that is less; the released code takes 0 or stops.
    """
    left = max(_LEAST, 1.0 - math.fsum(map(math.exp, first.values())))
    most = min(*first.values(), math.log(left)) if len(first) > 1 else math.log(left)

    def of(answer: str) -> float:
        listed = [value for token, value in first.items() if token.strip(" \n*).") == answer]
        return min(0.0, float(logsumexp(listed)) if listed else most)

    return of(LIKELY), of(UNLIKELY)


def judge(
    model: Callable[[list[Any]], list[Any]],
    requests: Mapping[str, Sequence[Any]],
    minds: Mapping[str, Any],
) -> Answer:
    """The judgement of all steps of each hypothesis, by label.

    Each step is asked once: in different batches the same prompt may differ in its last digits, and
    would settle what nothing in the question does.
    """
    kept = {"hypotheses": {label: asdict(mind) for label, mind in minds.items()}}
    distinct = list(dict.fromkeys(step for steps in requests.values() for step in steps))
    judged = dict(zip(distinct, model(distinct), strict=True))
    if None in judged.values():
        return {"problem": "the endpoint's filter held a step back", **kept}
    by_label = {label: [judged[step] for step in steps] for label, steps in requests.items()}
    return {"problem": "", **kept, "judged": by_label}


# Belief in each option's hypothesis after all steps, by label, with equal priors: ``log`` has
# log-probabilities, ``official`` what the released code takes for probabilities.
Posterior = dict[Mode, dict[str, float]]


def posterior_of_judgements(judged: Mapping[str, Sequence[LikelyUnlikely]]) -> Posterior:
    """Weigh hypotheses by the answers "likely" (p) and "unlikely" (q) to all steps.

    ``log``: log(p / (p + q)) summed over the steps. It neither underflows nor depends on what else
    the model might reply. ``official``: p multiplied over the steps and a softmax over these
    products, as in LIMP's released code; nearly flat, as they are at most 1.
    """
    sums = {
        # Two impossible answers mean nothing.
        label: math.fsum(float(log_expit(0.0 if p == q else p - q)) for p, q in pairs)
        for label, pairs in judged.items()
    }
    products = {label: math.prod(math.exp(p) for p, _ in pairs) for label, pairs in judged.items()}
    return _posterior(sums, products)


def posterior_of_replies(scored: Mapping[str, Sequence[ScoredText]]) -> Posterior:
    """Weigh hypotheses by how probable all steps are as replies, for each label.

    ``log``: log-probabilities of the steps, summed. ``official``: those of a step's tokens in the
    mean, summed over the steps, as in BIP-ALM's released code.
    """
    sums = {label: math.fsum(p for p, _ in steps) for label, steps in scored.items()}
    means = {label: math.fsum(p / n for p, n in steps) for label, steps in scored.items()}
    return _posterior(sums, means)


def _posterior(log: dict[str, float], official: dict[str, float]) -> Posterior:
    def normalised(scores: dict[str, float]) -> dict[str, float]:
        if max(scores.values(), default=-math.inf) == -math.inf:
            return dict.fromkeys(scores, -math.log(max(1, len(scores))))
        return dict(zip(scores, log_softmax(list(scores.values())).tolist(), strict=True))

    found = {label: math.exp(value) for label, value in normalised(official).items()}
    return {"log": normalised(log), "official": found}


def choose(scores: Mapping[str, float], polarity: Polarity) -> str | None:
    """The option asked for; None if the best ones are equal, which chooses none of them."""
    best = (max if polarity == "most" else min)(scores.values(), default=math.nan)
    labels = [label for label, score in scores.items() if score == best]
    return labels[0] if len(labels) == 1 else None


def score(
    items: Sequence[Question],
    answers: Mapping[str, Answer],
    weigh: Callable[[Mapping[str, Any]], Posterior],
) -> pd.DataFrame:
    """One row a question, in both forms of the rule; ``weigh`` gets what was judged, by label.

    Columns ``item_id, story, type, polarity, answer, steps, problem``, for each of the modes
    ``log`` and ``official`` ``<mode>_label``, ``<mode>_correct``, ``<mode>_invalid`` (no option
    stands out, or there is a problem) and ``<mode>_scores``, and ``agree``: both choose the same.
    """
    rows = []
    for item in items:
        answer = answers[item.item_id]
        judged = answer.get("judged", {})
        posterior = weigh(judged)
        row: dict[str, Any] = {"item_id": item.item_id, "story": item.group}
        row |= {"type": "|".join(item.tags.get("type", ())), "polarity": item.polarity}
        row |= {"answer": item.answer, "steps": max(map(len, judged.values()), default=0)}
        row["problem"] = answer["problem"]
        for mode in MODES:
            row |= marked(mode, choose(posterior[mode], item.polarity), item)
            row[f"{mode}_scores"] = ", ".join(f"{k}: {v!r}" for k, v in posterior[mode].items())
        row["agree"] = row["log_label"] == row["official_label"]
        rows.append(row)
    return pd.DataFrame(rows)


def marked(chooser: str, label: str | None, item: Question) -> dict[str, Any]:
    values = {"label": label, "correct": label == item.answer, "invalid": label is None}
    return {f"{chooser}_{name}": value for name, value in values.items()}


def summarise(table: pd.DataFrame, choosers: Sequence[str] = MODES) -> dict[str, Any]:
    """Accuracy of each chooser, overall and by type, and how often both forms agree."""
    problems = table.loc[table["problem"] != "", "problem"].value_counts().to_dict()
    results: dict[str, Any] = {"agreement": float(table["agree"].mean()), "problems": problems}
    for chooser in choosers:
        columns = {f"{chooser}_{name}": name for name in ("correct", "invalid")}
        rows = table.rename(columns=columns)
        found = {name: asdict(one) for name, one in estimates(rows, beliefs=False).items()}
        kinds = rows.groupby("type")
        groups = {str(kind): estimates(part, beliefs=False)["overall"] for kind, part in kinds}
        results[chooser] = found | {"groups": {kind: asdict(one) for kind, one in groups.items()}}
    return results
