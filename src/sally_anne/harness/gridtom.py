"""GridToM's questions as items: first order, second order, initial belief (paper, section 3).

Initial beliefs are asked as in the paper's table 3 (``init_belief.py`` of its release): with the
world alone in words, and of the frames those of the question's section. The official wording "What
color room did the red agent walk into?" has two true answers where that agent moves on; the first
room is asked for then, which is the answer, and such items have the tag ``question: reworded``.

The paper has no question about reality. Ours is "At the end of the video, in which room is the red
agent? Choose one: blue or green.", of the participant and the two rooms of the belief question,
asked of the true-belief and of the false-belief version; right is its last room in both.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from sally_anne.data.gridtom.contrasts import belief_question
from sally_anne.data.gridtom.narration import InitialQuestion, initial_questions, reality
from sally_anne.data.gridtom.records import (
    BeliefCase,
    StoryRecord,
    context_text,
    initial_text,
    initial_ticks,
)
from sally_anne.data.gridtom.render import CLIP_SHAPE, FPS, key_frames
from sally_anne.data.items import Option, Setting
from sally_anne.harness.items import FRAMES_MARK, Item
from sally_anne.harness.prompting import THINK, Prompting, known, retell
from sally_anne.harness.protocols import Protocol
from sally_anne.harness.templates import fill, option_fields, read_template
from sally_anne.harness.views import MARKS, frame_notes

Ask = Literal["1", "2", "initial", "reality"]
Style = Literal["plain", "json"]
REWORDED = "reworded"
# Of templates: the world in words and the story's caption are the parts of the context.
FIELDS = (
    *("context", "world", "caption", "question", "asked", "options", "labels", "person"),
    *("frames", *MARKS),
)


def items(
    records: Iterable[StoryRecord],
    splits: Mapping[int, str],
    ask: Ask,
    setting: Setting,
    style: Style = "plain",
    prompting: Prompting = "direct",
    protocol: Protocol | None = None,
    template: str | None = None,
) -> Iterator[Item]:
    """The items of the stories whose index has a split, in their order.

    A story has two items of first order, four of second, two about reality, and three
    initial-belief questions, asked of the false-belief version. Style ``plain`` ends with
    ``Answer:``; ``json`` asks for a JSON object, as the paper does. A ``protocol`` has
    words of its own: options stand as published, and questions as they are worded. A ``template``
    with :data:`FIELDS` in braces stands in place of style and prompting.
    """
    published = protocol is not None
    words = protocol.templates[setting] if protocol is not None else template
    how = (setting, style, prompting, words, published)
    for record in records:
        if record.index not in splits:
            continue
        split = splits[record.index]
        if ask == "initial":
            yield from _initial(record, split, *how)
        else:
            for case in record.cases(2 if ask == "2" else 1):
                yield _belief(record, case, split, *how, real=ask == "reality")


def shown(ask: str) -> dict[str, str]:
    """What else answers depend on: those to the initial-belief questions of an earlier form, which
    told the whole story, are not gone on with."""
    return {"shown": "frames of the section"} if ask == "initial" else {}


def own_template(path: Path | None) -> str | None:
    """The text of a file with :data:`FIELDS` in braces; HarnessError says what is wrong in it."""
    if path is None:
        return None
    return read_template(path, "--template", FIELDS, [("question", "asked")])


def _belief(
    record: StoryRecord,
    case: BeliefCase,
    split: str,
    setting: Setting,
    style: Style,
    prompting: Prompting,
    template: str | None,
    published: bool,
    real: bool,
) -> Item:
    name = case.first if case.order == 1 else f"{case.first}/{case.second}"
    if real:
        case, name = replace(case, question=reality(case.cast)), f"reality/{name}"
    item_id = f"{record.group}/{name}"
    # Which room stands first must not follow from the answer, nor differ between runs.
    rooms = random.Random(f"options/{item_id}").sample(case.question.options, 2)
    if published:
        rooms = list(case.question.options)
    options = tuple(Option(room, room) for room in rooms)
    context = context_text(record, case, "omniscient", setting)
    whose = case.cast.protagonist if case.order == 1 and not real else case.cast.participant
    person = f"the {whose} agent"
    asked = belief_question(case, rooms)
    if template is None:
        parts = _ask(context, asked, "the room", style, prompting, person)
    else:
        told = {"context": context, "world": record.environment, "person": person}
        told |= {"question": case.question.question, "asked": asked}
        seen = _seen(record, key_frames(case.nodes), setting)
        parts = _filled(template, item_id, options, told | seen)
    return Item(
        item_id=item_id,
        condition=case.first if case.order == 1 else str(case.second),
        first=case.first,
        **parts,
        options=options,
        answer=(case.question.answer,),
        **_shared(record, case, split, setting),
    )


def _initial(
    record: StoryRecord,
    split: str,
    setting: Setting,
    style: Style,
    prompting: Prompting,
    template: str | None,
    published: bool,
) -> Iterator[Item]:
    case = record.case(1, "FB")
    for number, question in enumerate(record.initial):
        context = initial_text(record, question, setting)
        asked, tags = question.question, {}
        if not published and _has_two_answers(record, question):
            ours = initial_questions(record.cast, question.choices, record.nodes, record.plot)
            asked, tags = ours[1].question, {"question": (REWORDED,)}
        item_id = f"{record.group}/initial/{number}"
        options = tuple(Option(colour, colour) for colour in question.choices)
        ticks = initial_ticks(record.nodes, question)
        if template is None:
            parts = _ask(context, asked, "the colour, or a list of colours", style, prompting)
        else:
            # The question itself names the colours.
            told = {"context": context, "world": record.initial_environment, "person": ""}
            told |= {"question": asked, "asked": asked} | _seen(record, ticks, setting)
            parts = _filled(template, item_id, options, told)
        yield Item(
            item_id=item_id,
            condition="",
            first="",
            **parts,
            options=options,
            answer=question.answer,
            names=True,
            tags=tags,
            **_shared(record, case, split, setting, ticks),
        )


def _has_two_answers(record: StoryRecord, question: InitialQuestion) -> bool:
    """Whether it asks which room the participant walked into, and not which it walked into first.

    The protagonist walks into one room alone.
    """
    room = question.answer == (record.cast.visited(record.plot)[0],)
    named = re.search(rf"\b{record.cast.participant}\b", question.question)
    return room and named is not None and not re.search(r"\bfirst\b", question.question, re.I)


def _shared(
    record: StoryRecord,
    case: BeliefCase,
    split: str,
    setting: Setting,
    ticks: tuple[int, ...] | None = None,
) -> dict[str, Any]:
    """Of the frames those numbered ``ticks``, all that are shown by default."""
    video: dict[str, Any] = {}
    if setting != "text":
        shape = CLIP_SHAPE if ticks is None else (len(ticks), *CLIP_SHAPE[1:])
        video = {"clip": partial(case.frames, ticks=ticks), "shape": lambda exact: shape}
    facts = {"story": record.group, "map": record.identity.map, "split": split}
    return {**facts, "official": "gridtom", **video}


def _seen(record: StoryRecord, ticks: Sequence[int], setting: Setting) -> dict[str, str]:
    """A template's fields on the frames of these numbers; empty where none are shown."""
    if setting == "text":
        return dict.fromkeys(("frames", *MARKS), "")
    notes = frame_notes((record.nodes[-1] + 1) / FPS, [tick / FPS for tick in ticks])
    said = {name: notes[mark] for name, mark in MARKS.items()}
    return said | {"frames": f"{notes[FRAMES_MARK]}\n"}


