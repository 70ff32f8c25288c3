"""Pictures and films are read as every viewer shows them."""

from __future__ import annotations

import struct
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from av.video.reformatter import VideoReformatter
from PIL import Image

import sally_anne as sa
from sally_anne.core.errors import MediaError
from sally_anne.core.media import frames_of, read_picture, size_of_picture
from sally_anne.data.items import Media, Sampling
from sally_anne.data.media import read_clip, shape_of
from tests.harness.made_benchmarks import encoded

WIDTH, HEIGHT = 96, 48
COLOURS = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]], dtype=np.uint8)


def corners(height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    """Red, green, blue and white quarters: left to right, above first."""
    quarters = COLOURS.reshape(2, 2, 3)
    return quarters.repeat(height // 2, 0).repeat(width // 2, 1)


def film(path: Path, colours: int = 5, ratio: Fraction | None = None, frames: int = 12) -> Path:
    """The corners as a film whose pixels are coded by BT.709 (1) or BT.601 (5)."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=4, options={"crf": "1", "threads": "1"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv444p"
        stream.codec_context.colorspace = colours
        if ratio is not None:
            stream.codec_context.sample_aspect_ratio = ratio
        for number in range(frames):
            plain = av.VideoFrame.from_ndarray(corners(), format="rgb24")
            frame = VideoReformatter().reformat(plain, format="yuv444p", dst_colorspace=colours)
            frame.pts, frame.colorspace = number, colours
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def turn(path: Path, times: int) -> None:
    """Write into a film's track header that it is shown turned by 90 degrees so many times."""
    matrices = {1: (0, 1, -1, 0), 2: (-1, 0, 0, -1), 3: (0, -1, 1, 0)}
    data = bytearray(path.read_bytes())
    place = data.index(b"tkhd") + 44
    a, b, c, d = (number << 16 for number in matrices[times])
    data[place : place + 36] = struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30)
    path.write_bytes(bytes(data))


def read(path: Path) -> np.ndarray:
    """The first frame of a film, whose shape is what is said of it before it is decoded."""
    media, sampling = Media(path=path), Sampling(count=3)
    frames = read_clip(media, "full", sampling).frames
    assert frames.shape[:3] == shape_of(media, "full", sampling)
    assert np.array_equal(frames_of(video=str(path))[0], frames[0])
    return frames[0]


def assert_alike(found: np.ndarray, expected: np.ndarray) -> None:
    """The same quarters, a pixel's width off their edges."""
    assert found.shape == expected.shape
    edges = np.abs(np.diff(expected.astype(int), axis=0, prepend=expected[:1])).any(-1)
    edges |= np.abs(np.diff(expected.astype(int), axis=1, prepend=expected[:, :1])).any(-1)
    wide = edges | np.roll(edges, -1, 0) | np.roll(edges, -1, 1) | np.roll(edges, 1, 1)
    wide |= np.roll(edges, -2, 1) | np.roll(edges, 1, 0) | np.roll(edges, -2, 0)
    assert np.abs(found.astype(int) - expected)[~wide].max() <= 4


@pytest.mark.parametrize("colours", [1, 5], ids=["BT.709", "BT.601"])
def test_colours_of_a_film(tmp_path, colours: int) -> None:
    assert_alike(read(film(tmp_path / "a.mp4", colours)), corners())


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_film_from_a_phone_stands_upright(tmp_path, times: int) -> None:
    path = film(tmp_path / "a.mp4")
    turn(path, times)
    assert_alike(read(path), np.rot90(corners(), -times))


def test_pixels_that_are_not_square(tmp_path) -> None:
    assert_alike(read(film(tmp_path / "a.mp4", ratio=Fraction(2, 1))), corners(HEIGHT, 2 * WIDTH))


@pytest.mark.parametrize("name", ["clip:01.mp4", "file:plain.mp4", "50 % é#.mp4"])
def test_names_of_films(tmp_path, monkeypatch, name: str) -> None:
    film(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert_alike(read(Path(name)), corners())


@pytest.mark.parametrize("ending", ["webm", "ts", "avi"])
def test_a_model_is_shown_a_film_as_samples_are(tmp_path, ending: str) -> None:
    codec = {"webm": "libvpx", "ts": "mpeg2video", "avi": "mpeg4"}[ending]
    greys = [np.full((HEIGHT, WIDTH, 3), 6 * number, dtype=np.uint8) for number in range(40)]
    path = encoded(tmp_path / f"a.{ending}", greys, 25, codec)
    sample = sa.Sample("a", "What is shown?", video=path, labels={"fits": True})
    assert np.array_equal(frames_of(video=path), sample.frames())
    assert len(sample.frames()) == 8


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_are_turned_as_their_exif_says(tmp_path, suffix: str, orientation: int) -> None:
    plain = Image.fromarray(corners())
    exif = plain.getexif()
    exif[274] = orientation
    path = tmp_path / f"a.{suffix}"
    plain.save(path, exif=exif, quality=100, **({"lossless": True} if suffix == "webp" else {}))
    stored = corners()
    flips = {2: stored[:, ::-1], 3: stored[::-1, ::-1], 4: stored[::-1], 5: stored.swapaxes(0, 1)}
    flips |= {6: np.rot90(stored, -1), 7: np.rot90(stored, 2).swapaxes(0, 1), 8: np.rot90(stored)}
    expected = flips.get(orientation, stored)
    picture = read_picture(path)
    assert_alike(picture, expected)
    assert size_of_picture(path) == picture.shape[1::-1]
    assert np.array_equal(frames_of([path])[0], picture)
    small = read_picture(path, 1000)
    assert small.shape[0] * small.shape[1] <= 1000
    assert (small.shape[0] > small.shape[1]) == (picture.shape[0] > picture.shape[1])


@pytest.mark.parametrize("suffix", ["gif", "bmp", "tiff", "ppm", "tga", "png", "webp"])
def test_one_picture_of_any_format_is_taken_and_several_in_a_file_are_not(tmp_path, suffix) -> None:
    path, plain = tmp_path / f"a.{suffix}", Image.fromarray(corners())
    plain.save(path, **({"lossless": True} if suffix == "webp" else {}))
    assert np.array_equal(read_picture(path), corners())
    if suffix in ("gif", "tiff", "png", "webp"):
        plain.save(path, save_all=True, append_images=[plain.rotate(180)])
        for given in (path, Image.open(path)):
            with pytest.raises(MediaError, match="holds 2 pictures"):
                frames_of([given])


def test_a_film_that_is_cut_short_or_begins_late(tmp_path) -> None:
    greys = [np.full((HEIGHT, WIDTH, 3), 6 * number, dtype=np.uint8) for number in range(40)]
    path = encoded(tmp_path / "a.webm", greys, 4, "libvpx")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    for read_it in (lambda: frames_of(video=path), lambda: read(path)):
        with pytest.raises(MediaError, match="cut short"):
            read_it()


def test_transparent_and_deep_pictures(tmp_path) -> None:
    ink = np.zeros((20, 20, 4), dtype=np.uint8)
    ink[5:10, 5:10, 3] = 255
    Image.fromarray(ink).save(tmp_path / "ink.png")
    shown = read_picture(tmp_path / "ink.png")
    assert (shown[5:10, 5:10] == 0).all() and (shown[:5] == 255).all()
    deep = (np.arange(256, dtype=np.uint16) * 257).reshape(16, 16)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    assert np.array_equal(read_picture(tmp_path / "deep.png")[..., 0].ravel(), np.arange(256))
