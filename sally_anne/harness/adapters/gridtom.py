"""GridToM as tasks of lm-eval and lmms-eval, with the items, readers and metrics of our harness.

Documents hold a question and the options it was made from; frames are drawn when they are shown.
So tasks need no network and no files, and work for all models of these harnesses.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pandas as pd
from PIL import Image

from sally_anne.benchmarks.gridtom.splits import SPLITS
from sally_anne.core.errors import HarnessError
from sally_anne.harness.adapters.common import whole
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.items import Item
from sally_anne.harness.metrics import accuracy, belief_metrics
from sally_anne.harness.results import score, scores
from sally_anne.harness.vectors import facts_of, fitted_on
from sally_anne.harness.work import Work, prepare

LOGGER = logging.getLogger(__name__)
# The place of a picture in a text of lm-eval.
MARK = "<image>"
# By the beginning of a metric's name. The robust reader is the one that people agree with.
_READERS = {"": "robust", "official_": "official"}
_CHOICES = {n: get_args(get_type_hints(EvalConfig)[n]) for n in ("order", "setting", "style")}
_CHOICES["split"] = SPLITS
_NUMBERS = {"limit": 1, "data_seed": 0, "split_seed": 0}
_FOLDERS = ("data", "steer", "model")
_FACTS = ("item_id", "story", "split", "condition", "first", "names")


def prepared(options: Mapping[str, Any]) -> Work:
    """The items of a task, story by story: two each in first order, four in second, three initial.

    So lm-eval's ``--limit 20`` asks the first-order questions of ten stories. It takes options as
    ``--metadata stories=10 style=json``, lmms-eval as the file of questions of a task that includes
    one of ours::

        # my_task.yaml                                  # my_questions.json
        include: .../gridtom_order1_video.yaml          {"order": "1", "setting": "video",
        task: my_task                                    "data": "/path/to/GridToM"}
        dataset_kwargs:
          data_files:
            test: my_questions.json

    Replies are cut after 16 tokens, which hold a name. Those of style json need 64: say
    ``--gen_kwargs max_gen_toks=64`` to lm-eval, ``--gen_kwargs max_new_tokens=64`` to lmms-eval.

    Args:
        options: as of ``sally-anne evaluate``, each may be left out or None: ``order`` (1, 2,
            initial), ``setting`` (multimodal, video, text), ``style`` (plain, json), ``split``
            (test, validation, train), ``limit`` (only so many stories, drawn evenly over maps),
            ``data`` (folder in GridToM's release layout), ``data_seed``, ``split_seed``; ``steer``,
            the folder of the vector that steers, and ``model``, a folder into which one is baked:
            test stories that a vector was fitted on are left out.
    """
    given = {name: value for name, value in options.items() if value is not None}
    known = (*_CHOICES, *_NUMBERS, *_FOLDERS)
    for name, value in given.items():
        if name not in known:
            raise HarnessError(f"GridToM has no option {name!r}; there are {', '.join(known)}")
        if name in _CHOICES and value not in _CHOICES[name]:
            raise HarnessError(f"{name} must be one of {', '.join(_CHOICES[name])}, is {value!r}")
        if name in _NUMBERS:
            given[name] = whole(name, value, _NUMBERS[name])
        if name in _FOLDERS and not isinstance(value, str):
            raise HarnessError(f"{name} must be a folder, is {value!r}")
    model, steer = given.pop("model", ""), given.pop("steer", None)
    if "data" in given:
        given["data"] = Path(given["data"])
    facts = facts_of(steer)
    work = prepare(EvalConfig(**given), fitted_on(model, facts) if model else facts)
    if work.unseen:
        LOGGER.warning("%s", work.unseen)
    return work


@lru_cache(maxsize=16)
def _items(options: str) -> dict[str, Item]:
    return {item.item_id: item for item in prepared(json.loads(options)).items}


def _item(document: Mapping[str, Any]) -> Item:
    return _items(document["questions"])[document["item_id"]]


def _documents(options: Mapping[str, Any], mark: str = "") -> Any:
    """A data set with a row an item; ``mark`` stands for each of its pictures before the text."""
    import datasets

    questions = json.dumps({name: v for name, v in options.items() if v is not None})
    rows = [
        {
            **{name: getattr(item, name) for name in _FACTS},
            "text": (mark * item.shape(True)[0] if item.shape else "") + item.text,
            "options": [option.label for option in item.options],
            "answer": ", ".join(item.answer),
            "answers": list(item.answer),
            "questions": questions,
        }
        for item in _items(questions).values()
    ]
    return datasets.Dataset.from_list(rows)


def lm_eval_documents(
    order: str,
    setting: str,
    stories: int | None = None,
    steer: str | None = None,
    pretrained: str | None = None,
    **metadata: Any,
) -> dict[str, Any]:
    """The items of a task as lm-eval's ``custom_dataset`` gives them: ``test``, a data set.

    ``stories`` are only so many of them. Vector and model (``steer``, ``pretrained``) come from
    ``--model_args`` on lm-eval's command line; give them as metadata where a TaskManager is made by
    hand. Other metadata are options of :func:`prepared`; those of the model or the task are passed
    over.
    """
    options = {name: value for name, value in metadata.items() if name in (*_CHOICES, *_NUMBERS)}
    options |= {"order": order, "setting": setting, "limit": stories, "steer": steer}
    options |= {"data": metadata.get("data"), "model": pretrained}
    return {"test": _documents(options, MARK)}


def lmms_eval_documents(questions: Any) -> Any:
    """lmms-eval's ``process_docs``: of a data set with one row, the options, the items."""
    if len(questions) != 1:
        raise HarnessError(f"a file of questions holds one JSON object, this one {len(questions)}")
    return _documents(questions[0])


def pictures(document: Mapping[str, Any]) -> list[Image.Image]:
    """The story's key frames; none where it is told in words alone."""
    clip = _item(document).clip
    return [] if clip is None else [Image.fromarray(frame) for frame in clip()]


def lm_eval_results(document: Mapping[str, Any], replies: Sequence[str]) -> dict[str, Any]:
    """What an item gives to each of lm-eval's metrics.

    That is 0 or 1 for ``TB`` or ``FB``, after the item's condition, or for ``overall`` without one,
    and for ``invalid``; for ``Both`` the row that :func:`both` needs. The same with ``official_``
    for the reader that takes nothing but JSON.
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
    table = score([_item(document)], [{"reply": replies[0]}])
    for prefix, reader in _READERS.items():
        row = scores(table, reader).to_dict("records")[0]
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
