"""BigToM as the harness sees it."""

from __future__ import annotations

from benchmarks.benchmark import Benchmark
from benchmarks.bigtom.load import LAYOUT, load
from benchmarks.clips import Sampling

BIGTOM = Benchmark(
    name="bigtom",
    load=load,
    views={"text": ("scene",), "none": ()},
    default_view="text",
    # There are no films, so no view shows any frame of them.
    sampling=Sampling(count=8),
    breakdowns=("variable", "condition", "initial_belief"),
    layout=LAYOUT,
)
