"""Samples made in Python: columns go by place, and what is wrong is named before it is read."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

import sally_anne as sa
from sally_anne.core.errors import MediaError, OptionError, RecordError
from sally_anne.data.samples import copies, untrained, with_splits

SPLITS = ("train", "validation", "test")
CONTRASTS = ("matched", "paper", "released", "crossed")
tables = st.lists(st.integers(0, 10**6), min_size=3, max_size=30, unique=True).map(
    lambda keys: pd.DataFrame(
        {
            "text": [f"number {key}" for key in keys],
            "even": [key % 2 == 0 for key in keys],
            "digits": [len(str(key)) for key in keys],
            "group": [f"group {key}" for key in keys],
            "split": [SPLITS[key % 3] for key in keys],
        },
        index=keys,
    )
)
CHANGES = {
    "shuffled": lambda table: table.sample(frac=1, random_state=0),
    "sorted": lambda table: table.sort_values("digits", ascending=False),
    "filtered": lambda table: table[table.even],
    "joined": lambda table: pd.concat([table, table.query("not even")]),
    "dropped": lambda table: table.where(table.even).dropna(),
    "reindexed": lambda table: table.set_index("group", drop=False),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", [lambda column: column, np.asarray, list, tuple, pa.array, iter])
def test_columns_go_by_place(change: str, kind) -> None:
    @settings(max_examples=200, deadline=None)
    @given(tables)
    def holds(table: pd.DataFrame) -> None:
        table = CHANGES[change](table)
        labels = {"even": kind(table.even), "digits": kind(table.digits.astype(int))}
        made = sa.samples(kind(table.text), labels, kind(table.group), None, kind(table.split))
        for sample in made:
            key = int(sample.text.removeprefix("number "))
            assert sample.labels == {"even": key % 2 == 0, "digits": len(str(key))}
            assert (sample.group, sample.split) == (f"group {key}", SPLITS[key % 3])

    holds()


def test_a_table_of_labels_is_a_mapping_and_groups_are_names() -> None:
    table = pd.DataFrame({"a": [True, False, True], "b": [1, 2, 3]})
    made = sa.samples(["x", "y", "z"], table, groups=[0, 0, 1])
    assert [s.labels for s in made] == [
        {"a": bool(a), "b": b} for a, b in zip(table.a, table.b, strict=True)
    ]
    assert [s.group for s in made] == ["0", "0", "1"]
    made = sa.samples(
        list("abcde"), {"a": [" x", "x", "y", "y ", "x"]}, [1, 1.0, "1 ", " 1", "1.0"]
    )
    assert {s.group for s in made} == {"1"} and {s.labels["a"] for s in made} == {"x", "y"}


@pytest.mark.parametrize("none", [None, float("nan"), pd.NA, pd.NaT, pa.scalar(None)], ids=repr)
def test_what_is_missing_is_none_and_nought_is_a_name(none: Any) -> None:
    four, keys, words = list("abcd"), [0, 0, none, none], [False, True, none, none]
    made = sa.samples(four, {"fits": torch.tensor([1, 0, 1, 0])}, pairs=keys, answers=words)
    assert [s.group for s in made] == ["0", "0", "sample-00002", "sample-00003"]
    assert [s.answer for s in made] == ["False", "True", "", ""]
    made = sa.samples(four, {"fits": [True] * 4}, [none] * 4, [none] * 4, [none] * 4)
    assert len({s.group for s in made}) == 4 and not any(s.split for s in made)


WRONG: list[dict[str, Any]] = [
    {"splits": ["Train", "Val", "Test"]},
    {"splits": ["train", "dev", "test"]},
    {"splits": list(SPLITS), "groups": ["g"] * 3},
    {"labels": {"fits": [0.5, 1.0, 0.0]}},
    {"labels": {"fits": [True, None, False]}},
    {"labels": {"fits": ["a", " ", "b"]}},
    {"labels": {"fits": [True, False]}},
    {"labels": [True, False, True]},
    {"texts": ["a", "", "c"]},
    {"texts": ["a", None, "c"]},
    {"texts": "abc"},
    {"groups": ["a"] * 2},
    {"videos": [None]},
    {"splits": ["test"]},
    {"splits": "test"},
    {"labels": {"fits": 1}},
    {"labels": {"fits": {0: True, 1: False, 2: True}}},
    {"labels": {1: [True, False, True]}},
    {"texts": {"a", "b", "c"}},
    {"texts": np.array("a")},
    {"groups": {"a": "g", "b": "g", "c": "h"}},
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: ", ".join(wrong))
def test_what_is_wrong_is_refused(wrong: dict[str, Any]) -> None:
    given = {"texts": ["a", "b", "c"], "labels": {"fits": [True, False, True]}} | wrong
    with pytest.raises(RecordError, match=next(iter(wrong)).removesuffix("s")):
        sa.samples(**given)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([{"setting": "Video"}, {"order": 3}, {"stories": 0}, {"seed": -1}])
    | st.text(max_size=9).filter(lambda word: word not in CONTRASTS).map(lambda w: {"contrast": w})
)
def test_words_that_there_are_not_are_refused_in_python(words: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=next(iter(words))):
        sa.gridtom(**words)


def test_labels_of_two_kinds_are_refused_when_samples_are_read() -> None:
    made = sa.samples(["a", "b", "c"], {"fits": [True, 1, "yes"]})
    with pytest.raises(RecordError, match="fits"):
        with_splits(made)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from("abc"), min_size=6, max_size=40))
def test_every_class_trains_where_it_can(classes: list[str]) -> None:
    made = with_splits(sa.samples([str(i) for i in range(len(classes))], {"kind": classes}))
    assert {s.split for s in made} == set(SPLITS)
    rare = [c for c in set(classes) if classes.count(c) == 1]
    assert not untrained(made) or rare


def test_a_class_that_does_not_train_is_named() -> None:
    made = sa.samples(list("abcd"), {"kind": list("xxyz")}, splits=["train", *SPLITS])
    assert "kind = y (sample sample-00002), kind = z (sample" in untrained(made)
    assert untrained(made[:2]) == untrained(made[2:]) == ""


def test_copies_across_splits_are_counted() -> None:
    texts = ["a c", "b", "a  C\n", "c", "ｂ", "d"]
    splits = ["train", "train", "test", "test", "test", "validation"]
    made = sa.samples(texts, {"fits": [True, False] * 3}, splits=splits)
    assert copies(made).startswith("2 of 3 test samples")
    assert copies(made[:2] + made[3:4]) == ""


FRAMES = np.random.default_rng(0).integers(0, 256, (3, 8, 6, 3), dtype=np.uint8)
SIDES = st.integers(4, 9)


def ways(folder: Path, frames: np.ndarray) -> dict[str, Any]:
    """The same pictures, given in every way that a user has them."""
    files = []
    for i, frame in enumerate(frames):
        files.append(folder / f"{i}.png")
        Image.fromarray(frame).save(files[-1])
    return {
        "array": frames,
        "floats": frames / 255,
        "tensor": torch.from_numpy(frames),
        "channels first": torch.from_numpy(frames).permute(0, 3, 1, 2),
        "float tensor": torch.from_numpy(frames).permute(0, 3, 1, 2).float() / 255,
        "with a gradient": (torch.from_numpy(frames) / 255).double().requires_grad_(),
        "list": list(frames),
        "PIL": [Image.fromarray(frame) for frame in frames],
        "paths": files,
        "names": [str(path) for path in files],
    }


@settings(max_examples=200, deadline=None)
@given(arrays(np.uint8, st.tuples(st.integers(1, 4), SIDES, SIDES, st.just(3))))
def test_pictures_are_the_same_however_they_are_given(frames: np.ndarray) -> None:
    with TemporaryDirectory() as folder:
        for way, pictures in ways(Path(folder), frames).items():
            by_video = sa.samples(["a"], {"fits": [True]}, videos=[pictures])[0]
            by_images = sa.Sample("a", "a", images=tuple(pictures), labels={"fits": True})
            for sample in (by_video, by_images):
                assert np.array_equal(sample.frames(), frames), way
                assert sample.shape() == frames.shape[:3]


def test_black_and_white_are_so_in_any_precision() -> None:
    grey = torch.tensor([0.0, 1.0]).repeat(2, 3, 4, 2)
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        found = sa.Sample("a", "a", video=grey.to(dtype), labels={"fits": True}).frames()
        assert set(found.ravel()) == {0, 255}


@pytest.mark.parametrize(
    "wrong",
    [FRAMES.astype(np.uint16), FRAMES[..., :1], FRAMES.astype(float), FRAMES[:0]]
    + [[Image.fromarray(np.full((4, 4), 0.5, np.float32))], [Image.new("I", (4, 4), 200)]]
    + [2 - FRAMES / 255, [], [FRAMES[0], FRAMES[1, :4]], "none.mp4", 7, [7]],
    ids=lambda wrong: type(wrong).__name__,
)
def test_what_is_no_picture_is_refused_with_the_samples_name(wrong) -> None:
    with pytest.raises(MediaError):
        sa.Sample("mine", "a", video=wrong, labels={"fits": True}).frames()
