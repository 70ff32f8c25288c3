"""The options of a run: what they are called, what they choose, which are refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sally_anne.core.errors import BenchmarkError, OptionError
from sally_anne.data.gridtom.samples import choose_stories
from sally_anne.data.gridtom.stories import Identity, StorySet
from sally_anne.hooks.geometry import SITES
from sally_anne.probing import sources
from sally_anne.probing.config import ProbeConfig, Site
from sally_anne.probing.pipeline import run

# Of stories that all say something else; see tests/data/gridtom/test_samples.py for pairs.
FULL = {"test": 500, "train": 96, "validation": 48}
DEFAULT_FOLDER = "runs/tiny-qwen2-vl-order1-matched-multimodal-head_out"


def story_set(indices) -> StorySet:
    """Stories of which nothing but the numbers may be asked."""
    return StorySet(
        indices,
        lambda index: pytest.fail("a story was made"),
        "test",
        lambda: "",
        lambda index: Identity(f"map-{index // 24:02d}", str(index)),
    )


def test_choices_are_those_of_the_rooms_below() -> None:
    assert get_args(Site) == SITES


@pytest.mark.parametrize(
    ("config", "folder"),
    [
        (ProbeConfig(), DEFAULT_FOLDER),
        (
            ProbeConfig(model="owner/Name-7B", order=2, contrast="paper", site="resid"),
            "runs/Name-7B-order2-paper-multimodal-resid",
        ),
        (
            ProbeConfig(model="/a/folder/", setting="text", stories=24),
            "runs/folder-order1-matched-text-head_out-24stories",
        ),
        (ProbeConfig(model="."), "runs/model-order1-matched-multimodal-head_out"),
        (
            ProbeConfig(data=Path("/a/GridToM/"), split_seed=3, data_seed=7),
            f"{DEFAULT_FOLDER}-data-GridToM-split3-seed7",
        ),
        (ProbeConfig(data=Path("/a/..")), f"{DEFAULT_FOLDER}-data-root"),
        (ProbeConfig(stories=24, split_seed=1), f"{DEFAULT_FOLDER}-24stories-split1"),
        (
            ProbeConfig(solver="sklearn", c=10.0, max_iter=9),
            f"{DEFAULT_FOLDER}-sklearn-c10-iter9",
        ),
        (ProbeConfig(out=Path("here"), stories=24, c=10.0), "here"),
    ],
)
def test_run_folder_is_named_after_the_options(config: ProbeConfig, folder: str) -> None:
    assert config.folder == Path(folder)


def test_data_in_the_current_folder_is_called_by_its_name(tmp_path, monkeypatch) -> None:
    (tmp_path / "stories" / "inner").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "stories" / "inner")
    assert ProbeConfig(data=Path(".")).folder.name.endswith("-data-inner")
    assert ProbeConfig(data=Path("..")).folder.name.endswith("-data-stories")


def test_runs_of_other_samples_or_probes_have_folders_of_their_own() -> None:
    changes = [
        {},
        {"data": Path("a")},
        {"data": Path("b")},
        {"stories": 3},
        {"split_seed": 3},
        {"data_seed": 3},
        {"c": 10.0},
        {"c": 0.0150001},
        {"max_iter": 3},
        {"solver": "sklearn"},
    ]
    folders = {ProbeConfig(**change).folder for change in changes}  # type: ignore[arg-type]
    assert len(folders) == len(changes)


def test_all_stories_are_split_by_whole_maps() -> None:
    chosen = choose_stories(story_set(range(648)))
    assert Counter(chosen.values()) == FULL


@given(st.integers(17, 644), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_a_part_of_the_stories_keeps_the_proportions(stories: int, seed: int) -> None:
    everything = choose_stories(story_set(range(648)), split_seed=seed)
    chosen = choose_stories(story_set(range(648)), stories, seed)
    assert len(chosen) == stories
    assert chosen.items() <= everything.items()
    counts = Counter(chosen.values())
    for split, size in FULL.items():
        assert abs(counts[split] - size * stories / 644) < 1


def test_too_few_and_too_many_stories_are_refused() -> None:
    with pytest.raises(BenchmarkError, match="--stories 5 is too few; 20 is the least"):
        choose_stories(story_set(range(648)), 5)
    with pytest.raises(BenchmarkError, match="--stories 649 is more than the 644"):
        choose_stories(story_set(range(648)), 649)
    with pytest.raises(
        BenchmarkError, match="no train stories among the 3 of test: they are of 1 map, "
    ):
        choose_stories(story_set(range(3)))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("stories", 0),
        ("stories", -5),
        ("batch_size", 0),
        ("max_iter", 0),
        ("c", 0.0),
        ("c", float("nan")),
    ],
)
def test_impossible_options_are_named_before_anything_is_read(
    option: str, value: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sources, "open_stories", lambda *_: pytest.fail("stories were opened"))
    config = ProbeConfig(out=tmp_path / "run", **{option: value})  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=f"--{option.replace('_', '-')} must be .*, got {value}"):
        run(config)
    assert not config.folder.exists()
