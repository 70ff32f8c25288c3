"""Reading a model's reply: which option it chooses, which words it names.

A reply that leaves a choice is invalid, and counts as wrong in the paper (appendix E). Neither case
nor the order of the options matters.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Literal

from sally_anne.core.errors import HarnessError
from sally_anne.data.items import Option

Reader = Literal["official", "robust"]
READERS: tuple[Reader, ...] = ("official", "robust")

# "answer is", "Answer:", "answer - ", and the same in broken JSON: 'answer': ...
_CUE = re.compile(
    r"\banswer\b[\"'’*\s]*(?::|=|[-–—](?!\w)|(?:(?:here|then|therefore|thus)\s+)?"
    r"(?:is|was|would\s+be|should\s+be|must\s+be)\b)",
    re.IGNORECASE,
)
# A line that announces the answer; and a JSON object at the end, in a code fence or not.
_ANSWER_LINE = re.compile(r"^[^\w\n]*(?:final\s+)?(?P<cue>answer)\b[\"'’*\s]*:", re.I | re.M)
_LAST_OBJECT = re.compile(r"(\{[^{}]*\})[\s`]*\Z")
# Other words after which a label may stand.
_LEAD = (
    r"\b(?:response|reply|solution|conclusion|pick|choose|select|say|go(?:ing)?\s+with|it['’]s"
    r"|(?:it|this|that|option|choice|one)\s+(?:is|must\s+be|should\s+be))[\s:=\"'’*(–—-]{1,9}"
)
# What a mention must not be preceded by: "not in the", "isn't", "rather than".
_NEGATED = re.compile(
    r"(?:\b(?:can)?not|\bnever|\bneither|\bnor|\brather\s+than|\binstead\s+of|n['’]t"
    r"|\b(?:any|every)thing\s+but|\bother\s+than|\bexcept|\bexcluding)"
    r"(?:\s+(?:in|at|be|the|an?|option|choice|for))*[\"'’*(\s]*$",
    re.IGNORECASE,
)
# Nor followed by, in its clause: "A is wrong", "(b) is not supported".
_REJECTED = re.compile(
    r"^[\"'’*)\s]*(?:room\s+)?(?:is|was|are|seems|looks|would\s+be|can(?:\s?not|['’]t))\b"
    r"[^\n.,;!?]{0,20}\b(?:not|wrong|incorrect|false|unlikely|impossible|out|unsupported|be)\b"
    r"|^[\"'’*)\s]*(?:room\s+)?(?:is|was|ca|do|does)n['’]t\b",
    re.IGNORECASE,
)
# What leaves open, in the clause before a mention, whether it is meant; and in its sentence.
_OPEN = re.compile(
    r"\b(?:not|never|cannot|might|may|could|doubt|nor|neither|unsure|uncertain|between|either)\b"
    r"|n['’]t\b",
    re.IGNORECASE,
)
_CONDITION = re.compile(r"\b(?:if|whether|unless|assuming|suppose|depends)\b", re.IGNORECASE)
_CLAUSE = re.compile(
    r"[,;.!?\n]|\b(?:but|so|because|since|therefore|thus|hence|however|and)\b", re.IGNORECASE
)
_REASON = re.compile(r"\b(?:because|since|as)\b", re.IGNORECASE)
# Taken back: "A, no wait, B".
_CORRECTED = re.compile(
    r"\bno\s*[,:!.—–]|\bno\s+wait\b|\bwait\s*[,:!.—–-]|\bscratch\s+that|\bcorrection\b"
    r"|\bsecond\s+thoughts?|\bor\s+rather\b|\bi\s+mean\b|\bhmm",
    re.IGNORECASE,
)
_NEAR = 200
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
    certain: bool = True


def read_answer(reply: str, options: Sequence[Option], reader: Reader) -> str | None:
    """The label of the option that a reply chooses, as in ``options``; None for an invalid reply.

    ``official``: JSON objects in the reply, in a code fence or not, whose ``answer`` is the label
    or the text of one option, all of them of the same. ``robust``: the same if it holds; otherwise
    the only option that is mentioned by a label form ("(b)", "b.", "Answer: B", "it's B") or by
    its text as whole words (a mention inside a longer one does not count, nor does "not red"); of
    several, the one right after the last "answer is" or "answer:". What is asked, denied, bound to
    a condition, taken back, or a list of all options chooses none; reasons given for a choice are
    not read. A text that several options share chooses none of them; their labels do. Both read
    what follows a closed ``<think>`` block, and nothing of a reply that was cut within one.
    """
    _check_reader(reader)
    _check_distinct("option label", [option.label for option in options])
    _check_given("option text", [option.text for option in options])
    reply = _after_thinking(reply)
    stated = _official_answers(reply, options)
    official = next(iter(stated)) if len(stated) == 1 else None
    if official is not None or reader == "official" or len(stated - {None}) > 1:
        return official
    texts = [_plain(option.text) for option in options]
    alone = [(o.text, o.label) for o in options if texts.count(_plain(o.text)) == 1]
    names = [option.label for option in options]
    found = [*_label_mentions(reply, names), *_text_mentions(reply, alone)]
    mentions = _weighed(reply, _standing(reply, found), _listed(reply, names))
    certain = [mention for mention in mentions if mention.certain]
    chosen_mention = _after_cue(reply, certain)
    if certain and len({mention.name for mention in mentions}) == 1:
        chosen_mention = certain[-1]
    if chosen_mention is None or _CORRECTED.search(reply, chosen_mention.end):
        return None
    return chosen_mention.name


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


def conclusion(reply: str, ended: bool = True) -> str:
    """The end of a reply that thinks aloud, where its answer is.

    That is a JSON object with an ``answer`` that it ends with; what begins with its last line
    "Answer: ..."; what begins with the last "answer is" of its last paragraph; or else its last
    line. Thoughts that were cut (not ``ended``) without one of the first three have none.
    """
    reply = _after_thinking(reply).rstrip()
    final = _LAST_OBJECT.search(reply)
    if final and _json_answers(final[1]):
        return final[1]
    cues = [m.start("cue") for m in _ANSWER_LINE.finditer(reply)]
    if not cues:
        last = max((m.end() for m in re.finditer(r"\n[^\S\n]*\n", reply)), default=0)
        cues = [m.start() for m in _CUE.finditer(reply, last)]
    if cues:
        return reply[cues[-1] :]
    return reply[reply.rfind("\n") + 1 :].strip() if ended else ""


def without_cue(said: str) -> str:
    """A conclusion without the words that announce it."""
    cue = _CUE.match(said)
    return said[cue.end() :].strip(" *\n\t") if cue else said


def _after_thinking(reply: str) -> str:
    """What follows the last block of thoughts; nothing if that was not closed."""
    lower = reply.lower()
    opened, closed = lower.rfind("<think>"), lower.rfind("</think>")
    return "" if opened > closed else reply[closed + len("</think>") :] if closed >= 0 else reply


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


def _official_answers(reply: str, options: Sequence[Option]) -> set[str | None]:
    """The labels that the answer fields choose; None is that of one that names no single option."""
    chosen: set[str | None] = set()
    for answer in _json_answers(reply):
        plain = _plain(answer) if isinstance(answer, str) else None
        named = [o.label for o in options if plain in (_plain(o.label), _plain(o.text))]
        chosen.add(named[0] if len(named) == 1 else None)
    return chosen


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
            rf"{_LEAD}(?:(?:option|choice)\W{{1,4}})?{name}{_ENDS}{single}",
            rf"^[^\w\n]*{name}(?=[^\S\n]+(?:because|since|as)\b)",
            rf"\\boxed\s?\{{(?:\\text\w*\{{)?[\s(]{{0,3}}{name}[\s.)]{{0,3}}\}}",
            rf"<answer>[\s(]{{0,9}}{name}[\s.)]{{0,9}}</answer>",
        )
        for form in forms:
            for match in re.finditer(form, reply, re.IGNORECASE | re.MULTILINE):
                mentions.append(_Mention(*match.span(1), label, by_label=True))
    return mentions


def _standing(reply: str, mentions: Sequence[_Mention]) -> list[_Mention]:
    """Mentions in order, without those inside a longer one of another name and denied ones."""

    def denied(mention: _Mention) -> bool:
        before = reply[max(0, mention.start - _NEAR // 2) : mention.start]
        after = reply[mention.end : mention.end + _NEAR // 2]
        return bool(_NEGATED.search(before) or _REJECTED.search(after))

    return sorted(
        (mention for mention in _outer(mentions) if not denied(mention)),
        key=lambda mention: (mention.start, mention.end, mention.name),
    )


def _listed(reply: str, labels: Sequence[str]) -> list[tuple[int, int]]:
    """The lines that begin with a label, if all labels have one: the options said again."""
    lines: list[tuple[int, int]] = []
    for label in labels:
        form = rf"^[^\w\n]*{re.escape(label.strip())}[.):](?!\w)[^\n]*"
        own = [m.span() for m in re.finditer(form, reply, re.IGNORECASE | re.MULTILINE)]
        if not own:
            return []
        lines += own
    return sorted(lines)


def _weighed(
    reply: str, mentions: Sequence[_Mention], listed: Sequence[tuple[int, int]]
) -> list[_Mention]:
    """Mentions with whether they are certain, without those in lists of options and in reasons."""
    kept: list[_Mention] = []
    lists = deque(listed)
    for mention in mentions:
        while lists and lists[0][1] <= mention.start:
            lists.popleft()
        if lists and lists[0][0] <= mention.start:
            continue
        if kept and kept[-1].certain and kept[-1].name != mention.name:
            between = reply[kept[-1].end : mention.start][:_NEAR]
            if _REASON.search(between) and not (_SENTENCE_END.search(between) or "\n" in between):
                continue
        kept.append(replace(mention, certain=not _left_open(reply, mention)))
    return kept


def _left_open(reply: str, mention: _Mention) -> bool:
    """Whether a mention is asked about, denied from afar, or bound to a condition."""
    before = reply[max(0, mention.start - _NEAR) : mention.start]
    after = reply[mention.end : mention.end + _NEAR]
    # "(b) purple?", "B. purple?": the label's own mark ends no sentence.
    after = after[1:] if mention.by_label and after[:1] in (".", ")") else after
    sentence = re.split(r"[.!?;\n]", before)[-1]
    clause, following = _CLAUSE.split(sentence)[-1], _CLAUSE.split(after)[0]
    ends = re.search(r"[.!?;\n]", after)
    return bool(
        _OPEN.search(clause)
        or _CONDITION.search(sentence)
        or _CONDITION.search(following)
        or (ends and ends.group() == "?")
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


def _after_cue(reply: str, mentions: Sequence[_Mention]) -> _Mention | None:
    """The mention in the sentence of the last cue, unless another is joined to it."""
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
            return None if undecided else last
    return later[-1]
