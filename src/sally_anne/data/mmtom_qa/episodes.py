"""The videos: a folder of frames for each episode, and the frames at which its steps end."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from sally_anne.core.errors import RecordError
from sally_anne.data.items import Media
from sally_anne.data.mmtom_qa.pickles import PickleError, read_pickle
from sally_anne.data.read import Field

URL = "http://virtual-home.org/release/MMToMQA/benchmark.zip"
# Depth and segmentation lie beside each frame under other names.
PICTURES = "*_normal.png"
NOT_HERE = Media(kind="frames", url=URL)
# Where the archive may have been unpacked, below the benchmark's folder: there, or a folder deeper.
PLACES = ("videos", "benchmark")
INTERVALS = "frame_intervals.pik"
# Sizes far beyond an episode's, which has some 1,500 frames and 100 steps.
MOST_BYTES = 2**20
MOST_STEPS = 100_000
MOST_FRAMES = 100_000


def picture(number: int) -> str:
    """File name of a frame."""
    return f"Action_{number:04d}_0_normal.png"


def episode_media(folder: Path) -> Callable[[int, Field], Media]:
    """Finds, in the benchmark's folder, the frames of an episode up to the end of a field's step.

    What it returns raises RecordError for an unusable pickle of intervals and for a step that the
    episode does not have.
    """
    places = [folder]
    for place in (folder / name for name in PLACES):
        if place.is_dir():
            places += [place, *sorted(path for path in place.iterdir() if path.is_dir())]
    intervals = cache(read_intervals)

    @cache
    def found(episode: int) -> Path | None:
        paths = (place / f"task_{episode}" for place in places)
        return next((path for path in paths if path.is_dir()), None)

    def media(episode: int, step: Field) -> Media:
        task = found(episode)
        if task is None:
            return NOT_HERE
        steps = intervals(task / INTERVALS)
        if step.number() >= len(steps):
            step.fail(
                f"is {step.number()}, but {task / INTERVALS} has {len(steps)} steps, counted from 0"
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


def read_intervals(path: Path) -> tuple[tuple[int, int], ...]:
    """First frame and frame of the end of each step, counted from 0, from a pickled list of pairs.

    RecordError names the file, and the class that it asks for or the step that is no pair.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise RecordError(
            f"{path}: cannot be read ({error.strerror}); it tells at which frame a step ends, so "
            "unpack it together with the frames"
        ) from error
    if len(data) > MOST_BYTES:
        raise RecordError(f"{path}: has more than {MOST_BYTES} bytes, too many for frame intervals")
    try:
        steps = read_pickle(data)
    except PickleError as error:
        raise RecordError(f"{path}: {error}") from error
    if not isinstance(steps, list | tuple):
        raise RecordError(f"{path}: must be a list of pairs, is {type(steps).__name__}")
    if not 0 < len(steps) <= MOST_STEPS:
        raise RecordError(f"{path}: must have from 1 to {MOST_STEPS} steps, has {len(steps)}")
    return tuple(_pair(step, f"{path}, step {number}") for number, step in enumerate(steps))


def _pair(step: object, where: str) -> tuple[int, int]:
    # Only the kind of a value is shown: a small pickle can hold one that takes for ever to print.
    if not isinstance(step, list | tuple) or len(step) != 2:
        raise RecordError(f"{where}: must be a first and a last frame")
    first, last = (_frame(value, where) for value in step)
    if first > last:
        raise RecordError(f"{where}: ends at frame {last}, before its first frame {first}")
    return first, last


def _frame(value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RecordError(f"{where}: a frame must be a whole number, is {type(value).__name__}")
    # Compared before it is converted, for infinity and nan.
    if not 0 <= value <= MOST_FRAMES or value != int(value):
        raise RecordError(f"{where}: a frame must be a whole number from 0 to {MOST_FRAMES}")
    return int(value)
