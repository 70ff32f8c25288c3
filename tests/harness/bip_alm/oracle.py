"""A judge that knows how somebody acts who wants a thing and knows where it may be.

It has what a model has, the prompt's words, and none of the code that wrote them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from sally_anne.harness.inverse_planning.posterior import Judged, Said

FITS, FITS_NOT = 0.9, 0.1
ROOMS = ("kitchen", "bathroom", "bedroom", "living room")


def fits(prompt: str, action: str) -> bool:
    """Whether the action brings the person nearer to the thing, or away from where it is not."""
    homes, things = {}, {}
    for room, places in re.findall(r"^- (.+?): (.*)$", prompt, re.M):
        for place, held in re.findall(r"([^,(]+?) \(([^)]*)\)", places):
            homes[place.strip(", ")] = room
            things[place.strip(", ")] = held.split(", ")
    here = re.search(r"^\w+ is in the (.+?)(?:, at .*)?\.$", prompt, re.M)
    suspected = re.findall(r"the ([^,]+)", re.search(r"may be in or on: (.*)$", prompt, re.M)[1])
    target = re.search(r"(?:to|past|opens|closes|open) the (.+)$", action)[1]
    if action.startswith(("closes", "walks past")):
        return target not in suspected
    if target in ROOMS:
        return any(homes.get(place, "kitchen") == target for place in suspected)
    if target in homes or "cabinet" in target:
        return target in suspected
    # A thing: one that lies open, or one that is put away.
    held = [p for p in things if target in things[p] and here and homes[p] == here[1]]
    seen = [place for place in held if re.match(r"coffee table|desk|sofa|kitchen table", place)]
    return any(place in suspected for place in seen or held)


@dataclass
class Oracle:
    """Gives actions that fit a high probability, in either form; ``asked`` counts prompts."""

    asked: list[str] = field(default_factory=list)

    def said(self, asked: Sequence[tuple[str, str]]) -> list[Said]:
        self.asked += [prompt for prompt, _ in asked]
        likely = [fits(prompt, action) for prompt, action in asked]
        return [(math.log(FITS if fit else FITS_NOT), 4) for fit in likely]

    def judged(self, prompts: Sequence[str]) -> list[Judged]:
        self.asked += prompts
        found = []
        for prompt in prompts:
            action = re.search(r"^Now \w+ (.*)\.$", prompt, re.M)[1]
            p = FITS if fits(prompt, action) else FITS_NOT
            found.append((math.log(p), math.log(1 - p)))
        return found
