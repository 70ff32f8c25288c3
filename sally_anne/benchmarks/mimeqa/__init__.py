"""MimeQA (Li et al., 2025): open questions about videos of mime, which is acted without words.

Holds: the reading of its CSV, and what the benchmark is to the harness.
Must not know: how replies to open questions are judged.
"""

from __future__ import annotations

from sally_anne.benchmarks.items import Benchmark, Sampling
from sally_anne.benchmarks.mimeqa.load import NAME, TABLES, TITLES, VIDEOS, load

# VL and L in the paper's table 1 are `video` and `none`: nothing is said in a mime's video, so the
# question is all the text there is. Films have titles, however, and table 4 shows what they add:
# that is `multimodal`. Without titles it is the same as `video`.
MIMEQA = Benchmark(
    name=NAME,
    load=load,
    views={"multimodal": ("scene",), "video": (), "text": ("scene",), "none": ()},
    default_view="video",
    # As GPT-4o is shown the videos: a frame a second, at most 64.
    sampling=Sampling(rate=1, most=64),
    breakdowns=("category", "level"),
    layout=(
        f"{TABLES[0]} with the columns file, question, question type, timestamp and "
        f"reference_answer, the videos in {VIDEOS}/, and {TITLES} if there are titles"
    ),
    windows=("full", "focused"),
    notes={
        "": (
            "The film is a mime's: objects and acts are only hinted at by gestures. Speak of them "
            "as if they were really there. Say why in a few words, and do not go through the "
            "frames one by one."
        ),
        "text": "The question is about a mime's film, in which objects are hinted at by gestures.",
    },
    # Appendix B.4, where frames are sampled.
    frame_times=True,
    open_ended=True,
)
