"""How far surface features alone predict the labels: what a probe could use instead of belief.

The paper's first-order false-belief pairs differ in perspective and caption as well as in the
statement. This report says, without any model, how well each label follows from such features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from probing.contrasts import Sample
from probing.ranking import LABELS

ROOM = "room named by the statement (first or last)"
FEATURES: dict[str, Callable[[Sample], object]] = {
    "perspective of frames and caption": lambda s: s.perspective,
    "length of the text in words": lambda s: len(s.content.split()),
    ROOM: lambda s: s.room,
}


def confound_report(items: pd.DataFrame, samples: Sequence[Sample]) -> list[dict[str, object]]:
    """Accuracy of guessing each label from one feature.

    For each value of a feature the label that is more frequent among the training samples is
    guessed; held-out samples (validation and test) are scored.

    Args:
        items: the store's table.
        samples: the same samples, in the same order.

    Returns:
        One row for each condition, feature and label: condition, feature, label, accuracy.
    """
    table = items[["condition", "split", *LABELS]].copy()
    rows: list[dict[str, object]] = []
    for name, feature in FEATURES.items():
        table["value"] = [str(feature(s)) for s in samples]
        # A room's part in the plot is the label itself within one condition; what it gives away
        # over all of them is the question.
        parts = [("all", table)] if name == ROOM else list(table.groupby("condition", sort=False))
        for condition, part in parts:
            train, held_out = part[part["split"] == "train"], part[part["split"] != "train"]
            for label in LABELS:
                share = train.groupby("value")[label].mean()
                guess = held_out["value"].map(share).fillna(0.5)
                # A tie is a coin toss: half of such samples count as right.
                right = ((guess > 0.5) == held_out[label]).astype(float).where(guess != 0.5, 0.5)
                rows.append(
                    {
                        "condition": str(condition),
                        "feature": name,
                        "label": label,
                        "accuracy": float(right.mean()),
                    }
                )
    return rows
