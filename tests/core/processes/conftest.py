"""A tiny model that says something, and each command's result from a single process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from sally_anne.harness.evaluate import run as evaluate
from sally_anne.probing.pipeline import run as probe
from sally_anne.steering.sweep import run as sweep
from tests.core.processes.commands import config_of


@pytest.fixture(scope="session")
def options(model_folder: Path) -> dict[str, dict[str, Any]]:
    """What each command is asked to do; folders are relative, as their names are saved."""
    model = {"model": str(model_folder), "setting": "text"}
    return {
        "probe": {
            **model,
            "stories": 24,
            "figures": False,
            "permutations": 19,
            "patching": False,
            "out": "probes",
        },
        "evaluate": {**model, "limit": 7, "options": True, "batch_size": 4, "out": "answers"},
        "sweep": {
            **model,
            "run": "old-probes",
            "k": [2],
            "alpha": [5.0, 50.0],
            "limit": 4,
            "max_initial_drop": 0.02,
            "random_controls": 1,
            "batch_size": 2,
            "decode_batch_size": 4,
            "max_new_tokens": 4,
            "out": "sweep",
        },
    }


@pytest.fixture(scope="session")
def alone(
    tmp_path_factory: pytest.TempPathFactory, options: dict[str, dict[str, Any]]
) -> Iterator[Path]:
    """The folder in which one process has carried out all of them: look, but do not touch."""
    folder = tmp_path_factory.mktemp("alone")
    before, threads = Path.cwd(), torch.get_num_threads()
    os.chdir(folder)
    # As each of several processes: sums over many numbers may depend on it.
    torch.set_num_threads(1)
    try:
        quiet = Console(quiet=True)
        probe(config_of("probe", options["probe"]), quiet)
        (folder / "old-probes").symlink_to("probes")
        evaluate(config_of("evaluate", options["evaluate"]))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "sally_anne.steering.points.Measure.nothing_to_choose", lambda *arguments: ""
            )
            sweep(config_of("sweep", options["sweep"]), quiet)
    finally:
        torch.set_num_threads(threads)
        os.chdir(before)
    yield folder
