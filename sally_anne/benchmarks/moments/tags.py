"""The names of abilities and cues, of which the release, its card and the paper spell several."""

from __future__ import annotations

import re

from sally_anne.benchmarks.fields import Field

# As the release spells them; table 1 of the paper defines them.
ABILITIES = (
    "Knowledge",
    "Emotions",
    "Desires",
    "Beliefs",
    "Intentions",
    "Percepts",
    "Non-literal communication",
)
# Section 3.3.
CUES = ("Face Expression and Gaze", "Body Language", "Speech-related")

_OTHERS = {
    "nonliteralcommunicationnlc": "Non-literal communication",
    "nlc": "Non-literal communication",
    "facialexpressionsorgaze": "Face Expression and Gaze",
    "facialexpressionsandgaze": "Face Expression and Gaze",
    "facialexpressionandgaze": "Face Expression and Gaze",
}


def _plain(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.casefold().replace("&", "and"))


_ABILITIES = {_plain(name): name for name in ABILITIES} | _OTHERS
_CUES = {_plain(name): name for name in CUES} | _OTHERS


def read_ability(field: Field) -> str:
    """An ability as in :data:`ABILITIES`.

    Raises:
        RecordError: an unknown one.
    """
    return _read(field, _ABILITIES, ABILITIES)


def read_cue(field: Field) -> str:
    """A cue as in :data:`CUES`.

    Raises:
        RecordError: an unknown one.
    """
    return _read(field, _CUES, CUES)


def _read(field: Field, known: dict[str, str], names: tuple[str, ...]) -> str:
    found = known.get(_plain(field.value)) if isinstance(field.value, str) else None
    if found not in names:
        field.one_of(names)
    return str(found)
