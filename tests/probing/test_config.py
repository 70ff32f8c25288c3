"""The options of a run: what they are called, what they choose, which are refused."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sally_anne.core.errors import BenchmarkError, OptionError
from sally_anne.data import tasks
from sally_anne.data.datasets import SETS
from sally_anne.data.gridtom.samples import choose_stories
from sally_anne.data.gridtom.stories import Identity, StorySet
from sally_anne.data.items import TEXT_SETS
from sally_anne.probing.config import RAW_TEXT, ProbeConfig

# Of stories that all differ; see tests/data/gridtom/test_samples.py for pairs.
FULL = {"test": 500, "train": 96, "validation": 48}
DEFAULT = "runs/tiny-qwen2-vl-order1-matched-multimodal-head_out"


def story_set(indices) -> StorySet:
    """Stories of which nothing but the numbers may be read."""
    return StorySet(
        indices,
        lambda index: pytest.fail("a story was made"),
        "test",
        lambda: "",
        lambda index: Identity(f"map-{index // 24:02d}", str(index)),
    )


def test_data_in_the_current_folder_is_called_by_its_name(tmp_path, monkeypatch) -> None:
    (tmp_path / "stories" / "inner").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "stories" / "inner")
    assert ProbeConfig(data=Path(".")).folder.name.endswith("-data-inner")
    assert ProbeConfig(data=Path("..")).folder.name.endswith("-data-stories")


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


@pytest.mark.parametrize("stories", [5, 649])
def test_too_few_and_too_many_stories_are_refused(stories: int) -> None:
    with pytest.raises(BenchmarkError):
        choose_stories(story_set(range(648)), stories)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"samples": Path("mine.jsonl"), "contrast": "paper"}, "--contrast"),
        ({"task": "mmtom_qa", "order": 2}, "--order"),
        ({"task": "mmtom_qa"}, "--data"),
    ],
)
def test_options_of_another_source_are_named(options, named: str) -> None:
    with pytest.raises(OptionError, match=named):
        tasks.open_task(ProbeConfig(**options))


@pytest.mark.parametrize(
    ("options", "setting", "prompt"),
    [
        ({}, "multimodal", "auto"),
        ({"task": "ioi"}, "text", "raw"),
        ({"task": "ioi", "prompt": "chat"}, "text", "chat"),
        ({"model": "smollm2"}, "text", "auto"),
        ({"model": "smollm2", "setting": "multimodal"}, "multimodal", "auto"),
        ({"model": "HuggingFaceTB/SmolLM2-135M-Instruct"}, "text", "auto"),
        ({"model": "of/the-hub"}, "multimodal", "auto"),
        ({"model": "any.gguf"}, "text", "auto"),
        # What they show decides.
        ({"model": "smollm2", "samples": Path("mine.jsonl")}, "multimodal", "auto"),
    ],
)
def test_setting_and_frame_are_chosen_where_they_are_not_given(options, setting, prompt) -> None:
    config = ProbeConfig(**options)
    assert (config.setting, config.prompt) == (setting, prompt)
    assert replace(config) == config


@pytest.mark.parametrize(("kind", "setting"), [("llama", "text"), ("qwen2_vl", "multimodal")])
def test_a_folder_says_what_its_model_is_given(kind: str, setting: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    assert ProbeConfig(model=str(tmp_path)).setting == setting


def test_tasks_made_here_are_all_of_raw_text() -> None:
    assert set(RAW_TEXT) == {*SETS, *TEXT_SETS}
