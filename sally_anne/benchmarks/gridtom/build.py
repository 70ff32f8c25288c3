"""Builds the benchmark: ``sally-anne build [--out DIR]``.

Without ``--out`` all versions of all stories are simulated and checked in memory and nothing is
written. With it, the release layout is written to DIR; an interrupted build goes on where it was.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from sally_anne.benchmarks.gridtom.export import (
    claimed_build,
    info_line,
    is_complete,
    readme,
    write_story,
)
from sally_anne.benchmarks.gridtom.load import INFO
from sally_anne.benchmarks.gridtom.records import COMBINATIONS, StorySet
from sally_anne.benchmarks.gridtom.splits import SPLITS, assign
from sally_anne.benchmarks.gridtom.stories import (
    DEFAULT_SEED,
    GENERATOR_VERSION,
    generated,
    seeded_stories,
)
from sally_anne.core.commands import command
from sally_anne.core.errors import BenchmarkError
from sally_anne.core.files import write_atomic
from sally_anne.core.options import Seed
from sally_anne.core.processes import exit_with_parent


@dataclass(frozen=True)
class BuildConfig:
    """Build the GridToM stories.

    Attributes:
        out: folder to write to; without it, the stories are only made and checked.
        seed: draws starts, directions and colours.
        stories: build only the first so many of the 648.
        metadata_only: write no frames and no videos.
        workers: processes that draw and encode.
    """

    out: Path | None = None
    seed: Seed = DEFAULT_SEED
    stories: int | None = None
    metadata_only: bool = False
    workers: int = 2


def build(config: BuildConfig) -> str:
    """Build as configured.

    Returns:
        A summary for people to read.

    Raises:
        BenchmarkError: the options are wrong, a story breaks the plot, or the folder was begun with
            other options.
        FolderError: the folder holds something else, or another build is at work in it.
    """
    begun = time.monotonic()
    total = len(seeded_stories(config.seed))
    count = total if config.stories is None else config.stories
    if not 1 <= count <= total:
        raise BenchmarkError(f"--stories must be from 1 to {total}, is {count}")
    stories = generated(config.seed, range(count))
    out = config.out
    ticks = check(config.seed, count) if out is None else write(config, stories, out)
    return _summary(config, stories, ticks, time.monotonic() - begun)


def check(seed: int, count: int) -> int:
    """Simulate all versions of the first ``count`` stories.

    Returns:
        Frames of all first-order versions together.

    Raises:
        BenchmarkError: a version does not give the beliefs that the plot wants, or the versions of
            a story differ in their frame numbers.
    """
    ticks = 0
    for story in tqdm(seeded_stories(seed)[:count], desc="checking", unit="story", disable=None):
        traces = {pair: story.play(*pair) for pair in COMBINATIONS}
        if len({(t.nodes, len(t.states)) for t in traces.values()}) > 1:
            raise BenchmarkError(f"story {story.index}: its versions differ in their frame numbers")
        ticks += 2 * len(traces["TB", "TB"].states)
    return ticks


def write(config: BuildConfig, stories: StorySet, out: Path) -> int:
    """Write the release layout to ``out``.

    Returns:
        Frames of all first-order versions together.
    """
    settings = {
        "generator": GENERATOR_VERSION,
        "seed": config.seed,
        "stories": len(stories),
        "metadata_only": config.metadata_only,
    }
    with claimed_build(out, settings):
        if not config.metadata_only:
            _write_stories(config, out, len(stories))
        split = assign(stories)
        lines = [
            info_line(record, split.get(record.index))
            for record in tqdm(stories, desc="texts", unit="story", disable=None)
        ]
        write_atomic(out / "README.md", readme(settings).encode())
        write_atomic(out / INFO, "".join(lines).encode())
    return sum(2 * (record.nodes[3] + 1) for record in stories)


def _write_stories(config: BuildConfig, out: Path, total: int) -> None:
    todo = [index for index in range(total) if not is_complete(out / str(index))]
    done = total - len(todo)
    # disable=None: no bar where nobody watches.
    with tqdm(total=total, initial=done, desc="frames", unit="story", disable=None) as bar:
        if config.workers == 1:
            for index in todo:
                _write_one(config.seed, index, out)
                bar.update()
            return
        # Spawned processes behave the same on all systems and inherit no locks.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(config.workers, context, initializer=exit_with_parent) as pool:
            jobs = [pool.submit(_write_one, config.seed, index, out) for index in todo]
            try:
                for job in as_completed(jobs):
                    job.result()
                    bar.update()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def _write_one(seed: int, index: int, out: Path) -> None:
    write_story(seeded_stories(seed)[index], out)


def _summary(config: BuildConfig, stories: StorySet, ticks: int, seconds: float) -> str:
    pairs = 2 * len(stories)
    sizes = Counter(assign(stories).values())
    parts = ", ".join(f"{name} {sizes[name]}" for name in SPLITS)
    parts += f", none {len(stories) - sizes.total()}"
    if config.out is None:
        done = f"checked all {4 * len(stories)} versions; nothing written (no --out)"
    else:
        done = f"written to {config.out}" + (" (metadata only)" if config.metadata_only else "")
    return "\n".join(
        (
            f"GridToM, seed {config.seed}: {len(stories)} stories on "
            f"{len({record.map for record in stories})} maps, {pairs} TB and FB versions, "
            f"{sum(len(record.initial) for record in stories)} initial-belief questions",
            f"frames a version: {ticks / pairs:.1f} on average",
            f"split: {parts}",
            f"fingerprint: {stories.fingerprint}",
            f"{done}, {seconds:.1f} s",
        )
    )


main = command(
    "sally-anne build", BuildConfig, lambda config: print(build(config)), libraries=False
)


if __name__ == "__main__":
    main()
