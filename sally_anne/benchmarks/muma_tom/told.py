"""What the benchmark tells in words: the talk, or one person's actions, never the whole narrative.

``description`` is the whole narrative, from which the film was rendered: it tells what the film
shows and is used here only to take the talk from and to compare with. ``filtered_description`` is
the text of episodes without talk: one person's actions, while the film shows the other's.
``texts.json`` comes in two kinds. As the benchmark's text it holds the talk (``Name: words``) or
one person's actions; the copy beside the released code holds the whole narrative instead.
"""

from __future__ import annotations

import re

from sally_anne.benchmarks.fields import Field
from sally_anne.benchmarks.items import Context
from sally_anne.benchmarks.muma_tom.people import People
from sally_anne.benchmarks.muma_tom.wording import cleaned, one_line

# The benchmark's texts have at most 7 in 10 of their narratives' words; those above tell it all.
WHOLE = 0.9
_LINE = re.compile(r"([^\W\d_][\w'’-]*)\s*:\s*(\S.*)")
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”")


def told(record: Field, text: Field | None, talks: bool, who: People | None) -> Context:
    """What is told of one episode.

    Args:
        record: of ``questions.json``.
        text: entry of ``texts.json``; None where there is none.
        talks: whether the questions are about what is said.
        who: the persons that the questions name.

    Returns:
        ``dialogue``: two or more lines ``Name: words``; or ``actions``: what one person does.

    Raises:
        RecordError: a field is missing or no text, tells the whole narrative, or quotes no talk.
    """
    description = record.get("description")
    narrative = cleaned(description)
    if record.has("filtered_description"):
        return Context(actions=_part(record.get("filtered_description"), narrative))
    if talks:
        lines = _dialogue(cleaned(text)) if text is not None else None
        return Context(dialogue=lines or _quoted(description, narrative, text, who))
    if text is None:
        record.get("filtered_description")
        record.fail("field filtered_description is null, and there is no entry in texts.json")
    return Context(actions=_part(text, narrative))


def _part(field: Field, narrative: str) -> str:
    """A text that tells a part of the narrative."""
    text = cleaned(field)
    words, whole = text.split(), narrative.split()
    if len(words) >= WHOLE * len(whole) or one_line(narrative) in one_line(text):
        field.fail(
            f"tells the whole narrative ({len(words)} of {len(whole)} words), not what the "
            "benchmark gives: one person's actions, as in field filtered_description"
        )
    return text


def _dialogue(text: str) -> str | None:
    """Lines ``Name: words``; None if the text is something else."""
    lines = [_LINE.fullmatch(line.strip()) for line in text.splitlines() if line.strip()]
    if len(lines) < 2 or not all(lines):
        return None
    return "\n".join(f"{line[1]}: {line[2]}" for line in lines if line)


def _quoted(description: Field, narrative: str, text: Field | None, who: People | None) -> str:
    """The talk that a narrative quotes: a question, and a reply by whom the questions are about.

    The questions' names are taken, as texts.json renames people in some episodes.
    """
    said = _quotes(narrative)
    if len(said) != 2 and text is not None:
        said = _quotes(cleaned(text))
    if len(said) != 2:
        description.fail(f"must quote a question and a reply, quotes {len(said)} utterances")
    if who is None:
        description.fail("quotes a talk, but the questions do not tell who asks and who replies")
    return f"{who.other}: {said[0]}\n{who.subject}: {said[1]}"


def _quotes(text: str) -> list[str]:
    """Quoted utterances, each a sentence with its own end."""
    said = [one_line(a or b).rstrip(" ,;") for a, b in _QUOTED.findall(text)]
    return [words if words[-1] in ".!?" else f"{words}." for words in said if words]
