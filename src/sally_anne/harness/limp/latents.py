"""How far a model reads the same out of an option as the rules do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from sally_anne.harness.limp.episode import Hypothesis

VARIABLES = tuple(field.name for field in fields(Hypothesis))

# All words but those in which statements of the same differ: articles, being, prepositions,
# wanting, putting.
_WORD = re.compile(
    r"\b(?!(?:an?|the|some|this|that|there|it|is|are|was|were|be|been|to|of|in|on|at|inside|into|onto"
    r"|will|want(?:s|ed)?|places?|placed|puts?|ha[sd]|have|stay|located|believe[sd]?)\b)[\w'’]+"
)
# What rules say where an option leaves open what exactly is wanted or known.
_GENERAL = re.compile(r"\basks for$|\bdoes not know$|\bknows what is\b")
_AIMS = (
    ("neither", re.compile(r"\b(?:neither|indifferen|independen|neutral|no(?:ne|t)?\b)", re.I)),
    ("hinder", re.compile(r"\b(?:hinder|prevent|obstruct|harm)", re.I)),
    ("help", re.compile(r"\b(?:help|assist|support)", re.I)),
)


def agreement(
    rules: Mapping[str, Hypothesis], read: Mapping[str, Hypothesis]
) -> dict[str, bool] | None:
    """Whether both say the same in all options, by variable; None if nothing can be compared.

    Compared is what the rules take from the wording, not what they say in general terms: aims by
    help, hinder or neither, all else by its words but for articles and the like.
    """
    found: dict[str, bool] = {}
    for name in VARIABLES:
        pairs = [(getattr(rules[label], name), getattr(read[label], name)) for label in rules]
        said = [pair for pair in pairs if pair[0] and not _GENERAL.search(pair[0])]
        if said:
            same = _aim if name == "social_goal" else _words
            found[name] = all(same(one) == same(other) for one, other in said)
    return found or None


def compared(answers: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, bool] | None]:
    """:func:`agreement` of each kept answer in which the model had to read; None elsewhere."""
    for answer in answers:
        both = [answer.get(name) for name in ("rules", "hypotheses")]
        yield agreement(*map(_taken, both)) if all(both) else None  # type: ignore[arg-type]


def summarise(found: Iterable[dict[str, bool] | None]) -> dict[str, Any]:
    """Number of questions that were compared, and shares of them that agree in each and in all."""
    kept = [entry for entry in found if entry]
    shares: dict[str, Any] = {"n": len(kept)}
    alike = {"all": [all(entry.values()) for entry in kept]}
    for name in VARIABLES:
        alike[name] = [entry[name] for entry in kept if name in entry]
    return shares | {name: sum(flags) / len(flags) for name, flags in alike.items() if flags}


def said(shares: Mapping[str, Any]) -> str:
    """One line: how often the model and the rules read the same."""
    if "all" not in shares:
        return "no question was read by both the model and the rules"
    parts = [f"{n.replace('_', ' ')} {100 * shares[n]:.1f}" for n in VARIABLES if n in shares]
    return (
        f"the model and the rules read the same out of the options in {100 * shares['all']:.1f} % "
        f"of {shares['n']} questions ({', '.join(parts)})"
    )


def _taken(saved: Mapping[str, Any]) -> dict[str, Hypothesis]:
    return {label: Hypothesis(**entry) for label, entry in saved.items()}


def _aim(text: str) -> str:
    return next((aim for aim, pattern in _AIMS if pattern.search(text)), text)


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.casefold()))
