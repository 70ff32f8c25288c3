"""How questions are put: in the words of each benchmark's authors, or in ours.

Templates have the fields of ``--template`` (docs/protocols.md): the authors' prompts in them are
facts of their protocols, quoted to the character, with their source.

``--prompting``: ``direct`` asks for the answer alone; ``cot`` for thoughts first (zero-shot chain
of thought, Kojima et al. 2022), and the answer is parsed from the end of the reply; ``few-shot``
shows other questions with their answers first; ``simtom`` asks in two steps (Wilf et al. 2023): the
model retells what the person asked about knows, and then has the question with that alone. Each
item has few-shot examples of its own, in words, chosen by its name, no two of one story, evenly of
each belief condition and with the answer at each place, so that neither is taught.
"""

from __future__ import annotations

import json
import random
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from sally_anne.core.errors import HarnessError
from sally_anne.core.files import reading, text_of
from sally_anne.data.items import Option, Question
from sally_anne.data.mimeqa import clock, in_minutes

Baseline = Literal["cot", "simtom", "few-shot"]
Prompting = Literal["direct", Baseline]
ProtocolName = Literal["sally-anne", "official"]
# Tokens of a reply that thinks before it answers, and of one that retells what a person knows.
THOUGHTS, RETOLD = 512, 256
# Where the second step has what was retold in the first.
KNOWN_MARK = "<what is known>"
# Where the text speaks of the frames, once they are known; see `Question.notes`. The others are by
# template field.
FRAMES_MARK = "<frames>"
MARKS = {"length": "<film length>", "count": "<frame count>", "times": "<frame times>"}

# {form} is what an answer is, such as "A or B".
THINK = (
    "Think step by step first: what happens, and what of it can each person see or hear? Then "
    'write a last line: "Answer:" and {form}.'
)
# Before it stands the story, and the question where it is not known whose perspective it takes.
_RETELL = (
    "Tell in order what {person} sees, hears, does or is told, and nothing else. Leave out all "
    "that happens where {person} cannot notice it."
)


def retell(person: str, question: str) -> str:
    """What SimToM's first step asks, after the story; the question says who where none is known."""
    asked = f"Question: {question}\nDo not answer this question yet. Whose mind is it about? "
    return ("" if person else asked) + _RETELL.format(person=person or "that person")


def known(person: str) -> str:
    """How the second step begins; the reply of the first stands for :data:`KNOWN_MARK`."""
    who = person or "the person asked about"
    return f"This is all that {who} knows:\n{KNOWN_MARK}"


# The template of authors who publish no prompt: our own words, and what is said of it.
OURS = ""
_NOT_PUBLISHED = "prompt and length of replies are not published, and this project's are used; "
# GridToM's initial-belief questions, which have a prompt of their own.
INITIAL = "gridtom initial"


@dataclass(frozen=True)
class Protocol:
    """How the authors of a benchmark put its questions, and where their code or paper says so.

    User's turns and system messages are by view (GridToM: by setting); other views are not theirs.
    ``labels`` are what options are called, where the records differ; ``minutes`` is for times as
    ``01 min:2.50 sec``; ``departs`` is what is not known, or is otherwise here.
    """

    templates: Mapping[str, str]
    reply_tokens: int
    source: str
    systems: Mapping[str, str] = field(default_factory=dict)
    labels: str = ""
    minutes: bool = False
    departs: str = ""


_GRIDTOM_QUESTION = (
    "Question: {question} Choose from {option_1} or {option_2}.\n"
    "Requirement: Please answer only in the following JSON format without adding any "
    "additional text or instructions:"
    '```json{{"answer": "your option"}}'
)
_GRIDTOM_WITH_STORY = "Description: {world} {caption}\n" + _GRIDTOM_QUESTION

_OF_MIMEQA = (
    "You are an expert in mime performance understanding and question answering. \n"
    "    Typically, the mime would use exaggerated gestures or pretend objects to convey a "
    "message.\n    The video lasts for {length}, and {count} frames are uniformly sampled from "
    "it.\n    These frames are located at {times}. Answer the question in one sentence using the "
    "video, with brief explanations. \n    Do not describe the frames just answer the question. \n"
    "    If the mime is using imaginary objects, describe the objects as if they were real.\n    "
)

