"""The 648 stories, generated from a seed (paper, section 3.1 and appendix I)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from sally_anne.benchmarks.gridtom.layout import Layout
from sally_anne.benchmarks.gridtom.maps import benchmark_layouts, start_pairs
from sally_anne.benchmarks.gridtom.minds import final_beliefs
from sally_anne.benchmarks.gridtom.narration import Cast
from sally_anne.benchmarks.gridtom.palette import COLOURS
from sally_anne.benchmarks.gridtom.plot import Condition, Staging, Trace, play
from sally_anne.core.errors import BenchmarkError

DEFAULT_SEED = 2025
STARTS = 2
ORIENTATIONS = 2
ORDERS = tuple((a, b, c) for a, b, c in itertools.permutations(range(3)))
STORIES_PER_MAP = STARTS * ORIENTATIONS * len(ORDERS)


@dataclass(frozen=True)
class Story:
    """One basic story; its true- and false-belief versions are played on demand.

    Attributes:
        index: number in the release, 0 to 647.
        staging: map, colours, room order, starts and directions.
    """

    index: int
    staging: Staging

    @property
    def cast(self) -> Cast:
        """The colours by their part in the plot."""
        return Cast(*self.staging.colours)

    @cached_property
    def rooms(self) -> tuple[str, str, str]:
        """Room colours in the order of the map, which tells nothing about the plot."""
        colours = [""] * 3
        for role, room in enumerate(self.staging.order):
            colours[room] = self.staging.colours[2 + role]
        return (colours[0], colours[1], colours[2])

    def play(self, first: Condition, second: Condition = "TB") -> Trace:
        """Play one version and check the beliefs that follow from it against the plot.

        Raises:
            BenchmarkError: the simulation does not produce the belief condition asked for.
        """
        trace = play(self.staging, first, second)
        beliefs = final_beliefs(trace)
        first_room, _, last_room = self.staging.order
        believed = last_room if first == "TB" else first_room
        other = first_room if first == "TB" else last_room
        thought = believed if second == "TB" else other
        wanted = (last_room, believed, thought)
        found = (beliefs.reality, beliefs.protagonist, beliefs.participant)
        if found != wanted:
            raise BenchmarkError(
                f"story {self.index} ({self.staging.layout.name}, first order {first}, second "
                f"order {second}): the simulation gives rooms {found}, the plot wants {wanted}"
            )
        return trace


def generate(seed: int = DEFAULT_SEED, layouts: Sequence[Layout] | None = None) -> list[Story]:
    """All stories: map x starting position x orientation x order of rooms.

    Args:
        seed: draws starts, directions and colours; the same seed gives the same stories.
        layouts: maps; the 27 of the benchmark by default.

    Returns:
        24 stories a map, in a fixed order; 648 for the benchmark maps.
    """
    maps = benchmark_layouts() if layouts is None else layouts
    return [story for i, layout in enumerate(maps) for story in _stories_of_map(seed, i, layout)]


def _stories_of_map(seed: int, number: int, layout: Layout) -> Iterator[Story]:
    # One generator a map: a change in one map leaves the stories of all others as they are.
    rng = random.Random(f"{seed}/{layout.name}")
    starts = rng.sample(start_pairs(layout), STARTS)
    turned = [rng.randrange(4), rng.randrange(4)]
    orientations = [(turned[0], turned[1]), ((turned[0] + 2) % 4, (turned[1] + 2) % 4)]
    variants = itertools.product(starts, orientations, ORDERS)
    for i, (start, directions, order) in enumerate(variants):
        a, b, r1, r2, r3 = rng.sample(COLOURS, 5)
        yield Story(
            number * STORIES_PER_MAP + i,
            Staging(layout, (a, b, r1, r2, r3), order, start, directions),
        )
