"""``sally-anne recipe NAME``: a figure or table of the GridToM paper, by the commands that make it.

A recipe is a file in ``recipes``: what it ``shows``, what data it ``needs``, and its ``steps``. A
step is a command with its options, or ``recipe`` with the name of another one, whose steps stand
there. ``of`` are the words before the options; ``{model}``, ``{data}``, ``{stories}`` and ``{out}``
are what the user gave, and an option of which nothing was given is left out.
"""

from __future__ import annotations

import pkgutil
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import tyro
import yaml

from sally_anne.core.errors import OptionError
from sally_anne.core.options import flag_name
from sally_anne.models.options import ModelOptions

RECIPES = Path(__file__).parent / "recipes"
# A command is called as by the user; what stands at the top is imported by nothing below.
_MAIN = "sally_anne.cli:main"


@dataclass(frozen=True)
class RecipeConfig(ModelOptions):
    """Make a figure or table of the GridToM paper, by the commands that it takes.

    Commands go on where they were stopped, and what is finished is not computed again.

    Attributes:
        name: of the recipe; without it all are listed.
        data: folder in the benchmark's own layout; GridToM's stories are generated if none is
            given.
        stories: only so many stories of a probing run, and of each split that is asked about.
        out: folder of all runs; recipes of one model share it, and what they have in common.
        dry_run: print the commands, with the folders of their results, and run none.
    """

    name: tyro.conf.Positional[str] = ""
    data: Path | None = None
    stories: int | None = None
    out: Path | None = None
    dry_run: bool = False

    @property
    def folder(self) -> Path:
        """Where the runs are kept."""
        few = "" if self.stories is None else f"-{self.stories}stories"
        return self.out or Path("runs") / "paper" / f"{Path(self.model).name}{few}"


def recipes() -> dict[str, Mapping[str, Any]]:
    """All recipes, by their names."""
    found = sorted(RECIPES.glob("*.yaml"))
    return {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in found}


def steps(config: RecipeConfig) -> list[list[str]]:
    """The commands of a recipe and their words; an OptionError if it is unknown or needs data."""
    known = recipes()
    if config.name not in known:
        raise OptionError(f"there is no recipe {config.name!r}: choose one of {', '.join(known)}")
    if config.data is None and (needs := known[config.name].get("needs")):
        raise OptionError(f"recipe {config.name} needs {needs}: give their folder with --data")
    return list(_steps(config, config.name, known))


def _steps(
    config: RecipeConfig, name: str, known: Mapping[str, Mapping[str, Any]]
) -> Iterator[list[str]]:
    for step in known[name]["steps"]:
        ((command, asked),) = step.items()
        if command == "recipe":
            yield from _steps(config, asked, known)
            continue
        options = dict(asked)
        if "model" in options:
            # What else is said of the model goes wherever the model does.
            options |= {
                option.name: value
                for option in fields(ModelOptions)
                if option.name != "model"
                and (value := getattr(config, option.name)) != option.default
            }
        words = _said(config, options.pop("of", []))
        for option, value in options.items():
            if isinstance(value, bool):
                words.append(flag_name(option if value else f"no-{option}"))
            elif given := _said(config, value):
                words += [flag_name(option), *given]
        yield [command, *words]


def _said(config: RecipeConfig, value: Any) -> list[str]:
    """The words of a value, or of several; none where it stands for what was not given."""
    if isinstance(value, list):
        return [word for one in value for word in _said(config, one)]
    given = {name: getattr(config, name) for name in ("model", "data", "stories")}
    given["out"] = config.folder
    named = str(value)[1:-1] if str(value).startswith("{") and str(value).endswith("}") else None
    if named in given and given[named] is None:
        return []
    return [str(value).format(**given)]


def run(config: RecipeConfig) -> None:
    """Run the steps one after the other, in this process; the first that fails ends it."""
    if not config.name:
        for name, recipe in recipes().items():
            print(f"{name:18}{recipe['shows']}")
        return
    found = steps(config)
    main = pkgutil.resolve_name(_MAIN)
    for number, step in enumerate(found, 1):
        print(f"[{number}/{len(found)}] {shlex.join(['sally-anne', *step])}", flush=True)
        if not config.dry_run:
            main(step)
