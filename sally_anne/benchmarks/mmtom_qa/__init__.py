"""MMToM-QA: what a person in a household video believes and wants (Jin et al., ACL 2024)."""

from __future__ import annotations

from sally_anne.benchmarks.items import Benchmark, Sampling
from sally_anne.benchmarks.mmtom_qa.load import LAYOUT, load

MMTOM_QA = Benchmark(
    name="mmtom_qa",
    load=load,
    # The official multimodal condition shows the frames and all that is told; the official video
    # condition leaves out both what is in the apartment and what is done.
    views={
        "multimodal": ("scene", "actions"),
        "video": (),
        "text": ("scene", "actions"),
        "none": (),
    },
    default_view="multimodal",
    sampling=Sampling(count=8),
    breakdowns=("family", "type", "condition"),
    layout=LAYOUT,
)
