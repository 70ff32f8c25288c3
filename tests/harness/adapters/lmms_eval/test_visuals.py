"""What tasks show becomes one clip, its frames unchanged."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

pytest.importorskip("lmms_eval")

from sally_anne.core.errors import (
    ClipError,  # noqa: E402
    HarnessError,  # noqa: E402
)
from sally_anne.harness.adapters.lmms_eval.model import clip_of  # noqa: E402

pytestmark = pytest.mark.plugins

FRAMES = np.random.default_rng(0).integers(0, 256, (5, 12, 16, 3), dtype=np.uint8)
PICTURES = [Image.fromarray(frame) for frame in FRAMES]


def shown(visuals, max_frames: int) -> np.ndarray:
    """The clip of visuals that show something."""
    clip = clip_of(visuals, max_frames)
    assert clip is not None
    return clip


@pytest.fixture
def film(tmp_path: Path) -> Path:
    """Twenty frames, each lighter than the one before by ten."""
    path = tmp_path / "film.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10, options={"qscale": "1"})
        stream.width, stream.height, stream.pix_fmt = 64, 32, "yuv420p"
        for level in range(0, 200, 10):
            picture = np.full((32, 64, 3), level, dtype=np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))
    return path


@pytest.mark.parametrize("visuals", [None, [], [None]])
def test_nothing_to_see(visuals) -> None:
    assert clip_of(visuals, 4) is None


@pytest.mark.parametrize(
    "visuals",
    [PICTURES, tuple(PICTURES), [PICTURES], list(FRAMES), [list(FRAMES)], [FRAMES], FRAMES],
    ids=["pictures", "tuple", "list", "arrays", "list of arrays", "clip", "clip alone"],
)
def test_frames_of_a_task_are_taken_as_they_are(visuals) -> None:
    """Also where there are more of them than of a film."""
    assert np.array_equal(shown(visuals, 2), FRAMES)


@pytest.mark.parametrize("visuals", [PICTURES[:1], PICTURES[0], [FRAMES[0]]])
def test_a_picture_is_a_clip_of_one_frame(visuals) -> None:
    assert np.array_equal(shown(visuals, 8), FRAMES[:1])


def test_pictures_lose_their_transparency() -> None:
    assert np.array_equal(shown([PICTURES[0].convert("RGBA")], 8), FRAMES[:1])


@pytest.mark.parametrize("kind", [str, Path])
@pytest.mark.parametrize("count", [1, 4, 20, 99])
def test_frames_of_a_film_are_spread_over_it(film: Path, kind: type, count: int) -> None:
    clip = shown([kind(film)], count)
    assert clip.shape == (min(count, 20), 32, 64, 3)
    levels = clip.mean((1, 2, 3))
    if count == 1:
        assert 90 <= levels[0] <= 110
    else:
        assert levels == pytest.approx(np.linspace(0, 190, len(clip)), abs=10)


@pytest.mark.parametrize(
    ("visuals", "message"),
    [
        (["a.mp4", "b.mp4"], "cannot show the video a.mp4: a question has one video"),
        ([PICTURES[0], "b.mp4"], "cannot show the video b.mp4"),
        ([{"array": FRAMES, "sampling_rate": 16000}], "cannot show a dict"),
        ([FRAMES.astype(float)], "cannot show a ndarray"),
        ([PICTURES[0], PICTURES[1].resize((8, 8))], r"different sizes \(16 x 12, 8 x 8\)"),
    ],
)
def test_what_is_not_one_clip_is_refused(visuals, message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        clip_of(visuals, 4)


def test_a_film_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClipError, match="missing.mp4"):
        clip_of([str(tmp_path / "missing.mp4")], 4)
