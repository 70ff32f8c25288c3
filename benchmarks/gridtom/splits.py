"""Who is tested, who trains the probes: 500 and 148 stories, as in the paper's section 3.2.

A story is never cut: all its versions, perspectives and statements share its split. Maps are kept
whole as well, so far as the numbers allow: 27 maps of 24 stories cannot be parted into 500 and
148, so one map gives 20 stories to the test set and 4 to the probes. Those 4 go to the probes'
training part, so that validation shares no map with test; ``strict`` leaves them out altogether.
"""

from __future__ import annotations

import random
from typing import Literal

from benchmarks.gridtom.stories import STORIES_PER_MAP

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")

TEST_STORIES = 500
PROBE_STORIES = 148
TRAIN_STORIES = PROBE_STORIES * 3 // 4


def assign(
    n_stories: int = TEST_STORIES + PROBE_STORIES, seed: int = 0, strict: bool = False
) -> dict[int, Split]:
    """Split of each story index.

    Args:
        n_stories: stories in the data. Other totals than 648 are split in the same proportions.
        seed: which maps are tested, which stories validate.
        strict: leave out the probe stories that share a map with test stories.

    Returns:
        index -> split; with ``strict``, indices that belong to no split are missing.
    """
    rng = random.Random(f"split/{seed}")
    n_test = n_stories * TEST_STORIES // (TEST_STORIES + PROBE_STORIES)
    n_train = (n_stories - n_test) * TRAIN_STORIES // PROBE_STORIES
    maps = [
        list(range(start, min(start + STORIES_PER_MAP, n_stories)))
        for start in range(0, n_stories, STORIES_PER_MAP)
    ]
    rng.shuffle(maps)
    for stories in maps:
        rng.shuffle(stories)
    ordered = [story for stories in maps for story in stories]
    test, probe = ordered[:n_test], ordered[n_test:]
    tested_maps = {story // STORIES_PER_MAP for story in test}
    shared = [story for story in probe if story // STORIES_PER_MAP in tested_maps]
    own = [story for story in probe if story // STORIES_PER_MAP not in tested_maps]
    rng.shuffle(own)
    # Training takes the stories of shared maps first; only where there are more of them than it
    # needs (small data) do some validate.
    probes = shared + own
    split: dict[int, Split] = dict.fromkeys(test, "test")
    split.update(dict.fromkeys(probes[:n_train], "train"))
    split.update(dict.fromkeys(probes[n_train:], "validation"))
    if strict:
        split = {story: name for story, name in split.items() if story not in set(shared)}
    return dict(sorted(split.items()))
