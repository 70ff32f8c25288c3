"""Options are checked by name before any work, and errors end a command in one line."""

from __future__ import annotations

import errno
from dataclasses import dataclass

import pytest

from sally_anne.core.console import plain_errors
from sally_anne.core.errors import HookError, OptionError
from sally_anne.core.options import Natural, Positive, Seed, check_options, flag_name, read_options


@dataclass(frozen=True)
class Options:
    """Some options.

    Attributes:
        model: a name.
        limit: a count.
        batch_size: a count or a word.
        seed: a seed.
        data_seed: another.
        talking_steps: steps.
        layer: a number from 0.
        memory_repeats: a number from 0.
        k: counts.
        alpha: strengths.
        c: positive.
        fall: a share.
        full: yes or no.
    """

    model: str = "m"
    limit: int | None = None
    batch_size: int | str = "auto"
    seed: Seed = 0
    data_seed: Seed = 0
    talking_steps: Natural = 0
    layer: Natural = 0
    memory_repeats: Natural = 0
    k: tuple[int, ...] | None = None
    alpha: tuple[float, ...] | float | int | None = -2
    c: Positive = 1.0
    fall: float | None = 0.0
    full: bool = False


INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"limit": 0}, "--limit must be at least 1, got 0"),
        ({"batch_size": -3}, "--batch-size must be at least 1, got -3"),
        ({"seed": -1}, "--seed must be from 0 to 4294967295, got -1"),
        ({"data_seed": 2**32}, "--data-seed must be from 0 to 4294967295, got 4294967296"),
        ({"talking_steps": -1}, "--talking-steps must be at least 0, got -1"),
        ({"layer": -1}, "--layer must be at least 0, got -1"),
        ({"memory_repeats": -1}, "--memory-repeats must be at least 0, got -1"),
        ({"k": (4, 0)}, "--K must be at least 1, got 0"),
        ({"alpha": (1.0, NAN)}, "--alpha must be finite, got nan"),
        ({"alpha": INF}, "--alpha must be finite, got inf"),
        ({"c": INF}, "--c must be finite, got inf"),
        ({"c": -1.0}, "--c must be positive, got -1.0"),
        ({"fall": -INF}, "--fall must be finite, got -inf"),
    ],
)
def test_numbers_out_of_range_are_named(wrong, message) -> None:
    with pytest.raises(OptionError) as caught:
        check_options(Options(**wrong))
    assert str(caught.value) == message


def test_numbers_in_range_pass() -> None:
    for right in ({}, {"limit": 1, "k": (1,), "alpha": (-3.0, 0.0), "seed": 2**32 - 1}):
        check_options(Options(**right))
    assert read_options(Options, "it", ["--limit", "2", "--full"]) == Options(limit=2, full=True)
    with pytest.raises(OptionError, match="--limit"):
        read_options(Options, "it", ["--limit", "0"])
    assert [flag_name(name) for name in ("k", "batch_size")] == ["--K", "--batch-size"]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (HookError("this and that"), "error: this and that"),
        (
            PermissionError(errno.EACCES, "Not allowed", "a/b"),
            "error: a/b: Not allowed",
        ),
        (IsADirectoryError(errno.EISDIR, "Is a directory", b"a/b"), "error: a/b: Is a directory"),
    ],
)
def test_expected_errors_end_in_one_line(error, line) -> None:
    with pytest.raises(SystemExit) as ended, plain_errors():
        raise error
    assert ended.value.code == line


@pytest.mark.parametrize("error", [ValueError("a mistake of ours"), BrokenPipeError(32, "pipe")])
def test_mistakes_of_ours_are_shown_whole(error) -> None:
    with pytest.raises(type(error)), plain_errors():
        raise error
