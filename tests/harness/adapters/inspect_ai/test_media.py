"""Frames keep every bit on their way; what is broken is named."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

pytest.importorskip("inspect_ai")

from sally_anne.core.errors import HarnessError  # noqa: E402
from sally_anne.harness.adapters.common import one_clip  # noqa: E402
from sally_anne.harness.adapters.inspect_ai import messages  # noqa: E402

pytestmark = pytest.mark.plugins


@pytest.fixture
def frames() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (5, 21, 34, 3), dtype=np.uint8)


def decoded(uri: str) -> bytes:
    return base64.b64decode(uri.partition(",")[2])


def test_a_film_keeps_every_bit(frames: np.ndarray, tmp_path: Path) -> None:
    uri = messages.video_uri(frames)
    assert uri.startswith("data:video/quicktime;base64,")
    assert np.array_equal(messages.video(uri), frames)
    (tmp_path / "film.mov").write_bytes(decoded(uri))
    assert np.array_equal(messages.video(str(tmp_path / "film.mov")), frames)


def test_pictures_keep_every_bit(frames: np.ndarray, tmp_path: Path) -> None:
    uris = messages.picture_uris(frames)
    assert np.array_equal([messages.picture(uri) for uri in uris], frames)
    (tmp_path / "picture.png").write_bytes(decoded(uris[1]))
    assert np.array_equal(messages.picture(str(tmp_path / "picture.png")), frames[1])


def test_frames_are_spread_from_first_to_last(frames: np.ndarray) -> None:
    uri = messages.video_uri(frames)
    assert np.array_equal(messages.video(uri, 3), frames[[0, 2, 4]])
    assert np.array_equal(messages.video(uri, 1), frames[:1])
    assert np.array_equal(messages.video(uri, 9), frames)


def test_mp4_is_read(frames: np.ndarray) -> None:
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=5)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
        for _ in range(4):
            grey = np.full((32, 32, 3), 90, dtype=np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(grey, "rgb24")))
        container.mux(stream.encode())
    uri = f"data:video/mp4;base64,{base64.b64encode(file.getvalue()).decode()}"
    found = messages.video(uri)
    assert found.shape == (4, 32, 32, 3) and found.dtype == np.uint8
    assert abs(found.astype(int) - 90).max() < 10


def test_a_long_film_needs_a_number_of_frames() -> None:
    uri = messages.video_uri(np.zeros((messages.MOST_FRAMES + 1, 2, 2, 3), dtype=np.uint8))
    with pytest.raises(HarnessError, match="129 frames; say with -M frames=8"):
        messages.video(uri)
    assert len(messages.video(uri, 8)) == 8


def test_pictures_of_two_sizes_are_no_clip(frames: np.ndarray) -> None:
    with pytest.raises(HarnessError, match=r"different sizes \(34 x 21, 30 x 21\)"):
        one_clip([frames[0], frames[0, :, :30]])


@pytest.mark.parametrize("read", [messages.picture, messages.video])
@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("nowhere.bin", "'nowhere.bin': not readable"),
        ("a\0b", "not readable"),
        ("https://example.org/a.mp4", "nothing is downloaded"),
        ("data:video/mp4,abc", "not in base64"),
        ("data:video/mp4;base64", "not in base64"),
        ("data:video/mp4;base64,a?", "broken base64"),
        ("data:video/mp4;base64,", "not readable"),
        ("data:video/mp4;base64,AAAA", "not readable"),
    ],
)
def test_what_is_broken_is_named(read, reference: str, message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        read(reference)


@pytest.mark.parametrize("keep", [0.2, 0.6, 0.95])
def test_what_is_cut_short_is_named(frames: np.ndarray, keep: float) -> None:
    for read, uri in (
        (messages.picture, messages.picture_uris(frames)[0]),
        (messages.video, messages.video_uri(frames)),
    ):
        data = decoded(uri)
        cut = base64.b64encode(data[: int(keep * len(data))]).decode()
        with pytest.raises(HarnessError, match="not readable|no video"):
            read(f"data:video/quicktime;base64,{cut}")


def test_sound_alone_is_no_film() -> None:
    file = io.BytesIO()
    with av.open(file, "w", format="mov") as container:
        stream = container.add_stream("pcm_s16le", rate=8000, layout="mono")
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), "s16", "mono")
        sound.rate = 8000
        container.mux(stream.encode(sound))
    with pytest.raises(HarnessError, match="has no video"):
        messages.video(f"data:video/mp4;base64,{base64.b64encode(file.getvalue()).decode()}")


def test_a_picture_with_a_palette_is_read() -> None:
    file = io.BytesIO()
    Image.new("P", (3, 2), 0).save(file, "PNG")
    found = messages.picture(f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}")
    assert found.shape == (2, 3, 3)


def test_a_picture_of_another_format_is_refused() -> None:
    file = io.BytesIO()
    Image.new("RGB", (3, 2)).save(file, "EPS")
    with pytest.raises(HarnessError, match="PNG or JPEG or WEBP"):
        messages.picture(f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}")
