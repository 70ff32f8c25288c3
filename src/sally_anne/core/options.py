"""A command's options: read from the command line or a file, and checked by their types.

An ``int`` is a count and at least 1, unless it is a :data:`Seed` or :data:`Natural`. A ``float`` is
finite; a :data:`Positive` one is more than that.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import json
import math
import numbers
import os
import re
import shlex
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, dataclass, field, fields, make_dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

import tyro
import yaml

from sally_anne.core.errors import OptionError
from sally_anne.core.files import reading, text_of
from sally_anne.core.processes import here

Config = TypeVar("Config")
P = ParamSpec("P")
Result = TypeVar("Result")
CONFIG = "config.json"
# Help on two options that every command takes, or that GridToM's do.
_CONFIG = "takes options not given here from YAML, JSON or the folder of a run, which is repeated."
_PUBLISHED = "as the GridToM paper, or its released code, does it, but for what is given."


@dataclass(frozen=True)
class Range:
    """What a number must be, in words and as a test."""

    words: str
    holds: Callable[[Any], bool]


# What NumPy and scikit-learn take.
Seed = Annotated[int, Range(f"from 0 to {2**32 - 1}", range(2**32).__contains__)]
Natural = Annotated[int, Range("at least 0", lambda number: number >= 0)]
Positive = Annotated[float, Range("positive", lambda number: number > 0)]

# What may be given for a type, and how it is called; a value of other types is not checked.
_KINDS: dict[Any, tuple[Any, str]] = {
    int: (numbers.Integral, "a whole number"),
    float: (numbers.Real, "a number"),
    str: (str, "a text"),
    Path: ((str, os.PathLike), "a path"),
    type(None): (type(None), "none"),
}


def check_options(config: Any) -> None:
    """OptionError, by its name, for an option out of its range or not among its words."""
    hints = get_type_hints(type(config), include_extras=True)
    for option in fields(config):
        _check(flag_name(option.name), getattr(config, option.name), hints[option.name])


def checked(function: Callable[P, Result]) -> Callable[P, Result]:
    """A function that checks its arguments as :func:`check_options` does a command's."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> Result:
        hints = get_type_hints(function, include_extras=True)
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            known = ", ".join(name for name in signature.parameters if name != "self")
            raise OptionError(f"{function.__name__}: {error}; it takes {known}") from error
        for name, value in given.items():
            _check(name, value, hints.get(name, Any))
        return function(*args, **kwargs)

    return called


def with_options(config: type[Any], *but: str) -> Callable[[Any], Any]:
    """A function whose keywords are a command's options ``but`` some, in signature and help."""

    def named(function: Any) -> Any:
        own = dict(inspect.signature(function).parameters)
        added = [one for one in fields(config) if one.name not in (*but, *own)]
        _, kind = own.pop("options"), inspect.Parameter.KEYWORD_ONLY
        more = (inspect.Parameter(one.name, kind, default=one.default) for one in added)
        function.__signature__ = inspect.Signature([*own.values(), *more])
        said = _said(config)
        lines = (f"    {one.name}: {said.get(one.name, 'as of the command')}" for one in added)
        function.__doc__ = "\n".join([f"{inspect.getdoc(function)}\n\nOptions:", *lines])
        return function

    return named


def _said(config: type[Any]) -> dict[str, str]:
    """What a config says of each of its options; one text may be of several."""
    docs = "\n".join(inspect.getdoc(one) or "" for one in reversed(config.__mro__))
    found = re.findall(r"(?m)^    (\w+(?:, \w+)*): ((?:.|\n {8})+)", docs)
    return {name: " ".join(text.split()) for names, text in found for name in names.split(", ")}


def _check(name: str, value: Any, hint: Any) -> None:
    parts = list(_parts(hint))
    words = [word for part in parts if get_origin(part) is Literal for word in get_args(part)]
    ranges = [Range("finite", math.isfinite), *(part for part in parts if isinstance(part, Range))]
    if len(ranges) == 1 and int in parts and float not in parts:
        ranges.append(Range("at least 1", lambda number: number >= 1))
    origins = {get_origin(part) for part in parts} - {None, Annotated, typing.Union, UnionType}
    several = bool(origins & {tuple, list, Sequence})
    types = [part for part in parts if isinstance(part, type)]
    # The types of numbers and texts alone, and of words those that may stand in their place.
    plain = origins <= {tuple, list} and {*types} <= {*_KINDS}
    kinds = [_KINDS.get(part, (part, part.__name__)) for part in types]
    known = [word for _, word in kinds] + ["one of " + ", ".join(map(str, words))] * bool(words)
    for one in value if several and isinstance(value, tuple | list) else (value,):
        if isinstance(one, numbers.Real) and not isinstance(one, bool) and one not in words:
            wrong = next((range for range in ranges if not range.holds(one)), None)
            if wrong is not None:
                raise OptionError(f"{name} must be {wrong.words}, got {one}")
        if not (words or (types and plain)) or one in words or (words and one is None):
            continue
        # True is no number, though Python takes it for one.
        number = bool in types or not isinstance(one, bool)
        if not (number and any(isinstance(one, kind) for kind, _ in kinds)):
            raise OptionError(f"{name} must be {' or '.join(known)}, got {one!r:.60}")


