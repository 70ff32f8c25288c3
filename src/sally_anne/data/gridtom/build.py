"""Builds the benchmark: ``sally-anne build [--out DIR]``.

Without ``--out`` all versions of all stories are simulated and checked in memory and nothing is
written. With it, the release layout is written to DIR; an interrupted build goes on where it was.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tqdm import tqdm

from sally_anne.core.errors import BenchmarkError
from sally_anne.core.files import write_atomic
from sally_anne.core.options import Seed
from sally_anne.core.processes import exit_with_parent
from sally_anne.data.gridtom.export import (
    claimed_build,
    info_line,
    is_complete,
    readme,
    write_story,
)
from sally_anne.data.gridtom.load import INFO
from sally_anne.data.gridtom.plot import PLOTS, Plot
from sally_anne.data.gridtom.records import COMBINATIONS, RETURNING, StorySet
from sally_anne.data.gridtom.splits import SPLITS, assign
from sally_anne.data.gridtom.stories import (
    DEFAULT_SEED,
    GENERATOR_VERSION,
    generated,
    seeded_stories,
    story_of,
)


@dataclass(frozen=True)
class BuildConfig:
    """Build the GridToM stories.

    Attributes:
        out: folder to write to; without it, the stories are only made and checked.
        seed: draws starts, directions and colours.
        stories: build only the first so many of the 648.
        plots: move is the paper's; with return each story is told once more with a participant that
            comes back to the room it went to first.
        metadata_only: write no frames and no videos.
        workers: processes that draw and encode.
    """

    out: Path | None = None
    seed: Seed = DEFAULT_SEED
    stories: int | None = None
    plots: tuple[Plot, ...] = PLOTS[:1]
    metadata_only: bool = False
    workers: int = 2


def build(config: BuildConfig) -> str:
    """Build as configured, and sum up.

    Raises:
        BenchmarkError: an option is wrong, or not that with which the folder was begun; or a story
            breaks the plot.
        FolderError: the folder holds something else, or another build is at work in it.
    """
    begun = time.monotonic()
    total = len(seeded_stories(config.seed))
    count = total if config.stories is None else config.stories
    if not 1 <= count <= total:
        raise BenchmarkError(f"--stories must be from 1 to {total}, is {count}")
    every = generated(config.seed, plots=config.plots)
    stories = every.subset(i for i in every.indices if i % RETURNING < count)
    if config.out is None:
        _check(config, stories)
    else:
        _write(config, stories, config.out)
    return _summary(config, stories, time.monotonic() - begun)


def _check(config: BuildConfig, stories: StorySet) -> None:
    """Simulate all versions of the stories."""
    for index in tqdm(stories.indices, desc="checking", unit="story", disable=None):
        story = story_of(config.seed, index)
        traces = [story.play(*pair) for pair in COMBINATIONS]
        if len({(t.nodes, len(t.states)) for t in traces}) > 1:
            raise BenchmarkError(f"story {story.index}: its versions differ in their frame numbers")


def _write(config: BuildConfig, stories: StorySet, out: Path) -> None:
    """Write the release layout to ``out``."""
    settings: dict[str, object] = {
        "generator": GENERATOR_VERSION,
        "seed": config.seed,
        "stories": len(stories),
        "metadata_only": config.metadata_only,
    }
    if config.plots != BuildConfig.plots:
        settings["plots"] = list(config.plots)
    with claimed_build(out, settings):
        if not config.metadata_only:
            _write_stories(config, out, stories.indices)
        split = assign(stories)
        lines = [
            info_line(record, split.get(record.index))
            for record in tqdm(stories, desc="texts", unit="story", disable=None)
        ]
        write_atomic(out / "README.md", readme(settings).encode())
        write_atomic(out / INFO, "".join(lines).encode())


def _write_stories(config: BuildConfig, out: Path, indices: Sequence[int]) -> None:
    total = len(indices)
    todo = [index for index in indices if not is_complete(out / str(index))]
    # disable=None: no bar where nobody watches.
    bar = partial(tqdm, total=total, initial=total - len(todo), desc="frames", unit="story")
    write = partial(_write_one, config.seed, out)
    if config.workers == 1:
        for _ in bar(map(write, todo), disable=None):
            pass
        return
    # Spawned processes behave the same on all systems and inherit no locks.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(config.workers, context, initializer=exit_with_parent) as pool:
        # An error cancels what has not begun.
        for _ in bar(pool.map(write, todo), disable=None):
            pass


def _write_one(seed: int, out: Path, index: int) -> None:
    write_story(story_of(seed, index), out)


def _summary(config: BuildConfig, stories: StorySet, seconds: float) -> str:
    pairs = 2 * len(stories)
    ticks = 2 * sum(record.nodes[3] + 1 for record in stories)
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


def run(config: BuildConfig) -> None:
    """Build, and print the folder."""
    print(build(config))
