"""Scores by frames alone follow the frames: with none of their order, place or story they fall."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from sally_anne.data.gridtom import samples
from sally_anne.data.gridtom.stories import generated
from sally_anne.experiments.train_tiny.evaluate import measure
from sally_anne.models.loading import LoadedModel, load_model

pytestmark = pytest.mark.e2e

SEEING = ("tiny-qwen2-vl", "tiny-llava-next-video")
# Of 125 test stories, some with each map.
STORIES = samples.members(generated(), "test")[::20]
SIDES = "statements TB", "statements FB"


@pytest.fixture(scope="module", params=SEEING)
def seer(request: pytest.FixtureRequest) -> LoadedModel:
    return load_model(request.param)


def scores(
    loaded: LoadedModel, frames: Callable[[Any], np.ndarray] = lambda case: case.frames()
) -> dict[str, float]:
    return measure(loaded, generated(stories=STORIES), "video", 8, frames)


@pytest.fixture(scope="module")
def own(seer: LoadedModel) -> dict[str, float]:
    return scores(seer)


def shown_instead(story: Callable[[int], int], side: Callable[[str], str]) -> Callable[..., Any]:
    """Films of another story or of another side, in place of a case's own."""
    records = {record.index: record for record in generated(stories=STORIES)}

    def frames(case: Any) -> np.ndarray:
        other = records[story(case.story)]
        cases = other.cases(1 if case.second is None else 2)
        needed = side(case.first), case.second
        (found,) = (c for c in cases if (c.first, c.second) == needed)
        return found.frames()

    return frames


def test_each_film_tells_what_is_asked(seer: LoadedModel, own: dict[str, float]) -> None:
    assert own["initial belief"] >= 0.9
    assert own["location statements"] >= 0.9
    assert min(own[side] for side in SIDES) >= 0.9


def test_the_film_of_the_other_side_turns_verdicts(
    seer: LoadedModel, own: dict[str, float]
) -> None:
    turned = scores(seer, shown_instead(lambda i: i, lambda f: "FB" if f == "TB" else "TB"))
    for side, other in zip(SIDES, SIDES[::-1], strict=True):
        # The words are those of either side: whoever reads the film judges as of the other.
        assert turned[side] == pytest.approx(1 - own[other], abs=1e-9)
    assert turned["location statements"] == own["location statements"]


def test_another_story_tells_nothing(seer: LoadedModel, own: dict[str, float]) -> None:
    order = [int(i) for i in STORIES]
    after = dict(zip(order, [*order[1:], order[0]], strict=True))
    found = scores(seer, shown_instead(lambda i: after[i], lambda f: f))
    assert found["initial belief"] <= own["initial belief"] - 0.3
    assert found["location statements"] <= own["location statements"] - 0.2


@pytest.fixture
def shuffled(seer: LoadedModel) -> Iterator[LoadedModel]:
    """The same model, its video tokens in another order."""
    inner = seer.model.model
    real = inner.get_video_features

    def mixed(*args: Any, **kwargs: Any) -> Any:
        found = real(*args, **kwargs)
        rng = torch.Generator().manual_seed(0)
        kept = found.pooler_output
        clips = kept if isinstance(kept, (tuple, list)) else [kept]
        new = [c.flatten(0, -2)[torch.randperm(c[..., 0].numel(), generator=rng)] for c in clips]
        new = [n.view_as(c) for n, c in zip(new, clips, strict=True)]
        found.pooler_output = type(kept)(new) if isinstance(kept, (tuple, list)) else new[0]
        return found

    inner.get_video_features = mixed
    yield seer
    inner.get_video_features = real


def test_tokens_in_another_order_tell_less(shuffled: LoadedModel) -> None:
    whole = scores(shuffled)
    assert whole["location statements"] <= 0.8
