"""A session with a distractor copilot: propose, look at the set, send it back, until it holds.

MoMentS checks each set that its annotators write (section 4.2); here a model writes them, is told
what gave a set away, and writes again. Everything that a model says is kept by the words that it
was asked, so that a session goes on wherever it was stopped, with more questions or more rounds.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any

from rich.markup import escape

from sally_anne.core.console import Bars, Console
from sally_anne.core.files import write_atomic
from sally_anne.core.folder import Journal, claims, save_config
from sally_anne.core.options import check_options
from sally_anne.data.items import Option
from sally_anne.data.items import Question as BenchmarkQuestion
from sally_anne.data.moments import LABELS, NAME
from sally_anne.harness.chat_endpoint import ChatEndpoint, open_endpoint, usage_line
from sally_anne.harness.config import check_endpoint, saved_options
from sally_anne.harness.copilot import CopilotConfig
from sally_anne.harness.distractors_run import (
    Shuffled,
    Verdict,
    assess,
    best_label,
    check_trials,
    orders_of,
    reordered,
)
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.harness.parse import parse_choice
from sally_anne.harness.proposals import (
    Question,
    faults,
    giveaways,
    proposal_prompt,
    read_proposal,
    read_questions,
)
from sally_anne.harness.report import print_table
from sally_anne.hooks.batch_size import in_batches, within_memory
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.prompts import reply_prompt
from sally_anne.models.videos import check_room

SESSION, SETS, TASK = "session.jsonl", "sets.jsonl", "task.jsonl"
# In a question's place, where the options alone are shown.
UNKNOWN = "(unknown) Which of these is the right answer?"
# Of a reply that is a letter.
_LETTER_TOKENS = 16

AnyModel = SteeredModel | ChatEndpoint


@dataclass(frozen=True)
class Round:
    """One set: where it comes from, what is wrong with it, and what algorithm 1 says of it."""

    distractors: tuple[str, ...]  # empty where a reply held no set
    problems: tuple[str, ...]  # none: the set holds
    verdict: Verdict | None  # None where there was no set


@dataclass(frozen=True)
class Outcome:
    """What came of one question."""

    question: Question
    rounds: tuple[Round, ...]

    @property
    def best(self) -> Round | None:
        """The set that holds, else the first of those that tell least; None without any."""
        sets = [
            (one.verdict.right if one.problems else -1, one) for one in self.rounds if one.verdict
        ]
        return min(sets, key=itemgetter(0), default=(0, None))[1]

    def line(self) -> dict[str, Any]:
        """For ``sets.jsonl``."""
        asked, best = self.question, self.best
        return {
            "id": asked.item_id,
            "question": asked.question,
            "answer": asked.answer,
            "distractors": None if best is None else list(best.distractors),
            "biased": None if best is None else bool(best.problems),
            "rounds": [asdict(one) for one in self.rounds],
        }


@dataclass
class _Session:
    """Both models with their memory."""

    config: CopilotConfig
    writer: AnyModel
    checker: AnyModel
    journal: Journal
    asked: int = field(default=0, init=False)

    def work(self, question: Question) -> Outcome:
        """Sets for one question, until one holds or ``config.rounds`` have been looked at."""
        rounds: list[Round] = []
        while len(rounds) < self.config.rounds and (not rounds or rounds[-1].problems):
            texts: Sequence[str] = question.distractors
            if rounds or not texts:
                tried = [one.distractors for one in rounds]
                prompt = proposal_prompt(question, tried, rounds[-1].problems if rounds else ())
                texts = read_proposal(self._proposal(question.item_id, prompt))
            rounds.append(self._look(question, tuple(texts), rounds))
        return Outcome(question, tuple(rounds))

    def _look(self, question: Question, texts: tuple[str, ...], before: Sequence[Round]) -> Round:
        if problem := faults(texts, question.answer):
            return Round((), (f"the reply {problem}",), None)
        # Where the right option stands in the record is nothing that orders depend on.
        options = tuple(map(Option, LABELS, (question.answer, *texts)))
        config = self.config
        seed = f"{config.seed} {question.item_id} {len(before)}"
        orders = orders_of(len(options), config.trials, seed, exact=False)
        said = self._choices(question.item_id, question.question, options, orders)
        assessed = partial(
            assess, options, LABELS[0], trials=config.trials, threshold=config.threshold
        )
        verdict = assessed(said=zip(orders, said, strict=True))
        if not verdict.biased:
            return Round(texts, (), verdict)
        unasked = self._choices(question.item_id, UNKNOWN, options, orders)
        blind = assessed(said=zip(orders, unasked, strict=True))
        picked = Counter(
            next(o.text for o in reordered(options, order) if o.label == label)
            for order, label in zip(orders, said, strict=True)
            if label is not None
        )
        problems = giveaways(question, texts, picked, blind.right, config.threshold)
        return Round(texts, tuple(problems), verdict)

    def _proposal(self, item_id: str, prompt: str) -> str:
        key = _key("proposal", prompt)
        if key not in self.journal.answers:
            reply = self.writer.generate([Prompt(prompt)], self.config.max_new_tokens)[0]
            self.journal.add([{"item_id": key, "question": item_id, "reply": reply}])
            self.asked += 1
        return str(self.journal.answers[key]["reply"])

    def _choices(
        self,
        item_id: str,
        question: str,
        options: tuple[Option, ...],
        orders: Sequence[tuple[int, ...]],
    ) -> list[str | None]:
        """The label chosen in each order, without the transcript; None for none."""
        record = BenchmarkQuestion(item_id, NAME, "", item_id, question, options, LABELS[0])
        shuffled = [Shuffled(record, order) for order in orders]
        keys = [_key("choice", one.prompt.text) for one in shuffled]
        todo = {k: s for k, s in zip(keys, shuffled, strict=True) if k not in self.journal.answers}
        for batch in in_batches(list(todo.items()), self.config.batch_size):
            found = _choose(self.checker, [one for _, one in batch])
            self.journal.add(
                {"item_id": key, "question": item_id, "label": label}
                for (key, _), label in zip(batch, found, strict=True)
            )
            self.asked += len(batch)
        return [self.journal.answers[key]["label"] for key in keys]


def _key(kind: str, prompt: str) -> str:
    return f"{kind} {hashlib.sha256(prompt.encode()).hexdigest()}"


def _choose(model: AnyModel, asked: Sequence[Shuffled]) -> list[str | None]:
    """Labels by probability, or as an endpoint's replies are read."""
    prompts = [one.prompt for one in asked]
    if isinstance(model, SteeredModel):
        labels = [list(LABELS) for _ in asked]
        return [best_label(LABELS, found) for found in model.option_log_probs(prompts, labels)]
    replies = model.generate(prompts, _LETTER_TOKENS)
    shown = [reordered(one.record.options, one.order) for one in asked]
    return [parse_choice(reply, o, "robust") for reply, o in zip(replies, shown, strict=True)]


