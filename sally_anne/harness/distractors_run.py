"""A check of distractors from config to table."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd
from rich.markup import escape
from rich.table import Table

from hooks.batch_size import in_batches, within_memory
from sally_anne.benchmarks.items import BenchmarkItem, Option
from sally_anne.benchmarks.moments import MOMENTS
from sally_anne.core.commands import no_command
from sally_anne.core.console import Bars, Console
from sally_anne.core.errors import HarnessError
from sally_anne.core.files import write_atomic, write_sealed
from sally_anne.core.options import check_options
from sally_anne.core.run_folder import DISTRACTORS, RESULTS, claims, save_config
from sally_anne.harness.distractors import (
    Order,
    Verdict,
    assess,
    check_trials,
    orders_of,
    reordered,
)
from sally_anne.harness.distractors_config import DistractorConfig
from sally_anne.harness.journal import Journal
from sally_anne.harness.metrics import Accuracy, accuracy
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.harness.reporting import percent
from sally_anne.harness.views import Shown, prompt_text
from sally_anne.models.loading import LoadedModel, load_model

ANSWERS, TABLE = "answers.jsonl", "distractors.parquet"
_NOTHING_SHOWN = Shown("none", "full", MOMENTS.sampling)


@dataclass(frozen=True)
class _Asked:
    """One question in one order of its options."""

    record: BenchmarkItem
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
        record = replace(self.record, options=self.options)
        return Prompt(prompt_text(MOMENTS, record, _NOTHING_SHOWN))


@claims(DISTRACTORS)
@within_memory("use a smaller --batch-size")
def run(
    config: DistractorConfig, console: Console | None = None, loaded: LoadedModel | None = None
) -> pd.DataFrame:
    """Ask all that is needed, in ``config.folder``; what is there is not asked again.

    A model chooses the label of highest probability after the prompt; of labels that are exactly
    alike it chooses none.

    Args:
        config: what to do.
        console: for progress and tables.
        loaded: the model if it is loaded already.

    Returns:
        One row a question: ``item_id, movie, abilities, chosen, correct`` (in the published order),
        ``orders, right, invalid, biased, flag_probability``.

    Raises:
        HarnessError, BenchmarkError, ModelError, SallyAnneError: bad options or data, named.
    """
    console = console or Console()
    _check(config)
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
    asked = list(_questions(records, config))
    with Journal(config.folder / ANSWERS, about) as journal, Bars(console) as bar:
        save_config(config.folder, asdict(config))
        task = bar.add_task(escape(f"{config.model} without context"), total=len(asked))
        for done in _ask(SteeredModel(loaded), asked, journal, config.batch_size):
            bar.update(task, completed=done)
        table = _table(records, journal.answers, config)
    results = _results(table)
    number = {"questions": len(records), "hidden": sum(record.hidden for record in every)}
    write_atomic(config.folder / TABLE, table.to_parquet(None, index=False))
    saved = {"config": asdict(config), "about": about, "counts": number, "results": results}
    write_sealed(config.folder / RESULTS, saved, (TABLE,))
    _print(console, results, config)
    return table


def _check(config: DistractorConfig) -> None:
    check_trials(config.trials, config.threshold)
    check_options(config)


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


def _questions(records: Iterable[BenchmarkItem], config: DistractorConfig) -> Iterable[_Asked]:
    """Each question in the published order, and in each order of the algorithm once."""
    for record in records:
        count = len(record.options)
        orders = orders_of(count, config.trials, _seed(record, config), config.exact)
        for order in dict.fromkeys([_published(record).order, *orders]):
            yield _Asked(record, order)


def _ask(
    model: SteeredModel, asked: Sequence[_Asked], journal: Journal, batch_size: int
) -> Iterable[int]:
    """Ask what the journal does not hold; gives the number of answers that it then holds."""
    todo = [one for one in asked if one.name not in journal.answers]
    done = len(asked) - len(todo)
    yield done
    for batch in in_batches(todo, batch_size):
        labels = [[option.label for option in one.options] for one in batch]
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


def _table(
    records: Iterable[BenchmarkItem],
    answers: Mapping[str, Mapping[str, Any]],
    config: DistractorConfig,
) -> pd.DataFrame:
    rows = []
    for record in records:
        assert record.answer is not None
        chosen = answers[_published(record).name]["label"]
        verdict = _verdict(record, answers, config)
        row = {
            "item_id": record.item_id,
            "movie": record.group,
            "abilities": "|".join(record.tags.get("ability", ())),
            "chosen": chosen,
            "correct": chosen == record.answer,
        }
        rows.append(row | asdict(verdict))
    return pd.DataFrame(rows)


def _verdict(
    record: BenchmarkItem, answers: Mapping[str, Mapping[str, Any]], config: DistractorConfig
) -> Verdict:
    assert record.answer is not None
    count = len(record.options)
    seed = _seed(record, config)
    # What was said to each order, in the order in which `assess` asks.
    said = iter(
        answers[_Asked(record, order).name]["label"]
        for order in orders_of(count, config.trials, seed, config.exact)
    )
    return assess(
        record.question,
        record.options,
        record.answer,
        lambda question, options: next(said),
        trials=config.trials,
        threshold=config.threshold,
        seed=seed,
        exact=config.exact,
    )


def _results(table: pd.DataFrame) -> dict[str, Any]:
    """Accuracy without context and share of biased sets, over all and by ability."""
    abilities = sorted({name for cell in table["abilities"] for name in cell.split("|") if name})
    masks = {"overall": table["correct"].notna()} | {
        name: table["abilities"].map(lambda cell, name=name: name in cell.split("|"))
        for name in abilities
    }
    return {
        name: {
            "no_context": asdict(_share(table[mask], "correct").overall),
            "biased": asdict(_share(table[mask], "biased").overall),
            "invalid": asdict(_share(table[mask], "correct").invalid),
        }
        for name, mask in masks.items()
    }


def _share(table: pd.DataFrame, column: str) -> Accuracy:
    """How often a column is true; intervals are over films."""
    sheet = pd.DataFrame(
        {
            "item_id": table["item_id"],
            "story": table["movie"],
            "correct": table[column],
            "invalid": table["chosen"].isna() if column == "correct" else False,
        }
    )
    return accuracy(sheet)


def _print(console: Console, results: Mapping[str, Any], config: DistractorConfig) -> None:
    how = "all orders" if config.exact else f"{config.trials} shuffles"
    title = f"{config.model}, MoMentS {config.split} without context, {how} (%)"
    sheet = Table(title=escape(title))
    for name in (
        "ability",
        "questions",
        "right without context",
        "biased distractors",
        "no choice",
    ):
        sheet.add_column(name, justify="left" if name == "ability" else "right")
    for name, found in results.items():
        values = [percent(found[kind]) for kind in ("no_context", "biased", "invalid")]
        sheet.add_row(name, str(found["no_context"]["n"]), *values)
    console.print(sheet)
    console.print(f"run folder: {escape(str(config.folder))}", soft_wrap=True)


if __name__ == "__main__":
    no_command("sally_anne.harness.distractors")
