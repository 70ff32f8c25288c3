"""Who is tested, who trains the probes: 500 test stories, as in the paper's section 3.2.

A story's place, a map and a number on it, decides its split; its content tells textual twins.
"""

from __future__ import annotations

import random
import re
from functools import lru_cache

from sally_anne.data.gridtom.records import STORIES_PER_MAP, StorySet
from sally_anne.data.samples import SPLITS, Split

TEST_STORIES = 500
MAPS, TEST_MAPS, TRAIN_MAPS = 27, 21, 4
# The test of the released code (evaluate.py): all lines of its file but the last ones.
PUBLISHED, FOR_PROBES = "published", 148
_NUMBERED = re.compile(r"map-([0-9]{2,6})")


def assign(stories: StorySet, seed: int = 0) -> dict[int, Split]:
    """Split of each story's number, in the order of the numbers.

    Of the 27 maps 20 and most of a 21st are tested, 4 train, 2 validate. They are whole: no two
    splits share one, and the 4 stories that the 21st has beyond the 500 are in none. A place's
    split follows from the place and the seed alone, so a part of the data has those of the whole.

    A few stories of different maps say the same words (72 of the 648 generated ones). Where such
    twins would stand in different splits, only those of one stay: the test stories, else the
    validation stories; about one in ten of the others goes (seed 0: 86 train, 45 validate).
    """
    split: dict[int, Split] = {}
    content: dict[int, str] = {}
    for index in sorted(stories.indices):
        place = stories.identity(index)
        if found := split_of(place.map, index % STORIES_PER_MAP, seed):
            split[index], content[index] = found, place.content
    # The last of these to claim a content keeps it.
    owner = {content[i]: name for name in SPLITS for i in split if split[i] == name}
    return {index: name for index, name in split.items() if owner[content[index]] == name}


def split_of(map_name: str, number: int, seed: int = 0) -> Split | None:
    """Split of the story with this number on a map, if it is in any.

    The names are ``map-00`` to ``map-26``; higher numbers go on in further 27s, and any other name
    is drawn by itself, with the same odds.
    """
    if found := _NUMBERED.fullmatch(map_name):
        block, place = divmod(int(found[1]), MAPS)
        order, kept = _drawn(seed, block)
        rank = order.index(place)
        if rank == TEST_MAPS - 1 and number not in kept:
            return None
    else:
        rank = random.Random(f"map/{seed}/{map_name}").randrange(MAPS)
    if rank < TEST_MAPS:
        return "test"
    return "train" if rank < TEST_MAPS + TRAIN_MAPS else "validation"


@lru_cache(maxsize=64)
def _drawn(seed: int, block: int) -> tuple[list[int], list[int]]:
    """The maps of a block in the order of their use; which stories of the 21st are tested."""
    rng = random.Random(f"maps/{seed}" + (f"/{block}" if block else ""))
    order = rng.sample(range(MAPS), MAPS)
    tested = TEST_STORIES - (TEST_MAPS - 1) * STORIES_PER_MAP
    return order, rng.sample(range(STORIES_PER_MAP), STORIES_PER_MAP)[:tested]


def members(stories: StorySet, split: str, seed: int = 0) -> list[int]:
    """Numbers of the stories of one split, in order."""
    return [index for index, name in assign(stories, seed).items() if name == split]


def published(stories: StorySet) -> list[int]:
    """Numbers of the stories that the released code tests, in the order of its file.

    Maps are cut by it, and textual twins of the others are among them.
    """
    return list(stories.indices)[:-FOR_PROBES]


def why_none(stories: StorySet, split: str) -> str:
    """One sentence for people whose data has no story of ``split``."""
    if split == PUBLISHED:
        return (
            f"no {split} stories in {stories.source}: they are all but the last {FOR_PROBES}, and "
            f"it has {len(stories)}"
        )
    maps = len({stories.identity(index).map for index in stories.indices})
    return (
        f"no {split} stories among the {len(stories)} of {stories.source}: they are of "
        f"{maps} {'map' if maps == 1 else 'maps'}, and a map is never cut; take data with more "
        "maps, or another split seed"
    )