@claims("a session of distractors")
@within_memory("use a smaller --batch-size")
def run(
    config: CopilotConfig, console: Console | None = None, loaded: LoadedModel | None = None
) -> list[Outcome]:
    """Hold the session in ``config.folder``; what was said there is not asked again.

    ``sets.jsonl`` has every set with its verdict and what gave it away, ``task.jsonl`` the
    questions whose set holds, as a task of one's own: ``sally-anne evaluate --task``.
    """
    console = console or Console()
    check_trials(config.trials, config.threshold)
    check_options(config)
    check_endpoint(config)
    questions = read_questions(config.data)
    endpoint = None if config.endpoint is None else open_endpoint(config)
    if endpoint is None:
        loaded = loaded or load_model(**config.opening())
        for one in questions:
            prompt = reply_prompt(loaded, proposal_prompt(one), video=False)
            what = f"{config.data}, question {one.item_id}"
            check_room(loaded, what, prompt, None, config.max_new_tokens, "give less transcript")
    writer: AnyModel = endpoint or SteeredModel(loaded)  # type: ignore[arg-type]
    checker = writer
    if config.checker is not None:
        own = {"name": config.checker, "revision": None, "max_pixels": None}
        checker = SteeredModel(load_model(**config.opening() | own))
    about = {"writer": writer.about, "checker": checker.about, "tokens": config.max_new_tokens}
    kept = endpoint.keeping(config.folder) if endpoint else nullcontext()
    with Journal(config.folder / SESSION, about) as journal, kept, Bars(console) as bar:
        save_config(config.folder, saved_options(config))
        session = _Session(config, writer, checker, journal)
        task = bar.add_task("questions", total=len(questions))
        outcomes = []
        for question in questions:
            outcomes.append(session.work(question))
            bar.advance(task)
    _write(config, outcomes)
    _report(console, config, outcomes, session.asked)
    if endpoint is not None:
        console.print(usage_line("copilot", endpoint.usage), soft_wrap=True)
    console.print(f"run folder: {escape(str(config.folder))}", soft_wrap=True)
    return outcomes


def _write(config: CopilotConfig, outcomes: Sequence[Outcome]) -> None:
    held = [one for one in outcomes if one.best and not one.best.problems]
    for name, lines in (
        (SETS, [one.line() for one in outcomes]),
        (TASK, [_as_task(one, config.seed) for one in held]),
    ):
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        # Half a character, which replies may hold, as JSON spells it.
        write_atomic(config.folder / name, text.encode(errors="backslashreplace"))


def _as_task(outcome: Outcome, seed: int) -> dict[str, Any]:
    """A line of one's own task; the right option's place is drawn."""
    asked, best = outcome.question, outcome.best
    assert best is not None
    options = [asked.answer, *best.distractors]
    random.Random(f"{seed} {asked.item_id}").shuffle(options)
    return {
        "id": asked.item_id,
        "question": asked.question,
        "options": options,
        "answer": options.index(asked.answer),
        "context": asked.transcript,
    }


def _report(
    console: Console, config: CopilotConfig, outcomes: Sequence[Outcome], asked: int
) -> None:
    rows: list[list[Any]] = []
    for outcome in outcomes:
        best = outcome.best
        right = "" if best is None or best.verdict is None else best.verdict.right
        state = "no set" if best is None else "biased" if best.problems else "holds"
        rows.append([outcome.question.item_id, state, len(outcome.rounds), right])
    title = f"Distractors: right answer found without the transcript, of {config.trials}"
    print_table(console, title, ["question", "set", "sets tried", "found"], rows)
    for outcome in outcomes:
        if (last := outcome.rounds[-1]).problems:
            console.print(escape(f"{outcome.question.item_id}: {'; '.join(last.problems)}"))
    holding = sum(row[1] == "holds" for row in rows)
    console.print(
        f"{holding} of {len(rows)} questions have a set that holds; {asked} replies are new"
    )
