"""BIP-ALM: Bayesian inverse planning accelerated by language models (MMToM-QA paper, section 4).

What is in an apartment and what a person does there are symbols, read from text. Each option of a
question is a goal and a belief, followed along what is seen; a language model says how likely each
action is for somebody who has them. Departures from the paper are in docs/inverse-planning.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import pandas as pd

from sally_anne.core.console import Console
from sally_anne.core.folder import claims, fingerprint
from sally_anne.core.processes import within_memory
from sally_anne.data.items import Question
from sally_anne.data.mmtom_qa import MMTOM_QA, STATEMENT
from sally_anne.data.mmtom_qa.scenes import (
    Action,
    Contents,
    Course,
    is_surface,
    places_called,
    read_actions,
    thing_of,
)
from sally_anne.harness import planning
from sally_anne.harness.method_config import BipAlmConfig
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel

_WANTS = re.compile(r"\bhas been trying to get (?:an?|some|the) (?P<thing>[^,.]+)")
_GIVEN = re.compile(
    r"\bthinks? (?:that )?there (?:isn['’]t|is not|aren['’]t|are not) (?:an?|any|some) "
    r"(?P<thing>.+?) inside the (?P<place>[^,]+),"
)


@dataclass(frozen=True)
class Hypothesis:
    """The thing that is looked for, and the ``places`` where it is (not) believed to be.

    For a goal, these are places where the question says that it is believed not to be.
    """

    goal: str
    says: Literal["goal", "inside", "not inside"]  # what the question leaves open
    places: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """An action to be judged, and what its person knows before it.

    ``at`` is empty in the middle of a room; the thing may be in the ``suspected`` places.
    """

    action: Action
    room: str
    at: str
    is_open: bool
    suspected: tuple[str, ...]


def hypotheses(question: Question, contents: Contents) -> dict[str, Hypothesis] | None:
    minds = {o.label: _hypothesis(question.question, o.text, contents) for o in question.options}
    known = {label: mind for label, mind in minds.items() if mind}
    return known if len(known) == len(minds) else None


def _hypothesis(question: str, option: str, contents: Contents) -> Hypothesis | None:
    if looked_for := _WANTS.search(question):
        statement, goal = STATEMENT.fullmatch(option.strip()), thing_of(looked_for["thing"])
        if statement is None or goal is None or thing_of(statement["thing"]) != goal:
            return None
        places = _places(statement["place"], contents)
        return Hypothesis(goal, "not inside" if statement["no"] else "inside", places)
    looked_for, given = _WANTS.search(option), _GIVEN.search(question)
    goal = looked_for and thing_of(looked_for["thing"])
    if not goal:
        return None
    about = given and thing_of(given["thing"]) == goal and _places(given["place"], contents)
    return Hypothesis(goal, "goal", about or ())


def _places(name: str, contents: Contents) -> tuple[str, ...]:
    # Those that there are; if the scene tells of none, all that there may be.
    called = places_called(name)
    return tuple(place for place in called if place in contents.rooms) or called


def steps(hypothesis: Hypothesis, course: Course, contents: Contents) -> tuple[Step, ...]:
    """All steps for a goal; for a belief the last visit, before which both options say the same."""
    places = hypothesis.places
    if hypothesis.says == "goal":
        return tuple(followed(hypothesis.goal, course, contents, places))
    # It begins with the way to the room of the last place, or to this place.
    actions, first = course.actions, max(0, len(course.actions) - 1)
    while first and actions[first - 1].target == actions[-1].target:
        first -= 1
    if first and actions[first - 1].aim == "room":
        first -= 1
    last = list(followed(hypothesis.goal, course, contents))[first:]
    if hypothesis.says == "inside":
        return tuple(replace(step, suspected=places) for step in last)
    return tuple(replace(step, suspected=_without(step.suspected, places)) for step in last)


def followed(
    goal: str, course: Course, contents: Contents, never: Sequence[str] = ()
) -> Iterator[Step]:
    """Each action, and where the thing may be as far as is known before it.

    At first it may be in any place but those of ``never``. A place that turns out to hold it is
    the only one left; one that does not hold it falls away.
    """
    visited = (a.target for a in course.actions if a.aim == "place")
    suspected = _without(tuple(dict.fromkeys((*contents.rooms, *visited))), never)
    holding = contents.places_of(goal)
    room, at, is_open = course.room, "", False

    def after_seeing(places: Sequence[str]) -> tuple[str, ...]:
        return tuple(p for p in places if p in holding) or _without(suspected, places)

    def after_entering() -> tuple[str, ...]:
        rooms = contents.rooms.items()
        return after_seeing([p for p, where in rooms if where == room and is_surface(p)])

    suspected = after_entering()
    for action in course.actions:
        yield Step(action, room, at, is_open, suspected)
        if action.verb in ("open", "close"):
            is_open, suspected = action.verb == "open", after_seeing([action.target])
        elif action.verb != "be about to open":
            before, is_open, walks = room, False, action.aim == "room"
            at = "" if walks or action.verb == "pass" else action.target
            room = action.target if walks else contents.rooms.get(action.target, room)
            if room != before:
                suspected = after_entering()


def _without(places: Sequence[str], some: Sequence[str]) -> tuple[str, ...]:
    return tuple(place for place in places if place not in some)


_VERBS = {
    "go to": "goes to",
    "pass": "walks past",
    "open": "opens",
    "close": "closes",
    "be about to open": "is about to open",
}
_FORM = (
    'Reply with one step and nothing else, such as "goes to the stove", "opens the stove", '
    '"closes the stove" or "is about to open the stove".'
)
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}
_RULE = (
    "Who looks for a thing goes to where it may be as far as they know, opens what may hold it, "
    "and closes what does not."
)


def next_action(step: Step, goal: str, person: str, contents: Contents) -> tuple[str, str]:
    lines = [*_state(step, goal, person, contents), f"What does {person} do next?", _FORM]
    return "\n".join(lines), in_words(step.action)


def judged_action(step: Step, goal: str, person: str, contents: Contents) -> str:
    now = f"Now {person} {in_words(step.action)}."
    return planning.likely_prompt([*_state(step, goal, person, contents), now], _RULE)


def in_words(action: Action) -> str:
    target = action.target if action.aim != "place" else place_name(action.target)
    return f"{_VERBS[action.verb]} the {target}"


def place_name(place: str) -> str:
    """A place in words: "3rd kitchen cabinet", "sofa in the living room"."""
    kind, _, number = place.rpartition(" ")
    if number.isdigit():
        return f"{number}{_ENDINGS.get(int(number), 'th')} {kind}"
    in_room = re.fullmatch(r"(bedroom|living room|kitchen) (?!table$)(.+)", place)
    return f"{in_room[2]} in the {in_room[1]}" if in_room else place


def _state(step: Step, goal: str, person: str, contents: Contents) -> list[str]:
    rooms: dict[str, list[str]] = {}
    for place, room in contents.rooms.items():
        things = contents.things_in(place)
        holds = "not told" if things is None else ", ".join(things) or "empty"
        rooms.setdefault(room, []).append(f"{place_name(place)} ({holds})")
    where = f" in the {step.room}" if step.room else ""
    if step.at:
        shut = "" if is_surface(step.at) else f", which is {'open' if step.is_open else 'closed'}"
        where += f", at the {place_name(step.at)}{shut}"
    suspected = ", ".join(f"the {place_name(place)}" for place in step.suspected)
    return [
        "What is where:",
        *(f"- {room}: {', '.join(places)}" for room, places in rooms.items()),
        f"{person} is{where or ' at home'}.",
        f"{person} wants to get: {goal}",
        f"As far as {person} knows, it may be in or on: {suspected or 'no place of these'}",
    ]


# By whether the model is here: an endpoint scores no given reply.
_WAYS: dict[bool, tuple[str, Any, Any, Any]] = {
    True: ("reply", planning.score_replies, next_action, planning.posterior_of_replies),
    False: ("judged", planning.judge_likely, judged_action, planning.posterior_of_judgements),
}


@claims("a BIP-ALM run")
@within_memory("use a smaller --batch-size")
def run(
    config: BipAlmConfig,
    vector: SteeringVector | None = None,
    console: Console | None = None,
    loaded: LoadedModel | None = None,
) -> pd.DataFrame:
    """As :func:`sally_anne.harness.limp.run`."""
    form, judge_by, request, weigh = _WAYS[config.endpoint is None]
    with planning.Planning(config, vector, MMTOM_QA, console) as session:
        session.open(loaded)
        judging = session.judging()
        texts = [(i.item_id, i.question, i.options, i.context, i.person) for i in session.items]
        about = {**judging.about, "data": fingerprint([texts]), "likelihood": form}
        model = partial(judge_by, judging, config.batch_size)
        by_id = {item.item_id: item for item in session.items}
        each = partial(map, partial(answer, request=request, model=model))
        answers = session.answers(planning.ANSWERS, about, by_id, each)
        return session.finish(planning.score(session.items, answers, weigh), about)


def answer(
    question: Question, request: Callable[..., Any], model: Callable[[Any], list[Any]]
) -> planning.Answer:
    contents, who = Contents(question.context.scene), question.person
    course = read_actions(question.context.actions, contents)
    for name, known in (("what is in the apartment", contents.rooms), ("any step", course.actions)):
        if not known:
            return {"problem": f"the text does not tell {name}"}
    minds = hypotheses(question, contents)
    if minds is None:
        return {"problem": "the options' wording was not understood"}
    requests = {
        label: [request(step, mind.goal, who, contents) for step in steps(mind, course, contents)]
        for label, mind in minds.items()
    }
    return planning.judge(model, requests, minds)
