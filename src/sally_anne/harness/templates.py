"""Prompts of one's own: files with fields in braces, and what the fields of questions hold."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from pathlib import Path

from sally_anne.core.errors import HarnessError
from sally_anne.core.files import reading
from sally_anne.data.items import Option

_MOST_OPTIONS = 26
_EACH = tuple(f"{kind}_{n + 1}" for n in range(_MOST_OPTIONS) for kind in ("option", "label"))


def read_template(
    path: Path, option: str, fields: Sequence[str], needed: Sequence[Sequence[str]]
) -> str:
    """A file's text, which has no other ``fields``, and of each group in ``needed`` one at least.

    ``options`` among the fields brings those of single options. A HarnessError names the option
    that gave the file, the file, and what is wrong in it.
    """
    with reading(path, HarnessError):
        text = path.read_text(encoding="utf-8")
    try:
        found = [part[1:] for part in string.Formatter().parse(text) if part[1] is not None]
    except ValueError as error:
        raise HarnessError(f"{option} {path}: {error}; write {{{{ for a brace") from error
    named = [name for name, _, _ in found]
    each = _EACH if "options" in fields else ()
    if unknown := [name for name in named if name not in (*fields, *each)]:
        raise HarnessError(
            f"{option} {path}: there is no field {{{unknown[0]}}}; use {', '.join(fields)}"
            + (", or option_1, label_1 and so on" if each else "")
        )
    if styled := [name for name, style, conversion in found if style or conversion]:
        raise HarnessError(
            f"{option} {path}: write {{{styled[0]}}} alone, without ! or : behind its name"
        )
    for first, *others in needed:
        if not {first, *others}.intersection(named):
            instead = "".join(f" (or {{{name}}})" for name in others[:1])
            raise HarnessError(f"{option} {path}: {{{first}}} is missing{instead}")
    return text


def option_fields(options: Sequence[Option]) -> dict[str, str]:
    """The fields of a question's options, all and single ones."""
    labels = [option.label for option in options]
    return {
        "options": "\n".join(f"{o.label}. {o.text}" for o in options),
        "labels": f"{', '.join(labels[:-1])} or {labels[-1]} only" if labels else "",
        **{f"option_{n}": o.text for n, o in enumerate(options, 1)},
        **{f"label_{n}": o.label for n, o in enumerate(options, 1)},
    }


def fill(template: str, fields: Mapping[str, str], item_id: str, options: int) -> str:
    """The prompt of an item; HarnessError if the template asks for an option that it lacks."""
    try:
        return template.format_map(fields)
    except KeyError as error:
        raise HarnessError(
            f"item {item_id}: the template asks for {error.args[0]}, and there are {options} "
            "options"
        ) from error
