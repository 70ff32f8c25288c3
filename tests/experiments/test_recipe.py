"""``sally-anne recipe``: every step is one that its command takes, and what is done stays done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sally_anne.cli import COMMANDS, main, options
from sally_anne.core.errors import OptionError
from sally_anne.data.gridtom.samples import AS_PUBLISHED
from sally_anne.experiments.recipe import RecipeConfig, recipes, steps
from sally_anne.models.options import ModelOptions


@pytest.mark.parametrize("which", AS_PUBLISHED)
@pytest.mark.parametrize("command", ["probe", "sweep", "table1"])
def test_defaults_as_published_give_way_to_what_is_given(command: str, which: str) -> None:
    found = options(command, ["--as-published", which, "--normalise", "--model=llava-next-video"])
    own = {n: v for n, v in AS_PUBLISHED[which].items() if hasattr(found, n)} | {"normalise": True}
    own["crop"] = which == "released"
    assert {name: getattr(found, name) for name in own} == own
    assert found == type(found).as_published(which, model="llava-next-video", normalise=True)
    if command != "table1":
        with pytest.raises(OptionError, match="--as-published"):
            options(command, ["--as-published", which, "--task", "ioi"])


@pytest.mark.parametrize("which", [None, *AS_PUBLISHED])
@pytest.mark.parametrize("name", recipes())
def test_every_step_is_taken_by_its_command(name: str, which: Any, tmp_path: Path) -> None:
    few, data, out = 7, tmp_path / "my data", tmp_path / "out"
    about: Any = {"model": "qwen2-vl", "device_map": "auto", "dtype": "bfloat16"}
    given = about | {"data": data, "stories": few, "out": out, "as_published": which}
    asked = RecipeConfig(name=name, **given)
    made: list[Path] = []
    for step in steps(asked):
        if not COMMANDS[step[0]].config:
            continue
        given = options(step[0], step[1:])
        if isinstance(given, ModelOptions):
            known = getattr(given, "task", "gridtom") == "gridtom"
            if which and known and hasattr(given, "contrast"):
                assert given.contrast == which
            assert {name: getattr(given, name) for name in about} == about
            assert given.data == data
            limit = "stories" if step[0] == "probe" else "limit"
            assert getattr(given, limit) == (few if known else None)
            made.append(given.folder)
        else:
            # It draws what steps before it have made.
            assert set(given.runs if step[0] == "report" else [given.run]) <= set(made)
    assert made and all(folder.is_relative_to(out) for folder in made)


@pytest.mark.integration
def test_a_recipe_runs_and_what_is_done_is_not_done_again(tmp_path: Path, capsys: Any) -> None:
    words = ["recipe", "table-3", "--stories", "1", "--out", str(tmp_path)]
    main([*words, "--dry-run"])
    assert not list(tmp_path.iterdir())
    main(words)
    dry, first, *_ = capsys.readouterr().out.splitlines()
    assert dry == first and first.startswith("[1/1] sally-anne evaluate ")
    kept = tmp_path / "initial-belief" / "answers.jsonl"
    before = kept.stat().st_mtime_ns, kept.read_bytes()
    main(words)
    assert (kept.stat().st_mtime_ns, kept.read_bytes()) == before
    main(["table", str(kept.parent)])
    assert "overall" in capsys.readouterr().out
