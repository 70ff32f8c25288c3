"""Can a question be answered from its options alone? Algorithm 1 of the MoMentS paper.

The algorithm shuffles the options N times, asks a model without any context, counts how often it
finds the right answer, and flags the set of distractors as biased if that is k times or more
(section 4.2: N = 6, k = 5). Where it leaves something open, this is how it is done here:

- Each shuffle draws one of all orders, whichever were drawn before. Labels stay in place and texts
  move, so that A always comes first.
- The threshold is tested after all trials. Tested inside the loop it would flag the same sets.
- Answers are compared as texts: an option that says the same as the right one is right, too.
- A reply that chooses nothing is a trial without the right answer.
- A set that is not flagged is not biased.

A model that decodes greedily answers one order always alike. Then all orders can be asked instead
of a sample: R right ones of n! orders make each trial right with probability R / n!, so that the
sample of N would be flagged with a probability known exactly; the set is called biased here if
R / n! >= k / N.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd
from rich.markup import escape

from hooks.batch_size import in_batches, within_memory
from sally_anne.benchmarks.items import BenchmarkItem, Option
from sally_anne.benchmarks.moments import MOMENTS
from sally_anne.core.commands import no_command
from sally_anne.core.console import Bars, Console
from sally_anne.core.errors import HarnessError
from sally_anne.core.files import write_atomic, write_sealed
from sally_anne.core.options import check_options
from sally_anne.core.run_folder import DISTRACTORS, RESULTS, claims, save_config
from sally_anne.harness.config import DistractorConfig
from sally_anne.harness.journal import Journal
from sally_anne.harness.metrics import accuracy
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.harness.reporting import print_table
from sally_anne.harness.views import Shown, prompt_text
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.processor import unknown_words

ANSWERS, TABLE = "answers.jsonl", "distractors.parquet"
TRIALS, THRESHOLD = 6, 5
# 8 options have 40,320 orders.
MOST_OPTIONS = 6
_NOTHING_SHOWN = Shown("none", "full", MOMENTS.sampling)

Order = tuple[int, ...]
# Question and options as shown, without context, to the label that is chosen; None for none.
Scorer = Callable[[str, Sequence[Option]], str | None]


@dataclass(frozen=True)
class Verdict:
    """What a set of distractors is worth.

    Attributes:
        orders: number of orders that were asked: N, or all.
        right: how often the right answer was chosen.
        invalid: how often nothing was chosen.
        biased: whether the set is flagged.
        flag_probability: how probable the flag is with N drawn orders; None if only those were
            asked.
    """

    orders: int
    right: int
    invalid: int
    biased: bool
    flag_probability: float | None = None


def assess(
    question: str,
    options: Sequence[Option],
    answer: str,
    scorer: Scorer,
    *,
    trials: int = TRIALS,
    threshold: int = THRESHOLD,
    seed: str | int = 0,
    exact: bool = False,
) -> Verdict:
    """Algorithm 1 for one question.

    Args:
        question: without its options.
        options: in the published order.
        answer: label of the right one.
        scorer: who answers without context.
        trials, threshold: N and k.
        seed: draws the orders; another one for each question.
        exact: ask all orders.

    Raises:
        HarnessError: trials or threshold make no sense, the answer is no option, there are too
            many options for all orders, or the scorer chooses a label that is not offered.
    """
    check_trials(trials, threshold)
    texts = {option.label: option.text for option in options}
    if answer not in texts or len(texts) < len(options) or len(options) < 2:
        raise HarnessError(f"the right answer {answer!r} must be one of options {list(texts)}")
    orders = orders_of(len(options), trials, seed, exact)
    right = invalid = 0
    for order in orders:
        offered = reordered(options, order)
        label = scorer(question, offered)
        chosen = {option.label: option.text for option in offered}
        if label is None:
            invalid += 1
        elif label not in chosen:
            raise HarnessError(f"the scorer chose {label!r}, which is none of {list(chosen)}")
        elif chosen[label] == texts[answer]:
            right += 1
    rate = right / len(orders)
    flags = (
        math.comb(trials, n) * rate**n * (1 - rate) ** (trials - n)
        for n in range(threshold, trials + 1)
    )
    # In whole numbers: right / orders >= threshold / trials.
    biased = right * trials >= threshold * len(orders)
    return Verdict(len(orders), right, invalid, biased, math.fsum(flags) if exact else None)


def orders_of(count: int, trials: int, seed: str | int, exact: bool) -> list[Order]:
    """The orders that :func:`assess` asks: all of them, or ``trials`` drawn ones.

    Raises:
        HarnessError: all orders of too many options.
    """
    if exact:
        if count > MOST_OPTIONS:
            raise HarnessError(f"{count} options have too many orders to ask all of them")
        return list(itertools.permutations(range(count)))
    # A string seeds the same draw in every process.
    rng = random.Random(str(seed))
    return [tuple(rng.sample(range(count), count)) for _ in range(trials)]


def reordered(options: Sequence[Option], order: Order) -> tuple[Option, ...]:
    """The texts in another order, under the labels in theirs."""
    return tuple(
        Option(place.label, options[i].text) for place, i in zip(options, order, strict=True)
    )


def check_trials(trials: int, threshold: int) -> None:
    """Whether N and k make sense; HarnessError if they do not."""
    if not 1 <= threshold <= trials:
        raise HarnessError(
            f"--threshold must be between 1 and --trials, got {threshold} and {trials}"
        )


@dataclass(frozen=True)
class _Asked:
    """One question in one order of its options; in the published one by default."""

    record: BenchmarkItem
    order: Order

    @property
    def name(self) -> str:
        """In the journal, e.g. ``Z7Sc3 BADC``: the published labels in the order shown."""
        return f"{self.record.item_id} {''.join(self.record.options[i].label for i in self.order)}"

    @property
    def prompt(self) -> Prompt:
        record = replace(self.record, options=reordered(self.record.options, self.order))
        return Prompt(prompt_text(MOMENTS, record, _NOTHING_SHOWN))


@claims(DISTRACTORS)
@within_memory("use a smaller --batch-size")
def run(
    config: DistractorConfig, console: Console | None = None, loaded: LoadedModel | None = None
) -> pd.DataFrame:
    """Ask all that is needed, in ``config.folder``; what is there is not asked again.

    A model chooses the label of highest probability after the prompt; of labels that are exactly
    alike it chooses none.

    Returns:
        One row a question: ``item_id, movie, abilities, chosen, correct`` (in the published order),
        ``orders, right, invalid, biased, flag_probability``.

    Raises:
        HarnessError, BenchmarkError, ModelError, SallyAnneError: bad options or data, named.
    """
    console = console or Console()
    check_trials(config.trials, config.threshold)
    check_options(config)
    every = [r for r in MOMENTS.load(config.data) if r.split == config.split]
    records = [record for record in every if not record.hidden][: config.limit]
    if not records:
        raise HarnessError(
            f"{config.data}: has no question of split {config.split!r} whose key is known"
        )
    if loaded is None:
        loaded = load_model(**config.opening())
    about = {
        "model": loaded.source,
        "revision": loaded.revision,
        "dtype": loaded.dtype,
        **loaded.changes,
        "data": _fingerprint(every),
    }
    asked = [
        _Asked(record, order)
        for record in records
        for order in dict.fromkeys([_published(record).order, *_orders(record, config)])
    ]
    unknown = unknown_words(loaded, (_published(record).prompt.text for record in records))
    with Journal(config.folder / ANSWERS, about) as journal, Bars(console) as bar:
        save_config(config.folder, asdict(config))
        task = bar.add_task(escape(f"{config.model} without context"), total=len(asked))
        for done in _ask(SteeredModel(loaded), asked, journal, config.batch_size):
            bar.update(task, completed=done)
        table = pd.DataFrame([_row(record, journal.answers, config) for record in records])
    results = _results(table)
    write_atomic(config.folder / TABLE, table.to_parquet(None, index=False))
    saved = {
        "config": asdict(config),
        "about": about,
        "counts": {"questions": len(records), "hidden": sum(record.hidden for record in every)},
        "unknown_words": asdict(unknown),
        "results": results,
    }
    write_sealed(config.folder / RESULTS, saved, (TABLE,))
    if warning := unknown.warning(loaded.name):
        console.print(escape(warning), soft_wrap=True)
    how = "all orders" if config.exact else f"{config.trials} shuffles"
    print_table(
        console,
        f"{config.model}, MoMentS {config.split} without context, {how} (%)",
        ["ability", "questions", "right without context", "biased distractors", "no choice"],
        [
            [
                name,
                found["no_context"]["n"],
                *found.values(),
            ]
            for name, found in results.items()
        ],
    )
    console.print(f"run folder: {escape(str(config.folder))}", soft_wrap=True)
    return table


def _fingerprint(records: Iterable[BenchmarkItem]) -> str:
    """Of everything that is asked, whatever part of it."""
    digest = hashlib.sha256()
    for record in records:
        digest.update(repr((record.item_id, _published(record).prompt.text)).encode())
    return digest.hexdigest()


def _published(record: BenchmarkItem) -> _Asked:
    return _Asked(record, tuple(range(len(record.options))))


def _seed(record: BenchmarkItem, config: DistractorConfig) -> str:
    return f"{config.seed} {record.item_id}"


def _orders(record: BenchmarkItem, config: DistractorConfig) -> list[Order]:
    return orders_of(len(record.options), config.trials, _seed(record, config), config.exact)


def _ask(
    model: SteeredModel, asked: Sequence[_Asked], journal: Journal, batch_size: int
) -> Iterable[int]:
    """Ask what the journal does not hold; gives the number of answers that it then holds."""
    todo = [one for one in asked if one.name not in journal.answers]
    done = len(asked) - len(todo)
    yield done
    for batch in in_batches(todo, batch_size):
        labels = [[option.label for option in one.record.options] for one in batch]
        scores = model.option_log_probs([one.prompt for one in batch], labels)
        journal.add(
            {"item_id": one.name, "label": _best(names, found), "log_probs": found}
            for one, names, found in zip(batch, labels, scores, strict=True)
        )
        done += len(batch)
        yield done


def _best(labels: Sequence[str], scores: Sequence[float]) -> str | None:
    """The label of the highest score; None if several have it, or if none is a number."""
    best = [label for label, score in zip(labels, scores, strict=True) if score == max(scores)]
    return best[0] if len(best) == 1 else None


def _row(
    record: BenchmarkItem, answers: Mapping[str, Mapping[str, Any]], config: DistractorConfig
) -> dict[str, Any]:
    assert record.answer is not None
    # What was said to each order, in the order in which `assess` asks.
    said = iter(answers[_Asked(record, o).name]["label"] for o in _orders(record, config))
    verdict = assess(
        record.question,
        record.options,
        record.answer,
        lambda question, options: next(said),
        trials=config.trials,
        threshold=config.threshold,
        seed=_seed(record, config),
        exact=config.exact,
    )
    chosen = answers[_published(record).name]["label"]
    return {
        "item_id": record.item_id,
        "movie": record.group,
        "abilities": "|".join(record.tags.get("ability", ())),
        "chosen": chosen,
        "correct": chosen == record.answer,
        **asdict(verdict),
    }


def _results(table: pd.DataFrame) -> dict[str, Any]:
    """Accuracy without context and how many sets are biased, over all and by ability.

    Intervals are over films.
    """
    table = table.rename(columns={"movie": "story"})
    values = table["abilities"].str.split("|")
    parts = {"overall": table} | {
        name: table[values.map(lambda cell, name=name: name in cell)]
        for name in sorted({name for cell in values for name in cell if name})
    }
    found = {}
    for name, rows in parts.items():
        right = accuracy(rows.assign(invalid=rows["chosen"].isna()))
        biased = accuracy(rows.assign(correct=rows["biased"], invalid=False))
        found[name] = {
            "no_context": asdict(right.overall),
            "biased": asdict(biased.overall),
            "invalid": asdict(right.invalid),
        }
    return found


if __name__ == "__main__":
    no_command("distractors")
