"""``sally-anne``: every command under one name, its help at once, its options from a file too."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import tyro

from sally_anne.cli import COMMANDS, main
from sally_anne.core.console import plain_errors
from sally_anne.core.folder import save_config
from sally_anne.core.options import Positive, read_options
from sally_anne.experiments.config import Table1Config
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.method_config import (
    BipAlmConfig,
    CopilotConfig,
    DistractorConfig,
    LimpConfig,
)
from sally_anne.probing.config import ProbeConfig
from sally_anne.steering.config import SideEffectsConfig, SweepConfig

ROOT = Path(__file__).parents[2]
HEAVY = {"torch", "transformers", "sklearn", "matplotlib"}


def help_of(*words: str) -> tuple[str, set[str]]:
    """What ``--help`` prints, and the packages that were loaded for it."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "sally_anne", *words, "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names = (line.rpartition("|")[2].strip() for line in done.stderr.splitlines())
    return done.stdout, {name.partition(".")[0] for name in names}


@pytest.mark.integration
def test_help_lists_all_commands_at_once() -> None:
    said, loaded = help_of()
    assert [line.split()[0] for line in said.splitlines() if line.startswith("  ")] == [*COMMANDS]
    assert max(map(len, said.splitlines())) <= 90
    assert "sally_anne" in loaded
    assert not loaded & (HEAVY | {"numpy", "tyro"})


@pytest.mark.integration
@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command_loads_nothing_heavy(name: str) -> None:
    said, loaded = help_of(name)
    assert said
    # The help of lm-eval is lm-eval's own.
    assert name == "lm-eval" or said.startswith(f"usage: sally-anne {name} ")
    assert "sally_anne" in loaded
    assert not loaded & HEAVY


def test_an_unknown_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["prob"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == "error: there is no command 'prob'; did you mean probe\n"


@dataclass(frozen=True)
class Options:
    """Do something.

    Attributes:
        run: a folder.
        k: numbers.
        c: a number.
        label: one of two.
        full: yes or no.
        out: a folder.
    """

    run: tyro.conf.Positional[Path]
    k: Annotated[tuple[int, ...] | None, tyro.conf.arg(name="K")] = None
    c: Positive = 1.0
    label: Literal["y_p", "y_o"] = "y_p"
    full: bool = False
    out: Path | None = None


def asked(*words: str) -> Options:
    """What a command is asked by these words."""
    with plain_errors():
        return read_options(Options, "sally-anne it", words)
    raise AssertionError


FILES = {
    "options.yaml": "run: a\nk: [1, 2]\nc: 1e-3\nlabel: y_o\nfull: true\n",
    "options.json": '{"run": "a", "k": [1, 2], "c": 0.001, "label": "y_o", "full": true}',
    "config.json": '{"config": {"run": "a", "k": [1, 2], "c": 0.001, "label": "y_o", "full": true,'
    ' "out": null}, "versions": {"torch": "2"}, "sha256": "0"}',
}


@pytest.mark.parametrize("name", FILES)
def test_options_from_a_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(FILES[name])
    given = tmp_path if name == "config.json" else path
    assert asked("--config", str(given)) == Options(Path("a"), (1, 2), 0.001, "y_o", True)
    found = asked(f"--config={given}", "b", "--K", "3", "--no-full", "--out", "o")
    assert found == Options(Path("b"), (3,), 0.001, "y_o", False, Path("o"))


@pytest.mark.parametrize(
    ("text", "status", "message"),
    [
        ("run: a\nkk: 3", None, "has no option 'kk'; it has run, k, c, label, full, out"),
        ("- run", None, "it holds a list, not options by their names"),
        ("run: [", None, "is damaged or another kind of file"),
        ("run: a\nc: -1", None, "--c must be positive, got -1.0"),
        ("run: a\nc: much", 2, "much"),
        ("c: 2", 2, "Missing from sally-anne it"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, capsys, text, status, message) -> None:
    path = tmp_path / "options.yaml"
    path.write_text(text)
    with pytest.raises(SystemExit) as ended:
        asked("--config", str(path))
    said = capsys.readouterr()
    if status is None:
        assert message in str(ended.value.code) and str(ended.value.code).startswith("error: ")
    else:
        assert ended.value.code == status
        assert re.search(message, said.out + said.err)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="config.json is missing"):
        asked("--config", str(tmp_path))


@pytest.mark.parametrize(
    "config",
    [
        ProbeConfig(stories=20, c=0.1, figures=False, device="cpu"),
        EvalConfig(task="mimeqa", data=Path("d"), judge="a", judge_words=("YES", "NO")),
        SweepConfig(k=(1, 2), alpha=(-1.0, 2.5), order="2", decode_batch_size="auto", test=False),
        LimpConfig(data=Path("d"), limit=3),
        BipAlmConfig(data=Path("d"), likelihood="judged"),
        DistractorConfig(data=Path("d"), seed=3),
        CopilotConfig(data=Path("d.jsonl"), checker="qwen3", rounds=2),
        SideEffectsConfig(vector=Path("v"), tasks=("gridtom-1",)),
        Table1Config(settings=("text",), orders=("2",)),
    ],
    ids=lambda config: type(config).__name__,
)
def test_a_saved_run_is_repeated(tmp_path: Path, config: Any) -> None:
    save_config(tmp_path, asdict(config), model="m")
    assert read_options(type(config), "sally-anne it", ["--config", str(tmp_path)]) == config