PROTOCOLS: Mapping[str, Protocol] = {
    "bigtom": Protocol(
        templates={
            "text": (
                "Story: {scene}\nQuestion: {question}\nChoose one of the following:\n"
                "a){option_1}\nb){option_2}"
            )
        },
        systems={
            "text": (
                "Answer the questions based on the context. Keep your answer concise, few words "
                "are enough, maximum one sentence. Answer as 'Answer:<option>)<answer>'."
            )
        },
        labels="ab",
        reply_tokens=100,
        source=(
            "cicl-stanford/procedural-evals-tom: code/src/evaluate_llm.py (chat-0shot), "
            "evaluate_conditions.py (--mcq), code/prompt_instructions/evaluate.txt"
        ),
        departs="replies with neither key go to a grader there, and are invalid here",
    ),
    "mmtom_qa": Protocol(
        templates={
            "multimodal": "{asked}\nAnswer: ",
            "text": "{asked}\nAnswer: ",
            "video": "\nQuestion:{asked_alone}\nAnswer: ",
        },
        systems={"text": "You are a helpful assistant."},
        reply_tokens=5,
        source="chuanyangjin/MMToM-QA: BIP-ALM/testing_gpt.py (gpt-4v with frames, gpt-4 without)",
        departs="frames follow the words there, and stand before them here",
    ),
    "gridtom": Protocol(
        templates={
            "multimodal": _GRIDTOM_WITH_STORY,
            "video": _GRIDTOM_QUESTION,
            "text": _GRIDTOM_WITH_STORY,
        },
        reply_tokens=20,
        source="Annaisavailable/GridToM: evaluate.py (both forms of its text), evaluate.sh",
        departs=(
            "their code has no second order and no text alone: those have the prompt of the first "
            "order, and that with frames; --split published are the stories of their test"
        ),
    ),
    INITIAL: Protocol(
        templates={"multimodal": "Description: {world}\nQuestion: {question}"},
        reply_tokens=400,
        source="Annaisavailable/GridToM: init_belief.py, init_belief.sh",
        departs="theirs are the questions of all stories, here of those of --split",
    ),
    "mimeqa": Protocol(
        templates={
            "video": _OF_MIMEQA + "\nQuestion: {asked}",
            "multimodal": _OF_MIMEQA + "The title of the video is {title}\nQuestion: {asked}",
        },
        minutes=True,
        reply_tokens=128,
        source=(
            "MIT-MI/MimeQA: model_evaluation/llava_video_eval.py, eval_utils.py; the paper's "
            "appendix B.4"
        ),
        departs=(
            "a judge is asked in this project's words; frames are a second apart by their times, "
            "there by their numbers; Qwen2.5-VL and Gemini, which sample frames themselves, are "
            "given no words on frames there"
        ),
    ),
    "moments": Protocol(
        templates={"multimodal": OURS, "text": OURS, "none": OURS},
        reply_tokens=32,
        source="the paper's section 5.1 and table 3; villacu/MoMentS has no evaluation code",
        departs=(
            f"their {_NOT_PUBLISHED}theirs are the 64 frames, the two windows and the options as "
            "published"
        ),
    ),
    "muma_tom": Protocol(
        templates={"multimodal": OURS, "text": OURS},
        reply_tokens=32,
        source="the paper's appendix; SCAI-JHU/MuMA-ToM has the code of LIMP alone",
        departs=(
            f"their baselines' {_NOT_PUBLISHED}theirs are every 20th frame and the options as "
            "published"
        ),
    ),
}


_MOST_OPTIONS = 26
_EACH = tuple(f"{kind}_{n + 1}" for n in range(_MOST_OPTIONS) for kind in ("option", "label"))
# Of a large pool so many are looked at for an item.
_CANDIDATES = 256


def read_template(
    path: Path, option: str, fields: Sequence[str], needed: Sequence[Sequence[str]]
) -> str:
    """A file's text with ``fields`` in braces, at least one of each group in ``needed``.

    A HarnessError names the option that gave the file, the file, and what is wrong in it.
    """
    with reading(path, HarnessError):
        text = text_of(path.read_bytes())
        parts = [part[1:] for part in string.Formatter().parse(text) if part[1] is not None]
    known = (*fields, *(_EACH if "options" in fields else ()))
    for name, style, conversion in parts:
        if name not in known or style or conversion:
            raise HarnessError(
                f"{option} {path}: {{{name}}} is not one of {', '.join(fields)}, option_1, label_1 "
                "and so on; each stands alone in its braces"
            )
    for group in needed:
        if not set(group) & {name for name, _, _ in parts}:
            raise HarnessError(f"{option} {path}: {{{group[0]}}} is missing")
    return text


def template_of(
    config: Any, protocol: Protocol | None, view: str, fields: Sequence[str], asked: Sequence[str]
) -> str | None:
    """The authors' template, or that of ``--template``; None for our own."""
    if protocol is not None:
        return protocol.templates[view]
    path = config.template
    return None if path is None else read_template(path, "--template", fields, [asked])


def option_fields(options: Sequence[Option]) -> dict[str, str]:
    labels = [option.label for option in options]
    return {
        "options": "\n".join(f"{o.label}. {o.text}" for o in options),
        "labels": f"{', '.join(labels[:-1])} or {labels[-1]} only" if labels else "",
        **{f"option_{n}": o.text for n, o in enumerate(options, 1)},
        **{f"label_{n}": o.label for n, o in enumerate(options, 1)},
    }