def _filled(
    template: str, item_id: str, options: Sequence[Option], told: Mapping[str, str]
) -> dict[str, str]:
    """An item's prompt in the words of a template; the caption is what the context tells beside
    the world."""
    caption = told["context"].removeprefix(told["world"]).removeprefix(" ")
    # The names of rooms and colours are their labels.
    names = {"options": "\n".join(option.text for option in options)}
    fields = {**told, "caption": caption, **option_fields(options), **names}
    return {"text": fill(template, fields, item_id, len(options))}


def _ask(
    context: str, question: str, wanted: str, style: Style, prompting: Prompting, person: str = ""
) -> dict[str, Any]:
    """An item's prompts; ``wanted`` says what an answer is, ``person`` whose mind it is in."""
    if prompting == "cot":
        if style == "json":
            wanted = f'a JSON object, whose field "answer" holds {wanted}'
        text = f"{context}\n\nQuestion: {question}\n{THINK.format(form=wanted)}"
        return {"text": text, "reasons": True}
    if prompting == "simtom":
        before = f"{context}\n\n{retell(person, question)}"
        return {"before": before, **_ask(known(person), question, wanted, style, "direct")}
    if style == "plain":
        return {"text": f"{context} Question: {question} Answer:"}
    text = (
        f"{context}\n\nQuestion: {question}\nReply with a JSON object and nothing else; its field "
        f'"answer" holds {wanted}.'
    )
    return {"text": text}
