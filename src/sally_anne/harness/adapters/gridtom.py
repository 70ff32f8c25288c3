"""GridToM as tasks of lm-eval and lmms-eval, with the items, parsers and metrics of our harness.

Frames are drawn when they are shown, so that tasks need no network and no files, and work for all
models of these harnesses. A story has two items in first order, four in second, three initial ones:
lm-eval's ``--limit 20`` asks the first-order questions of ten stories.

lm-eval takes options of :func:`sally_anne.harness.adapters.questions.prepared` as ``--metadata
stories=10 style=json``, ``sally-anne lmms-eval`` as well. A task of lmms-eval that includes one of
ours has a file of questions::

    # my_task.yaml                                  # my_questions.json
    include: .../gridtom_order1_video.yaml          {"order": "1", "setting": "video",
    task: my_task                                    "data": "/path/to/GridToM"}
    dataset_kwargs:
      data_files:
        test: my_questions.json

Replies are cut after 16 tokens, which hold a name. Those of style json need 64: say ``--gen_kwargs
max_gen_toks=64`` to lm-eval, ``--gen_kwargs max_new_tokens=64`` to lmms-eval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from sally_anne.core.errors import HarnessError
from sally_anne.harness.adapters.questions import (
    MARK,
    READERS,
    documents,
    from_environment,
    item_of,
    pictures,
    said_by,
)
from sally_anne.harness.score import accuracy, belief_metrics, score, scores

# The files of the tasks name it here.
__all__ = ["pictures"]


def lm_eval_documents(order: str, setting: str, **metadata: Any) -> dict[str, Any]:
    """The items of a task as lm-eval's ``custom_dataset`` gives them: ``test``, a data set.

    ``stories`` are only so many of them. Vector and model (``steer``, ``pretrained``) come from
    ``--model_args`` on lm-eval's command line; give them as metadata where a TaskManager is made by
    hand. Other metadata are options of :func:`sally_anne.harness.adapters.questions.prepared`;
    those of the model or the task are passed over.
    """
    return {"test": documents(said_by(metadata) | {"order": order, "setting": setting}, MARK)}


def lmms_eval_documents(questions: Any) -> Any:
    """lmms-eval's ``process_docs``: of a data set with one row, the options, the items."""
    if len(questions) != 1:
        raise HarnessError(f"a file of questions holds one JSON object, this one {len(questions)}")
    own = {name: value for name, value in questions[0].items() if value is not None}
    return documents(from_environment() | own, systems=False)


def lm_eval_results(document: Mapping[str, Any], replies: Sequence[str]) -> dict[str, Any]:
    """What an item gives to each of lm-eval's metrics.

    That is 0 or 1 for ``TB`` or ``FB``, after the item's condition, or for ``overall`` without one,
    and for ``invalid``; for ``Both`` the row that :func:`both` needs. The same with ``official_``
    for the parser that takes nothing but JSON.
    """
    found = lmms_eval_results(document, replies).items()
    return {name.replace("accuracy", "overall"): row.get("score", row) for name, row in found}


def lmms_eval_results(
    document: Mapping[str, Any], replies: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Each metric's row for an item, named as in :func:`lm_eval_results`, accuracy for overall.

    In ``score``, lmms-eval looks for what it needs to give a standard error.
    """
    found: dict[str, dict[str, Any]] = {}
    condition = document["condition"]
    table = score([item_of(document)], [{"reply": replies[0]}])
    for prefix, parser in READERS.items():
        row = scores(table, parser).to_dict("records")[0]
        right = row | {"score": float(row["correct"])}
        found[prefix + (condition or "accuracy")] = right
        found[f"{prefix}invalid"] = row | {"score": float(row["invalid"])}
        found |= {f"{prefix}Both": row} if condition else {}
    return found


def _share(name: str) -> Callable[[Sequence[Mapping[str, Any]]], float]:
    """The value of a metric of rows, without its interval."""

    def measured(rows: Sequence[Mapping[str, Any]]) -> float:
        table = pd.DataFrame(list(rows))
        plain = name in ("overall", "invalid")
        found = (accuracy if plain else belief_metrics)(table, bootstrap=1)  # type: ignore[operator]
        return float(getattr(found, name).value)

    return measured


true_belief, false_belief, both = _share("TB"), _share("FB"), _share("Both")
right, invalid = _share("overall"), _share("invalid")
