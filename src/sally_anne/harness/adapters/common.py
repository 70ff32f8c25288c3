"""What the plug-ins share: a steered model by options in words, and the questions of every task.

They are asked and scored as ours asks and scores them. A task of lm-eval or lmms-eval is a name and
a class: :class:`Questions` on top of the harness's own. What it asks is said by options in words,
and a document holds those that it was made from.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pandas as pd
from PIL import Image
from pydantic import FiniteFloat, PositiveInt, TypeAdapter, ValidationError

from sally_anne.core.errors import HarnessError
from sally_anne.data.items import Question
from sally_anne.harness.config import EvalConfig, check
from sally_anne.harness.evaluate import facts_of, fitted_on, require_fits
from sally_anne.harness.model import SteeredModel
from sally_anne.harness.report import expected, part_name
from sally_anne.harness.score import JOINT, results_of, score
from sally_anne.harness.tasks import TaskItems, load_items
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.options import ModelOptions

T = TypeVar("T")
LOGGER = logging.getLogger(__name__)
_WHOLE: TypeAdapter[int] = TypeAdapter(PositiveInt)
_NUMBER: TypeAdapter[float] = TypeAdapter(FiniteFloat)
_MODEL_OPTIONS = TypeAdapter(ModelOptions)
_CONFIG = TypeAdapter(EvalConfig)
# The options of `sally-anne evaluate` that say what is asked and how.
OPTIONS = (
    *("order", "setting", "style", "split", "limit", "data", "data_seed", "split_seed", "task"),
    *("view", "window", "frames", "fps", "most_frames", "max_pixels", "template", "protocol"),
    *("prompting", "shots"),
)
# For harnesses whose tasks take no options of a command line: as a JSON object.
METADATA = "SALLY_ANNE_METADATA"
# By the beginning of a metric's name. The robust parser is the one that people agree with.
READERS = {"": "robust", "official_": "official"}
UNSCORED = "unscored"
# The place of a picture in a text of lm-eval.
MARK = "<image>"
CONDITIONS = ("TB", "FB", "Both")


def open_steered(
    model: str | LoadedModel,
    options: Mapping[str, Any],
    steer: str | Path | SteeringVector | None,
    alpha: Any = None,
    allow_mismatch: bool = False,
) -> SteeredModel:
    """A model (catalogue name, hub id, folder, or a loaded one) and the vector, if any.

    ``options`` are of :class:`sally_anne.models.options.ModelOptions`, None for the default;
    ``alpha`` is the vector's own by default; ``allow_mismatch`` takes one of another model.
    """
    # Command lines make numbers of words that look like some, a revision for example.
    given: dict[str, Any] = {n: str(v) for n, v in options.items() if v is not None}
    if "device_map" in given:  # harnesses say a device unasked
        given.pop("device", None)
    given["model"] = "" if isinstance(model, LoadedModel) else str(model)
    known = [field.name for field in fields(ModelOptions)]
    chosen = options_of(_MODEL_OPTIONS, given, known)
    strength = None if alpha is None else _read(_NUMBER, "alpha", alpha)
    if strength is not None and steer is None:
        raise HarnessError("alpha is the strength of a vector: give one with steer")
    if not (steer is None or isinstance(steer, SteeringVector)):
        allowed = str(allow_mismatch).lower() in ("true", "1", "yes")
        steer = SteeringVector.load(str(steer), allow_mismatch=allowed)
    loaded = model if isinstance(model, LoadedModel) else load_model(**chosen.opening())
    if steer is not None:
        require_fits(steer, loaded, strength)
    return SteeredModel(loaded, steer, strength)


def options_of(config: TypeAdapter[T], given: Mapping[str, Any], known: Sequence[str]) -> T:
    if unknown := sorted(set(given) - set(known)):
        raise HarnessError(f"there is no option {unknown[0]!r}; there are {', '.join(known)}")
    return _read(config, "", given)


def whole(name: str, value: Any) -> int:
    """A whole number from 1 on, also written as a word; HarnessError names the option if not."""
    return _read(_WHOLE, name, value)


def _read(kind: TypeAdapter[T], name: str, value: Any) -> T:
    try:
        return kind.validate_python(value)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise HarnessError(
            f"{name or wrong['loc'][0]} is {wrong['input']!r}: {wrong['msg']}"
        ) from error


@dataclass(frozen=True)
class Decoding:
    """How a reply is written: at most so many tokens, and strings before which it ends."""

    max_new_tokens: int
    until: tuple[str, ...] = ()


def prepared(options: Mapping[str, Any]) -> TaskQuestions:
    """The items of a task, story by story; what a user should know of them is logged.

    ``options`` are :data:`OPTIONS`, each may be left out or None; ``steer``, the folder of the
    vector that steers, and ``model``, a folder into which one is baked: test stories of GridToM
    that a vector was fitted on are left out.
    """
    given = {name: value for name, value in options.items() if value is not None}
    model, steer = given.pop("model", None), given.pop("steer", None)
    config, facts = options_of(_CONFIG, given, OPTIONS), facts_of(steer)
    check(config)
    work = load_items(config, fitted_on(model, facts) if model else facts)
    if any(item.sound for item in work.items):
        raise HarnessError(
            f"view {config.view} is not offered here: other harnesses are given no sounds; "
            "sally-anne evaluate has it"
        )
    lines = work.lines()
    if work.departs:
        lines.append(f"not as in the authors' protocol: {work.departs}")
    if unscored := sum(map(_unscored, work.items)):
        lines.append(
            f"{unscored} of {len(work.items)} replies are kept and not scored: questions are open "
            "(sally-anne evaluate --judge scores them) or their key is hidden"
        )
    for line in lines:
        LOGGER.warning("%s: %s", config.task, line)
    return TaskQuestions(config, work)


@dataclass(frozen=True, eq=False)
class TaskQuestions:
    """What is asked, and the metrics of the replies: those that an evaluation prints."""

    config: EvalConfig
    work: TaskItems

    @cached_property
    def items(self) -> dict[str, Question]:
        return {item.item_id: item for item in self.work.items}

    @cached_property
    def metrics(self) -> dict[str, str]:
        """Metrics by name: who reads replies for one that pairs beliefs; empty for a plain mean."""
        table = score(self.work.items, [{"reply": ""}] * len(self.work.items))
        found = results_of(
            table, self.work.breakdowns, self.work.cells, self.work.beliefs, bootstrap=1
        )
        found = expected(found, self.work.items)
        names: dict[str, str] = {}
        for prefix, parser in READERS.items():
            for name, row in named(found, parser).items():
                names[prefix + name] = parser if row["measure"] in CONDITIONS else ""
        return names | ({UNSCORED: ""} if any(map(_unscored, self.work.items)) else {})

    def results(self, item: Question, reply: str) -> dict[str, dict[str, Any]]:
        """By metric in which an item counts: its score, or what a pair of beliefs needs of it."""
        if _unscored(item):
            return {UNSCORED: {"story": item.group, "score": 1.0}}
        table = score([item], [{"reply": reply}])
        row = table.to_dict("records")[0]
        read = results_of(table, self.work.breakdowns, bootstrap=1)
        side = {name: one for name, one in row.items() if name not in ("reply", "answer", "cut")}
        cell = _word(", ".join(row.get(f"tag_{kind}", "") for kind in self.work.cells))
        found: dict[str, dict[str, Any]] = {}
        for prefix, parser in READERS.items():
            for name, one in named(read, parser).items():
                found[prefix + name] = {"story": item.group, "score": one["value"]}
            for name in CONDITIONS if item.condition else ():
                found |= {f"{prefix}{name}": side, f"{prefix}{cell}: {name}": side}
        return {name: value for name, value in found.items() if name in self.metrics}


def named(found: Sequence[Mapping[str, Any]], parser: str) -> dict[str, Mapping[str, Any]]:
    """One parser's figures by the names of metrics; without those of no item, or of several."""
    own = (r for r in found if r["parser"] == parser and r["n"] and r["kind"] != JOINT)
    names = ((part_name(row["part"], row["measure"]), row) for row in own)
    return {"accuracy" if name == "all" else _word(name): row for name, row in names}


