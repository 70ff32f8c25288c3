"""``sally-anne recipe NAME``: a figure or table of the GridToM paper, by the commands that make it.

A recipe is a file in ``recipes``: what it ``shows``, what data it ``needs``, whether it asks
questions of ``second_order``, and its ``steps``. A step is a command with its options, or
``recipe`` with the name of another one, whose steps stand there. ``of`` are the words before the
options; ``{model}``, ``{data}``, ``{stories}`` and ``{out}`` are what the user gave, and an option
of which nothing was given is left out.
"""

from __future__ import annotations

import pkgutil
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import tyro
import yaml

from sally_anne.core.errors import OptionError
from sally_anne.core.options import option_words
from sally_anne.data.gridtom.release import open_stories
from sally_anne.models.options import ModelOptions

RECIPES = Path(__file__).parent / "recipes"
# Commands with --as-published.
TAKE_IT = ("probe", "sweep", "table1")


@dataclass(frozen=True)
class RecipeConfig(ModelOptions):
    """Make a figure or table of the GridToM paper, by the commands that it takes.

    Commands go on where they were stopped, and what is finished is not computed again.

    Attributes:
        name: of the recipe; without it all are listed.
        as_published: paper or released, of every command that takes it; by default only the
            contrast is the paper's. Questions that `evaluate` asks are then the authors', too.
        data: folder in the benchmark's own layout; GridToM's stories are generated if none is
            given.
        stories: only so many stories of a probing run, and of each split that is asked about.
        out: folder of all runs; recipes of one model share it, and what they have in common.
        dry_run: print the commands, with the folders of their results, and run none.
    """

    name: tyro.conf.Positional[str] = ""
    as_published: Literal["paper", "released"] | None = None
    data: Path | None = None
    stories: int | None = None
    out: Path | None = None
    dry_run: bool = False

    @property
    def folder(self) -> Path:
        few = "" if self.stories is None else f"-{self.stories}stories"
        as_it_was = "" if self.as_published is None else f"-as-{self.as_published}"
        return self.out or Path("runs") / "paper" / f"{Path(self.model).name}{as_it_was}{few}"


def recipes() -> dict[str, Mapping[str, Any]]:
    found = sorted(RECIPES.glob("*.yaml"))
    return {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in found}


def steps(config: RecipeConfig) -> list[list[str]]:
    """The commands of a recipe and their words; an OptionError if it is unknown or needs data."""
    known = recipes()
    if config.name not in known:
        raise OptionError(f"there is no recipe {config.name!r}: choose one of {', '.join(known)}")
    if config.data is None and (needs := known[config.name].get("needs")):
        raise OptionError(f"recipe {config.name} needs {needs}: give their folder with --data")
    given = {name: getattr(config, name) for name in ("model", "data", "stories")}
    given["out"] = config.folder
    absent = [f"{{{name}}}" for name, value in given.items() if value is None]
    # What else is said of the model goes wherever the model does.
    options_of = {one.name: one.default for one in fields(ModelOptions) if one.name != "model"}
    more = {n: getattr(config, n) for n, usual in options_of.items() if getattr(config, n) != usual}

    def words(value: Any) -> list[str]:
        texts = map(str, value if isinstance(value, list) else [value])
        return [text.format(**given) for text in texts if text not in absent]

    def commands(name: str) -> Iterator[list[str]]:
        for step in known[name]["steps"]:
            ((command, asked),) = step.items()
            if command == "recipe":
                yield from commands(asked)
                continue
            options = asked | (more if "model" in asked else {})
            if config.as_published and command == "evaluate":
                options |= {"protocol": "official", "split": "published"}
            elif config.as_published and command in TAKE_IT and "task" not in asked:
                options = {n: value for n, value in options.items() if n != "contrast"}
                options["as_published"] = config.as_published
            line = [command, *words(options.pop("of", []))]
            for option, value in options.items():
                if isinstance(value, bool):
                    line += option_words(option, value)
                elif said := words(value):
                    line += option_words(option, said)
            yield line

    return list(commands(config.name))


def run(config: RecipeConfig) -> None:
    """Run the steps one after the other, in this process; the first that fails ends it."""
    if not config.name:
        for name, recipe in recipes().items():
            print(f"{name:18}{recipe['shows']}")
        return
    found = steps(config)
    if config.data is not None and recipes()[config.name].get("second_order"):
        open_stories(config.data).check_order(2)
    # Called as by the user; what stands at the top is imported by nothing below.
    main = pkgutil.resolve_name("sally_anne.cli:main")
    for number, step in enumerate(found, 1):
        print(f"[{number}/{len(found)}] {shlex.join(['sally-anne', *step])}", flush=True)
        if not config.dry_run:
            main(step)
