"""The harness's readers as scorers of inspect-ai, and its metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from inspect_ai.scorer import (
    CORRECT,
    INCORRECT,
    NOANSWER,
    Metric,
    SampleScore,
    Score,
    Scorer,
    Target,
    Value,
    metric,
    scorer,
)
from inspect_ai.solver import TaskState

from sally_anne.harness.adapters.inspect_ai.samples import item_of
from sally_anne.harness.answers import Reader

if TYPE_CHECKING:
    import pandas as pd


@metric(scores="unreduced")
def belief() -> Metric:
    """TB, FB, Both and invalid of belief questions; accuracy and invalid of others.

    Every epoch counts by itself: TB and FB are paired within it.
    """

    def measure(scores: list[SampleScore]) -> Value:
        return measures(scores)

    return measure


@scorer(metrics=[belief()])
def robust() -> Scorer:
    """Reads JSON, labels and the texts of options, see :mod:`sally_anne.harness.answers`."""
    return _read_by("robust")


@scorer(metrics=[belief()])
def official() -> Scorer:
    """Reads nothing but a JSON object with an ``answer`` field."""
    return _read_by("official")


def _read_by(reader: Reader) -> Scorer:
    async def read(state: TaskState, target: Target) -> Score:
        # Torch is imported here: inspect-ai loads its plug-ins in every command.
        from sally_anne.harness.results import score as score_items

        reply = state.output.completion
        row = score_items([item_of(state.metadata)], [{"reply": reply}]).iloc[0]
        value = CORRECT if row[f"{reader}_correct"] else INCORRECT
        return Score(
            value=NOANSWER if row[f"{reader}_invalid"] else value,
            answer=row[f"{reader}_label"],
            explanation=reply,
        )

    return read


def measures(scores: Sequence[SampleScore]) -> dict[str, float]:
    """The harness's metrics by name; those that have no items are left out."""
    from sally_anne.core.bootstrap import Estimate
    from sally_anne.harness.metrics import accuracy, belief_metrics

    sheet = _sheet(scores)
    if sheet.empty:
        return {}
    found: Any = belief_metrics(sheet, bootstrap=1) if _beliefs(sheet) else accuracy(sheet)
    estimates = {name: getattr(found, name) for name in (f.name for f in fields(found))}
    return {
        "accuracy" if name == "overall" else name: estimate.value
        for name, estimate in estimates.items()
        if isinstance(estimate, Estimate) and estimate.n
    }


def _beliefs(sheet: pd.DataFrame) -> bool:
    return bool((sheet["condition"] != "").all())


def _sheet(scores: Sequence[SampleScore]) -> pd.DataFrame:
    """Scored items as :mod:`harness.metrics` takes them; what was not scored is left out."""
    import pandas as pd

    times: Counter[str] = Counter()
    rows = []
    for score in scores:
        value = score.score.value
        if value not in (CORRECT, INCORRECT, NOANSWER) or score.sample_metadata is None:
            continue
        item = item_of(score.sample_metadata)
        # A repeated item makes a pair with the other side of its own epoch.
        times[item.item_id] += 1
        epoch = times[item.item_id]
        rows.append(
            {
                "item_id": f"{item.item_id} {epoch}",
                "story": f"{item.story} {epoch}",
                "condition": item.condition,
                "first": item.first,
                "correct": value == CORRECT,
                "invalid": value == NOANSWER,
            }
        )
    return pd.DataFrame(rows)
