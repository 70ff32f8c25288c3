"""Captions next to frames: a part of the story, another one, or all; none with frames alone."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from sally_anne.data.gridtom.narration import Cast, caption
from sally_anne.experiments.train_tiny.conversations import (
    Example,
    Speech,
    checked,
    interview,
    narrated,
)
from sally_anne.experiments.train_tiny.documents import Scene
from sally_anne.experiments.train_tiny.videos import contradicted

WORDS = Speech("BEFORE ", "before ", " AFTER", "END")
CAST = Cast("white", "yellow", "red", "green", "purple")
SCENE = Scene(CAST, "TB", None)


def example(setting: str, captioned: Scene | None = None, share: float = 1.0) -> Example:
    rng = random.Random(0)
    return Example(rng, SCENE, "omniscient", setting, WORDS, captioned, share)  # type: ignore[arg-type]


def test_frames_alone_are_told_nothing() -> None:
    assert example("video").caption() == ""
    for make in (checked, interview, lambda t: narrated(t, 0.5)):
        words = " ".join(piece.text for piece in make(example("video")))
        assert "walks into" not in words.split("Question")[0]


def test_a_caption_breaks_off_after_whole_sentences() -> None:
    whole = caption(CAST, "TB")
    assert example("multimodal").caption() == whole
    lengths = set()
    for tenth in range(10):
        part = example("multimodal", share=tenth / 10).caption().strip()
        assert whole.startswith(part) and part in ("", *_beginnings(whole))
        lengths.add(len(part))
    assert len(lengths) > 4


def _beginnings(text: str) -> list[str]:
    return [text[: i + 1] for i, letter in enumerate(text) if letter == "."]


def test_another_story_is_told_but_asked_about_is_the_one_shown() -> None:
    other = SCENE._replace(first="FB")
    told = example("multimodal", other)
    assert told.caption() == caption(CAST, "FB")
    pieces = checked(told)
    stated = [
        (piece.text, said.text)
        for piece, said in zip(pieces, pieces[1:], strict=False)
        if said.text in ("right", "wrong") and piece.text.startswith("Belief: The white")
    ]
    for text, said in stated:
        assert (said == "right") == ("purple" in text)


@pytest.mark.parametrize("first", ["TB", "FB"])
def test_a_contradiction_has_the_same_agents_and_another_truth(first: str) -> None:
    rng = random.Random(1)
    scene = Scene(CAST, first, None)  # type: ignore[arg-type]
    seen: Counter[str] = Counter()
    for _ in range(100):
        other = contradicted(rng, scene)
        assert other.cast[:2] == CAST[:2] and set(other.cast) == set(CAST)
        seen["condition" if other.cast == CAST else "rooms"] += 1
        assert other != scene
    assert min(seen.values()) > 25
