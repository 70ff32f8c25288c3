"""``sally-anne recipe``: every step is one that its command takes, and what is done stays done."""

from __future__ import annotations

from pathlib import Path

import pytest

from sally_anne.cli import COMMANDS, main, options
from sally_anne.experiments.recipe import RecipeConfig, recipes, steps
from sally_anne.models.options import ModelOptions


@pytest.mark.parametrize("name", recipes())
def test_every_step_is_taken_by_its_command(name: str, tmp_path: Path) -> None:
    few = 7
    asked = RecipeConfig(
        name=name,
        model="qwen2-vl",
        device_map="auto",
        dtype="bfloat16",
        data=tmp_path / "my data",
        stories=few,
        out=tmp_path / "out",
    )
    found = steps(asked)
    made: list[Path] = []
    for step in found:
        if not COMMANDS[step[0]].config:
            continue
        given = options(step[0], step[1:])
        if isinstance(given, ModelOptions):
            assert (given.model, given.device_map, given.dtype) == (
                "qwen2-vl",
                "auto",
                "bfloat16",
            )
            assert given.data == asked.data  # type: ignore[attr-defined]
            limit = "stories" if step[0] == "probe" else "limit"
            known = getattr(given, "task", "gridtom") == "gridtom"
            assert getattr(given, limit) == (few if known else None)
            assert given.folder.is_relative_to(asked.folder)  # type: ignore[attr-defined]
            made.append(given.folder)  # type: ignore[attr-defined]
        else:
            # It draws what steps before it have made.
            assert set(given.runs if step[0] == "report" else [given.run]) <= set(made)
    assert made


@pytest.mark.integration
def test_a_recipe_runs_and_what_is_done_is_not_done_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
