"""Distractor copilot: a model proposes wrong options until the options alone do not tell.

MoMentS checks each set that its annotators write (section 4.2); here a model writes them, reads
what gave a set away, and writes again. Every reply is kept by its prompt, so that a session goes on
wherever it was stopped, with more questions or more rounds.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sally_anne.core.console import Bars, Console, print_table
from sally_anne.core.folder import claims
from sally_anne.core.processes import within_memory
from sally_anne.data.items import Option, Question
from sally_anne.data.moments import LABELS, NAME
from sally_anne.data.read import named_lines
from sally_anne.harness import distractors as check
from sally_anne.harness.chat_endpoint import AnyModel
from sally_anne.harness.distractors import Shuffled, Verdict
from sally_anne.harness.limp import LETTER, read_list
from sally_anne.harness.method_config import CopilotConfig
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.harness.parse import parse_choice
from sally_anne.harness.planning import Session, ask_rest
from sally_anne.models.loading import LoadedModel

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
    if "" in plain or len({" ".join(_words(answer)), *plain}) <= WRONG:
        return "holds the right answer, the same option twice, or one without words"
    return ""


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
    shuffled = check.shuffles(record, config.trials, seed)
    chosen = [one.text(label) for one, label in zip(shuffled, choose(shuffled), strict=True)]
    verdict = check.assess(question.answer, chosen, config.threshold)
    problems = giveaways(question.answer, texts, chosen) if verdict.biased else ()
    return Round(texts, tuple(problems), verdict)


def _key(kind: str, prompt: str) -> str:
    return f"{kind} {hashlib.sha256(prompt.encode()).hexdigest()}"


def _choices(model: AnyModel, asked: Sequence[Shuffled]) -> Iterator[dict[str, Any]]:
    if isinstance(model, SteeredModel):
        labels = [one["label"] for one in check.likeliest(model, asked)]
    else:
        replies = model.generate([one.prompt for one in asked], LETTER)
        labels = [parse_choice(r, one.options) for r, one in zip(replies, asked, strict=True)]
    for one, label in zip(asked, labels, strict=True):
        yield {"question": one.record.item_id, "label": label}


@claims("a session of distractors")
@within_memory("use a smaller --batch-size")
def run(
    config: CopilotConfig, console: Console | None = None, loaded: LoadedModel | None = None
) -> list[dict[str, Any]]:
    """Hold the session in ``config.folder``; what was answered there is not asked again.

    ``sets.jsonl`` has the sets with their verdicts, ``task.jsonl`` the questions whose set holds.
    """
    with Session(config, console) as session:
        check.check_trials(config)
        questions, most = read_questions(config.data), config.max_new_tokens
        writer = session.open(loaded)
        for one in questions:
            what, prompt = f"question {one.item_id}", proposal_prompt(one)
            check.require_room(writer, what, prompt, most, "give less transcript")
        checker = session.open_second("checker")
        about = {"writer": writer.about, "checker": checker.about, "tokens": most}
        journal = session.journal(SESSION, about)

        def propose(question: Draft, prompt: str) -> str:
            def written(prompts: Sequence[str]) -> Iterator[dict[str, Any]]:
                for reply in writer.generate([Prompt(text) for text in prompts], most):
                    yield {"question": question.item_id, "reply": reply}

            key = _key("proposal", prompt)
            return str(ask_rest(journal, {key: prompt}, written)[key]["reply"])

        def choose(shuffled: Sequence[Shuffled]) -> list[str | None]:
            keys = [_key("choice", one.prompt.text) for one in shuffled]
            asked = dict(zip(keys, shuffled, strict=True))
            found = ask_rest(journal, asked, partial(_choices, checker), config.batch_size)
            return [found[key]["label"] for key in keys]

        with Bars(session.console) as bar:
            asked = bar.track(questions, description="questions")
            lines = [work(question, config, propose, choose) for question in asked]
        pairs = [*zip(questions, lines, strict=True)]
        held = [(one, line["distractors"]) for one, line in pairs if line["biased"] is False]
        check.write_lines(config.folder / SETS, lines)
        check.write_lines(config.folder / TASK, (task_line(*one, config.seed) for one in held))
        state = {None: "no set", True: "biased", False: "holds"}
        rows = [
            [one["id"], state[one["biased"]], len(one["rounds"]), one.get("right", "")]
            for one in lines
        ]
        title = f"Distractors: right answer chosen without the transcript, of {config.trials}"
        print_table(session.console, title, ["question", "set", "sets tried", "right"], rows)
        session.end(f"{len(held)} of {len(questions)} questions have a set that holds")
        return lines
