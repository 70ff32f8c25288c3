"""Can a question be answered from its options alone? Algorithm 1 of the MoMentS paper.

It shuffles the options N times, asks a model without any context, and flags the set of distractors
if the right answer is chosen k times or more (section 4.2: N = 6, k = 5). So MoMentS checks each
set that its annotators write; the copilot writes sets, reads what gave one away, and writes again.
Its replies are kept by their prompts: a session goes on with more questions or more rounds.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from sally_anne.core.console import Bars, Console, print_table
from sally_anne.core.errors import HarnessError
from sally_anne.core.files import write_atomic
from sally_anne.core.folder import claims, fingerprint
from sally_anne.core.processes import within_memory
from sally_anne.data.items import Option, Question
from sally_anne.data.moments import LABELS, MOMENTS, NAME
from sally_anne.data.read import named_lines
from sally_anne.harness.chat_endpoint import AnyModel
from sally_anne.harness.limp import LETTER, read_list
from sally_anne.harness.method_config import CopilotConfig, DistractorConfig
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.harness.parse import parse_choice
from sally_anne.harness.planning import Session, ask_rest, choose
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
SESSION, SETS, TASK = "session.jsonl", "sets.jsonl", "task.jsonl"
# MoMentS has one right option and three wrong ones (section 3.3).
WRONG = 3
FIELDS = ("id", "question", "answer", "distractors", "transcript")
_PROMPT = """\
This is said in a film:

{transcript}

Question: {question}
Right answer: {answer}

Write three wrong answers to the question. Each must be false, or not borne out by what is said, \
but seem likely to somebody who knows the question and not the film. Each is as long as the right \
answer, as detailed, and in the same style, and no two say the same.
{feedback}Reply with a list in JSON of three texts and nothing else: ["...", "...", "..."]
"""
_FEEDBACK = """
These were tried before and must not come again:
{tried}
The last of them were not good enough:
{problems}

"""
_THOUGHTS = re.compile(r".*</think>", re.DOTALL | re.IGNORECASE)
_WORD = re.compile(r"\w+(?:['’-]\w+)*")


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


# The labels chosen for questions in some order of their options, None for none.
Choose = Callable[[Sequence[Shuffled]], list[str | None]]


@dataclass(frozen=True)
class Draft:
    """A question with its right answer and transcript; ``distractors`` are the user's, or ()."""

    item_id: str
    question: str
    answer: str
    transcript: str
    distractors: tuple[str, ...] = ()


def read_questions(path: Path) -> list[Draft]:
    drafts = []
    for item_id, record in named_lines(path, "question", "id", "{}", FIELDS).items():
        answer = record.get("answer").stripped()
        own = record.opt("distractors", lambda texts: tuple(f.stripped() for f in texts.items()))
        if own is not None and (problem := faults(own, answer)):
            record.get("distractors").fail(problem)
        question, transcript = (record.get(k).text() for k in ("question", "transcript"))
        drafts.append(Draft(item_id, question, answer, transcript, own or ()))
    return drafts


@dataclass(frozen=True)
class Round:
    """One set, what is wrong with it (nothing if it holds), and its verdict, if it is a set."""

    distractors: tuple[str, ...]
    problems: tuple[str, ...]
    verdict: Verdict | None


def proposal_prompt(question: Draft, rounds: Sequence[Round] = ()) -> str:
    feedback = ""
    if rounds:
        texts = dict.fromkeys(text for one in rounds for text in one.distractors)
        listed = "\n".join(f"- {text}" for text in texts) or "(none)"
        wrong = "\n".join(f"- {problem}" for problem in rounds[-1].problems)
        feedback = _FEEDBACK.format(tried=listed, problems=wrong)
    parts = {name: getattr(question, name) for name in ("transcript", "question", "answer")}
    return _PROMPT.format(**parts, feedback=feedback)


def faults(texts: Sequence[str], answer: str) -> str:
    """Why texts are no set of wrong options; empty if they are one."""
    plain = [" ".join(_words(text)) for text in texts]
    if len(texts) != WRONG:
        return f"must be {WRONG} wrong options, there are {len(texts)}"
    if "" in plain:
        return "holds an option without words"
    if " ".join(_words(answer)) in plain:
        return f"holds the right answer, {answer!r}"
    return "holds the same option twice" if len({*plain}) < WRONG else ""


