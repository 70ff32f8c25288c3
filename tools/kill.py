"""Kill probe, sweep and evaluate with SIGKILL at random moments, and resume them.

    python tools/kill.py --kills 60

Every command that was killed is started again until it ends; then its folder must hold the bytes
of an uninterrupted run, and no journal a record twice. One process loads the libraries once and
forks every run. The first failure ends the script with an error.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import tempfile
import time
from multiprocessing.context import ForkProcess
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # a forked child has no worker threads
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch

from sally_anne.cli import main as sally_anne

TEXT = ["--model", "tiny-qwen2-vl", "--setting", "text"]
PROBE = ["probe", *TEXT, "--stories", "24", "--permutations", "20", "--pairs", "4"]
PROBE += ["--validation-pairs", "4", "--no-figures", "--out", "run"]
SWEEP = ["sweep", *TEXT, "--run", "PROBED", "--K", "2", "--alpha", "1", "5"]
SWEEP += ["--limit", "12", "--random-controls", "2", "--leave-out", "0"]
SWEEP += ["--batch-size", "4", "--out", "run"]
EVALUATE = ["evaluate", *TEXT, "--limit", "48", "--batch-size", "2", "--out", "run"]
COMMANDS = {"probe": PROBE, "sweep": SWEEP, "evaluate": EVALUATE}


def _run(folder: Path, words: list[str]) -> None:
    os.chdir(folder)
    with open("log", "wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    sally_anne(words)


def start(folder: Path, words: list[str]) -> ForkProcess:
    """Fork a run in a folder; its output goes to ``log``."""
    folder.mkdir(parents=True, exist_ok=True)
    child = ForkProcess(target=_run, args=(folder, words))
    child.start()
    return child


def ended(child: ForkProcess, folder: Path, *allowed: int) -> bool:
    """Whether a run came to its end; another exit code than 0 or those allowed ends the script."""
    child.join()
    if child.exitcode not in (0, *allowed):
        raise SystemExit(f"FAILED: {(folder / 'log').read_text()}")
    return child.exitcode == 0


def require(condition: object, message: str) -> None:
    """End the script if a condition does not hold."""
    if not condition:
        raise SystemExit(f"FAILED: {message}")


def contents(run: Path) -> dict[str, bytes]:
    """The files of a run folder by name, but for empty lock files."""
    files = (path for path in run.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


def check_same(folder: Path) -> None:
    """That a resumed run holds the bytes of the uninterrupted one, and no record twice."""
    run = folder / "run"
    found, expected = contents(run), contents(folder / "reference")
    other = sorted(n for n in found | expected if found.get(n) != expected.get(n))
    require(not other, f"{run}: {', '.join(other)} are not the bytes of an uninterrupted run")
    for journal in run.rglob("*.jsonl"):
        lines = map(json.loads, journal.read_text(encoding="utf-8").splitlines())
        keys = [json.dumps(line, sort_keys=True) for line in lines]
        require(len(set(keys)) == len(keys), f"{journal} holds a record twice")
    shutil.rmtree(run)


def kill(name: str, home: Path, kills: int, seconds: float, chance: random.Random) -> None:
    """Kill runs of a command at random moments until so many were killed."""
    words, done = COMMANDS[name], 0
    while done < kills:
        folder, survived, whole = home / name, 0, False
        while not whole:
            child = start(folder, words)
            # Longer after every kill, so that a slow machine ends as well.
            time.sleep(chance.uniform(0, 0.8) * seconds * 1.2**survived)
            child.kill()
            whole = ended(child, folder, -signal.SIGKILL)
            survived += not whole
            if done + survived >= kills and not whole:
                whole = ended(start(folder, words), folder)
        check_same(folder)
        done += survived
        print(f"{name}: {done} of {kills} kills, as if uninterrupted", flush=True)


def main() -> None:
    """Do all of this."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=60, help="of all commands together")
    kills = parser.parse_args().kills
    torch.set_num_threads(1)
    chance = random.Random(0)
    with tempfile.TemporaryDirectory(prefix="kill-") as folder:
        home = Path(folder)
        SWEEP[SWEEP.index("PROBED")] = str(home / "probe" / "reference")
        seconds = {}
        for name in COMMANDS:
            begun = time.perf_counter()
            ended(start(home / name, COMMANDS[name]), home / name)
            seconds[name] = time.perf_counter() - begun
            (home / name / "run").rename(home / name / "reference")
            print(f"{name}: {seconds[name]:.1f} s without interruption", flush=True)
        for number, name in enumerate(COMMANDS):
            share = len(range(number, kills, len(COMMANDS)))
            kill(name, home, share, seconds[name], chance)


if __name__ == "__main__":
    main()
