"""Single measurements of the scaling study, each for a process that has done nothing else.

Every function times its work a few times and then, once more, takes its peak memory: giving freed
memory back at once, which memory needs to be exact, costs time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.errors import PerfError
from bench.untrained import Shape, save_untrained
from sally_anne.data.items import Setting

Point = dict[str, Any]
# Heads that scikit-learn really fits; the others are reckoned from them.
LOOP_HEADS = 16


def extraction(
    contender: str,
    shape: dict[str, int],
    stories: int,
    longer: int,
    setting: Setting,
    batch_size: int,
    repeats: int,
    threads: int,
) -> Point:
    """An extraction of random weights' activations.

    Args:
        contender: ``ours`` or ``bare``; see ``bench.extraction``.
        shape: of the model.
        stories: four samples each.
        longer: how many times each context is told.
        setting: what the model is given.
        batch_size: samples that go through the model together.
        repeats: timed runs.
        threads: of torch.

    Returns:
        Seconds of each run, peak bytes above the model, samples and tokens of a prompt.
    """
    import torch

    from bench.clock import Clock
    from bench.contenders import Bare, Ours
    from bench.memory import touch
    from bench.workload import probe_set

    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory(prefix="perf-") as scratch:
        folder = save_untrained(Path(scratch) / "model", Shape(**shape))
        work = probe_set(str(folder), stories, setting, batch_size)
        samples = []
        for sample in work.samples:
            context, _, statement = sample.content.rpartition(" Belief: ")
            text = " ".join([context] * longer) + f" Belief: {statement}"
            samples.append(replace(sample, text=text))
        work = replace(work, samples=samples)
        touch(work.loaded.model)
        made = Ours() if contender == "ours" else Bare()
        tokens = int(work.whole(work.batches[0])["attention_mask"].sum(1).max())

        def run() -> None:
            with tempfile.TemporaryDirectory(prefix="perf-") as out:
                made.whole(work, Clock(), Path(out))

        made.forward(work, _prepared(made, work))
        return measured(run, repeats) | {"samples": len(samples), "tokens": tokens}


def _prepared(contender: Any, work: Any) -> Any:
    from bench.contenders import prepare

    return prepare(work, contender.form, work.batches[0])


def probes(
    contender: str, samples: int, layers: int, heads: int, width: int, repeats: int, threads: int
) -> Point:
    """Probes of all heads for one label, on made-up activations.

    Args:
        contender: ``batched`` or ``loop``.
        samples: training samples, a multiple of 4.
        layers: of the made-up model.
        heads: a layer.
        width: of a head.
        repeats: timed runs.
        threads: of torch and of linear algebra.

    Returns:
        Seconds of each run, peak bytes above the activations, and whether it was multiplied.
    """
    import numpy as np
    import torch
    from threadpoolctl import threadpool_limits

    from bench.probes import ProbesPerfConfig, batched, loop, make

    torch.set_num_threads(threads)
    # A part of the heads is enough to know what one costs the loop.
    whole = layers * heads
    fitted = min(whole, LOOP_HEADS) if contender == "loop" else whole
    shape = (layers, heads) if fitted == whole else (1, fitted)
    with threadpool_limits(threads):
        made = make(
            ProbesPerfConfig(layers=shape[0], heads=shape[1], width=width, samples=samples, held=4)
        )
        x = np.ascontiguousarray(made.x.reshape(len(made.x), -1, width)[made.train])
        y = made.y[made.train]
        fit = loop if contender == "loop" else batched
        fit(x[:, :2], y)
        found = measured(lambda: fit(x, y), repeats)
    found["seconds"] = [each * whole / fitted for each in found["seconds"]]
    return found | {"fitted heads": fitted, "heads": whole}


def sweep(
    model: str,
    setting: Setting,
    stories: int,
    cells: int,
    k: int,
    batch_size: int,
    rows: int,
    repeats: int,
    threads: int,
) -> Point:
    """A sweep of so many cells that steer ``k`` heads each, and the baseline.

    Returns:
        Seconds of each run, peak bytes above the model, and items.
    """
    import torch

    from bench.memory import touch
    from bench.random_sweeps import random_vector, run_once
    from sally_anne.data.gridtom.stories import generated
    from sally_anne.harness.gridtom import items
    from sally_anne.hooks.geometry import find_geometry
    from sally_anne.hooks.vector import SteeringVector
    from sally_anne.models.loading import load_model
    from sally_anne.steering.cells import cells as grid
    from sally_anne.steering.cells import vectors_of

    torch.set_num_threads(threads)
    loaded = load_model(model)
    geometry = find_geometry(loaded.model)
    touch(loaded.model)
    splits = dict.fromkeys(range(stories), "validation")
    asked = list(items(generated(stories=splits), splits, "1", setting))
    if k > geometry.n_layers * geometry.n_heads:
        raise PerfError(f"K = {k}, but the model has {geometry.n_layers * geometry.n_heads} heads")

    def vector(direction: str, count: int, seed: int, heads: str) -> SteeringVector:
        return random_vector(geometry, count, seed)

    alphas = [0.5 * (i + 1) for i in range(cells)]
    vectors = vectors_of(grid([k], alphas, ("random",)), vector)

    def run() -> None:
        run_once(loaded, asked, vectors, batch_size, rows, 8)

    return measured(run, repeats) | {"items": len(asked)}


def together(
    model: str, setting: Setting, stories: int, processes: int, batch_size: int, repeats: int
) -> Point:
    """One extraction shared by processes of one thread and one core each.

    Returns:
        Seconds of each run, from when all have their model; no memory.

    Raises:
        PerfError: the launcher failed.
    """

    def confined() -> None:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:processes]))

    seconds, samples = [], 0
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(prefix="perf-") as scratch:
            options = [model, str(stories), setting, str(batch_size), f"{scratch}/activations"]
            ran = subprocess.run(
                [sys.executable, "-m", "torch.distributed.run", "--standalone"]
                + [f"--nproc-per-node={processes}", "-m", "bench.share", *options],
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                capture_output=True,
                text=True,
                preexec_fn=confined,
            )
        lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
        if ran.returncode or not lines:
            raise PerfError(f"{processes} processes did not extract:\n{ran.stderr[-2000:]}")
        found = json.loads(lines[-1])
        seconds.append(found["seconds"])
        samples = found["samples"]
    return {"seconds": seconds, "peak": None, "samples": samples}


def measured(run: Callable[[], object], repeats: int) -> Point:
    """Seconds of each of ``repeats`` runs, and the peak memory of one more."""
    from bench.clock import now
    from bench.memory import Peak

    seconds = []
    for _ in range(repeats):
        begun = now()
        run()
        seconds.append(now() - begun)
    with Peak() as peak:
        run()
    return {"seconds": seconds, "peak": peak.bytes}
