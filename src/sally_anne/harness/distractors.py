"""Can a question be answered from its options alone? Algorithm 1 of the MoMentS paper.

It shuffles the options N times, asks a model without any context, and flags the set of distractors
if the right answer is chosen k times or more (section 4.2: N = 6, k = 5).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from sally_anne.core.console import Console, print_table
from sally_anne.core.errors import HarnessError
from sally_anne.core.files import write_atomic
from sally_anne.core.folder import claims, fingerprint
from sally_anne.core.processes import within_memory
from sally_anne.data.items import Option, Question
from sally_anne.data.moments import LABELS, MOMENTS
from sally_anne.harness.chat_endpoint import AnyModel
from sally_anne.harness.method_config import DistractorConfig
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.harness.planning import Session, choose
from sally_anne.harness.questions import PromptConfig, prompt_text
from sally_anne.harness.report import save
from sally_anne.harness.score import by_value, estimates
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prompts import reply_prompt
from sally_anne.models.videos import check_room

ANSWERS, TABLE = "answers.jsonl", "distractors.parquet"
NO_CONTEXT = PromptConfig("none", "full", MOMENTS.sampling)

Order = tuple[int, ...]
PUBLISHED: Order = tuple(range(len(LABELS)))


@dataclass(frozen=True)
class Verdict:
    """In so many ``orders`` the ``right`` option, or none (``invalid``), was chosen."""

    orders: int
    right: int
    invalid: int
    biased: bool


def assess(right_text: str, chosen: Sequence[str | None], threshold: int) -> Verdict:
    """Algorithm 1 for one question, by the texts that were ``chosen`` in each order, None for none.

    An option with the text of the right one is right, too.
    """
    right = chosen.count(right_text)
    return Verdict(len(chosen), right, chosen.count(None), right >= threshold)


def check_trials(config: Any) -> None:
    if not 1 <= config.threshold <= config.trials:
        raise HarnessError(f"--threshold must be between 1 and --trials, {config.trials}")


@dataclass(frozen=True)
class Shuffled:
    record: Question
    order: Order

    @property
    def name(self) -> str:
        """In the journal, e.g. ``Z7Sc3 BADC``: the published labels in the order shown."""
        return f"{self.record.item_id} {''.join(self.record.options[i].label for i in self.order)}"

    @property
    def options(self) -> tuple[Option, ...]:
        places = zip(self.record.options, self.order, strict=True)
        return tuple(Option(o.label, self.record.options[i].text) for o, i in places)

    @property
    def prompt(self) -> Prompt:
        return Prompt(prompt_text(MOMENTS, replace(self.record, options=self.options), NO_CONTEXT))

    def text(self, label: str | None) -> str | None:
        return next((option.text for option in self.options if option.label == label), None)


def shuffles(record: Question, trials: int, seed: str) -> list[Shuffled]:
    # A string seeds the same sample in every process.
    rng, count = random.Random(seed), len(record.options)
    return [Shuffled(record, tuple(rng.sample(range(count), count))) for _ in range(trials)]


def likeliest(model: SteeredModel, asked: Sequence[Shuffled]) -> list[dict[str, Any]]:
    """The ``label`` of highest probability after each prompt, None of equal ones, and all."""
    labels = [[option.label for option in one.options] for one in asked]
    scores = model.option_log_probs([one.prompt for one in asked], labels)
    return [
        {"label": choose(dict(zip(names, values, strict=True)), "most"), "log_probs": values}
        for names, values in zip(labels, scores, strict=True)
    ]


@claims("a check of distractors")
@within_memory("use a smaller --batch-size")
def run(
    config: DistractorConfig, console: Console | None = None, loaded: LoadedModel | None = None
) -> pd.DataFrame:
    """Ask all that is needed, in ``config.folder``; what is there is not asked again.

    The table has a row a question: ``item_id, movie, abilities, chosen, correct`` (in the published
    order), ``orders, right, invalid, biased``.
    """
    with Session(config, console) as session:
        check_trials(config)
        every = [record for record in MOMENTS.load(config.data) if record.split == config.split]
        records = [record for record in every if not record.hidden]
        if not records:
            raise HarnessError(f"{config.data}: no question of split {config.split!r} has a key")
        model = session.open(loaded)
        assert isinstance(model, SteeredModel)
        texts = {record.item_id: Shuffled(record, PUBLISHED).prompt.text for record in every}
        about = model.loaded.about | {"data": fingerprint(texts.items())}
        asked = {}
        for record in records:
            others = shuffles(record, config.trials, f"{config.seed} {record.item_id}")
            asked[record.item_id] = [Shuffled(record, PUBLISHED), *others]
        by_name = {one.name: one for several in asked.values() for one in several}
        ask = partial(likeliest, model)
        answers = session.answers(ANSWERS, about, by_name, ask, config.batch_size)
        rows: list[dict[str, Any]] = []
        for record in records:
            first, *others = asked[record.item_id]
            label, right = answers[first.name]["label"], str(first.text(record.answer))
            chosen = [one.text(answers[one.name]["label"]) for one in others]
            row = {"item_id": record.item_id, "movie": record.group, "chosen": label}
            row |= {"abilities": "|".join(record.tags.get("ability", ()))}
            row |= {"correct": label == record.answer}
            rows.append(row | asdict(assess(right, chosen, config.threshold)))
        table = pd.DataFrame(rows)
        results = _results(table)
        saved = {
            "config": asdict(config),
            "about": about,
            "counts": {"questions": len(records), "hidden": sum(one.hidden for one in every)},
            "results": results,
        }
        shown = [texts[record.item_id] for record in records]
        save(session.console, config.folder / TABLE, table, saved, model.loaded, shown)
        print_table(
            session.console,
            f"{config.model}, MoMentS {config.split} without context, {config.trials} shuffles (%)",
            ["ability", "questions", "right without context", "biased distractors", "no choice"],
            [[name, part["no_context"]["n"], *part.values()] for name, part in results.items()],
        )
        session.end()
        return table


def _results(table: pd.DataFrame) -> dict[str, Any]:
    """Accuracies and shares by ability; intervals are over films."""
    table = table.rename(columns={"movie": "story"})
    parts = {name: table[having] for name, having in by_value(table["abilities"])}
    results = {}
    for name, rows in ({"overall": table} | parts).items():
        right = estimates(rows.assign(invalid=rows["chosen"].isna()), beliefs=False)
        biased = estimates(rows.assign(correct=rows["biased"], invalid=False), beliefs=False)
        found = {"no_context": right["overall"], "biased": biased["overall"]}
        found["invalid"] = right["invalid"]
        results[name] = {measure: asdict(estimate) for measure, estimate in found.items()}
    return results


def require_room(model: AnyModel, what: str, prompt: str, tokens: int, remedy: str) -> None:
    if isinstance(model, SteeredModel):
        text = reply_prompt(model.loaded, prompt, False)
        check_room(model.loaded, what, text, None, tokens, remedy)


def write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    # Replies may hold half a surrogate pair.
    write_atomic(path, text.encode(errors="backslashreplace"))
