"""MuMA-ToM as the harness takes it."""

from __future__ import annotations

from sally_anne.benchmarks.benchmark import Benchmark
from sally_anne.benchmarks.clips import Sampling
from sally_anne.benchmarks.muma_tom.load import LAYOUT, NAME, load

# The benchmark's own view is film and text together. Without one of them a part is not told: film
# alone lacks the text's person in episodes without talk (talk is drawn into the films as captions);
# words alone lack what the film's people do. The whole narrative is in no view.
MUMA_TOM = Benchmark(
    name=NAME,
    load=load,
    views={
        "multimodal": ("actions", "dialogue"),
        "video": (),
        "text": ("actions", "dialogue"),
        "none": (),
    },
    default_view="multimodal",
    # Paper, appendix 12.1: every 20th frame of films at 10 frames a second.
    sampling=Sampling(every=20),
    breakdowns=("type", "polarity"),
    layout=LAYOUT,
)