def giveaways(answer: str, distractors: Sequence[str], chosen: Sequence[str | None]) -> list[str]:
    problems = [
        "somebody who knew nothing of the film picked the right answer "
        f"{chosen.count(answer)} times"
    ]
    if never := [text for text in distractors if text not in chosen]:
        problems.append("nobody was tempted by " + ", ".join(f'"{text}"' for text in never))
    length, others = len(_words(answer)), [len(_words(text)) for text in distractors]
    if extreme := "longest" if length > max(others) else "shortest" if length < min(others) else "":
        counts = f"{length} words, the others have {', '.join(map(str, others))}"
        problems.append(f"the right answer is the {extreme} ({counts})")
    return problems


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def work(
    question: Draft, config: CopilotConfig, propose: Callable[[Draft, str], str], choose: Choose
) -> dict[str, Any]:
    """The line of ``sets.jsonl``: tries sets until one holds, or ``config.rounds`` were checked.

    ``distractors`` hold, or are ``biased`` and give least away; None where no reply held a set.
    """
    rounds: list[Round] = []
    while len(rounds) < config.rounds and (not rounds or rounds[-1].problems):
        texts = question.distractors
        if rounds or not texts:
            reply = propose(question, proposal_prompt(question, rounds))
            texts = read_list(_THOUGHTS.sub("", reply, count=1))
        seed = f"{config.seed} {question.item_id} {len(rounds)}"
        rounds.append(_checked(question, texts, seed, config, choose))
    line: dict[str, Any] = {"id": question.item_id, "question": question.question}
    line |= {"answer": question.answer, "distractors": None, "biased": None}
    line["rounds"] = [asdict(one) for one in rounds]
    sets = [(one.verdict.right, one) for one in rounds if one.verdict]
    if sets:
        right, best = min(sets, key=lambda found: found[0] if found[1].problems else -1)
        line |= {"distractors": list(best.distractors), "biased": bool(best.problems)}
        line["right"] = right
    return line


def task_line(question: Draft, distractors: Sequence[str], seed: int) -> dict[str, Any]:
    options = [question.answer, *distractors]
    random.Random(f"{seed} {question.item_id}").shuffle(options)
    line = {"id": question.item_id, "question": question.question, "options": options}
    return line | {"answer": options.index(question.answer), "context": question.transcript}


def _checked(
    question: Draft, texts: tuple[str, ...], seed: str, config: CopilotConfig, choose: Choose
) -> Round:
    if problem := faults(texts, question.answer):
        return Round((), (f"the reply {problem}",), None)
    # The orders do not depend on where the right option stands in the record.
    options = tuple(map(Option, LABELS, (question.answer, *texts)))
    name, asked = question.item_id, question.question
    record = Question(name, NAME, "", name, asked, options, LABELS[0])
    shuffled = shuffles(record, config.trials, seed)
    chosen = [one.text(label) for one, label in zip(shuffled, choose(shuffled), strict=True)]
    verdict = assess(question.answer, chosen, config.threshold)
    problems = giveaways(question.answer, texts, chosen) if verdict.biased else ()
    return Round(texts, tuple(problems), verdict)


def _key(kind: str, prompt: str) -> str:
    return f"{kind} {hashlib.sha256(prompt.encode()).hexdigest()}"


def _choices(model: AnyModel, asked: Sequence[Shuffled]) -> Iterator[dict[str, Any]]:
    if isinstance(model, SteeredModel):
        labels = [one["label"] for one in likeliest(model, asked)]
    else:
        replies = model.generate([one.prompt for one in asked], LETTER)
        labels = [parse_choice(r, one.options) for r, one in zip(replies, asked, strict=True)]
    for one, label in zip(asked, labels, strict=True):
        yield {"question": one.record.item_id, "label": label}


@claims("a session of distractors")
@within_memory("use a smaller --batch-size")
def copilot(
    config: CopilotConfig, console: Console | None = None, loaded: LoadedModel | None = None
) -> list[dict[str, Any]]:
    """Hold the session in ``config.folder``; what was answered there is not asked again.

    ``sets.jsonl`` has the sets with their verdicts, ``task.jsonl`` the questions whose set holds.
    """
    with Session(config, console) as session:
        check_trials(config)
        questions, most = read_questions(config.data), config.max_new_tokens
        writer = session.open(loaded)
        for one in questions:
            what, prompt = f"question {one.item_id}", proposal_prompt(one)
            require_room(writer, what, prompt, most, "give less transcript")
        journal = session.journal(SESSION, {"writer": writer.about, "tokens": most})

        def propose(question: Draft, prompt: str) -> str:
            def written(prompts: Sequence[str]) -> Iterator[dict[str, Any]]:
                for reply in writer.generate([Prompt(text) for text in prompts], most):
                    yield {"question": question.item_id, "reply": reply}

            key = _key("proposal", prompt)
            return str(ask_rest(journal, {key: prompt}, written)[key]["reply"])

        def choose(shuffled: Sequence[Shuffled]) -> list[str | None]:
            keys = [_key("choice", one.prompt.text) for one in shuffled]
            asked = dict(zip(keys, shuffled, strict=True))
            found = ask_rest(journal, asked, partial(_choices, writer), config.batch_size)
            return [found[key]["label"] for key in keys]

        with Bars(session.console) as bar:
            asked = bar.track(questions, description="questions")
            lines = [work(question, config, propose, choose) for question in asked]
        pairs = [*zip(questions, lines, strict=True)]
        held = [(one, line["distractors"]) for one, line in pairs if line["biased"] is False]
        write_lines(config.folder / SETS, lines)
        write_lines(config.folder / TASK, (task_line(*one, config.seed) for one in held))
        state = {None: "no set", True: "biased", False: "holds"}
        rows = [
            [one["id"], state[one["biased"]], len(one["rounds"]), one.get("right", "")]
            for one in lines
        ]
        title = f"Distractors: right answer chosen without the transcript, of {config.trials}"
        print_table(session.console, title, ["question", "set", "sets tried", "right"], rows)
        session.end(f"{len(held)} of {len(questions)} questions have a set that holds")
        return lines
