"""The films: a folder of frames for each episode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from sally_anne.benchmarks.fields import Field
from sally_anne.benchmarks.items import Media
from sally_anne.benchmarks.mmtom_qa.intervals import INTERVALS, read_intervals
from sally_anne.core.errors import RecordError

URL = "http://virtual-home.org/release/MMToMQA/benchmark.zip"
# Depth and segmentation lie beside each frame under other names.
PICTURES = "*_normal.png"
FILMS = Media(kind="frames", url=URL)
# Where the archive may have been unpacked, below the benchmark's folder.
PLACES = ("", "videos", "benchmark")


def picture(number: int) -> str:
    """File name of a frame; depth and segmentation lie beside it under other names."""
    return f"Action_{number:04d}_0_normal.png"


def episode_media(folder: Path) -> Callable[[int, Field], Media]:
    """Finds the frames of an episode up to the end of a step.

    Args:
        folder: the benchmark's.

    Returns:
        A function of the episode and the field with the step, which raises RecordError for an
        unusable pickle of intervals and for a step that the episode does not have.
    """
    places = tuple(_places(folder))

    @cache
    def found(episode: int) -> Path | None:
        paths = (place / f"task_{episode}" for place in places)
        return next((path for path in paths if path.is_dir()), None)

    @cache
    def intervals(task: Path) -> tuple[tuple[int, int], ...]:
        return read_intervals(task / INTERVALS)

    def media(episode: int, step: Field) -> Media:
        task = found(episode)
        if task is None:
            return FILMS
        steps = intervals(task)
        if step.number() >= len(steps):
            raise RecordError(
                f"{step.where}: field {step.path} is {step.number()}, but {task / INTERVALS} has "
                f"{len(steps)} steps, counted from 0"
            )
        frames = task / "script" / "0"
        last = steps[step.number()][1]
        # The last step ends with the number of frames, at which there is no frame any more.
        if frames.is_dir() and last and not (frames / picture(last)).exists():
            last -= 1
        return Media(
            kind="frames",
            path=frames if frames.is_dir() else None,
            url=URL,
            frames=tuple(range(last + 1)),
            pictures=PICTURES,
        )

    return media


def _places(folder: Path) -> Iterator[Path]:
    for name in PLACES:
        place = folder / name if name else folder
        if not place.is_dir():
            continue
        yield place
        if name:
            yield from sorted(path for path in place.iterdir() if path.is_dir())
