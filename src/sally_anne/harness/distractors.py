"""Can a question be answered from its options alone? Algorithm 1 of the MoMentS paper.

It shuffles the options N times, asks a model without any context, and flags the set of distractors
if the right answer is chosen k times or more (section 4.2: N = 6, k = 5).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd
from rich.markup import escape
from scipy.stats import binom

from sally_anne.core.console import Bars, Console
from sally_anne.core.errors import HarnessError
from sally_anne.core.folder import Journal, claims, fingerprint, save_config
from sally_anne.core.options import check_options
from sally_anne.data.items import Option, Question
from sally_anne.data.moments import MOMENTS
from sally_anne.harness.method_config import DistractorConfig
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.harness.questions import PromptConfig, prompt_text
from sally_anne.harness.report import print_table, save
from sally_anne.harness.score import accuracy, by_value
from sally_anne.harness.tasks import sample_groups
from sally_anne.hooks.batch_size import in_batches, within_memory
from sally_anne.models.loading import LoadedModel, load_model

ANSWERS, TABLE = "answers.jsonl", "distractors.parquet"
# 8 options have 40,320 orders.
MOST_OPTIONS = 6
NO_CONTEXT = PromptConfig("none", "full", MOMENTS.sampling)

Order = tuple[int, ...]


@dataclass(frozen=True)
class Verdict:
    """What a set of distractors is worth: orders asked, how often the right one or none was chosen.

    ``flag_probability`` is how probable the flag is with N sampled orders; None if only those were
    asked.
    """

    orders: int
    right: int
    invalid: int
    biased: bool
    flag_probability: float | None = None


def assess(
    options: Sequence[Option],
    answer: str,
    choices: Iterable[tuple[Order, str | None]],
    trials: int = DistractorConfig.trials,
    threshold: int = DistractorConfig.threshold,
    exact: bool = False,
) -> Verdict:
    """Algorithm 1 for one question; ``answer`` is the label of the right one of its ``options``.

    ``choices`` are the orders asked and the labels chosen, None for none. Each shuffle samples one
    of all orders, with replacement; labels stay in place and texts move. An option with the text of
    the right one is right, too; a reply that chooses nothing is a trial without the right answer.

    A model that decodes greedily answers one order always alike. So all n! orders (``exact``) can
    be asked: if R of them are right, a sample of N is flagged with a probability known exactly, and
    the set is called biased if R / n! >= k / N.
    """
    check_trials(trials, threshold)
    right_text = {option.label: option.text for option in options}[answer]
    chosen = [
        label and {option.label: option.text for option in reordered(options, order)}[label]
        for order, label in choices
    ]
    orders, right = len(chosen), chosen.count(right_text)
    chance = float(binom.sf(threshold - 1, trials, right / orders)) if exact else None
    # In whole numbers: right / orders >= threshold / trials.
    biased = right * trials >= threshold * orders
    return Verdict(orders, right, chosen.count(None), biased, chance)


def orders_of(count: int, trials: int, seed: str | int, exact: bool) -> list[Order]:
    """All orders of so many options, or ``trials`` ones that ``seed`` samples for a question."""
    if exact:
        if count > MOST_OPTIONS:
            raise HarnessError(f"{count} options have too many orders to ask all of them")
        return list(itertools.permutations(range(count)))
    # A string seeds the same sample in every process.
    rng = random.Random(str(seed))
    return [tuple(rng.sample(range(count), count)) for _ in range(trials)]


def reordered(options: Sequence[Option], order: Order) -> tuple[Option, ...]:
    """The texts in another order, under the labels in theirs."""
    return tuple(
        Option(place.label, options[i].text) for place, i in zip(options, order, strict=True)
    )


def check_trials(trials: int, threshold: int) -> None:
    """HarnessError if N and k make no sense."""
    if not 1 <= threshold <= trials:
        raise HarnessError(
            f"--threshold must be between 1 and --trials, got {threshold} and {trials}"
        )


@dataclass(frozen=True)
class Shuffled:
    """One question in one order of its options."""

    record: Question
    order: Order

    @property
    def name(self) -> str:
        """In the journal, e.g. ``Z7Sc3 BADC``: the published labels in the order shown."""
        return f"{self.record.item_id} {''.join(self.record.options[i].label for i in self.order)}"

    @property
    def options(self) -> tuple[Option, ...]:
        return reordered(self.record.options, self.order)

    @property
    def prompt(self) -> Prompt:
        return Prompt(prompt_text(MOMENTS, replace(self.record, options=self.options), NO_CONTEXT))


def published(record: Question) -> Shuffled:
    """A question in its published order."""
    return Shuffled(record, tuple(range(len(record.options))))


def best_label(labels: Sequence[str], scores: Sequence[float]) -> str | None:
    """The label of the highest score; None if several have it, or if none is a number."""
    best = [label for label, score in zip(labels, scores, strict=True) if score == max(scores)]
    return best[0] if len(best) == 1 else None


@claims("a check of distractors")
@within_memory("use a smaller --batch-size")
def run(
    config: DistractorConfig, console: Console | None = None, loaded: LoadedModel | None = None
) -> pd.DataFrame:
    """Ask all that is needed, in ``config.folder``; what is there is not asked again.

    A model chooses the label of highest probability after the prompt; none of equal ones. The table
    has a row a question: ``item_id, movie, abilities, chosen, correct`` (in the published order),
    ``orders, right, invalid, biased, flag_probability``.
    """
    console = console or Console()
    check_options(config)
    check_trials(config.trials, config.threshold)
    every = [record for record in MOMENTS.load(config.data) if record.split == config.split]
    tagged = ((record.item_id, record.tags) for record in every if not record.hidden)
    kept = sample_groups(tagged, MOMENTS.breakdowns, config.limit, config.seed)
    records = [record for record in every if record.item_id in kept]
    if not records:
        raise HarnessError(f"{config.data}: no question of split {config.split!r} has a key")
    loaded = loaded or load_model(**config.opening())
    texts = [(record.item_id, published(record).prompt.text) for record in every]
    about = loaded.about | {"data": fingerprint(texts)}
    if config.limit is not None:
        about["drawn"] = f"over {', '.join(MOMENTS.breakdowns)}, seed {config.seed}"
    orders = {
        record.item_id: orders_of(
            len(record.options), config.trials, f"{config.seed} {record.item_id}", config.exact
        )
        for record in records
    }
    prompts = [
        Shuffled(record, order)
        for record in records
        for order in dict.fromkeys([published(record).order, *orders[record.item_id]])
    ]
    model = SteeredModel(loaded)
    with Journal(config.folder / ANSWERS, about) as journal, Bars(console) as bar:
        save_config(config.folder, asdict(config))
        todo = [one for one in prompts if one.name not in journal.answers]
        task = bar.add_task(escape(f"{config.model} without context"), total=len(prompts))
        bar.update(task, completed=len(prompts) - len(todo))
        for batch in in_batches(todo, config.batch_size):
            labels = [[option.label for option in one.options] for one in batch]
            scores = model.option_log_probs([one.prompt for one in batch], labels)
            journal.add(
                {"item_id": one.name, "label": best_label(names, values), "log_probs": values}
                for one, names, values in zip(batch, labels, scores, strict=True)
            )
            bar.advance(task, len(batch))
    chosen = {name: answer["label"] for name, answer in journal.answers.items()}
    rows: list[dict[str, Any]] = []
    for record in records:
        label = chosen[published(record).name]
        choices = ((o, chosen[Shuffled(record, o).name]) for o in orders[record.item_id])
        how = (config.trials, config.threshold, config.exact)
        rows.append(
            {
                "item_id": record.item_id,
                "movie": record.group,
                "abilities": "|".join(record.tags.get("ability", ())),
                "chosen": label,
                "correct": label == record.answer,
                **asdict(assess(record.options, str(record.answer), choices, *how)),
            }
        )
    table = pd.DataFrame(rows)
    results = _results(table)
    saved = {
        "config": asdict(config),
        "about": about,
        "counts": {"questions": len(records), "hidden": sum(record.hidden for record in every)},
        "results": results,
    }
    shown = [text for item_id, text in texts if item_id in kept]
    save(console, config.folder / TABLE, table, saved, loaded, shown)
    asked = "all orders" if config.exact else f"{config.trials} shuffles"
    print_table(
        console,
        f"{config.model}, MoMentS {config.split} without context, {asked} (%)",
        ["ability", "questions", "right without context", "biased distractors", "no choice"],
        [[name, part["no_context"]["n"], *part.values()] for name, part in results.items()],
    )
    console.print(f"run folder: {escape(str(config.folder))}", soft_wrap=True)
    return table


def _results(table: pd.DataFrame) -> dict[str, Any]:
    """Accuracy without context and the share of biased sets, over all and by ability.

    Intervals are over films.
    """
    table = table.rename(columns={"movie": "story"})
    parts = {name: table[having] for name, having in by_value(table["abilities"])}
    results = {}
    for name, rows in ({"overall": table} | parts).items():
        right = accuracy(rows.assign(invalid=rows["chosen"].isna()))
        biased = accuracy(rows.assign(correct=rows["biased"], invalid=False))
        results[name] = {
            "no_context": asdict(right.overall),
            "biased": asdict(biased.overall),
            "invalid": asdict(right.invalid),
        }
    return results
