"""Commands started by a launcher leave the bytes of a single process, also after a kill."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from sally_anne.core.folder import Journal
from sally_anne.core.store import ActivationStore
from sally_anne.probing.pipeline import run
from sally_anne.steering.sweep import run as sweep
from tests.core.processes.commands import config_of

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).with_name("commands.py")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
        reason="this torch has no gloo, by which processes meet",
    ),
]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def launch(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    }
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={
            **environment,
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
        },
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
    for said in ("run folder: answers", "sweep folder: sweep"):
        assert ended.stdout.count(said) == 1, ended.stdout
    (folder.parent / "told.txt").write_text(ended.stdout)
    return folder


@pytest.mark.parametrize("results", ["answers", "sweep"])
def test_three_processes_leave_the_bytes_of_one(alone: Path, killed: Path, results: str) -> None:
    assert contents(killed / results) == contents(alone / results)


@pytest.mark.parametrize("kept", [1, 9])
def test_a_sweep_that_was_broken_off_leaves_the_same_bytes(
    alone: Path,
    options: dict[str, dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kept: int,
) -> None:
    (tmp_path / "old-probes").symlink_to(alone / "probes")
    monkeypatch.chdir(tmp_path)
    config, quiet = config_of("sweep", options["sweep"]), Console(file=io.StringIO())
    add, left = Journal.add, iter(range(kept))

    def broken(self: Journal, answers: Any) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        add(self, answers)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Journal, "add", broken)
            sweep(config, quiet)
        sweep(config, quiet)
    finally:
        torch.set_num_threads(threads)
    assert contents(tmp_path / "sweep") == contents(alone / "sweep")


def test_what_was_extracted_before_a_kill_is_kept(killed: Path) -> None:
    store = killed / "probes" / "activations"
    assert not (killed / "probes" / "config.json").exists()
    # The killed process alone has finished two.
    assert len(list(store.glob("shard-*"))) >= 2
    assert ActivationStore.open(store).pending()


def test_one_process_goes_on(
    alone: Path,
    killed: Path,
    options: dict[str, dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copytree(killed / "probes", tmp_path / "probes")
    monkeypatch.chdir(tmp_path)
    run(config_of("probe", options["probe"]), Console(file=io.StringIO()))
    assert contents(tmp_path / "probes") == contents(alone / "probes")


def test_two_processes_go_on(
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
