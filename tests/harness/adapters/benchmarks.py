"""Small folders of the benchmarks, and what `sally-anne evaluate` makes of them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sally_anne.data.items import Question
from sally_anne.harness.adapters import tasks
from sally_anne.harness.adapters.common import pictures
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.evaluate import evaluate, prompt_of
from sally_anne.harness.model import Completion, Prompt, SteeredModel
from sally_anne.harness.report import expected as expected_rows
from sally_anne.harness.tasks import load_items
from tests.harness import made_benchmarks as made
from tests.made_replies import figures_of, replied
from tests.shared_data import MADE

MODEL = "tiny-qwen2-vl"


def riddles(folder: Path) -> Path:
    """Four questions of a user's own."""
    folder.mkdir(parents=True)
    rows = [
        {"question": f"What is {n}, then?", "options": ["red", "blue"], "answer": n % 2}
        | {"context": f"It was {n}.", "tags": {"kind": ["odd, or so"] if n % 2 else ["even"]}}
        for n in range(4)
    ]
    path = folder / "riddles.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def _records(folder: Path) -> Path:
    """The made records of a benchmark in the official layout, without films."""
    return MADE / folder.name


# What makes a folder of a benchmark's name, and options of the run: a view with frames and one of
# words alone of those that have both, and each prompt that the authors' own reader asks for.
SYSTEM = "bigtom official"  # with a system message
Case = tuple[str, Callable[[Path], Path | None], dict[str, Any]]
CASES: dict[str, Case] = {
    "gridtom": ("gridtom", lambda folder: None, {"order": "1", "setting": "video", "limit": 2}),
    "gridtom 2": ("gridtom", lambda folder: None, {"order": "2", "setting": "text", "limit": 2}),
    "gridtom initial": (
        "gridtom",
        lambda folder: None,
        {"order": "initial", "setting": "multimodal", "limit": 2},
    ),
    "bigtom": ("bigtom", _records, {"limit": 2}),
    "mmtom_qa": ("mmtom_qa", made.mmtom_qa_frames, {"frames": 2}),
    "mmtom_qa text": ("mmtom_qa", _records, {"view": "text", "limit": 4}),
    "muma_tom": ("muma_tom", made.muma_tom, {"frames": 2, "max_pixels": 3136}),
    "muma_tom text": ("muma_tom", _records, {"view": "text", "protocol": "official", "limit": 1}),
    "moments": ("moments", made.moments, {"frames": 2, "window": "focused"}),
    "moments none": ("moments", _records, {"view": "none"}),
    "mimeqa": ("mimeqa", made.mimeqa, {"frames": 2}),
    "own": ("own", riddles, {"prompting": "few-shot", "shots": 1}),
    SYSTEM: ("bigtom", _records, {"protocol": "official", "limit": 1}),
}
# Those in which a model replies in the tests; in the others replies are made by hand.
ANSWERED = ("gridtom", "mmtom_qa", "own")


def name_of(task: str, options: dict[str, Any]) -> str | None:
    """The task of another harness that asks this; None where it needs a file of its own."""
    given = {"task": task} | options
    return next((name for name, own in tasks().items() if own.items() <= given.items()), None)


@dataclass(frozen=True)
class Expected:
    """What a task's items are, and what evaluate says of the replies."""

    options: dict[str, Any]  # in the words of a plug-in; ``task`` beside
    task: str
    items: list[Question]
    replies: dict[str, str]
    numbers: dict[str, dict[str, float]]  # by reader

    @property
    def prompts(self) -> dict[str, Prompt]:
        return {item.item_id: prompt_of(item) for item in self.items}


def expected(case: Case, folder: Path, **steering: Any) -> Expected:
    """Runs a whole evaluation of the shipped model."""
    task, build, options = case
    place = build(folder / task)
    task, data = (str(place), None) if task == "own" else (task, place)
    config = EvalConfig(
        model=MODEL, task=task, data=data, out=folder / "run", **options, **steering
    )
    table = evaluate(config)
    found = json.loads((folder / "run" / "results.json").read_text())["results"]
    items = load_items(config).items
    rows = expected_rows(found, items)
    return Expected(
        options=options | ({} if data is None else {"data": str(data)}),
        task=task,
        items=items,
        replies=dict(zip(table["item_id"], table["reply"], strict=True)),
        numbers={
            parser: {
                "accuracy" if name == "all" else name.replace(",", ";"): value
                for name, (value, _) in figures_of(rows, parser).items()
            }
            for parser in dict.fromkeys(row["parser"] for row in rows)
        },
    )


def assert_results(own: Expected, found: Any, task: str) -> None:
    """What lm-eval or lmms-eval says of a task: items, frames, replies and numbers are ours."""
    samples = found["samples"][task]
    assert [sample["doc"]["item_id"] for sample in samples] == [i.item_id for i in own.items]
    for sample in samples:
        clip, shown = own.prompts[sample["doc"]["item_id"]].clip, pictures(sample["doc"])
        assert (clip is None and not shown) or np.array_equal(clip, [*map(np.asarray, shown)])
    assert {s["doc"]["item_id"]: s["resps"][0][0] for s in samples} == own.replies
    numbers = {
        name.removesuffix(",none"): value
        for name, value in found["results"][task].items()
        if name.endswith(",none") and "_stderr" not in name
    }
    unscored = [item.hidden or not item.options for item in own.items]
    assert numbers.pop("unscored", 0) == any(unscored)
    official = own.numbers.get("official", {})
    wanted = own.numbers["robust"] if own.numbers else {}
    assert numbers == wanted | {f"official_{name}": value for name, value in official.items()}


def own_task(folder: Path, name: str, own: Expected) -> str:
    """Writes a file of a task, of a benchmark for which a harness has no name."""
    options = {"task": own.task} | own.options
    kwargs = "".join(f"  {name}: {value}\n" for name, value in options.items())
    text = f"class: !function {name}\ntask: own\ndataset_kwargs:\n{kwargs}"
    (folder / "own.yaml").write_text(text)
    return "own"


def speak(monkeypatch: Any) -> Callable[[str], str]:
    """Models of this project reply by hand, whoever asks: right, wrong and not at all.

    A reply hangs on the words after the last "Question:", with which all prompts end.
    """
    answers = ("A", "B.", "(b)", "a) it is", "Answer: A", "I cannot tell", "B", "a")

    def reply(prompt: str) -> str:
        asked = prompt.replace("<image>", "").rpartition("uestion")[2]
        asked = re.sub(r"<\|?\w+\|?>.*", "", asked, flags=re.DOTALL).strip()
        return answers[hashlib.sha256(asked.encode()).digest()[0] % len(answers)]

    def replies(self: Any, prompts: Any, *rest: Any, **named: Any) -> list[Completion]:
        return replied(reply(prompt.text) for prompt in prompts)

    monkeypatch.setattr(SteeredModel, "replies", replies)
    return reply