def _word(name: str) -> str:
    # Harnesses cut names in their tables at commas.
    return name.replace(",", ";")


def mean(rows: Sequence[Mapping[str, Any]]) -> float:
    return sum(row["score"] for row in rows) / len(rows)


def figures(
    rows: Sequence[Mapping[str, Any]],
    parser: str,
    kinds: Sequence[str] = (),
    cells: Sequence[str] = (),
    beliefs: bool = False,
) -> dict[str, float]:
    table = pd.DataFrame(list(rows))
    table = table.fillna({name: "" for name in table if name.startswith("tag_")})
    found = named(results_of(table, kinds, cells, beliefs, bootstrap=1), parser)
    return {name: row["value"] for name, row in found.items()}


@cache
def asked_by(options: str) -> TaskQuestions:
    return prepared(json.loads(options))


def item_of(document: Mapping[str, Any]) -> Question:
    return asked_by(document["questions"]).items[document["item_id"]]


def documents(options: Mapping[str, Any], mark: str = "", systems: bool = True) -> Any:
    """A data set with a row an item; ``mark`` stands for each of its pictures before the text.

    Without ``systems`` no model of the harness is given a system message.
    """
    import datasets

    questions = json.dumps({name: v for name, v in options.items() if v is not None})
    asked = asked_by(questions)
    if asked.config.prompting in ("cot", "simtom"):
        raise HarnessError(
            f"prompting {asked.config.prompting} needs more than one prompt and the text of a "
            "reply; sally-anne evaluate has it"
        )
    if not systems and any(item.system for item in asked.work.items):
        raise HarnessError(
            f"protocol {asked.config.protocol} of {asked.config.task} has a system message, which "
            "lmms-eval's simple models are not given; sally-anne evaluate and lm-eval have it"
        )
    rows = [
        {
            "item_id": item.item_id,
            "story": item.group,
            "system": item.system,
            "text": mark * (item.shape(True)[0] if mark and item.shape else 0)
            + item.first_prompt(),
            "answer": ", ".join(item.key) or item.reference or "",
            "questions": questions,
        }
        for item in asked.work.items
    ]
    return datasets.Dataset.from_list(rows)


