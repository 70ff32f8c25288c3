"""Builds the benchmark in the release layout: ``sally-anne build [--out DIR]``.

Stories are renamed into place and ``info.json`` is written last: a folder with it is finished, and
an interrupted build goes on where it was. Without ``--out`` all versions are checked in memory.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from sally_anne.core.errors import BenchmarkError, RecordError
from sally_anne.core.files import read_object, write_atomic, write_json
from sally_anne.core.folder import claimed
from sally_anne.core.options import Seed
from sally_anne.core.processes import exit_with_parent
from sally_anne.data.gridtom import release
from sally_anne.data.gridtom import stories as made
from sally_anne.data.gridtom.plot import PERSPECTIVES, play
from sally_anne.data.gridtom.render import render, write_pictures, write_video
from sally_anne.data.gridtom.samples import assign
from sally_anne.data.gridtom.stories import (
    RETURNING,
    BeliefCase,
    StoryRecord,
    StorySet,
    seeded_stories,
)
from sally_anne.data.samples import SPLITS, Split

PARTIAL = ".partial"
KIND = "a benchmark build"
# Processes that draw and encode.
WORKERS = min(8, os.cpu_count() or 1)


def info_line(record: StoryRecord, split: Split | None) -> str:
    """One line of ``info.json``; fields of the official release come first, our own after them."""
    fields = {
        "index": record.index,
        "env_desc": record.environment,
        "init_env_desc": record.initial_environment,
        "colors": record.colors,
        "nodes": record.nodes,
        "init_belief": [
            {"question": q.question, "section": q.section, "answer": q.answer, "choices": q.choices}
            | ({"answer": q.answer[0]} if len(q.answer) == 1 else {})
            for q in record.initial
        ],
        "first_order_belief": [
            {"type": release.TYPES[case.first], **_belief_fields(case)} for case in record.cases(1)
        ],
        "second_order_belief": [
            {"first": case.first, "second": case.second, **_belief_fields(case)}
            | {"frames": f"{record.index}/{release.folder_of(case.first, case.second)}"}
            for case in record.cases(2)
        ],
        "map": record.map,
        "split": split,
    }
    return json.dumps(fields) + "\n"


def _belief_fields(case: BeliefCase) -> dict[str, Any]:
    return {
        "question": case.question.question,
        "options": case.question.options,
        "answer": case.question.answer,
        "caption": case.captions["omniscient"],
        "belief_true": case.question.statement_true,
        "belief_false": case.question.statement_false,
        "captions": {p: case.captions[p] for p in PERSPECTIVES if p != "omniscient"},
    }


def write_story(seed: int, out: Path, index: int) -> None:
    """Write all frames and videos of a story into its folder, whole or not at all."""
    draft = out / PARTIAL / str(index)
    shutil.rmtree(draft, ignore_errors=True)
    for first, second in made.VERSIONS:
        if second == "TB":  # looks as its first-order version
            continue
        trace = play(seeded_stories(seed)[index], first, second)
        # No contrast of the paper uses another view of the second-order versions.
        for perspective in PERSPECTIVES if second is None else PERSPECTIVES[:1]:
            view = release.PERSPECTIVE_FOLDERS[perspective]
            place = draft / release.folder_of(first, second) / view
            place.mkdir(parents=True)
            frames = render(trace, perspective)
            write_pictures(place, frames)
            if second is None:
                write_video(place / release.VIDEO, frames)
    os.rename(draft, out / str(index))


@dataclass(frozen=True)
class BuildConfig:
    """Build the GridToM stories.

    Attributes:
        out: folder to write to; without it, the stories are only made and checked.
        seed: draws starts, directions and colours.
        stories: build only the first so many of the 648.
    """

    out: Path | None = None
    seed: Seed = made.DEFAULT_SEED
    stories: int | None = None


def build(config: BuildConfig) -> None:
    """Build and print a summary; BenchmarkError for other options than those of a begun folder."""
    count = RETURNING if config.stories is None else config.stories
    if not 1 <= count <= RETURNING:
        raise BenchmarkError(f"--stories must be from 1 to {RETURNING}, is {count}")
    stories = made.generated(config.seed, range(count))
    split = assign(stories)
    sizes = Counter(split.values())
    if config.out is None:
        drawn = [seeded_stories(config.seed)[index] for index in stories.indices]
        for story in tqdm(drawn, desc="checking", unit="story", disable=None):
            for versions in made.COMBINATIONS:
                play(story, *versions)
        done = f"checked all {4 * len(stories)} versions; nothing written (no --out)"
    else:
        with claimed(config.out, KIND, mark=False, sign=release.SETTINGS):
            _write(config, stories, split, config.out)
        done = f"written to {config.out}"
    parts = ", ".join(f"{name} {sizes[name]}" for name in SPLITS)
    print(
        f"GridToM, seed {config.seed}: {len(stories)} stories on "
        f"{len({record.map for record in stories})} maps, split: {parts}, none "
        f"{len(stories) - sizes.total()}\n{done}"
    )


def _write(config: BuildConfig, stories: StorySet, split: dict[int, Split], out: Path) -> None:
    settings = {"generator": made.GENERATOR_VERSION, "seed": config.seed, "stories": len(stories)}
    path = out / release.SETTINGS
    if path.exists() and (before := read_object(path, RecordError, "sally-anne")) != settings:
        raise BenchmarkError(
            f"{path}: this folder was begun with {before}, not {settings}; repeat the earlier "
            "options or choose another folder"
        )
    write_json(path, settings)
    shutil.rmtree(out / PARTIAL, ignore_errors=True)
    todo = [index for index in stories.indices if not (out / str(index)).exists()]
    # Spawned processes behave the same on all systems and inherit no locks.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(WORKERS, spawn, exit_with_parent) as pool:
        # An error cancels what has not begun; disable=None: no bar where nobody watches.
        drawing = pool.map(partial(write_story, config.seed, out), todo)
        list(tqdm(drawing, "frames", len(todo), unit="story", disable=None))
    shutil.rmtree(out / PARTIAL, ignore_errors=True)
    card = Path(__file__).with_name("export_readme.md").read_text(encoding="utf-8")
    write_atomic(out / "README.md", card.format(**settings).encode())
    lines = [info_line(record, split.get(record.index)) for record in stories]
    write_atomic(out / release.INFO, "".join(lines).encode())
