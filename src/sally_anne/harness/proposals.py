"""New questions that want wrong options: read, put to a model, and what gives a set away."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sally_anne.data.moments import SILENCE
from sally_anne.data.read import Field, named_lines
from sally_anne.data.transcripts import read_transcript, within

# MoMentS has one right option and three wrong ones (section 3.3).
WRONG = 3
FIELDS = (
    *("id", "question", "answer", "distractors"),
    *("transcript", "transcript_file", "start", "end"),
)
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
_LIST = re.compile(r"\[[^\[\]]*\]")
# "1. text", "(b) text", "- text"
_ENTRY = re.compile(r"\s*(?:[-*•]|\(?(?:[0-9]{1,2}|[A-Da-d])[.):])\s+(.*\S)\s*")
_WORD = re.compile(r"\w+(?:['’-]\w+)*")
# Shorter words stand in any two sentences.
_LETTERS = 4


@dataclass(frozen=True)
class Question:
    """A question with its right answer and what is said; ``distractors`` are the user's, or ()."""

    item_id: str
    question: str
    answer: str
    transcript: str
    distractors: tuple[str, ...] = ()


def read_questions(path: Path) -> list[Question]:
    """All questions of a JSON-lines file; RecordError names file, line and field."""
    path = Path(path)
    lines = named_lines(path, "question", "id", "{}", FIELDS, ())
    return [_question(item_id, record, path.parent) for item_id, record in lines.items()]


def _question(item_id: str, record: Field, folder: Path) -> Question:
    answer = record.get("answer").stripped()
    found = record.opt("distractors", lambda given: [f.stripped() for f in given.items()])
    if found is not None and (problem := faults(found, answer)):
        record.get("distractors").fail(problem)
    question = record.get("question").text()
    return Question(item_id, question, answer, _transcript(record, folder), tuple(found or ()))


def _transcript(record: Field, folder: Path) -> str:
    if not record.has("transcript_file"):
        for name in ("start", "end"):
            if record.has(name):
                record.get(name).fail("is for a transcript_file")
        return record.get("transcript").text()
    if record.has("transcript"):
        record.get("transcript").fail("stands beside transcript_file; give one of them")
    start = record.opt("start", Field.seconds) or 0.0
    end = record.opt("end", Field.seconds)
    if end is not None and end <= start:
        record.get("end").fail(f"must be after start, {end:g} <= {start:g} s")
    said = read_transcript(record.get("transcript_file").file(folder))
    return within(said, start, end) or SILENCE


def proposal_prompt(
    question: Question, tried: Sequence[Sequence[str]] = (), problems: Sequence[str] = ()
) -> str:
    """What a model is asked; after a set that failed, the sets before and what was wrong with it.

    A set that could not be read is empty in ``tried``.
    """
    feedback = ""
    if problems:
        texts = dict.fromkeys(text for texts in tried for text in texts)
        shown = "".join(f"- {text}\n" for text in texts) or "(none)\n"
        said = "\n".join(f"- {problem}" for problem in problems)
        feedback = _FEEDBACK.format(tried=shown.rstrip("\n"), problems=said)
    return _PROMPT.format(
        transcript=question.transcript,
        question=question.question,
        answer=question.answer,
        feedback=feedback,
    )


def read_proposal(reply: str) -> list[str]:
    """The texts of the last JSON list of texts in a reply, or of its last numbered lines."""
    reply = _THOUGHTS.sub("", reply, count=1)
    for found in reversed(_LIST.findall(reply)):
        try:
            texts = json.loads(found)
        except ValueError:
            continue
        if texts and all(isinstance(text, str) and text.strip() for text in texts):
            return [" ".join(text.split()) for text in texts]
    entries = filter(None, map(_ENTRY.fullmatch, reply.splitlines()))
    return [" ".join(entry[1].strip("\"“”'").split()) for entry in entries]


def faults(texts: Sequence[str], answer: str) -> str:
    """Why texts are no set of wrong options, in words; empty if they are one."""
    plain = [_plain(text) for text in texts]
    if len(texts) != WRONG:
        return f"must be {WRONG} wrong options, there are {len(texts)}"
    if "" in plain:
        return "holds an option without words"
    if _plain(answer) in plain:
        return f"holds the right answer, {answer!r}"
    if len(set(plain)) < WRONG:
        return "holds the same option twice"
    return ""


def giveaways(
    question: Question,
    distractors: Sequence[str],
    picked: Mapping[str, int],
    blind: int,
    threshold: int,
) -> list[str]:
    """What gave a biased set away, in sentences.

    ``picked`` counts by text which options were chosen without the transcript, ``blind`` how often
    the right one was chosen without the question as well, in the same orders; from ``threshold`` on
    the options' own wording tells it.
    """
    answer, count = question.answer, picked.get(question.answer, 0)
    found = [
        f"somebody who knew nothing of the film picked the right answer {count} times"
        + (
            f", and {blind} times without knowing the question: the wording of the options tells it"
            if blind >= threshold
            else f", but {blind} times without the question: it is the question that points to it"
        )
    ]
    if never := [text for text in distractors if not picked.get(text)]:
        found.append("nobody was tempted by " + ", ".join(f'"{text}"' for text in never))
    length, others = len(_words(answer)), [len(_words(text)) for text in distractors]
    extreme = "longest" if length > max(others) else "shortest" if length < min(others) else ""
    if extreme:
        counts = f"{length} words, the others have {', '.join(map(str, others))}"
        found.append(f"the right answer is the {extreme} ({counts})")
    words = [_content(text) for text in distractors]
    asked = _content(question.question)
    if alone := _content(answer) & asked - set().union(*words):
        found.append(f"only the right answer repeats words of the question: {_listed(alone)}")
    if shared := set.intersection(*words) - _content(answer) - asked:
        found.append(f"all wrong options have words that the right one lacks: {_listed(shared)}")
    return found


def _plain(text: str) -> str:
    return " ".join(_words(text))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _content(text: str) -> set[str]:
    return {word for word in _words(text) if len(word) >= _LETTERS}


def _listed(words: set[str]) -> str:
    return ", ".join(sorted(words))