def flag_name(name: str) -> str:
    """An option as it stands on the command line."""
    return "--K" if name == "k" else f"--{name.replace('_', '-')}"


def _parts(hint: Any) -> Iterator[Any]:
    yield hint
    for part in get_args(hint):
        yield from _parts(part)


def read_options(
    config_type: type[Config], prog: str, arguments: Sequence[str] | None = None
) -> Config:
    """The options of a command, each in its range: of ``--config FILE``, then of the command line.

    A config's class method ``as_published`` gives the defaults of ``--as-published``, which is
    printed. OptionError names one out of its range, or unknown; wrong words end in SystemExit.
    """
    finder = argparse.ArgumentParser(prog=prog, add_help=False, allow_abbrev=False)
    finder.add_argument("--config", type=Path)
    published: Any = getattr(config_type, "as_published", None)
    if published is not None:
        finder.add_argument("--as-published", choices=("paper", "released"))
    found, words = finder.parse_known_args(arguments)
    given = _from_file(config_type, prog, found.config) if found.config is not None else {}
    about = (inspect.getdoc(config_type) or "").partition("\n\n")[0]
    how: dict[str, Any] = {"prog": prog, "args": words, "description": about}
    shown: Any = config_type
    if {"-h", "--help"}.intersection(words):  # these two are read before the others
        texts, hints = _said(config_type), get_type_hints(config_type, include_extras=True)
        known = (one for one in fields(shown) if one.name in texts)
        more: list[Any] = [(o.name, hints[o.name], texts[o.name], o.default) for o in known]
        more.append(("config", Path | None, _CONFIG, None))
        if published is not None:
            more.append(("as_published", Literal["paper", "released"] | None, _PUBLISHED, None))
        told = [(n, Annotated[t, tyro.conf.arg(help=x)], field(default=d)) for n, t, x, d in more]
        name, bases = config_type.__name__, (config_type,)
        shown = make_dataclass(name, told, bases=bases, frozen=True, kw_only=True)
    if given:
        how["default"] = shown(**given)
    config: Any = tyro.cli(shown, **how)
    if which := getattr(found, "as_published", None):
        names = [n for n in ("model", "task", "samples") if hasattr(config, n)]
        given = {n: getattr(config, n) for n in names} | given
        preset, plain = published(which, **given), config_type(**given)
        config = tyro.cli(config_type, **how | {"default": preset})
        own = {n: value for n, value in vars(preset).items() if value != getattr(plain, n)}
        kept = [n for n in own if getattr(config, n) == own[n]]
        said = " ".join(word for n in kept for word in option_words(n, own[n]))
        other = " ".join(flag_name(n) for n in own if n not in kept)
        if here().first:
            print(f"as published, {which}: {said}{other and f'; not: {other}'}")
    check_options(config)
    return config


def _from_file(config_type: type[Any], prog: str, path: Path) -> dict[str, Any]:
    if path.is_dir():
        path /= CONFIG
    with reading(path, OptionError):
        text = text_of(path.read_bytes())
        given = (json.loads if path.suffix == ".json" else yaml.safe_load)(text) or {}
        if not isinstance(given, dict):
            raise TypeError(f"it holds a {type(given).__name__}, not options by their names")
    # A run's own file holds more than its options, and the day that was named to the model.
    model = given.get("model")
    given = given["config"] if isinstance(given.get("config"), dict) else given
    if isinstance(model, dict) and model.get("date"):
        given["date"] = model["date"]
    given = {str(name).replace("-", "_"): value for name, value in given.items()}
    known = get_type_hints(config_type)
    own = {option.name: option for option in fields(config_type)}
    if unknown := [name for name in given if name not in own]:
        raise OptionError(f"{path}: {prog} has no option {unknown[0]!r}; it has {', '.join(own)}")
    # Read as if each stood on the command line, so that what is wrong is said in the same words.
    words: list[str] = []
    for name, value in given.items():
        values = value if isinstance(value, list) else [value]
        words += [f"--{name.replace('_', '-')}", *map(str, values)]
    options = make_dataclass("Options", [(name, known[name]) for name in given])
    read = vars(tyro.cli(options, prog=f"{prog} --config {path}", args=words))
    needed = (n for n, option in own.items() if option.default is option.default_factory is MISSING)
    return dict.fromkeys(needed, tyro.MISSING) | read


def option_words(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [flag_name(name if value else f"no-{name}")]
    return [flag_name(name), *map(str, value if isinstance(value, list | tuple) else [value])]


def command_line(prog: str, config: Any) -> str:
    """The command of a ``config``, to be copied: its model, and what is no default."""
    words = prog.split()
    for option in fields(config):
        value = getattr(config, option.name)
        if option.name == "model" or value != option.default:
            words += option_words(option.name, value)
    return shlex.join(words)