def fill(template: str, fields: Mapping[str, str], item_id: str) -> str:
    try:
        return template.format_map(fields)
    except KeyError as error:
        raise HarnessError(f"item {item_id} has no {error.args[0]}, as in the template") from error


def frame_notes(
    duration_seconds: float, times: Sequence[float], minutes: bool = False
) -> dict[str, str]:
    """The words for each mark: how much film the frames show, and when (MimeQA, appendix B.4)."""
    count = "one frame" if len(times) == 1 else f"{len(times)} frames"
    at = ", ".join(clock(time) for time in times)
    each = [in_minutes(time) if minutes else f"{time:.2f}s" for time in times]
    length = in_minutes(duration_seconds) if minutes else f"{duration_seconds:.2f} seconds"
    all_of_it = f"You see {clock(duration_seconds)} of the film in {count}, from {at}."
    parts = zip(MARKS.values(), (length, str(len(each)), ",".join(each)), strict=True)
    return {FRAMES_MARK: all_of_it, **dict(parts)}


def set_apart(
    records: Sequence[Question], chosen: Sequence[Question], shots: int
) -> tuple[list[Question], list[Question]]:
    """The records that examples are taken from, and those of ``chosen`` that are asked about.

    Examples have a key, and share nothing with what is asked; where they are of fewer than
    ``shots`` groups, chosen groups become examples and are not asked about.
    """
    keyed = [record for record in records if not record.hidden]

    def apart(taken: Iterable[Question], of: Iterable[Question]) -> list[Question]:
        sources = {one for record in taken for one in _sources(record)}
        return [record for record in of if sources.isdisjoint(_sources(record))]

    pool, asked = apart(chosen, keyed), list(chosen)
    lacking = shots - len({record.group for record in pool})
    if lacking <= 0:
        return pool, asked
    groups = list(dict.fromkeys(record.group for record in chosen if not record.hidden))
    given = random.Random("examples/0").sample(groups, min(lacking, len(groups)))
    asked = apart([record for record in chosen if record.group in given], chosen)
    pool = apart(asked, keyed)
    if not asked or len({record.group for record in pool}) < shots:
        of = len({record.group for record in keyed})
        raise HarnessError(
            f"--shots {shots}: examples come from {shots} stories that are not asked about, and "
            f"there are {of} with known answers in all; give fewer --shots, or more data"
        )
    return pool, asked


def _sources(record: Question) -> frozenset[object]:
    """What a record shares with others on the same story: its group, films and words."""
    # No addresses: one may be that of an archive of all films.
    films = {place for media in record.media for place in media.files or (media.path,)}
    words = {record.context} if any(vars(record.context).values()) else set()
    return frozenset({("group", record.group), *films, *words} - {None})


def examples_for(item: Question, pool: Sequence[Question], shots: int) -> list[Question]:
    rng = random.Random(f"examples/0/{item.item_id}")
    others = [one for one in pool if one.group != item.group]
    candidates = rng.sample(others, min(_CANDIDATES, len(others)))
    if len({one.group for one in candidates}) < shots:
        candidates = rng.sample(others, len(others))
    chosen: list[Question] = []
    shown: Counter[object] = Counter()
    while len(chosen) < shots:
        if not candidates:
            raise HarnessError(f"item {item.item_id}: there are not {shots} other stories to show")
        best = min(candidates, key=lambda one: [shown[kind] for kind in _kinds(one)])
        chosen.append(best)
        shown.update(_kinds(best))
        candidates = [one for one in candidates if one.group != best.group]
    rng.shuffle(chosen)
    return chosen


def answered(example: Question) -> str:
    answer = example.reference or " and ".join(example.key)
    if example.text.rstrip().endswith(":"):
        return f"{example.text.rstrip()} {answer}"
    listed = list(example.key) if len(example.key) > 1 else answer
    return f"{example.text}\n{json.dumps({'answer': listed})}"


def with_examples(item: Question, pool: Sequence[Question], shots: int) -> Question:
    """An item with examples before its text; ``pool`` holds items in words, with a key."""
    senses = ["pictures"] * bool(item.clip) + ["sound"] * bool(item.sound)
    verb = "belongs" if senses == ["sound"] else "belong"
    films = f" The {' and the '.join(senses)} {verb} to it." if senses else ""
    text = "\n\n".join(
        (
            "Here are questions on other stories, with their right answers.",
            *map(answered, examples_for(item, pool, shots)),
            f"The question to answer now is on a new story.{films}",
            item.text,
        )
    )
    return replace(item, text=text)


def _kinds(item: Question) -> tuple[object, object]:
    """Of what examples have as many as can be: belief conditions, and places of the answer."""
    places = tuple(n for n, option in enumerate(item.options) if option.label in item.key)
    return ("belief", item.first, item.condition), ("answer", places)
