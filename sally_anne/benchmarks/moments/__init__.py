"""MoMentS: questions on mental states in short films (EMNLP 2025).

Holds: the loader of the official release, and the benchmark's own protocol.
Must not know: models, prompts' chat layout or scores.
"""

from __future__ import annotations

from sally_anne.benchmarks.items import Benchmark, Sampling
from sally_anne.benchmarks.moments.load import LAYOUT, NAME, load

# The paper tells models that the question refers to t_j (section 3.3).
_END = "The question is about the moment at the end of this"

MOMENTS = Benchmark(
    name=NAME,
    load=load,
    views={
        "multimodal": ("transcript",),
        "video": (),
        "text": ("transcript",),
        "none": (),
    },
    default_view="multimodal",
    # Section 5.1: 64 frames, spread evenly.
    sampling=Sampling(count=64),
    breakdowns=("ability", "cue"),
    layout=LAYOUT,
    windows=("full", "focused"),
    notes={
        "multimodal": f"{_END} part of the film.",
        "video": f"{_END} part of the film.",
        "text": f"{_END} transcript.",
    },
    # The keys of the test split are not public.
    default_split="validation",
)
