"""The set of stories: how many, how they vary, and that they never change unnoticed."""

from __future__ import annotations

from collections import Counter

from sally_anne.data.gridtom.stories import generate, generated

# Changes with any change of a map, a draw or a text; then raise GENERATOR_VERSION as well.
GOLDEN = "f8fb78df05438bbbbd6096dcf24dd72780ab58f4beae8b014bad11c0faa519c3"


def test_numbers_of_the_paper() -> None:
    stories = generate()
    assert [s.index for s in stories] == list(range(648))
    maps = Counter(s.staging.layout.name for s in stories)
    assert len(maps) == 27
    assert set(maps.values()) == {24}
    records = generated(stories=range(0, 648, 24))
    assert {len(r.cases(1)) for r in records} == {2}
    assert {len(r.initial) for r in records} == {3}
    assert 648 * 2 == 1296 and 648 * 3 == 1944


def test_a_map_has_two_starts_two_orientations_and_six_orders() -> None:
    stories = generate()
    for start in range(0, 648, 24):
        stagings = [s.staging for s in stories[start : start + 24]]
        assert len({s.starts for s in stagings}) == 2
        assert len({s.directions for s in stagings}) == 2
        assert len({s.order for s in stagings}) == 6
        assert len({(s.starts, s.directions, s.order) for s in stagings}) == 24


def test_agents_and_rooms_have_five_different_colours() -> None:
    stories = generate()
    assert all(len(set(s.staging.colours)) == 5 for s in stories)
    for part in range(5):
        assert len({s.staging.colours[part] for s in stories}) == 6
    assert {frozenset(s.rooms) == frozenset(s.cast[2:]) for s in stories} == {True}


def test_a_seed_gives_the_same_stories_and_another_seed_others() -> None:
    assert generate(7) == generate(7)
    assert generate(7) != generate(8)


def test_all_texts_and_stagings_are_those_of_this_generator_version() -> None:
    assert generated().fingerprint == GOLDEN
