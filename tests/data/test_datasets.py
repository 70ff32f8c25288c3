"""Fairness of the sets that are made here: no word tells a label, no split shares what it is of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sally_anne.core.errors import OptionError
from sally_anne.data.datasets import (
    CONTAINERS,
    NAMES,
    PLOTS,
    THINGS,
    beliefs,
    ioi,
    part,
    statements,
)
from sally_anne.data.items import WITH_FRAMES, WITH_SOUND
from sally_anne.data.pairs import own_pairs
from sally_anne.data.samples import SPLITS, Sample
from sally_anne.data.tasks import (
    BENCHMARKS,
    SURFACE,
    find_task,
    open_pairs,
    open_task,
    option_pairs,
)
from sally_anne.probing.config import ProbeConfig
from tests.data import made_text_sets
from tests.harness import made_benchmarks
from tests.shared_data import MADE

Made = Callable[..., list[Sample]]
ASKED = partial(statements, asked=True)
TOLD = partial(beliefs, question="statement")
CONTROLS = [partial(beliefs, question=question) for question in ("reality", "initial")]
PAIRED = (ioi, ASKED, beliefs, *CONTROLS)
drawn = {"seed": st.integers(0, 2**32 - 1), "pairs": st.integers(6, 50)}
few = settings(max_examples=8, deadline=None)


def words(sample: Sample) -> list[str]:
    return sample.text.replace(".", "").replace(",", "").lower().split()


def by(samples: Sequence[Sample], key: Callable[[Sample], object]) -> dict[object, list[Sample]]:
    parts: dict[object, list[Sample]] = {}
    for sample in samples:
        parts.setdefault(key(sample), []).append(sample)
    return parts


@pytest.mark.parametrize("make", [ioi, statements, beliefs, TOLD])
@few
@given(**drawn)
def test_no_word_and_no_length_tells_a_label(make: Made, seed: int, pairs: int) -> None:
    """In each group, so in each split, the samples of all labels hold the same words as often."""
    for group in by(make(pairs, seed=seed), lambda s: s.group).values():
        for label in group[0].labels:
            sides = by(group, lambda s, label=label: s.labels[label])
            counts = [Counter(word for s in side for word in words(s)) for side in sides.values()]
            lengths = [sorted(len(words(s)) for s in side) for side in sides.values()]
            assert len(sides) == 2
            assert counts[0] == counts[1]
            assert lengths[0] == lengths[1]


@pytest.mark.parametrize("make", [*PAIRED, statements, TOLD])
@few
@given(**drawn)
def test_splits_share_no_group_text_or_name(make: Made, seed: int, pairs: int) -> None:
    samples = make(pairs, seed=seed)
    assert samples == make(pairs, seed=seed)
    assert len({s.item_id for s in samples}) == len({s.text for s in samples}) == len(samples)
    assert all(
        len({s.split for s in group}) == 1 for group in by(samples, lambda s: s.group).values()
    )
    parts = by(samples, lambda s: s.split)
    assert set(parts) == set(SPLITS)
    names = [
        {w for s in own for w in words(s)} & {n.lower() for n in NAMES} for own in parts.values()
    ]
    assert sum(map(len, names)) == len(set.union(*names))
    subjects = [{s.item_id.split("/")[1] for s in own} for own in parts.values()]
    assert make not in (statements, ASKED) or not set.intersection(*subjects)


@pytest.mark.parametrize("make", PAIRED)
@few
@given(**drawn)
def test_pairs_exchange_their_answers(make: Made, seed: int, pairs: int) -> None:
    """Each answer is that of one side; of names and places both are said on either side."""
    samples = make(pairs, seed=seed)
    found = own_pairs(samples).pairs
    assert len(found) * 2 == len(samples)
    for pair in found:
        one, other = (words(sample) for sample in pair.samples)
        assert len(one) == len(other)
        if make is not ASKED:
            assert all(a.lower() in side for a in pair.answers for side in (one, other))
        if make in (ioi, ASKED):
            assert sum(a != b for a, b in zip(one, other, strict=True)) == 1
        if make is beliefs:
            assert [s.tags["condition"] for s in pair.samples] == ["TB", "FB"]
            assert Counter(one) == Counter(other)


@few
@given(**drawn, question=st.sampled_from(["belief", "reality", "initial"]))
def test_where_places_are_said_tells_no_answer(seed: int, pairs: int, question: str) -> None:
    """Of each belief half of the answers are the place said last, and half the one said first."""
    for story in by(beliefs(pairs, seed=seed, question=question), lambda s: s.group).values():
        places = {s.answer for s in story}
        said = [[w for w in words(s) if w in places] for s in story]
        assert len(places) == 2
        assert all(count == 3 for each in said for count in Counter(each).values())
        if question == "belief":
            for at in (0, -1):
                assert sum(each[at] == s.answer for each, s in zip(said, story, strict=True)) == 2


def test_held_out_lists_are_not_trained_on() -> None:
    train, held = (beliefs(60, lists=lists) for lists in ("train", "held-out"))
    for listed in (NAMES, THINGS, CONTAINERS):
        used = [
            {w for s in own for w in words(s)} & {x.lower() for x in listed}
            for own in (train, held)
        ]
        assert used[0] and used[1] and not used[0] & used[1]
    plots = [{s.tags["plot"] for s in own} for own in (train, held)]
    assert plots == [set(part(list(PLOTS), lists)) for lists in ("train", "held-out")]


def test_the_same_seed_tells_the_same_stories() -> None:
    """Questions of all kinds and statements differ after the story alone."""
    told = [
        {s.text.partition(" are closed.")[0] for s in beliefs(20, question=question)}
        for question in ("belief", "reality", "initial", "statement")
    ]
    assert all(each == told[0] for each in told)


@pytest.mark.parametrize("wrong", [{"pairs": 2}, {"pairs": 0}, {"pairs": 1000}, {"kinds": ("x",)}])
def test_wrong_numbers_and_words_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        statements(**wrong)


@pytest.mark.parametrize("task", ["ioi", "statements", "beliefs"])
def test_a_task_and_its_pairs_are_of_the_same_groups_and_splits(task: str) -> None:
    options = ProbeConfig(task=task, stories=20)
    data = open_task(options)
    (pairs,) = open_pairs(options, data).values()
    assert {(s.group, s.split) for s in data.samples} == {
        (s.group, s.split) for pair in pairs.pairs for s in pair.samples
    }
    assert task in str(options.folder)
    with pytest.raises(OptionError):
        open_task(replace(options, setting="video"))


@pytest.mark.parametrize("task", [name for name in BENCHMARKS if name != "mimeqa"])
def test_options_make_pairs_that_differ_in_the_answer_alone(task: str, tmp_path: Path) -> None:
    folder, benchmark = MADE / task, find_task(task)
    if not folder.exists():
        folder = getattr(made_text_sets, task)(tmp_path) and tmp_path
    items = {item.item_id: item for item in benchmark.load(folder)}
    samples = list(option_pairs(benchmark, items.values(), "text"))
    for right, wrong in zip(samples[::2], samples[1::2], strict=True):
        item, sides = items[right.context], [s.text.rsplit("\nAnswer: ", 1) for s in (right, wrong)]
        said = {option.text.rstrip("."): option.label for option in item.options}
        assert sides[0][0] == sides[1][0] and sides[0][0].endswith(item.question)
        assert [said[end.rstrip(".")] == item.answer for _, end in sides] == [True, False]
        assert [s.labels for s in (right, wrong)] == [{"right": True}, {"right": False}]
        assert {(s.group, s.context) for s in (right, wrong)} == {(item.group, item.item_id)}
        for name in SURFACE:
            assert {right.tags[name], wrong.tags[name]} in ({"as much"}, {"less", "more"})
    assert len(samples) == 2 * sum(bool(item.answer) for item in items.values()) > 0


def test_films_of_a_benchmark_are_shown_and_played(tmp_path: Path) -> None:
    folder, task = made_benchmarks.moments(tmp_path / "moments"), find_task("moments")
    with pytest.raises(OptionError, match="sound"):
        open_task(ProbeConfig(task="moments", data=folder, setting="audio"))
    (folder / "videos" / "12345.mp4").unlink()
    tone = (9000 * np.sin(np.arange(3 * 16_000) / 9)).astype(np.int16)
    made_benchmarks.film(folder / "videos" / "12345.mkv", sound=tone)
    questions = [question for question in task.load(folder) if question.answer]
    for view in task.views:
        for sample in option_pairs(task, questions, view):
            assert sample.shows == (view in WITH_FRAMES)
            played = sample.waveform()
            assert (played is not None) == (view in WITH_SOUND)
            if played is not None:
                np.testing.assert_allclose(played, tone[:40_000] / 32768, atol=1e-4)
