"""What a benchmark is to the harness: how it is loaded, shown and broken down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sally_anne.benchmarks.clips import Sampling
from sally_anne.benchmarks.items import BenchmarkItem, View, Window


@dataclass(frozen=True)
class Benchmark:
    """One benchmark.

    Attributes:
        name: as on the command line.
        load: reads all items of a folder in the official layout, of all splits found there.
            Films that are not there leave ``Media.path`` None.
        views: for each view that it has, the fields of :class:`benchmarks.items.Context` that are
            shown, in order. Views ``multimodal`` and ``video`` show frames as well.
        default_view: the benchmark's own.
        windows: those that it has; the first is its own.
        sampling: which frames its own protocol takes.
        breakdowns: kinds of tags by which accuracy is reported.
        notes: sentences that every question is asked with, by view or for all (key ``""``), e.g.
            that it refers to the end of the film.
        default_split: the split asked about if none is chosen.
        frame_times: whether the prompt tells how long the film is and when its frames are.
        open_ended: whether replies are sentences that a judge reads.
        layout: what the folder holds, for the message when it does not.
    """

    name: str
    load: Callable[[Path], list[BenchmarkItem]]
    views: Mapping[View, tuple[str, ...]]
    default_view: View
    sampling: Sampling
    breakdowns: tuple[str, ...]
    layout: str
    windows: tuple[Window, ...] = ("full",)
    notes: Mapping[str, str] | None = None
    default_split: str = "test"
    frame_times: bool = False
    open_ended: bool = False
