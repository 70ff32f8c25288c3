"""Parsing a model's reply: which option it chooses, which words it names.

The ``robust`` parser reads any task's replies by a few fixed rules; ``official`` parsers read as
the authors of each benchmark do in their own code, strict or careless in ways of their own. A reply
that chooses nothing is invalid and counts as wrong (GridToM paper, appendix E).
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from sally_anne.data.items import Option, Question

Parser = Literal["official", "robust"]
PARSERS: tuple[Parser, ...] = ("official", "robust")
# What a reply chooses, None if nothing, and whether that is right.
Parsed = tuple[str | None, bool]

# A letter of a script whose words stand apart, unlike Chinese, Japanese and Korean ones.
_LETTER = r"[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff]"
# What announces an answer, and what stands between it and the answer: "is", a colon, an arrow.
_NOUN = (
    r"(?:answer|ans|solution|réponse|respuesta|risposta|resposta|antwort|antwoord|svar|ответ"
    r"|odpowiedź|cevap|jawaban|đáp án|lösung|απάντηση|الإجابة|الجواب|उत्तर)"
)
_IS = r"(?:is|was|be|est|es|è|é|ist|lautet|är|er|to|là|adalah|هي|هو|είναι)\b"
# "answer is", "Answer:", the same in broken JSON ('answer': ...) and in other languages.
_CUE = re.compile(
    r"(?<![^\W_])answer\b(?:\s?\([^)\n]*\))?[\"'*\s]*"
    r"(?::|=+>?|-+>|→|-(?!\w)|(?:is|was|(?:would|should|must|has\s+to)\s+be)\b)"
    r"|(?:答案|回答|正解|正答|答え)(?:应该|應該|就)?\s*(?:[是为為选選は:=】]|$)|정?답변?[은는]?\s*[:=]?"
    rf"|(?<!\w){_NOUN}\b(?<!answer)(?:[^\S\n]+[^\W\d_]{{2,}}){{0,2}}?\W{{0,3}}(?:{_IS}|[:=-])",
    re.I,
)
# What denies in the languages above, between the word and a label.
_NOT = r"(?:\b(?:not?|non|não|nicht|kein\w*|pas|не|niet|nie|inte|bukan|không|ليس\w*|un\w+)\b)"
# Other words that announce a label, perhaps with an adjective: "la opción correcta es B".
_LEAD = (
    r"(?:\b(?:(?:option|choice|letter|guess|conclusion|verdict|result|opción|opzione|opção|вариант"
    r"|letra|lettre|lettera|буква|alternativa|옵션|선택지|only|leaves"
    rf"|{_NOUN})(?:[^\S\n]+(?!{_NOT})[^\W\d_]{{2,}}){{0,4}}?(?:[^\S\n]+{_IS})?"
    r"(?:[^\S\n]+(?:the|la|option|letra))?"
    r"|response|ch(?:oose|ose|oosing)|pick(?:ing)?|select(?:ed|ing)?|vote|go(?:ing)?\s+(?:with|for)"
    r"|(?:it|that|this)(?:'s|\s+(?:is|must\s+be|should\s+be|has\s+to\s+be|would\s+be))"
    r"|(?:I|would|'d)\s+(?:think|believe|say|guess)|definitely|certainly|probably|likely|clearly"
    r"|obviously|surely|consequently|conclusion|overall|summary|so|thus|therefore|hence"
    r"|elijo|escojo|seleccion\w+|scelgo|choisis|dirais|escolho|wähle|выбираю)\b[\s:=,\"'*([-]{1,9}"
    r"|[选選][择擇]?(?:项|項|択肢)?[\s:=\"'*(是は]{0,9})"
)
# Why, or how sure, after a label that begins a line.
_WHY = (
    r"(?:because|since|as|given|due\s+to|based\s+on|I\s+(?:think|believe|guess)|it\s+is|of\s+course"
    r"|definitely|obviously|only|因为|因為|porque|parce|car|weil|perché|потому)"
)
# What says, after a label, that it is the answer.
_BEST = (
    r"(?:fits|makes\s+(?:the\s+)?most"
    r"|(?:is|seems|appears|looks|(?:would|must|should|has\s+to)\s+be)"
    r"(?:\s+(?:to\s+be|likely|probably|clearly))?\s+(?:the\s+)?"
    r"(?:most|more\s+likely|best|correct|right|likeliest|answer|one|only\s+(?!wrong|incorrect)))\b"
)
_RIGHT = (
    r"(?:是?(?:正确|正確|对的|對的)|です(?!か)|を選|が正|だと思|가 정답|번|입니다|이다"
    r"|[^\S\n]+(?:ist|est|es|è|é)[^\S\n]+(?:la[^\S\n]+)?(?:richtig|corr))"
)
_ANSWER_LINE = re.compile(r"^[^\w\n]*(?:final\s+)?(?P<cue>answer)\b[\"'’*\s]*:", re.I | re.M)
_LAST_OBJECT = re.compile(r"(\{[^{}]*\})[\s`]*\Z")
# Where thoughts begin and end, as models that think write it.
_THOUGHT = re.compile(
    r"[<\[◁](?P<end>/)?(?:think(?:ing)?|thoughts?|reasoning|reflection)[>\]▷]"
    r"|<\|(?:begin|(?P<end_>end))_of_thought\|>",
    re.I,
)
# What a mention must not be preceded by, within so many characters: "not in the", "rather than".
_NEGATED = re.compile(
    r"(?:\b(?:cannot|not|never|neither|nor|rather\s+than|instead\s+of|except|(?:other|but)\s+than"
    r"|(?:any|every)thing\s+but|unlikely|hardly|wrong|incorrect|eliminate|reject)|n't)"
    r"(?:\s+(?:in|at|be|is|to|the|an?|answer|option|choice|choose|pick|select|say|go\s+with))*"
    r"[\"'*(\s:]*$"
    r"|(?:[不没沒]|不是|没有|并非)(?:应该|應該|能)?(?:[选選][择擇]?)?[\"'*(\s]*$"
    r"|\b(?:rule|ruled|ruling)\s+out\s+(?:option\s+|choice\s+|the\s+)*[\"'*(\s]*$"
    r"|\b(?:no|nicht|pas|non|não|не|ليس(?:ت)?)(?:[^\S\n]+(?:está|es|ist|è|é))?(?:[^\S\n]+la)?[^\S\n]+$",
    re.I,
)
# Languages that say it behind a mention.
_DENIED = re.compile(r"[\"'*)\s]*(?:の中|안)?(?:では(?:な|あり)|じゃな|[이가은는]?\s*아[니닙])")
# What takes back the cue that follows: "I don't think the answer is A".
_DOUBTED = re.compile(
    r"(?:n't|\bnot|\bnever)\s+(?:\w+\s+)?(?:think|believe|say|sure|certain)\b[^.!?;,\n]*$"
    r"|\b(?:doubt|unsure|uncertain)\b[^.!?;,\n]*$"
    r"|\bif\b(?!\s+(?:I|we)\s+(?:had|have|must|need|were)\b)[^.!?;\n]*$"
    r"|\b(?:(?:wrong|incorrect)\s+(?:answer|option|choice)|неправильный\s+ответ)\b[^.!?;,\n]*$",
    re.I,
)
_NEAR = 60
# After a label no other word on the line ("Answer: a red room"), second label or question mark.
_ENDS = (
    rf"(?!{_LETTER}|['-]{_LETTER}|[吗嗎呢か]?\W{{0,3}}\?|[^\S\n]*[/&]"
    rf"|[^\S\n]+(?!(?:because|since|as|so|given|due|based)\b){_LETTER})"
)
# What does not make a label the article of a text, or a pronoun, before another word.
_NO_NOUN = r"(?:because|since|as|and|or|are|both|could|may|might|seem)\b"
# A second label: "A or B", "A/B", "A和B"; not "B. A ball", nor one on the next line.
_OR = r"(?:x?or|and|vs|ou|o|u|oder|und|y|e|et|или|и|of|och|atau)"
_ANOTHER = (
    rf"(?:[^\w\n]{{0,3}}(?:{_OR}|possibly|maybe)[^\w\n]{{1,3}}"
    r"(?:(?:maybe|possibly|or|option)\W{1,3})?"
    r"|\W{0,3}(?:或者?|和|还是|還是|か|または|나|또는)\W{0,3}"
    r"|[^\w\n]{1,3}(?:option[^\w\n]{1,3})?"
    rf"(?=\w+(?![^\w\n]{{0,3}}[^\S\n]+(?!{_NO_NOUN})[^\W\d_])))"
)
# How LaTeX says which letters a text is set in.
_MARKUP = re.compile(r"\\(?:text|math)\w*\s?\{([^{}]*)\}|\\(?:rm|bf|it)\b\s?")
# Quotes and dashes as keyboards have them.
_MARKS = str.maketrans("‘’‚‛“”„‟′″‐‑‒–—−", "''''\"\"\"\"'\"------")


def parse_choice(
    reply: str, options: Sequence[Option], parser: Parser = "robust", ended: bool = True
) -> str | None:
    """The label of the option that a reply chooses, or None for an invalid reply.

    ``official``: JSON objects whose ``answer`` is the label or the text of one option, the same in
    all of them. ``robust``: the first of these rules that names one option: such objects; a label
    or text after the last "answer is" or "answer:", in 13 languages; a label that begins a line
    ("b. purple", "(B)") or follows a word such as "option" or "choose"; the one option whose text
    the reply holds as whole words, not inside a longer one's and not negated. What names two
    options at one of these steps is invalid. Text within ``<think>`` is not read. A reply that was
    cut (not ``ended``) may have gone through the options: of its lines the first alone chooses.
    """
    by_label = {_plain(option.label): option.label for option in options}
    reply = _MARKUP.sub(r"\1", _plain_marks(_after_thinking(reply)))
    if answers := json_answers(reply):
        chosen = {_option_named(answer, options) for answer in answers}
        if len(chosen) == 1 and None not in chosen:
            return chosen.pop()
        if len(chosen - {None}) > 1:
            return None
    if parser == "official":
        return None
    labels = "|".join(
        sorted((_spaced(_plain_marks(o.label)) for o in options), key=len, reverse=True)
    )
    another = re.compile(rf"{_ANOTHER}({labels})(?!{_LETTER})(?!\.\s)", re.I)
    before = re.compile(rf"(?<!{_LETTER})(?:{labels})\W{{1,3}}{_OR}\W{{0,3}}$", re.I)
    # "(A) is wrong", but not "B, as A is wrong".
    rejected = re.compile(
        rf"(?:[^\w\n]|_)*(?:(?!\b(?:because|since|as|while|but|(?:{labels})\s+is)\b)[^\n.!?;,])"
        r"{0,80}?\b(?:incorrect|wrong|not\s+(?:right|correct|true|supported|likely|plausible))\b",
        re.I,
    )

    def named(match: re.Match[str]) -> str:
        return by_label[_plain(" ".join(match[1].split()))]

    if cues := list(_CUE.finditer(reply)):
        end = cues[-1].end()
        rest = re.split(r"[.!?;]\s|\n", reply[end:].lstrip(" "), maxsplit=1)[0]
        form = rf"[\W_]*(?:(?:option|choice)\W+|[选選][项項]\W*)?({labels}){_ENDS}"
        label = re.compile(form, re.I).match(reply, end)
        if label and rest.strip(" *") and not another.match(reply, label.end()):
            return None if _negated(reply, *label.span(1)) else named(label)
        if found := _texts(rest, options):
            return found.pop() if len(found) == 1 else None
    forms = (
        rf"^[^\w\n]*_*({labels})(?![.)][^\n]*[^\S\n](?:{labels})[.)]\s)(?=[^\w\n?]*_*$|[.):](?!\w)|、"
        rf"|[选選][项項]\W*$|[^\S\n]+-+[^\S\n]|,?[^\S\n]*\(?{_WHY}(?!{_LETTER}))",
        rf"{_LEAD}({labels}){_ENDS}",
        rf"(?<!\w)(?<!or\s)(?<!and\s)({labels})\s+{_BEST}",
        rf"(?<!{_LETTER})(?<![和或与か])({labels})(?:[选選]?[项項])?\W?{_RIGHT}",
        r"(?:\b(?:is|es|est|ist|è|é)(?:[^\S\n]+la)?[^\S\n]+|是|所以,?|→|[=-]>)\s?"
        rf"({labels})(?=[^\w\n?]*$)",
        rf"[.!]\s({labels})[^\w?]*\Z",
        rf"(?:\\(?:f?box|boxed)\s?\{{|<(?:\w*answer|ans|final|option|response|choice)>"
        rf"|<\|begin_of_box\|>|(?<!\w)\()"
        rf"[\s(]{{0,3}}({labels})[\s.]{{0,3}}[)}}<]",
    )
    reply = reply if ended else reply.lstrip().partition("\n")[0]
    matches = [m for form in forms for m in re.finditer(form, reply, re.I | re.M)]
    ends = ((reply[max(0, m.start() - _NEAR) : m.start()], m.end()) for m in matches)
    if any(before.search(start) or another.match(reply, end) for start, end in ends):
        return None
    matches = [m for m in matches if not rejected.match(reply, m.end(1))]
    found = {named(m) for m in matches if not _negated(reply, m.start(1), m.end(1))}
    found = found or (set() if matches else _texts(reply, options))
    return found.pop() if len(found) == 1 else None


def parse_words(reply: str, choices: Sequence[str], parser: Parser = "robust") -> frozenset[str]:
    """The choices that a reply names, for questions with one or more right answers.

    ``official``: those in the ``answer`` field, a string or a list, of a JSON object. ``robust``:
    the same if there are any, else those after the last "answer is", else those in the whole reply.
    """
    options = [Option(choice, choice) for choice in choices]
    reply = _plain_marks(_after_thinking(reply))
    answers: list[Any] = [a if isinstance(a, list) else [a] for a in json_answers(reply)]
    named = {
        frozenset(choice for text in texts for choice in _texts(text, options))
        for texts in answers
        if all(isinstance(text, str) for text in texts)
    }
    if len(named) == 1 and (only := named.pop()):
        return only
    if parser == "official":
        return frozenset()
    cues = list(_CUE.finditer(reply))
    after = _texts(reply[cues[-1].end() :], options) if cues else set()
    return frozenset(after or _texts(reply, options))


def parse(question: Question, reply: str, parser: Parser, ended: bool = True) -> Parsed:
    """What a reply chooses, None if nothing, and whether that is right; ``ended`` if not cut."""
    if parser == "official":
        return OFFICIAL[question.official].parse(reply, question)
    return _generic(reply, question, parser, ended)


def conclusion(reply: str, ended: bool = True) -> str:
    """The end of a reply that thinks aloud, where its answer is.

    A JSON object with an ``answer`` that it ends with; what begins with its last line "Answer: ..."
    or the last "answer is" of its last paragraph; or its last line, unless it was cut.
    """
    reply = _after_thinking(reply).rstrip()
    final = _LAST_OBJECT.search(reply)
    if final and json_answers(final[1]):
        return final[1]
    cues = [m.start("cue") for m in _ANSWER_LINE.finditer(reply)]
    if not cues:
        last = max((m.end() for m in re.finditer(r"\n[^\S\n]*\n", reply)), default=0)
        cues = [m.start() for m in _CUE.finditer(reply, last)]
    if cues:
        return reply[cues[-1] :]
    # Marks of a formula may stand behind it.
    lines = [line.strip() for line in reply.splitlines() if re.search(r"\w", line)]
    return lines[-1] if lines and ended else ""


def without_cue(text: str) -> str:
    cue = _CUE.match(text)
    return text[cue.end() :].strip(" *\n\t") if cue else text


def json_answers(reply: str) -> list[object]:
    whole = reply[reply.find("{") : reply.rfind("}") + 1]
    for parts in ([whole], re.findall(r"\{[^{}]*\}", reply)):
        found = []
        for part in parts:
            try:
                value = json.loads(part)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                found += [field for key, field in value.items() if _plain(key) == "answer"]
        if found:
            return found
    return []


def _after_thinking(reply: str) -> str:
    """What follows the last block of thoughts, or stands before the first if nothing does."""
    marks = list(_THOUGHT.finditer(reply))
    if not marks:
        return reply
    last = marks[-1]
    rest = reply[last.end() :] if last["end"] or last["end_"] else ""
    closed = marks[0]["end"] or marks[0]["end_"]  # then it began with thoughts
    return rest if closed or rest.strip() else reply[: marks[0].start()]


def _option_named(answer: object, options: Sequence[Option]) -> str | None:
    if not isinstance(answer, str):
        return None
    plain = _plain(answer)
    found = [o.label for o in options if _plain(o.label) == plain]
    found = found or [o.label for o in options if _unended(_plain(o.text)) == _unended(plain)]
    return found[0] if len(found) == 1 else None


def _texts(reply: str, options: Sequence[Option]) -> set[str]:
    """Labels of the options whose text a reply holds, not inside a longer text and not negated."""
    found = set()
    texts = [_unended(_plain(option.text)) for option in options]
    for option in sorted(options, key=lambda o: len(o.text), reverse=True):
        text = _unended(_plain_marks(option.text))
        # Where a text begins or ends in a script without spaces, there is no edge to find.
        before, after = (rf"{side}{_LETTER})" for side in ("(?<!", "(?!"))
        form = re.compile(f"{before}{_spaced(text)}{after}", re.I)
        mentioned = any(not _negated(reply, *match.span()) for match in form.finditer(reply))
        if mentioned and texts.count(_plain(text)) == 1:
            found.add(option.label)
        # Shorter texts are not looked for inside it.
        reply = form.sub(lambda match: "\x00" * len(match[0]), reply)
    return found


def _negated(reply: str, start: int, end: int) -> bool:
    before = reply[max(0, start - _NEAR) : start]
    said = _NEGATED.search(before) or _DOUBTED.search(before) or _DENIED.match(reply, end)
    return bool(said)


def _spaced(text: str) -> str:
    return r"\s+".join(map(re.escape, text.split()))


def _plain(text: str) -> str:
    return _plain_marks(text).strip().casefold()


def _unended(text: str) -> str:
    """Without its full stop, which a reply may leave out."""
    return text.rstrip(" .") or text


def _plain_marks(text: str) -> str:
    return unicodedata.normalize("NFKC", text).translate(_MARKS)


class Official(NamedTuple):
    """A benchmark's own parser, and what a prompt holds that asks for the form it expects."""

    parse: Callable[[str, Question], Parsed]
    asks: re.Pattern[str]


