"""What --limit draws: evenly, whole groups, the same in every run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sally_anne.data.items import Benchmark, BenchmarkItem, Option
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.tasks import Row, Subset, load_items, sample_groups

ABILITIES = [(f"a{n}", {"ability": ("a",)}) for n in range(8)]
ABILITIES += [(f"b{n}", {"ability": ("b",)}) for n in range(4)]


@pytest.mark.parametrize(
    ("limit", "a", "b"), [(1, None, None), (2, 1, 1), (6, 3, 3), (8, 4, 4), (10, 6, 4), (99, 8, 4)]
)
def test_values_get_equal_parts_as_long_as_there_are_some(limit: int, a: int, b: int) -> None:
    kept = sample_groups(ABILITIES, ("ability",), limit, 0)
    assert len(kept) == min(limit, 12)
    if a is not None:
        assert Counter(name[0] for name in kept) == {"a": a, "b": b}


def test_groups_are_taken_whole_and_weigh_as_many_items_as_they_have() -> None:
    """The story with three questions of x stands against the three stories with one of y."""
    rows = [("large", {"kind": ("x",)})] * 3 + [(f"y{n}", {"kind": ("y",)}) for n in range(3)]
    for seed in range(5):
        kept = sample_groups(rows, ("kind",), 3, seed)
        assert kept == {"y0", "y1", "y2"} or "large" in kept and len(kept) == 3
    assert sample_groups(rows, ("kind",), 4, 0) == {"large", "y0", "y1", "y2"}
    told = Subset.of([row for row in rows if row[0] in ("large", "y1")], ("kind",), 7)
    assert (told.groups, told.items, told.by) == (("large", "y1"), 4, {"kind": {"x": 3, "y": 1}})
    assert str(told) == "drawn by --limit, evenly over kind (seed 7): 2 groups, 4 items"


tagged = st.fixed_dictionaries({"kind": st.tuples(st.sampled_from("uvw"))})


@given(st.lists(tagged, min_size=1, max_size=40), st.integers(1, 50), st.integers(0, 9))
def test_as_many_of_each_value_within_one_where_there_are_so_many(tags, limit, seed) -> None:
    rows: list[Row] = [(str(n), each) for n, each in enumerate(tags)]
    kept = sample_groups(rows, ("kind",), limit, seed)
    assert len(kept) == min(limit, len(rows))
    there = Counter(each["kind"] for _, each in rows)
    taken = Counter(each["kind"] for name, each in rows if name in kept)
    most = max(taken.values())
    assert all(taken[value] >= min(n, most - 1) for value, n in there.items())


@given(st.integers(1, 12), st.integers(0, 20))
def test_two_kinds_are_even_at_once(limit: int, seed: int) -> None:
    rows: list[Row] = [
        (f"{a}{b}{n}", {"one": (a,), "two": (b,)}) for a in "pq" for b in "xyz" for n in range(12)
    ]
    kept = sample_groups(rows, ("one", "two"), limit, seed)
    for place, values in enumerate(("pq", "xyz")):
        counts = [sum(name[place] == value for name in kept) for value in values]
        assert max(counts) - min(counts) <= 1


def test_stories_of_gridtom_over_maps_in_whole_pairs() -> None:
    config = EvalConfig(setting="text", limit=42)
    work = load_items(config)
    stories = {item.story: item.map for item in work.items}
    assert set(Counter(stories.values()).values()) == {2} and len(stories) == 42
    pairs = Counter((item.story, item.condition) for item in work.items)
    assert set(pairs.values()) == {1} and len(pairs) == 84
    assert work.subset is not None and set(work.subset.by["map"].values()) == {4}
    assert (
        load_items(replace(config, model="another", order="2")).subset.groups == work.subset.groups
    )
    assert load_items(replace(config, limit_seed=1)).subset.groups != work.subset.groups
    everything = load_items(replace(config, limit=None))
    assert everything.subset is None
    assert load_items(replace(config, limit=500)).items == everything.items


def test_films_of_a_benchmark_over_its_breakdowns_and_in_its_order(monkeypatch) -> None:
    """Each film has a question of one ability; the last film alone has one of another."""
    options = (Option("A", "yes"), Option("B", "no"))
    items = [
        BenchmarkItem(
            f"q{n}", "made", "test", f"film {n // 2}", "?", options, "A", tags={"ability": (kind,)}
        )
        for n, kind in enumerate(["x", "x"] * 9 + ["y", "y"])
    ]
    made = Benchmark("made", lambda _: items, {"none": ()}, ("ability",), "", "none")
    monkeypatch.setattr("sally_anne.harness.tasks.find_task", lambda task: made)
    work = load_items(EvalConfig(task="made", limit=2))
    assert [item.item_id for item in work.items][2:] == ["q18", "q19"]
    assert work.subset is not None and work.subset.by == {"ability": {"x": 2, "y": 2}}
