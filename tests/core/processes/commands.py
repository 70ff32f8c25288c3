"""Several commands in one process, as a launcher starts them: loading torch takes longer than they.

    torchrun --nproc-per-node N commands.py PLAN

PLAN is a JSON file: `configs` are pairs of a command's name and its options, and `kill` is a rank
and the number of an extraction's batches that this process finishes before it kills itself.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from torch import Tensor

from sally_anne.core.processes import here
from sally_anne.core.store import ActivationStore
from sally_anne.harness import evaluate
from sally_anne.harness.config import EvalConfig
from sally_anne.probing import pipeline
from sally_anne.probing.config import ProbeConfig
from sally_anne.steering import sweep
from sally_anne.steering.config import SweepConfig
from sally_anne.steering.points import Measure

CONFIGS = {"probe": ProbeConfig, "evaluate": EvalConfig, "sweep": SweepConfig}
RUNS: dict[str, Any] = {"probe": pipeline.main, "evaluate": evaluate.run, "sweep": sweep.run}


def config_of(name: str, options: dict[str, Any]) -> Any:
    """A command's options; what is a list in JSON is a tuple there, and folders are paths."""
    read = {
        key: tuple(value) if isinstance(value, list) else value for key, value in options.items()
    }
    for key in ("out", "run"):
        if key in read:
            read[key] = Path(read[key])
    return CONFIGS[name](**read)


def die_after(batches: int) -> None:
    """Let this process finish so many batches of a store, and then end as by `kill -9`."""
    write, left = ActivationStore.write_batch, batches

    def dying(self: ActivationStore, b: int, activations: Tensor) -> None:
        nonlocal left
        write(self, b, activations)
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    ActivationStore.write_batch = dying  # type: ignore[method-assign]


def write_no_results() -> None:
    """All but the first process leave probes, tables and choices to it."""

    def refuse(*arguments: Any) -> None:
        raise AssertionError(f"process {os.environ['RANK']} writes results")

    evaluate.save = refuse
    pipeline._probe = refuse  # type: ignore[assignment]
    sweep.save = refuse


def main(plan: dict[str, Any]) -> None:
    own = int(os.environ["RANK"])
    rank, batches = plan["kill"]
    if own == rank:
        die_after(batches)
    processes = here()
    told = processes.all_min(10 - own)
    assert told == 11 - processes.count, f"process {own} was told {told}"
    if own:
        write_no_results()
    # An untrained model gains nothing by steering.
    Measure.nothing_to_choose = lambda *arguments: ""  # type: ignore[method-assign]
    for name, options in plan["configs"]:
        RUNS[name](config_of(name, options))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
