"""Asking: episodes are gathered once, questions judged one by one, both kept as they come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from sally_anne.benchmarks.fields import Field
from sally_anne.benchmarks.items import BenchmarkItem
from sally_anne.benchmarks.muma_tom.wording import People, people
from sally_anne.core.errors import HarnessError
from sally_anne.harness.journal import Journal
from sally_anne.harness.limp.episode import Episode, from_json, steps, to_json
from sally_anne.harness.limp.gather import Sources, gather
from sally_anne.harness.limp.likelihood import LikelihoodModel, judge
from sally_anne.harness.limp.options import hypotheses
from sally_anne.harness.limp.posterior import MODES, Posterior, posterior


def persons(items: Sequence[BenchmarkItem]) -> dict[str, People]:
    """Who each episode's questions are about.

    Raises:
        HarnessError: the questions of an episode name no two persons, or several pairs.
    """
    texts: dict[str, list[str]] = {}
    for item in items:
        texts.setdefault(item.group, []).extend([item.question, *(o.text for o in item.options)])
    found = {group: people(wording) for group, wording in texts.items()}
    named = {group: who for group, who in found.items() if who is not None}
    if unknown := [group for group in found if group not in named]:
        raise HarnessError(
            f"episode {unknown[0]}: its questions do not tell whose mind they are about and who "
            "the other person is; LIMP knows the official wording"
        )
    return named


def gather_all(
    items: Sequence[BenchmarkItem],
    sources: Sources,
    journal: Journal,
    on_progress: Callable[[], None] = lambda: None,
) -> dict[str, Episode]:
    """The episode of each group; what the journal holds is not read again.

    Args:
        items: the questions.
        sources: where episodes come from.
        journal: open; keeps the episodes.
        on_progress: called after each episode.

    Raises:
        HarnessError, BenchmarkError: see :func:`sally_anne.harness.limp.gather.gather`.
    """
    who = persons(items)
    found = {}
    for item in {item.group: item for item in items}.values():
        if item.group not in journal.answers:
            episode = gather(item, who[item.group], sources)
            journal.add([{"item_id": item.group, "episode": to_json(episode)}])
        kept = Field(journal.answers[item.group], f"{journal.path}, episode {item.group}")
        found[item.group] = from_json(kept.get("episode"))
        on_progress()
    return found


def answer_all(
    items: Sequence[BenchmarkItem],
    episodes: dict[str, Episode],
    sources: Sources,
    model: LikelihoodModel,
    journal: Journal,
    on_progress: Callable[[], None] = lambda: None,
) -> pd.DataFrame:
    """Judge what the journal does not hold yet.

    Args:
        items: the questions.
        episodes: by group.
        sources: whose writer reads options of unknown wording.
        model: who judges.
        journal: open; keeps what was judged.
        on_progress: called after each question.

    Returns:
        :func:`score` of all items.
    """
    who = persons(items)
    for item in items:
        if item.item_id not in journal.answers:
            found = _answer(item, who[item.group], episodes[item.group], sources, model)
            journal.add([{"item_id": item.item_id, **found}])
        on_progress()
    return score(items, [journal.answers[item.item_id] for item in items])


def _answer(
    item: BenchmarkItem, who: People, episode: Episode, sources: Sources, model: LikelihoodModel
) -> dict[str, Any]:
    if not steps(episode.person(who.subject)):
        return {"problem": f"nothing is known of what {who.subject} says or does"}
    options = hypotheses(item, who, episode, sources.writer.write)
    if options is None:
        return {"problem": "the options' wording was not understood"}
    judged = judge(model, episode, who, options)
    return {
        "problem": "",
        "hypotheses": {label: asdict(entry) for label, entry in options.items()},
        "judged": judged,
    }


def score(items: Sequence[BenchmarkItem], answers: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """One row a question, in both forms of the rule.

    Returns:
        Columns ``item_id, story, type, polarity, answer, steps, problem``, for each of the modes
        ``log`` and ``official`` ``<mode>_label``, ``<mode>_correct``, ``<mode>_invalid`` (no option
        stands out, or there is a problem) and ``<mode>_scores`` (posterior by label as JSON-like
        text; logarithms for ``log``), and ``agree``: whether both choose the same.
    """
    rows = []
    for item, answer in zip(items, answers, strict=True):
        judged = answer.get("judged", {})
        found = _posterior(item, judged)
        row: dict[str, Any] = {
            "item_id": item.item_id,
            "story": item.group,
            "type": "|".join(item.tags.get("type", ())),
            "polarity": item.polarity,
            "answer": item.answer,
            "steps": max((len(pairs) for pairs in judged.values()), default=0),
            "problem": answer["problem"],
        }
        for mode in MODES:
            label = found.choose(item.polarity, mode)
            row[f"{mode}_label"] = label
            row[f"{mode}_correct"] = label is not None and label == item.answer
            row[f"{mode}_invalid"] = label is None
            scores = found.log if mode == "log" else found.official
            row[f"{mode}_scores"] = ", ".join(f"{k}: {v!r}" for k, v in scores.items())
        row["agree"] = row["log_label"] == row["official_label"]
        rows.append(row)
    return pd.DataFrame(rows)


def _posterior(item: BenchmarkItem, judged: dict[str, Any]) -> Posterior:
    try:
        return posterior({label: [(p, q) for p, q in pairs] for label, pairs in judged.items()})
    except HarnessError as error:
        raise HarnessError(f"item {item.item_id}: {error}") from error
