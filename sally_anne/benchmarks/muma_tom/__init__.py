"""MuMA-ToM: what two people in a household believe, want, and think that the other wants.

225 episodes with four questions each. In 150 of them people talk: the video shows both, and the
text is their talk. In 75 nobody talks: the video shows one person, the text tells what the other
does. Every record also has the whole narrative, which tells what the video shows; it is never
shown.
"""

from __future__ import annotations

from sally_anne.benchmarks.items import Benchmark, Sampling
from sally_anne.benchmarks.muma_tom.load import LAYOUT, NAME, load

# The benchmark's own view is video and text together. Without one of them a part is not told: video
# alone lacks the text's person in episodes without talk (talk is drawn into the videos as
# captions); words alone lack what the video's people do. The whole narrative is in no view.
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
    # Paper, appendix 12.1: every 20th frame of videos at 10 frames a second.
    sampling=Sampling(every=20),
    breakdowns=("type", "polarity"),
    layout=LAYOUT,
)
