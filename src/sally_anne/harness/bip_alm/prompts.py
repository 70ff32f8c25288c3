"""States, minds and actions in words of our own, and what a model is asked of them."""

from __future__ import annotations

from sally_anne.data.mmtom_qa.actions import Action
from sally_anne.data.mmtom_qa.contents import Contents, is_surface
from sally_anne.harness.bip_alm.minds import Step
from sally_anne.harness.inverse_planning.models import likely

_VERBS = {
    "go to": "goes to",
    "pass": "walks past",
    "open": "opens",
    "close": "closes",
    "be about to open": "is about to open",
}
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}
_RULE = (
    "Who looks for a thing goes to where it may be as far as they know, opens what may hold it, "
    "and closes what does not."
)


def next_action(step: Step, goal: str, person: str, contents: Contents) -> tuple[str, str]:
    """What does somebody do next who wants this and knows that? The question, and the action."""
    lines = [*_before(step, goal, person, contents), f"What does {person} do next?"]
    form = (
        'Reply with one step and nothing else, such as "goes to the stove", "opens the stove", '
        '"closes the stove" or "is about to open the stove".'
    )
    return "\n".join([*lines, form]), said(step.action)


def judged_action(step: Step, goal: str, person: str, contents: Contents) -> str:
    """Is the action likely for somebody who wants this and knows that?"""
    return likely(
        [*_before(step, goal, person, contents), f"Now {person} {said(step.action)}."], _RULE
    )


def said(action: Action) -> str:
    """An action as it stands after its person's name."""
    target = action.target if action.aim != "place" else named(action.target)
    return f"{_VERBS[action.verb]} the {target}"


def named(place: str) -> str:
    """A place in words: "3rd kitchen cabinet", "sofa in the living room"."""
    kind, _, number = place.rpartition(" ")
    if number.isdigit():
        return f"{number}{_ENDINGS.get(int(number), 'th')} {kind}"
    for room in ("bedroom", "living room", "kitchen"):
        rest = place.removeprefix(f"{room} ")
        if rest != place and rest != "table":
            return f"{rest} in the {room}"
    return place


def _before(step: Step, goal: str, person: str, contents: Contents) -> list[str]:
    """The state, and what is wanted and known in it; a line each."""
    rooms: dict[str, list[str]] = {}
    for place, room in contents.rooms.items():
        things = contents.things_in(place)
        holds = "not told" if things is None else ", ".join(things) or "empty"
        rooms.setdefault(room, []).append(f"{named(place)} ({holds})")
    where = f" in the {step.room}" if step.room else ""
    if step.at:
        target = named(step.at)
        shut = "" if is_surface(step.at) else f", which is {'open' if step.is_open else 'closed'}"
        where += f", at the {target}{shut}"
    suspected = ", ".join(f"the {named(place)}" for place in step.suspected)
    return [
        "What is where:",
        *(f"- {room}: {', '.join(places)}" for room, places in rooms.items()),
        f"{person} is{where or ' at home'}.",
        f"{person} wants to get: {goal}",
        f"As far as {person} knows, it may be in or on: {suspected or 'no place of these'}",
    ]
