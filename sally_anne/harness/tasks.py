"""The benchmarks that the harness knows by name, besides GridToM."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from sally_anne.benchmarks.items import Benchmark

Task = Literal["gridtom", "moments", "mmtom_qa", "muma_tom", "mimeqa", "bigtom"]
# Modules are imported when they are asked for, so that --help answers at once.
_PLACES: dict[str, str] = {
    name: f"sally_anne.benchmarks.{name}:{name.upper()}"
    for name in ("moments", "mmtom_qa", "muma_tom", "mimeqa", "bigtom")
}


def benchmark(task: str) -> Benchmark:
    """A benchmark by its name.

    Raises:
        KeyError: there is none of this name.
    """
    module, name = _PLACES[task].split(":")
    return getattr(importlib.import_module(module), name)


def reply_tokens(task: str, style: str = "plain") -> int:
    """How many tokens replies need; those that talk on before they answer are not cut off."""
    if task == "gridtom":
        return 64 if style == "json" else 16
    return 128 if benchmark(task).open_ended else 32
