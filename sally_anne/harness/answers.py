"""Reading a model's reply: which option it chooses, which words it names.

A reply that leaves a choice is invalid, and counts as wrong in the paper (appendix E). Neither case
nor the order of the options matters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Literal

from sally_anne.benchmarks.items import Option
from sally_anne.core.errors import HarnessError

Reader = Literal["official", "robust"]
READERS: tuple[Reader, ...] = ("official", "robust")

# "answer is", "Answer:", and the same in broken JSON: 'answer': ...
_CUE = re.compile(r"\banswer\b[\"'’*\s]*(?::|=|(?:is|was|would\s+be|should\s+be)\b)", re.IGNORECASE)
# What a mention must not be preceded by: "not in the", "isn't", "rather than".
_NEGATED = re.compile(
    r"(?:\b(?:can)?not|\bnever|\bneither|\bnor|\brather\s+than|\binstead\s+of|n['’]t)"
    r"(?:\s+(?:in|at|be|the|an?|option|choice))*[\"'’*(\s]*$",
    re.IGNORECASE,
)
_LONGEST_NEGATION = 60
# Characters read in vain in search of JSON objects: a reply may open thousands and close none.
_MOST_EFFORT = 10_000_000
# After a label: no other word on the line, else "Answer: a red room" would choose A; but some
# words cannot follow an article.
_ENDS = r"(?!\w|['’-]\w|[^\S\n]+(?!(?:because|since|as|is|was|seems|so|but|and|or)\b)\w)"
_SENTENCE_END = re.compile(r"[.!?;]")
# Between two options that a reply does not decide between: "A or B", "red/purple".
_JOINED = re.compile(r"[^\w\n.!?;]*+(?:(?:or|and)\b)?+[^\w\n.!?;]*+", re.IGNORECASE)


@dataclass(frozen=True)
class _Mention:
    """Where a reply names a choice: characters ``start`` to ``end``, by label or by text."""

    start: int
    end: int
    name: str
    by_label: bool = False


def read_answer(reply: str, options: Sequence[Option], reader: Reader) -> str | None:
    """The label of the option that a reply chooses, as in ``options``; None for an invalid reply.

    ``official``: JSON objects in the reply, in a code fence or not, whose ``answer`` is the label
    or the text of one option, all of them of the same. ``robust``: the same if it holds; otherwise
    the only option that is mentioned by a label form ("(b)", "b.", "Answer: B", "option b") or by
    its text as whole words (a mention inside a longer one does not count, nor does "not red"); of
    several, the one right after the last "answer is" or "answer:". A text that several options
    share chooses none of them; their labels do.
    """
    _check_reader(reader)
    _check_distinct("option label", [option.label for option in options])
    _check_given("option text", [option.text for option in options])
    chosen = _official_answer(reply, options)
    if chosen is not None or reader == "official":
        return chosen
    texts = [_plain(option.text) for option in options]
    alone = [(o.text, o.label) for o in options if texts.count(_plain(o.text)) == 1]
    labels = _label_mentions(reply, [option.label for option in options])
    mentions = _standing(reply, [*labels, *_text_mentions(reply, alone)])
    if len({mention.name for mention in mentions}) == 1:
        return mentions[0].name
    return _after_cue(reply, mentions)


def read_words(reply: str, choices: Sequence[str], reader: Reader = "robust") -> frozenset[str]:
    """Which of the choices a reply names, for questions with one or more right answers.

    ``official``: those named in the ``answer`` field of a JSON object, a string or a list of
    strings; objects that differ count for nothing. ``robust``: the same if there are any;
    otherwise those after the last "answer is" or "answer:"; otherwise those in the whole reply.
    A choice is named by its whole words, not inside a longer choice and not as "not red". None is
    named by an invalid reply.
    """
    _check_reader(reader)
    _check_distinct("choice", choices)
    named = _official_words(reply, choices)
    if named or reader == "official":
        return named
    cues = list(_CUE.finditer(reply))
    return (_words(reply[cues[-1].end() :], choices) if cues else named) or _words(reply, choices)


def answers_all(
    reply: str, right: Sequence[str], choices: Sequence[str], reader: Reader = "robust"
) -> bool | None:
    """Whether a reply names all right choices and no other; None if it names none."""
    _check_distinct("right answer", right)
    wanted, offered = {_plain(word) for word in right}, {_plain(word) for word in choices}
    if missing := sorted(wanted - offered):
        raise HarnessError(f"right answer {missing[0]!r} is not among the choices {list(choices)}")
    named = {_plain(word) for word in read_words(reply, choices, reader)}
    return named == wanted if named else None


def _check_reader(reader: str) -> None:
    if reader not in READERS:
        raise HarnessError(f"unknown reader {reader!r}; choose from {', '.join(READERS)}")


def _check_given(what: str, names: Sequence[str]) -> list[str]:
    """There are some, and none is empty; returns them as they are compared."""
    plain = [_plain(name) for name in names]
    if not plain or "" in plain:
        raise HarnessError(f"{what}s must be given and not be empty, got {list(names)}")
    return plain


def _check_distinct(what: str, names: Sequence[str]) -> None:
    """Each is there, once, whatever its case."""
    plain = _check_given(what, names)
    if twice := [name for name in plain if plain.count(name) > 1]:
        raise HarnessError(f"{what} {twice[0]!r} stands twice in {list(names)}")


def _plain(text: str) -> str:
    return text.strip().casefold()


def _json_answers(reply: str) -> list[object]:
    """The ``answer`` fields of all JSON objects that do not lie inside another one."""
    decoder = json.JSONDecoder()
    found: list[object] = []
    start = reply.find("{")
    effort = 0
    while start >= 0 and effort < _MOST_EFFORT:
        try:
            value, end = decoder.raw_decode(reply, start)
            found.extend(field for key, field in value.items() if _plain(key) == "answer")
        except ValueError as error:  # no JSON, or a number of thousands of digits
            end = start + 1
            if isinstance(error, json.JSONDecodeError):
                # What was read in vain, and the lines that Python counts up to there.
                effort += error.pos - start + error.pos // 50
        except RecursionError:  # thousands of braces; reading on would take as many attempts
            break
        start = reply.find("{", end)
    return found


def _official_answer(reply: str, options: Sequence[Option]) -> str | None:
    """The label that all answer fields agree on; None if one names no option or several."""
    chosen: set[str | None] = set()
    for answer in _json_answers(reply):
        plain = _plain(answer) if isinstance(answer, str) else None
        named = [o.label for o in options if plain in (_plain(o.label), _plain(o.text))]
        chosen.add(named[0] if len(named) == 1 else None)
    return chosen.pop() if len(chosen) == 1 else None


def _official_words(reply: str, choices: Sequence[str]) -> frozenset[str]:
    """The choices that all answer fields agree on; empty if there is no such set."""
    named: set[frozenset[str]] = set()
    for answer in _json_answers(reply):
        parts = answer if isinstance(answer, list) else [answer]
        words = [_words(part, choices) if isinstance(part, str) else None for part in parts]
        named.add(frozenset().union(*(w for w in words if w)) if None not in words else frozenset())
    return named.pop() if len(named) == 1 else frozenset()


def _words(text: str, choices: Sequence[str]) -> frozenset[str]:
    mentions = _text_mentions(text, [(choice, choice) for choice in choices])
    return frozenset(mention.name for mention in _standing(text, mentions))


def _text_mentions(reply: str, names: Iterable[tuple[str, str]]) -> list[_Mention]:
    """Whole-word mentions of texts; ``names`` pairs a text with the name it stands for."""
    mentions = []
    for text, name in names:
        words = r"\s+".join(re.escape(word) for word in text.split())
        for match in re.finditer(rf"(?<!\w){words}(?!\w)", reply, re.IGNORECASE):
            mentions.append(_Mention(*match.span(), name))
    return mentions


def _label_mentions(reply: str, labels: Sequence[str]) -> list[_Mention]:
    """Labels in a form that no article has, and not in a row with another label."""
    mentions = []
    for label in labels:
        others = "|".join(re.escape(other.strip()) for other in labels if other != label)
        single = rf"(?!\s*(?:[/,&]|or\b|and\b)\s*(?:{others}){_ENDS})" if others else ""
        name = f"({re.escape(label.strip())})"
        forms = (
            rf"^[^\w\n]*{name}(?=[^\w\n]*$)",  # alone on a line
            rf"^[^\w\n]*{name}(?=[.):,](?!\w)){single}",  # a. red
            rf"(?<!\w){name}\s*\)",  # (a)
            rf"\b(?:option|choice)\W{{1,4}}{name}{_ENDS}{single}",
            rf"{_CUE.pattern}\W*(?:(?:option|choice)\W+)?{name}{_ENDS}{single}",
        )
        for form in forms:
            for match in re.finditer(form, reply, re.IGNORECASE | re.MULTILINE):
                mentions.append(_Mention(*match.span(1), label, by_label=True))
    return mentions


def _standing(reply: str, mentions: Sequence[_Mention]) -> list[_Mention]:
    """Mentions in order, without those inside a longer one of another name and negated ones."""

    def negated(mention: _Mention) -> bool:
        before = reply[max(0, mention.start - _LONGEST_NEGATION) : mention.start]
        return _NEGATED.search(before) is not None

    return sorted(
        (mention for mention in _outer(mentions) if not negated(mention)),
        key=lambda mention: (mention.start, mention.end, mention.name),
    )


def _outer(mentions: Sequence[_Mention]) -> Iterator[_Mention]:
    """Those that lie in no longer one of another name; in one pass over their beginnings."""
    reach: dict[str, int] = {}
    in_order = sorted(mentions, key=lambda mention: mention.start)
    for _, group in groupby(in_order, key=lambda mention: mention.start):
        together = list(group)
        for inner in together:
            # Longer ones begin before it, or with it and end behind it.
            before = any(end >= inner.end for name, end in reach.items() if name != inner.name)
            beside = any(o.end > inner.end and o.name != inner.name for o in together)
            if not (before or beside):
                yield inner
        for mention in together:
            reach[mention.name] = max(mention.end, reach.get(mention.name, 0))


def _after_cue(reply: str, mentions: Sequence[_Mention]) -> str | None:
    """The name in the sentence of the last cue, unless another is joined to it."""
    cues = list(_CUE.finditer(reply))
    if not cues:
        return None
    end = cues[-1].end()
    later = [mention for mention in mentions if mention.start >= end]
    if not later or _SENTENCE_END.search(reply, end, later[0].start):
        return None
    for last, other in pairwise(later):
        if other.name != last.name:
            # "B. red": the text belongs to the label.
            gap = last.end + (last.by_label and reply[last.end : last.end + 1] == ".")
            undecided = other.start < gap or _JOINED.fullmatch(reply, gap, other.start)
            return None if undecided else last.name
    return later[0].name
