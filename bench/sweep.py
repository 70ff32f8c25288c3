"""``python -m bench.sweep``: what a sweep costs, in evaluation passes.

Contenders, on the same items and the same loaded model:

- one pass: every item once, not steered, as ``sally_anne.harness.run`` does it;
- the sweep with 15 and with 45 cells;
- the released procedure, re-implemented plainly: for each cell every item alone, prompt and frames
  read anew, ``model.generate`` with a hook. Measured on a few cells and multiplied.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sally_anne.core.commands import plain_errors, read_options
from sally_anne.core.options import check_options
from sally_anne.data.items import Setting
from sally_anne.models.options import DEFAULT_MODEL

GRIDS = {
    15: ((4, 8, 14), (-10.0, -5.0, 0.0, 5.0, 10.0)),
    45: ((2, 4, 8, 14, 28), (-20.0, -15.0, -10.0, -5.0, 0.0, 5.0, 10.0, 15.0, 20.0)),
}


@dataclass(frozen=True)
class SweepPerfConfig:
    """Time sweeps against one evaluation pass.

    Attributes:
        model: catalogue name, hub id or folder.
        setting: what the model is given.
        stories: number of stories; two items each.
        repeats: runs of each contender; medians are compared.
        peer_cells: cells of the released procedure that are really run.
        batch_size: prompts that are read together.
        rows: answers that are given together.
    """

    model: str = DEFAULT_MODEL
    setting: Setting = "multimodal"
    stories: int = 24
    repeats: int = 3
    peer_cells: int = 1
    batch_size: int = 8
    rows: int = 128


def check(config: SweepPerfConfig) -> None:
    """What is wrong with the options.

    Raises:
        PerfError: names them.
    """
    check_options(config)


def measure(config: SweepPerfConfig) -> dict[str, Any]:
    """Raw and median seconds of each contender, their ratios to one pass, and peak memory in MB.

    Raises:
        PerfError: an option is wrong.
    """
    check(config)
    import torch

    from bench.random_sweeps import random_vector, run_once
    from sally_anne.data.gridtom.stories import generated
    from sally_anne.harness.evaluate import prompt_of
    from sally_anne.harness.gridtom import items
    from sally_anne.harness.model import SteeredModel
    from sally_anne.hooks.batch_size import in_batches
    from sally_anne.hooks.geometry import find_geometry
    from sally_anne.hooks.vector import SteeringVector
    from sally_anne.models.loading import load_model
    from sally_anne.models.prompts import encode, reply_prompt
    from sally_anne.steering.cells import cells, vectors_of

    loaded = load_model(config.model)
    geometry = find_geometry(loaded.model)
    splits = dict.fromkeys(range(config.stories), "validation")
    asked = list(items(generated(stories=splits), splits, "1", config.setting))

    def vector(direction: str, k: int, seed: int, heads: str = "probe") -> SteeringVector:
        return random_vector(geometry, k, seed)

    def one_pass() -> None:
        model = SteeredModel(loaded)
        for batch in in_batches(asked, config.batch_size):
            model.generate([prompt_of(item) for item in batch])

    def sweep(n: int) -> Callable[[], None]:
        ks, alphas = GRIDS[n]
        vectors = vectors_of(cells(ks, alphas, ("random",)), vector)

        def run() -> None:
            run_once(loaded, asked, vectors, config.batch_size, config.rows, 16)

        return run

    def released() -> None:
        steering = vector("random", 8, 0)
        for _ in range(config.peer_cells):
            for item in asked:
                prompt = reply_prompt(loaded, item.text, item.clip is not None)
                inputs = encode(loaded, [prompt], [item.clip()] if item.clip else None)
                with torch.inference_mode(), steering.apply(loaded.model):
                    loaded.model.generate(**inputs, max_new_tokens=16, do_sample=False)

    contenders: dict[str, Callable[[], None]] = {
        "one pass": one_pass,
        "sweep, 15 cells": sweep(15),
        "sweep, 45 cells": sweep(45),
        "released procedure, one cell": released,
    }
    one_pass()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(config.repeats):
        for name, contender in contenders.items():
            begun = time.perf_counter()
            contender()
            seconds[name].append(time.perf_counter() - begun)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    medians["released procedure, one cell"] /= config.peer_cells
    for n in GRIDS:
        medians[f"released procedure, {n} cells (extrapolated)"] = (
            n * medians["released procedure, one cell"]
        )
    raw = {name: list(times) for name, times in seconds.items()}
    return {
        "items": len(asked),
        "cells of the released procedure that were run": config.peer_cells,
        "raw seconds": raw,
        "seconds": medians,
        "ratio to one pass": {name: s / medians["one pass"] for name, s in medians.items()},
        "peak memory MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    """The command line."""
    with plain_errors():
        config = read_options(SweepPerfConfig, "python -m bench.sweep")
        found = measure(config)
    print(f"{config.model}, {config.setting}, {found['items']} items, median of {config.repeats}")
    print("| contender | seconds | evaluation passes |\n|---|---|---|")
    for name, seconds in found["seconds"].items():
        print(f"| {name} | {seconds:.2f} | {found['ratio to one pass'][name]:.2f} |")
    print(f"\npeak memory {found['peak memory MB']:.0f} MB")


if __name__ == "__main__":
    main()