def _with_key(question: Question, label: str | None) -> Parsed:
    """A label that is one of the options', and whether it is right; None is neither."""
    label = label if label in {option.label for option in question.options} else None
    return label, label in question.key


def _first_character(reply: str, question: Question, fold: bool = False) -> Parsed:
    first = reply.strip()[:1]
    return _with_key(question, first.lower() if fold else first)


def _either_key(reply: str, question: Question) -> Parsed:
    """The right option's "a)" or "b)" anywhere; else the other's; else a grader would be asked."""
    keys = {option.label: f"{option.label.lower()})" for option in question.options}
    in_order = sorted(keys, key=lambda label: label not in question.key)
    return _with_key(question, next((la for la in in_order if keys[la] in reply.lower()), None))


def _gridtom(reply: str, question: Question) -> Parsed:
    """Beliefs: the whole reply is JSON whose "answer" is an option's text.

    Initial beliefs are not JSON: one room is the whole reply; of two agents both colours stand in
    it, and none of the three rooms'. Marks of a code block are taken out first (``vlm.py``,
    ``vlm_qwen.py``).
    """
    reply = reply.strip().replace("```json", "").replace("```", "")
    low = reply.lower()
    choices = [option.text.lower() for option in question.options]
    if question.names:
        right = {answer.lower() for answer in question.key}
        named = [c for c in choices if c in low]
        if len(right) == 1:
            named = [low] if low in choices else []
        return ", ".join(sorted(named)) or None, set(named) == right
    try:
        chosen = json.loads(reply)["answer"].lower()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None, False
    label = next((o.label for o in question.options if o.text.lower() == chosen), None)
    return _with_key(question, label)


def _generic(
    reply: str, question: Question, parser: Parser = "official", ended: bool = True
) -> Parsed:
    if question.names:
        named = parse_words(reply, [option.text for option in question.options], parser)
        right = set(map(_plain, named)) == set(map(_plain, question.key))
        return ", ".join(sorted(named)) or None, right
    return _with_key(question, parse_choice(reply, question.options, parser, ended))


OFFICIAL = {
    "": Official(_generic, re.compile(r"\bjson\b", re.I)),
    # evaluate.py and init_belief.py of the release
    "gridtom": Official(_gridtom, re.compile(r"\bjson\b|with the colou?rs? only", re.I)),
    # the release's evaluation of language models
    "mmtom_qa": Official(partial(_first_character, fold=True), re.compile("with either a or b")),
    # the last step of LIMP's release
    "muma_tom": Official(_first_character, re.compile(r"\b(?:A, B,? or C|only the letter)\b")),
    # code/src/evaluate_conditions.py
    "bigtom": Official(_either_key, re.compile(r"Answer:<option>\)<answer>")),
}
