"""Kill probe, sweep and evaluate with SIGKILL at random moments, and resume them.

    python tools/kill.py 60

Every command that was killed is started again until it ends; then its folder must hold the bytes
of an uninterrupted run, and no journal a record twice. One process loads the libraries once and
forks every run. The first failure ends the script with an error.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from multiprocessing.context import ForkProcess
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # a forked child has no worker threads
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch

from sally_anne.cli import main as sally_anne

TEXT = "--model tiny-qwen2-vl --setting text --out run"
PROBE = f"probe {TEXT} --stories 24 --permutations 20 --pairs 4 --validation-pairs 4 --no-figures"
SWEEP = f"sweep {TEXT} --run ../probe/reference --K 2 --alpha 1 5 --limit 12 --batch-size 4"
SWEEP += " --random-controls 2 --leave-out 0"
EVALUATE = f"evaluate {TEXT} --limit 48 --batch-size 2"


def work(folder: Path, words: str) -> None:
    """Run a command in a folder; its output goes to ``log``."""
    os.chdir(folder)
    with open("log", "wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    sally_anne(words.split())


def ended(folder: Path, words: str, seconds: float | None = None) -> bool:
    """Whether a run came to its end before it was killed; an error of its own ends the script."""
    child = ForkProcess(target=work, args=(folder, words))
    child.start()
    if seconds is not None:
        time.sleep(seconds)
        child.kill()
    child.join()
    if child.exitcode and (seconds is None or child.exitcode != -signal.SIGKILL):
        raise SystemExit(f"FAILED: {(folder / 'log').read_text()}")
    return child.exitcode == 0


def check_same(folder: Path) -> None:
    """That a resumed run holds the bytes of the uninterrupted one, and no record twice."""
    kept = []
    for home in (folder / "run", folder / "reference"):
        files = (path for path in home.rglob("*") if path.is_file() and path.name != ".lock")
        kept.append({str(path.relative_to(home)): path.read_bytes() for path in files})
    found, expected = kept
    if other := sorted(n for n in found | expected if found.get(n) != expected.get(n)):
        raise SystemExit(f"FAILED: {folder}: {other} are not the bytes of an uninterrupted run")
    for journal in (folder / "run").rglob("*.jsonl"):
        lines = map(json.loads, journal.read_text(encoding="utf-8").splitlines())
        keys = [json.dumps(line, sort_keys=True) for line in lines]
        if len(set(keys)) < len(keys):
            raise SystemExit(f"FAILED: {journal} holds a record twice")
    shutil.rmtree(folder / "run")


def kill(folder: Path, words: str, kills: int, chance: random.Random) -> None:
    """Kill runs of a command at random moments until so many were killed."""
    folder.mkdir()
    begun, done = time.perf_counter(), 0
    ended(folder, words)
    seconds = time.perf_counter() - begun
    (folder / "run").rename(folder / "reference")
    while done < kills:
        survived = 0
        # Longer after every kill, so that a slow machine ends as well.
        while not ended(folder, words, chance.uniform(0, 0.8) * seconds * 1.2**survived):
            survived += 1
            if done + survived >= kills:
                ended(folder, words)
                break
        check_same(folder)
        done += survived
        print(f"{folder.name}: {done} of {kills} kills, as if uninterrupted", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    draw = random.Random(0)
    with tempfile.TemporaryDirectory(prefix="kill-") as made:
        for command in (PROBE, SWEEP, EVALUATE):
            kill(Path(made) / command.split()[0], command, int(sys.argv[1]) // 3, draw)
