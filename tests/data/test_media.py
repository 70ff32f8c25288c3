"""Windows of films: the right frames at the right times, whatever the file is like."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import EpsImagePlugin, Image

from sally_anne.core.errors import MediaError
from sally_anne.core.media import Timeline, even_times, fitted, read_frames, timeline_of
from sally_anne.data.gridtom.release import read_version
from sally_anne.data.items import Media, Sampling
from sally_anne.data.media import choose, read_clip, window_of
from tests.harness.made_benchmarks import encoded

pytestmark = pytest.mark.integration

# Each frame is one grey; far enough apart to be told from each other after coding.
STEP = 4


def film(
    path: Path,
    stamps: Sequence[int] = range(60),
    rate: int = 10,
    codec: str = "libx264",
    options: dict[str, str] | None = None,
    size: tuple[int, int] = (64, 48),
    sound: float = 0.0,
    ending: int | None = None,
) -> Path:
    """A film whose frame n is grey ``STEP * n``, shown from ``stamps[n] / rate`` seconds on."""
    with av.open(str(path), "w") as container:
        if stamps:
            stream = container.add_stream(
                codec, rate=rate, options={"g": "12", "bf": "2", **(options or {})}
            )
            stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
            stream.time_base = Fraction(1, rate)
            stream.codec_context.time_base = Fraction(1, rate)
        audio = container.add_stream("aac", rate=8000, layout="mono") if sound else None
        for number, stamp in enumerate(stamps):
            grey = np.full((*size[::-1], 3), STEP * number % 256, dtype=np.uint8)
            frame = av.VideoFrame.from_ndarray(grey, format="rgb24")
            frame.pts, frame.time_base = stamp, Fraction(1, rate)
            if ending is not None and number == len(stamps) - 1:
                frame.duration = ending
            container.mux(stream.encode(frame))
        if stamps:
            container.mux(stream.encode())
        if audio is not None:
            samples = np.zeros((1, int(8000 * sound)), dtype=np.float32)
            for begin in range(0, samples.shape[1] - 1023, 1024):
                piece = av.AudioFrame.from_ndarray(
                    samples[:, begin : begin + 1024], format="fltp", layout="mono"
                )
                piece.sample_rate, piece.pts = 8000, begin
                container.mux(audio.encode(piece))
            container.mux(audio.encode())
    return path


def seen(frames: np.ndarray) -> list[int]:
    """Which frames these are, by their grey."""
    return [round(float(frame.mean()) / STEP) for frame in frames]


def cut(path: Path, sampling: Sampling, start: float = 0.0, end: float | None = None, **more):
    return read_clip(Media(path=path, start=start, end=end, **more), "full", sampling)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """6 s at 10 frames a second, a key frame every 12 frames, B-frames between."""
    return film(tmp_path_factory.mktemp("films") / "plain.mp4")


def test_count_spreads_over_the_window_with_both_ends(plain: Path) -> None:
    clip = cut(plain, Sampling(count=4), 1.0, 4.0)
    assert clip.times == pytest.approx((1.0, 2.0, 3.0, 4.0))
    assert seen(clip.frames) == [10, 20, 30, 40]
    assert clip.duration == pytest.approx(3.0)
    assert clip.frames.dtype == np.uint8 and clip.frames.shape == (4, 48, 64, 3)


def test_a_window_is_clamped_to_the_film(plain: Path) -> None:
    clip = cut(plain, Sampling(count=2), 5.0, 7.5)
    assert seen(clip.frames) == [50, 59]
    assert clip.duration == pytest.approx(1.0)
    with pytest.raises(MediaError, match="ends at 6.00 s"):
        cut(plain, Sampling(count=2), 6.0, 7.0)


def test_the_focused_window(plain: Path) -> None:
    media = Media(path=plain, start=0.0, focus=2.0, end=4.0)
    assert seen(read_clip(media, "focused", Sampling(count=3)).frames) == [20, 30, 40]
    assert window_of(media, "full") == (0.0, 4.0)
    with pytest.raises(MediaError):
        read_clip(Media(path=plain), "focused", Sampling(count=3))
    with pytest.raises(MediaError):
        window_of(Media(path=plain, start=2, end=1), "full")
    with pytest.raises(MediaError):
        window_of(Media(path=plain, end=float("nan")), "full")


def test_frame_numbers_restrict_the_choice(plain: Path) -> None:
    few = (3, 7, 11, 30, 50)
    assert seen(cut(plain, Sampling(count=64), frames=few).frames) == [3, 7, 11, 30, 50]
    assert seen(cut(plain, Sampling(count=64), 0.5, 3.0, frames=few).frames) == [7, 11, 30]
    assert seen(cut(plain, Sampling(every=5), frames=few).frames) == [3, 11, 30, 50]
    assert seen(cut(plain, Sampling(count=2), frames=few).frames) == [3, 50]
    # Spread over these five, not over the six seconds.
    assert seen(cut(plain, Sampling(count=3), frames=few).frames) == [3, 11, 50]
    assert seen(cut(plain, Sampling(count=1), frames=few).frames) == [11]
    assert seen(cut(plain, Sampling(rate=10, most=2), frames=few).frames) == [3, 50]
    with pytest.raises(MediaError):
        cut(plain, Sampling(count=2), frames=(3, 60))
    with pytest.raises(MediaError):
        cut(plain, Sampling(count=2), 1.5, 2.5, frames=few)


@pytest.mark.parametrize(
    ("name", "codec", "options"),
    [
        ("closed.mp4", "libx264", {}),
        ("open.mp4", "libx264", {"x264-params": "open-gop=1:bframes=3:keyint=12:min-keyint=12"}),
        ("open.mkv", "libx264", {"x264-params": "open-gop=1:bframes=3:keyint=12:min-keyint=12"}),
        ("open.ts", "libx264", {"x264-params": "open-gop=1:bframes=3:keyint=12:min-keyint=12"}),
        ("vp9.webm", "libvpx-vp9", {"lag-in-frames": "5", "deadline": "realtime"}),
        ("b.avi", "mpeg4", {}),
        ("b.mov", "mpeg4", {}),
    ],
)
def test_seeking_gives_the_pixels_of_plain_decoding(
    tmp_path: Path, name: str, codec: str, options: dict[str, str]
) -> None:
    path = film(tmp_path / name, codec=codec, options=options)
    with av.open(str(path)) as container:
        whole = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    timeline = timeline_of(path)
    assert len(timeline.times) == len(whole) == 60
    # AVI has one stamp a frame, that of decoding, so that B-frames put off all of them.
    late = 0.1 if name == "b.avi" else 0.0
    assert timeline.times == pytest.approx(np.arange(60) / 10 + late, abs=1e-3)
    assert timeline.end == pytest.approx(6.0 + late, abs=0.02)
    for places in ([0], [59], [13], [11, 12], [2, 23, 24, 25, 58], range(60)):
        assert np.array_equal(read_frames(timeline, places), np.stack([whole[i] for i in places]))


def test_variable_rate(tmp_path: Path) -> None:
    path = film(tmp_path / "variable.mp4", [0, 1, 2, 30, 31, 50, 51, 52], ending=8)
    clip = cut(path, Sampling(count=4), 0.0, 6.0)
    # On screen at 0, 2, 4 and 6 s.
    assert seen(clip.frames) == [0, 2, 4, 7]
    assert clip.times == pytest.approx((0.0, 0.2, 3.1, 5.2))
    assert seen(cut(path, Sampling(rate=1), 0.0, 5.9).frames) == [0, 2, 3, 4, 5]
    # Both moments show one frame, which is taken once.
    assert seen(cut(path, Sampling(count=2), 1.0, 2.5).frames) == [2]


def test_a_gif_is_a_film(tmp_path: Path) -> None:
    path = tmp_path / "a.gif"
    first, *rest = (Image.new("RGB", (20, 10), (STEP * n,) * 3) for n in (1, 2, 4))
    first.save(path, save_all=True, append_images=rest, duration=[100, 300, 200])
    assert timeline_of(path).times == pytest.approx([0.0, 0.1, 0.4])
    assert seen(cut(path, Sampling(count=3), 0.0, 0.6).frames) == [1, 2, 4]


def test_sound_that_goes_on_after_the_pictures(tmp_path: Path) -> None:
    path = film(tmp_path / "sound.mp4", sound=9.0)
    assert seen(cut(path, Sampling(count=2), 0.0, 8.0).frames) == [0, 59]


def test_frames_without_stamps_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MediaError, match="no frames with a time"):
        timeline_of(film(tmp_path / "bare.h264"))


def test_files_that_are_no_films(tmp_path: Path) -> None:
    text = tmp_path / "text.mp4"
    text.write_text("no film\n")
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "folder.mp4").mkdir()
    for name in ("text.mp4", "empty.mp4", "folder.mp4", "none.mp4"):
        with pytest.raises(MediaError):
            cut(tmp_path / name, Sampling(count=2))


@pytest.mark.parametrize("name", ["front.mp4", "end.mp4", "cut.mkv", "cut.webm", "cut.avi"])
def test_a_truncated_film(tmp_path: Path, name: str) -> None:
    codec = {"webm": "libvpx-vp9", "avi": "mpeg4"}.get(name.split(".")[1], "libx264")
    noise = np.random.default_rng(0).integers(0, 255, (100, 48, 64, 3), dtype=np.uint8)
    options = {"movflags": "faststart"} if name == "front.mp4" else {}
    path = encoded(tmp_path / name, noise, 10, codec, options={"g": "10"}, container=options)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(MediaError):
        cut(path, Sampling(count=8))
    if name == "end.mp4":  # its index is lost
        return
    # What lies in the whole part can still be used.
    assert len(cut(path, Sampling(count=8), 0.0, 2.0).frames) == 8


def test_damage_in_the_middle_never_ends_in_a_bare_error(plain: Path, tmp_path: Path) -> None:
    data = plain.read_bytes()
    rng = np.random.default_rng(1)
    outcomes = set()
    for round_ in range(60):
        broken = bytearray(data)
        for place in rng.integers(0, len(data), 40):
            broken[place] = rng.integers(0, 256)
        path = tmp_path / f"{round_}.mp4"
        path.write_bytes(bytes(broken))
        try:
            clip = cut(path, Sampling(count=5))
            outcomes.add("read")
            assert 1 <= len(clip.frames) <= 5 and len(clip.times) == len(clip.frames)
        except MediaError as error:
            outcomes.add("refused")
            assert path.name in str(error)
    assert "refused" in outcomes


def test_pictures_are_a_film(tmp_path: Path) -> None:
    files = tuple(tmp_path / f"{number}.png" for number in range(15))
    for number, path in enumerate(files):
        Image.new("RGB", (20, 10), (STEP * number,) * 3).save(path)
    clip = cut(tmp_path, Sampling(count=3), files=files)
    assert seen(clip.frames) == [0, 7, 14]
    assert clip.times == (0.0, 7.0, 14.0) and clip.duration == 15.0
    assert seen(cut(tmp_path, Sampling(every=3), 2.0, 10.0, files=files).frames) == [2, 5, 8]
    assert seen(cut(tmp_path, Sampling(count=9), frames=(4, 8), files=files).frames) == [4, 8]
    Image.new("RGB", (9, 9)).save(files[7])
    with pytest.raises(MediaError, match="7.png: differs in size"):
        cut(tmp_path, Sampling(count=3), files=files)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=60),
    st.floats(0, 1),
    st.floats(0, 1),
    st.one_of(
        st.builds(Sampling, count=st.integers(1, 70)),
        st.builds(Sampling, every=st.integers(1, 9), most=st.none() | st.integers(1, 9)),
        st.builds(Sampling, rate=st.floats(0.01, 50), most=st.none() | st.integers(1, 9)),
    ),
)
def test_choices_hold_by_definition(
    gaps: list[int], one: float, other: float, sampling: Sampling
) -> None:
    edges = np.cumsum([0, *gaps]) / 10
    times, end_of_film = edges[:-1], float(edges[-1])
    timeline = Timeline(Path("x"), times, end_of_film)
    start, end = sorted((one * end_of_film, other * end_of_film))
    chosen = choose(timeline, start, end, sampling)
    assert chosen == sorted(set(chosen)) and chosen

    def on_screen(moment: float) -> int:
        return max(int(np.searchsorted(times, moment + 1e-6, "right")) - 1, 0)

    first, last = on_screen(start), on_screen(end)
    assert first <= chosen[0] and chosen[-1] <= last
    if sampling.count is None and sampling.most is None:
        if sampling.every is not None:
            assert chosen == list(range(first, last + 1, sampling.every))
        else:
            assert sampling.rate is not None
            moments = np.arange(start, end + 1e-6, 1 / sampling.rate)
            near = np.abs(moments[:, None] - times[None]).min() < 1e-5
            assert near or chosen == sorted({on_screen(m) for m in moments})
    elif sampling.count is not None and last - first + 1 > sampling.count:
        looked = even_times(start, end, sampling.count)
        assert chosen == sorted({on_screen(m) for m in looked})
        assert sampling.count == 1 or (chosen[0], chosen[-1]) == (first, last)
    elif sampling.count is not None:
        assert chosen == list(range(first, last + 1))
    if sampling.most is not None:
        assert len(chosen) <= sampling.most


def test_large_frames_are_scaled_as_they_are_read(tmp_path: Path) -> None:
    path = film(tmp_path / "wide.mp4", range(30), size=(640, 480))
    assert cut(path, Sampling(count=4)).frames.shape == (4, 480, 640, 3)
    whole = read_frames(timeline_of(path), [0, 9, 20])
    tracemalloc.start()
    small = read_clip(Media(path=path), "full", Sampling(count=30), most_pixels=64 * 48)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert small.frames.shape == (30, 48, 64, 3)
    assert seen(small.frames) == list(range(30)) and seen(whole) == [0, 9, 20]
    # Never more than two frames of full size beside what is kept.
    assert peak < small.frames.nbytes + 2 * 640 * 480 * 3 + 200_000


@given(st.integers(1, 9000), st.integers(1, 9000), st.integers(1, 2_000_000))
def test_a_fitted_frame_keeps_its_shape(width: int, height: int, most: int) -> None:
    new = fitted(width, height, most)
    assert new == (width, height) if width * height <= most else 1 <= new[0] <= width
    assert new[0] * new[1] <= most or 1 in new
    if min(new) > 50:
        assert new[0] / new[1] == pytest.approx(width / height, rel=0.05)


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_a_picture_is_read_by_no_other_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """An EPS starts Ghostscript, whatever its name is."""
    Image.new("RGB", (20, 10)).save(tmp_path / "0.eps")
    (tmp_path / "0.eps").rename(tmp_path / f"0{suffix}")
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *a, **k: pytest.fail("started gs"))
    with pytest.raises(MediaError):
        read_clip(Media(path=tmp_path, files=(tmp_path / f"0{suffix}",)), "full", Sampling(count=1))
    (tmp_path / "TrueBelief" / "full").mkdir(parents=True)
    (tmp_path / f"0{suffix}").rename(tmp_path / "TrueBelief" / "full" / "0.png")
    with pytest.raises(MediaError):
        read_version(tmp_path / "TrueBelief", "omniscient", [0])


def test_a_sampling_is_changed_by_number_rate_and_most() -> None:
    spread, rate = Sampling(count=8), Sampling(rate=1, most=64)
    assert spread.changed(None, None, None) is spread
    assert rate.changed(3, None, None) == Sampling(count=3)
    assert rate.changed(None, 2.0, None) == Sampling(rate=2, most=64)
    assert spread.changed(None, 2.0, 768) == Sampling(rate=2, most=768)
    assert rate.changed(None, None, 9) == Sampling(rate=1, most=9)
    assert [spread.changed(None, None, n).count for n in (3, 9)] == [3, 8]
