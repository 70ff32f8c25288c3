"""``sally-anne recipe``: every step is one that its command takes, and what is done stays done."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from sally_anne.cli import COMMANDS, main, options
from sally_anne.experiments.config import Table1Config
from sally_anne.experiments.recipe import RecipeConfig, recipes, steps
from sally_anne.models.options import ModelOptions
from sally_anne.steering.config import SweepConfig

NAMES = tuple(recipes())


@pytest.mark.parametrize("few", [None, 7])
@pytest.mark.parametrize("name", NAMES)
def test_every_step_is_taken_by_its_command(
    name: str, few: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        if not COMMANDS[step.command].config:
            continue
        given = options(step.command, step.words)
        if isinstance(given, ModelOptions):
            assert (given.model, given.device_map, given.dtype) == (
                "qwen2-vl",
                "auto",
                "bfloat16",
            )
            assert given.data == asked.data  # type: ignore[attr-defined]
            limit = "stories" if step.command == "probe" else "limit"
            known = getattr(given, "task", "gridtom") == "gridtom"
            assert getattr(given, limit) == (few if known else None)
            assert given.folder.is_relative_to(asked.folder)  # type: ignore[attr-defined]
            made.append(given.folder)  # type: ignore[attr-defined]
        else:
            # It draws what steps before it have made.
            assert set(given.runs if step.command == "report" else [given.run]) <= set(made)
    assert made


def test_the_sweep_of_figures_15_to_18_is_a_part_of_table_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = RecipeConfig(name="table-1", stories=3, out=tmp_path)
    (step,) = steps(asked)
    table = options(step.command, step.words)
    shared = {field.name for field in fields(SweepConfig)} & {f.name for f in fields(Table1Config)}
    own = SweepConfig(**{name: getattr(table, name) for name in shared})
    part = replace(own, setting="multimodal", order="1", out=table.folder / "order1-multimodal")
    first, _ = steps(replace(asked, name="figures-15-to-18"))
    assert options(first.command, first.words) == part


@pytest.mark.parametrize("name", NAMES)
def test_a_dry_run_prints_the_commands_and_runs_none(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["recipe", name, "--dry-run", "--data", "here", "--stories", "5"])
    lines = capsys.readouterr().out.splitlines()
    own = steps(RecipeConfig(name=name, data=Path("here"), stories=5))
    assert lines == [f"[{n}/{len(own)}] {step}" for n, step in enumerate(own, 1)]
    assert all("runs/paper/tiny-qwen2-vl-5stories" in line for line in lines)
    assert not list(tmp_path.iterdir())


@pytest.mark.integration
def test_a_recipe_runs_and_what_is_done_is_not_done_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["recipe", "table-3", "--stories", "1", "--out", str(tmp_path)]
    main(words)
    first = capsys.readouterr().out
    assert first.startswith("[1/1] sally-anne evaluate ") and "%" in first
    kept = tmp_path / "initial-belief" / "answers.jsonl"
    before = kept.stat().st_mtime_ns, kept.read_bytes()
    main(words)
    assert (kept.stat().st_mtime_ns, kept.read_bytes()) == before
    main(["table", str(kept.parent)])
    assert "overall" in capsys.readouterr().out
