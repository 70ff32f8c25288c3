"""Options by words and from files are checked before any work; errors end in one line."""

from __future__ import annotations

import errno
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
import tyro

from sally_anne.core.console import plain_errors
from sally_anne.core.errors import HookError, OptionError
from sally_anne.core.folder import save_config
from sally_anne.core.options import Natural, Positive, Seed, check_options, checked, read_options
from sally_anne.harness.config import EvalConfig
from sally_anne.probing.config import ProbeConfig
from sally_anne.steering.config import SweepConfig


@dataclass(frozen=True)
class Options:
    """Do something.

    Attributes:
        run: a folder.
        k: counts.
        c: positive.
        label: one of two.
        full: yes or no.
        out: a folder.
        batch_size: a count or a word.
        data_seed: a seed.
        layer: a number from 0.
        alpha: strengths.
    """

    run: tyro.conf.Positional[Path] = Path("r")
    k: Annotated[tuple[int, ...] | None, tyro.conf.arg(name="K")] = None
    c: Positive = 1.0
    label: Literal["y_p", "y_o"] = "y_p"
    full: bool = False
    out: Path | None = None
    batch_size: int | str = "auto"
    data_seed: Seed = 0
    layer: Natural = 0
    alpha: tuple[float, ...] | float | int | None = -2


INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batch_size": -3}, "--batch-size must be at least 1, got -3"),
        ({"data_seed": 2**32}, "--data-seed must be from 0 to 4294967295, got 4294967296"),
        ({"layer": -1}, "--layer must be at least 0, got -1"),
        ({"k": (4, 0)}, "--K must be at least 1, got 0"),
        ({"alpha": (1.0, NAN)}, "--alpha must be finite, got nan"),
        ({"alpha": -INF}, "--alpha must be finite, got -inf"),
        ({"c": INF}, "--c must be finite, got inf"),
        ({"c": -1.0}, "--c must be positive, got -1.0"),
        ({"c": "1"}, "--c must be a number, got '1'"),
        ({"data_seed": True}, "--data-seed must be a whole number, got True"),
        ({"layer": 1.5}, "--layer must be a whole number, got 1.5"),
        ({"k": ("4",)}, "--K must be a whole number or none, got '4'"),
        ({"out": 3}, "--out must be a path or none, got 3"),
        ({"label": "y"}, "--label must be one of y_p, y_o, got 'y'"),
    ],
)
def test_numbers_out_of_range_are_named(wrong: dict[str, Any], message: str) -> None:
    for right in ({}, {"batch_size": 1, "k": (1,), "alpha": (-3.0, 0.0), "data_seed": 2**32 - 1}):
        check_options(Options(**right))
    with pytest.raises(OptionError) as caught:
        check_options(Options(**wrong))
    assert str(caught.value) == message


def test_functions_check_their_arguments_in_the_same_way() -> None:
    @checked
    def function(text: str, n: int | Literal["auto"] = 1, more: Any = None) -> tuple[Any, ...]:
        return text, n, more

    assert function("a", np.int64(3), more=[1]) == ("a", 3, [1])
    assert function("a", "auto")[1] == "auto"
    for given, wrong in (
        ({"text": ["a"]}, "text must be a text, got"),
        ({"text": "a", "n": 0}, "n must be at least 1, got 0"),
        ({"text": "a", "n": "all"}, "n must be a whole number or one of auto, got 'all'"),
        ({"text": "a", "m": 1}, "unexpected keyword argument 'm'; it takes text, n, more"),
    ):
        with pytest.raises(OptionError, match=wrong):
            function(**given)


def read(*words: str) -> Options:
    with plain_errors():
        return read_options(Options, "sally-anne it", words)
    raise AssertionError


FILES = {
    "options.yaml": "run: a\nk: [1, 2]\nc: 1e-3\nlabel: y_o\nfull: true\n",
    "config.json": '{"config": {"run": "a", "k": [1, 2], "c": 0.001, "label": "y_o", "full": true,'
    ' "out": null}, "versions": {"torch": "2"}, "sha256": "0"}',
}


@pytest.mark.parametrize("name", FILES)
def test_options_from_a_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(FILES[name])
    given = tmp_path if name == "config.json" else path
    assert read("--config", str(given)) == Options(Path("a"), (1, 2), 0.001, "y_o", True)
    found = read(f"--config={given}", "b", "--K", "3", "--no-full", "--out", "o")
    assert found == Options(Path("b"), (3,), 0.001, "y_o", False, Path("o"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run: a\nkk: 3", "has no option 'kk'"),
        ("- run", "it holds a list"),
        ("run: [", "is damaged"),
        ("run: a\nc: -1", "--c must be positive, got -1.0"),
        ("r\0u\0n\0:\0 \0a\0", r"options\.yaml .*UTF-16 without"),
        (None, "is missing"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "options.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SystemExit, match=f"error: .*{message}"):
        read("--config", str(path))


@pytest.mark.parametrize(
    "config",
    [
        ProbeConfig(stories=20, c=0.1, figures=False, device="cpu"),
        EvalConfig(task="mimeqa", data=Path("d"), judge="a", judge_words=("YES", "NO")),
        SweepConfig(k=(1, 2), alpha=(-1.0, 2.5), order="2", decode_batch_size="auto", test=False),
    ],
    ids=lambda config: type(config).__name__,
)
def test_a_saved_run_is_repeated(tmp_path: Path, config: Any) -> None:
    save_config(tmp_path, asdict(config), model="m")
    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved["device"] and saved["dtype"] == "auto"
    assert saved["versions"].keys() >= {"python", "torch", "transformers", "numpy", "sally-anne"}
    assert read_options(type(config), "sally-anne it", ["--config", str(tmp_path)]) == config


def test_expected_errors_end_in_one_line_and_mistakes_of_ours_are_shown_whole() -> None:
    for error, line in (
        (HookError("this and that"), "error: this and that"),
        (PermissionError(errno.EACCES, "Not allowed", "a/b"), "error: a/b: Not allowed"),
    ):
        with pytest.raises(SystemExit) as ended, plain_errors():
            raise error
        assert ended.value.code == line
    for mistake in (ValueError("a mistake of ours"), BrokenPipeError(32, "pipe")):
        with pytest.raises(type(mistake)), plain_errors():
            raise mistake
