"""What each agent knows, made from the official release's omniscient caption.

The release tells its stories from above alone. Its three numbered parts are kept wherever the
agent saw them; our own sentence stands in for what it did not see.
"""

from __future__ import annotations

import re

from sally_anne.benchmarks.fields import Field
from sally_anne.benchmarks.gridtom.narration import Cast
from sally_anne.benchmarks.gridtom.plot import Condition
from sally_anne.benchmarks.gridtom.render import Perspective

_PARTS = re.compile(r"(?s)(.*?)\b1\.\s+(.*?)\s+2\.\s+(.*?)\s+3\.\s+(.*)")
_ENDING = re.compile(r"(That is where the video ends\.|The video ends here\.)\s*$")


def captions_of_release(caption: Field, cast: Cast, first: Condition) -> dict[Perspective, str]:
    """The caption from all perspectives.

    Args:
        caption: the official caption, with parts numbered 1., 2. and 3.
        cast: the colours by their part.
        first: the protagonist's belief condition.

    Raises:
        RecordError: the caption does not have the three parts.
    """
    text = caption.text()
    found = _PARTS.fullmatch(text)
    if not found:
        caption.fail("must tell the story in three parts numbered 1., 2. and 3.")
    opening, arrival, own_room, transfer = found.groups()
    ending = _ENDING.search(text)
    close = f" {ending[1]}" if ending else ""
    a, b, r1, r2, _ = cast
    protagonist = text
    if first == "FB":
        unknown = (
            f"While the {b} agent is in the {r2} room with the {r2} door closed, the {b} agent "
            f"does not know what happens outside the {r2} room.{close}"
        )
        protagonist = f"{opening}1. {arrival} 2. {own_room} 3. {unknown}"
    waiting = (
        f"While the {a} agent is in the {r1} room with the {r1} door closed, the {a} agent does "
        f"not know what happens outside the {r1} room."
    )
    return {
        "omniscient": text,
        "protagonist": protagonist,
        "participant": f"{opening}1. {arrival} 2. {waiting} 3. {transfer}",
    }
