"""BigToM as the harness sees it."""

from __future__ import annotations

from sally_anne.benchmarks.benchmark import Benchmark
from sally_anne.benchmarks.bigtom.load import LAYOUT, load
from sally_anne.benchmarks.clips import Sampling

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
