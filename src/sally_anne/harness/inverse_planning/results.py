"""What a run of inverse planning found: a row a question, shares with intervals, and the files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd
from rich.markup import escape

from sally_anne.core.console import Console
from sally_anne.core.errors import HarnessError
from sally_anne.data.items import BenchmarkItem
from sally_anne.harness.drawing import Drawn
from sally_anne.harness.endpoint.model import EndpointModel, said_usage
from sally_anne.harness.endpoint.options import named
from sally_anne.harness.endpoint.options import saved as saved_options
from sally_anne.harness.inverse_planning import MODES
from sally_anne.harness.inverse_planning.models import AnyModel, Models
from sally_anne.harness.inverse_planning.options import PlanningOptions
from sally_anne.harness.inverse_planning.posterior import Posterior
from sally_anne.harness.journal import Journal
from sally_anne.harness.metrics import accuracy
from sally_anne.harness.reporting import print_table, save, steered_by

ANSWERS, TABLE = "answers.jsonl", "answers.parquet"
# What the journal keeps of a question, with what is wrong in ``problem``.
Answer = dict[str, Any]


def answer_all(
    items: Sequence[BenchmarkItem],
    journal: Journal,
    answer: Callable[[BenchmarkItem], Answer],
    on_progress: Callable[[], None] = lambda: None,
) -> list[Answer]:
    """The answer to each item; those that the open journal holds are not asked again."""
    for item in items:
        if item.item_id not in journal.answers:
            journal.add([{"item_id": item.item_id, **answer(item)}])
        on_progress()
    return [journal.answers[item.item_id] for item in items]


def score(
    items: Sequence[BenchmarkItem],
    answers: Sequence[Answer],
    weigh: Callable[[Mapping[str, Any]], Posterior],
) -> pd.DataFrame:
    """One row a question, in both forms of the rule; ``weigh`` has what was ``judged`` by label.

    Columns ``item_id, story, type, polarity, answer, steps, problem``, for each of the modes
    ``log`` and ``official`` ``<mode>_label``, ``<mode>_correct``, ``<mode>_invalid`` (no option
    stands out, or there is a problem) and ``<mode>_scores`` (posterior by label as JSON-like text;
    logarithms for ``log``), and ``agree``: whether both choose the same.
    """
    rows = []
    for item, answer in zip(items, answers, strict=True):
        judged = answer.get("judged", {})
        try:
            found = weigh(judged)
        except HarnessError as error:
            raise HarnessError(f"item {item.item_id}: {error}") from error
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
            row |= marked(mode, label, item)
            beliefs: dict[str, float] = getattr(found, mode)
            row[f"{mode}_scores"] = ", ".join(f"{k}: {v!r}" for k, v in beliefs.items())
        row["agree"] = row["log_label"] == row["official_label"]
        rows.append(row)
    return pd.DataFrame(rows)


def marked(who: str, label: str | None, item: BenchmarkItem) -> dict[str, Any]:
    """What an option chosen for an item is worth, in columns that begin with ``who``."""
    right = label is not None and label == item.answer
    return {f"{who}_label": label, f"{who}_correct": right, f"{who}_invalid": label is None}


def summarise(table: pd.DataFrame, choosers: Sequence[str] = MODES) -> dict[str, Any]:
    """Accuracy of each chooser, overall and by type, and how often both forms agree."""
    found: dict[str, Any] = {}
    for who in choosers:
        names = {f"{who}_correct": "correct", f"{who}_invalid": "invalid"}
        theirs = table[["item_id", "story", "type", *names]].rename(columns=names)
        found[who] = asdict(accuracy(theirs, by="type"))
    found["agreement"] = float(table["agree"].mean())
    found["problems"] = {
        str(problem): int(n) for problem, n in table["problem"].value_counts().items() if problem
    }
    return found


def finish(
    console: Console,
    config: PlanningOptions,
    method: str,
    items: Sequence[BenchmarkItem],
    table: pd.DataFrame,
    models: Models,
    about: Mapping[str, Any],
    drawn: Drawn | None = None,
    others: Mapping[str, AnyModel] | None = None,
    choosers: Sequence[str] = (),
    further: Mapping[str, Any] | None = None,
) -> None:
    """Write what was found, and print it; ``config.mode`` answers for the run.

    ``drawn`` says what --limit took, ``others`` are further models by their roles, ``choosers`` go
    before both modes and answer in their place, and ``further`` results are kept beside.
    """
    choosers = [*choosers, *sorted(MODES, key=lambda mode: mode != config.mode)]
    first = choosers[0]
    results = summarise(table, choosers) | dict(further or {})
    chosen = {f"{first}_{name}": name for name in ("label", "correct", "invalid")}
    whole = table.assign(**{new: table[old] for old, new in chosen.items()})
    roles = {"model": models.reading, **(others or {})}
    usage = {who: m.endpoint.usage for who, m in roles.items() if isinstance(m, EndpointModel)}
    kept = {
        "config": saved_options(config),
        "about": about,
        "results": results,
        "drawn": drawn and asdict(drawn),
        "mismatch": models.mismatch,
        "endpoints": usage,
    }
    save(console, config.folder / TABLE, whole, kept, models.loaded, map(_words, items))
    rows = []
    for kind in ("overall", *results[first]["groups"], "invalid"):
        cells = [results[who].get(kind) or results[who]["groups"][kind] for who in choosers]
        rows.append(["all" if kind == "overall" else kind, cells[0]["n"], *cells])
    title = f"{method}, {named(config)}, {steered_by(config)} (% right)"
    print_table(console, title, ["questions", "n", *choosers], rows)
    console.print(f"both forms choose the same in {100 * results['agreement']:.1f} % of questions")
    for problem, n in results["problems"].items():
        console.print(escape(f"{n} questions without an answer: {problem}"), soft_wrap=True)
    for role, spent in usage.items():
        console.print(said_usage(role, spent), soft_wrap=True)
    console.print(f"run folder: {escape(str(config.folder))}", soft_wrap=True)


def _words(item: BenchmarkItem) -> str:
    """All that is told and asked in a question."""
    context = item.context
    words = (context.scene, context.actions, context.dialogue)
    return "\n".join([*words, item.question, *(option.text for option in item.options)])