def pictures(document: Mapping[str, Any]) -> list[Image.Image]:
    clip = item_of(document).clip
    return [] if clip is None else [Image.fromarray(frame) for frame in clip()]


def results(document: Mapping[str, Any], replies: Sequence[str]) -> dict[str, dict[str, Any]]:
    item = item_of(document)
    return asked_by(document["questions"]).results(item, replies[0])


def said_by(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Of what a command line says, the options of :func:`prepared`."""
    # Each task has its own name.
    names = {name: name for name in (*OPTIONS, "steer") if name != "task"} | {"pretrained": "model"}
    return {own: metadata[name] for name, own in names.items() if name in metadata}


def from_environment() -> dict[str, Any]:
    try:
        return said_by(json.loads(os.environ.get(METADATA) or "{}"))
    except (ValueError, TypeError, AttributeError) as error:
        raise HarnessError(f"{METADATA} must hold a JSON object ({error})") from error


class Questions:
    """A task, mixed into the configurable task of lm-eval or lmms-eval.

    The config's ``dataset_kwargs`` are options of :func:`prepared`, before those ``given`` for all
    tasks of a run; what else the config has stands before ours.
    """

    length: ClassVar[str]  # the harness's name for the length of replies
    mark: ClassVar[str] = ""  # of each picture in a text
    systems: ClassVar[bool] = True  # whether documents may have a system message
    shows: ClassVar[str]  # the harness's name for what gives the pictures
    scores: ClassVar[Callable[..., dict[str, Any]]] = staticmethod(results)
    config: Any

    def __init__(self, config: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        own = {name: value for name, value in config.items() if name != "class"}
        options = {**given, "task": own["task"], **(own.get("dataset_kwargs") or {})}
        self.documents = documents(options, self.mark, self.systems)
        asked = asked_by(self.documents[0]["questions"])
        tokens = {self.length: asked.config.reply_tokens}
        filmed = any(item.clip for item in asked.work.items)
        ours: dict[str, Any] = {
            "test_split": "test",
            "output_type": "generate_until",
            "num_fewshot": 0,
            "doc_to_text": "text",
            "doc_to_target": "answer",
            "generation_kwargs": {"until": [], "do_sample": False, "temperature": 0.0, **tokens},
            "process_results": self.scores,
            "metric_list": [
                {
                    "metric": name,
                    "aggregation": self.aggregation_of(name, parser, asked.work.beliefs),
                    "higher_is_better": name.removeprefix("official_") not in ("invalid", UNSCORED),
                }
                for name, parser in asked.metrics.items()
            ],
            **({self.shows: pictures} if filmed else {}),
        }
        super().__init__(config=ours | own)  # type: ignore[call-arg]

    def aggregation_of(self, metric: str, parser: str, beliefs: bool) -> Any:
        """How a metric is made of its rows; NaN where there is no pair of beliefs."""
        name = metric.rpartition(": ")[2].removeprefix("official_")
        paired = partial(figures, parser=parser, beliefs=beliefs)
        return (lambda rows: paired(rows).get(name, math.nan)) if parser else mean

    def download(self, dataset_kwargs: Any = None, **kwargs: Any) -> None:
        self.dataset = self.dataset_no_image = {"test": self.documents}


def _unscored(item: Question) -> bool:
    return item.hidden or not item.options
