"""How a command is written: options in and checked, expected errors out as one line."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import pkgutil
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields, make_dataclass
from pathlib import Path
from typing import Any, NoReturn, TextIO, TypeVar, get_type_hints

import tyro
import yaml

from sally_anne.core.console import Console, quiet_libraries, stage, visible
from sally_anne.core.errors import OptionError, ProcessError, SallyAnneError
from sally_anne.core.files import reading
from sally_anne.core.options import check_options, spelled
from sally_anne.core.processes import here
from sally_anne.core.run_folder import CONFIG, RESULTS

Config = TypeVar("Config")


def command(
    prog: str,
    config_type: type[Config],
    run: Callable[[Config], object] | str,
    *,
    resumes: bool = False,
    together: bool = False,
    libraries: bool = True,
    page: bool = False,
) -> Callable[..., None]:
    """The ``main`` of a command: reads its options, by default off the command line, and works.

    It exits with 1 and the message of an expected error, 2 if the words are wrong, 130 if the user
    stopped it.

    Args:
        prog: the command, as its help shows it.
        config_type: a dataclass of options; its docstring makes the help.
        run: does the work; or ``package.module:function``, imported once the options are known.
        resumes: whether the same command goes on, in ``config.folder``, after it was stopped.
        together: whether several processes of a launcher can share the work.
        libraries: whether it needs torch and transformers, which take seconds to load.
        page: whether ``config.folder`` gets its report, whose path is printed in the end.
    """

    def main(arguments: Sequence[str] | None = None) -> None:
        with plain_errors():
            config = read_options(config_type, prog, arguments)
            if here().count > 1 and not together:
                raise ProcessError(f"{prog} works in one process; start it without a launcher")
        try:
            if libraries:
                _load_libraries()
            with plain_errors():
                work = pkgutil.resolve_name(run) if isinstance(run, str) else run
                work(config)
                if page:
                    write = pkgutil.resolve_name("sally_anne.figures.report.write:write_report")
                    print(f"report: {write(config.folder)}")  # type: ignore[attr-defined]
        except KeyboardInterrupt:
            if resumes:
                folder = config.folder  # type: ignore[attr-defined]
                print(f"\nstopped; the same command goes on from {folder}", file=sys.stderr)
            sys.exit(130)

    return main


def read_options(
    config_type: type[Config], prog: str, arguments: Sequence[str] | None = None
) -> Config:
    """The options of a command, each in its range: of ``--config FILE``, then of the command line.

    OptionError names one out of its range, or unknown; SystemExit is 2 for wrong words, 0 for help.
    """
    finder = argparse.ArgumentParser(prog=prog, add_help=False, allow_abbrev=False)
    finder.add_argument("--config", type=Path)
    found, words = finder.parse_known_args(arguments)
    options: Any = (
        {} if found.config is None else {"default": _from_file(config_type, prog, found.config)}
    )
    about = (inspect.getdoc(config_type) or "").partition("\n\n")[0]
    config: Config = tyro.cli(
        config_type,
        prog=prog,
        args=words,
        description=f"{about} Options that are not given here are taken from --config FILE: YAML, "
        "JSON, or the folder of a run, which is repeated.",
        **options,
    )
    check_options(config)
    return config


def _from_file(config_type: type[Config], prog: str, path: Path) -> Config:
    """The options that a file names, the others at their defaults."""
    if path.is_dir():  # earlier versions kept the options of most runs with the results
        path /= CONFIG if (path / CONFIG).exists() or not (path / RESULTS).exists() else RESULTS
    with reading(path, OptionError):
        text = path.read_text(encoding="utf-8")
        given = (json.loads if path.suffix == ".json" else yaml.safe_load)(text) or {}
        if not isinstance(given, dict):
            raise TypeError(f"it holds a {type(given).__name__}, not options by their names")
    # A run's own file holds more than its options.
    given = given["config"] if isinstance(given.get("config"), dict) else given
    given = {str(name).replace("-", "_"): value for name, value in given.items()}
    known = get_type_hints(config_type)
    names = [option.name for option in fields(config_type)]  # type: ignore[arg-type]
    if unknown := [name for name in given if name not in names]:
        raise OptionError(f"{path}: {prog} has no option {unknown[0]!r}; it has {', '.join(names)}")
    # Read as if each stood on the command line, so that what is wrong is said in the same words.
    words: list[str] = []
    for name, value in given.items():
        values = value if isinstance(value, list) else [value]
        words += [f"--{name.replace('_', '-')}", *map(str, values)]
    options = make_dataclass("Options", [(name, known[name]) for name in given])
    read = vars(tyro.cli(options, prog=f"{prog} --config {path}", args=words))
    absent = {
        option.name: tyro.MISSING
        for option in fields(config_type)  # type: ignore[arg-type]
        if option.default is option.default_factory is MISSING
    }
    return config_type(**absent | read)


def command_line(prog: str, config: Any) -> str:
    """The command that carries out ``config``, to be copied: its model, and what is no default.

    Options that are set must be single words or numbers.
    """
    words = prog.split()
    for option in fields(config):
        value = getattr(config, option.name)
        if option.name == "model" or value != option.default:
            words += [spelled(option.name), str(value)]
    return shlex.join(words)


def _load_libraries() -> None:
    """Load what takes seconds, and say so on a terminal; in a file it would only be in the way."""
    quiet_libraries()
    seen = here().first and sys.stderr.isatty()
    with stage(Console(stderr=True, quiet=not seen), "loading libraries"):
        import torch  # noqa: F401
        import transformers  # noqa: F401


@contextmanager
def plain_errors() -> Iterator[None]:
    """Errors raised on purpose, and files that the system refuses, end the command in one line.

    Where nobody reads what is printed any more (``| head -1``), the work goes on in silence.
    """
    try:
        with _outliving("stdout"), _outliving("stderr"):
            yield
    except SallyAnneError as error:
        sys.exit(f"error: {visible(error)}")
    except OSError as error:
        # Without a file it is not the user's to mend.
        if error.filename is None:
            raise
        name = os.fsdecode(error.filename) if isinstance(error.filename, bytes) else error.filename
        sys.exit("error: " + visible(f"{name}: {error.strerror}"))


def no_command(instead: str) -> NoReturn:
    """Say what to run, where somebody runs a module that does nothing by itself."""
    sys.exit(f"error: this module is no command; run sally-anne {instead}")


@contextmanager
def _outliving(name: str) -> Iterator[None]:
    """Put a stream of ``sys`` that outlives its reader in place of the one there."""
    before = getattr(sys, name)
    if before is None:  # closed by the shell, >&-
        yield
        return
    ours = _Outliving(before)
    setattr(sys, name, ours)
    try:
        yield
    finally:
        ours.flush()
        if getattr(sys, name) is ours:
            setattr(sys, name, before)


class _Outliving:
    """A stream that swallows what it is given once its reader has gone."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            return self._swallow(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._swallow("")

    def _swallow(self, text: str) -> int:
        # What the stream still holds goes there as well, now or when Python ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
        return len(text)
