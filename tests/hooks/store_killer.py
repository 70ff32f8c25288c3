"""Runs a small extraction again and again, killing it with SIGKILL at random moments.

    python store_killer.py FOLDER KILLS

Writes FOLDER/reference without interruption, then FOLDER/killed-0, -1, ... until KILLS runs were
killed, each resumed until it is complete. Prints one JSON line with the kills each store survived.

A process of its own that loads torch once and forks every run: fifty interpreters would take
minutes to start.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import pandas as pd
import torch

from sally_anne.hooks.store import ActivationStore, StoreMeta

N_ITEMS = 48
META = StoreMeta("head_out", "last_prompt", "synthetic", "0", "p", "q", "float32", 4, 2, 8)


def plan() -> list[list[int]]:
    """Batches of three items in mixed order, so that a shard waits for several of them."""
    order = list(range(N_ITEMS))
    random.Random(7).shuffle(order)
    return [order[start : start + 3] for start in range(0, N_ITEMS, 3)]


def extract(folder: Path, pause: float) -> None:
    batches = plan()
    items = pd.DataFrame({"item_id": [f"item-{i}" for i in range(N_ITEMS)], "y_p": 1})
    with ActivationStore.open_or_create(folder, META, items, batches) as store:
        for b in store.pending():
            time.sleep(pause)
            rows = [
                torch.randn(4, 2, 8, generator=torch.Generator().manual_seed(row))
                for row in batches[b]
            ]
            store.write_batch(b, torch.stack(rows))
        store.finish()


def run_and_kill(folder: Path, delay: float) -> bool:
    """Whether the run ended by itself before it was killed."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            extract(folder, pause=0.003)
            status = 0
        finally:
            os._exit(status)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit(f"the run on {folder} failed instead of being killed")
    return os.WIFEXITED(status)


def main(folder: Path, kills: int) -> None:
    torch.set_num_threads(1)  # a forked child has no worker threads
    extract(folder / "reference", pause=0)
    start = time.perf_counter()
    extract(folder / "timed", pause=0.003)
    whole = time.perf_counter() - start
    chance = random.Random(0)
    survived: list[int] = []
    while sum(survived) < kills:
        survived.append(0)
        store = folder / f"killed-{len(survived) - 1}"
        # Longer with every kill: a machine that turned busy after the timing must get on, too.
        while not run_and_kill(store, chance.uniform(0, 0.6) * whole * 1.1 ** survived[-1]):
            survived[-1] += 1
    print(json.dumps(survived))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
