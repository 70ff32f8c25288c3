"""Commands started by a launcher leave the bytes of a single process, also after a kill."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from sally_anne.core.store import ActivationStore
from tests.core.conftest import contents

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).with_name("commands.py")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
        reason="this torch has no gloo, by which processes meet",
    ),
]


def launch(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    }
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**environment, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture(scope="module")
def killed(
    alone: Path, options: dict[str, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Three processes evaluated, swept, and lost one of them while they extracted."""
    folder = tmp_path_factory.mktemp("killed") / "run"
    folder.mkdir()
    shutil.copytree(alone / "probes", folder / "old-probes")
    configs = [
        ("evaluate", options["evaluate"]),
        ("sweep", options["sweep"]),
        ("probe", options["probe"]),
    ]
    plan = folder.with_suffix(".json")
    plan.write_text(json.dumps({"configs": configs, "kill": [2, 2]}))
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
    ended = launch([*launcher, str(SCRIPT), str(plan)], folder)
    assert ended.returncode, ended.stdout
    assert "exitcode  : -9" in ended.stderr, ended.stderr
    for said in ("run folder: answers", "report: sweep"):
        assert ended.stdout.count(said) == 1, ended.stdout
    # The killed process alone has finished two.
    store = folder / "probes" / "activations"
    assert len(list(store.glob("shard-*"))) >= 2 and ActivationStore.open(store).pending()
    return folder


@pytest.mark.parametrize("results", ["answers", "sweep"])
def test_three_processes_leave_the_bytes_of_one(alone: Path, killed: Path, results: str) -> None:
    assert contents(killed / results) == contents(alone / results)


def test_two_other_processes_go_on(
    alone: Path, killed: Path, options: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    """By the command itself, as a user starts it."""
    shutil.copytree(killed / "probes", tmp_path / "probes")
    launcher = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    launcher += ["--main_process_port", "0", "-m", "sally_anne.probing.run"]
    given = options["probe"]
    command = ["--model", given["model"], "--setting", "text", "--stories", str(given["stories"])]
    command += ["--permutations", str(given["permutations"]), "--no-patching"]
    done = launch([*launcher, *command, "--no-figures", "--out", given["out"]], tmp_path)
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "probes") == contents(alone / "probes")
    assert done.stdout.count("run folder: probes") == 1
