"""An export reads back as the generated stories, and holds what its card says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from sally_anne.core.errors import BenchmarkError, MediaError
from sally_anne.data.gridtom.release import load, open_stories
from sally_anne.data.gridtom.render import PERSPECTIVES
from sally_anne.data.gridtom.stories import generated

pytestmark = pytest.mark.integration

VERSIONS = ("TrueBelief", "FalseBelief")
VIEWS = ("full", "protagonist_pov", "participant_pov")


def test_records_are_equal(export: Path) -> None:
    assert list(open_stories(export)) == list(generated(stories=range(4)))


def test_frames_are_equal_byte_for_byte(export: Path) -> None:
    for made, read in zip(generated(stories=range(3)), load(export), strict=False):
        for case, other in zip(made.versions, read.versions, strict=True):
            for perspective in PERSPECTIVES if case.second != "FB" else PERSPECTIVES[:1]:
                wanted = case.frames(perspective)
                assert np.array_equal(wanted, other.frames(perspective))
        whole = made.case(2, "FB", "FB"), read.case(2, "FB", "FB")
        ticks = range(whole[0].length)
        assert np.array_equal(whole[0].frames(ticks=ticks), whole[1].frames(ticks=ticks))


def test_release_layout(export: Path) -> None:
    lines = [json.loads(line) for line in (export / "info.json").read_text().splitlines()]
    assert [line["index"] for line in lines] == [0, 1, 2, 3]
    assert {line["index"]: line["split"] for line in lines} == dict.fromkeys(range(4), "test")
    for line in lines:
        assert [e["type"] for e in line["first_order_belief"]] == list(VERSIONS)
        assert [isinstance(q["answer"], list) for q in line["init_belief"]] == [True, False, False]
        length = line["nodes"][3] + 1
        for version in VERSIONS:
            for view in VIEWS:
                names = {p.name for p in (export / str(line["index"]) / version / view).iterdir()}
                assert names == {f"{n}.png" for n in range(length)} | {"fps3.mp4"}
    fields = set(lines[0])
    text = (export / "README.md").read_text()
    assert all(f"`{name}`" in text for name in fields)
    assert "4 stories" in text and "seed 2025" in text
    assert "{" not in text.replace("{index}", "").replace("{n}", "")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("view", VIEWS)
def test_videos_hold_just_the_frames_in_recognisable_colours(
    export: Path, version: str, view: str
) -> None:
    folder = export / "1" / version / view
    with av.open(str(folder / "fps3.mp4")) as container:
        assert container.streams.video[0].average_rate == 3
        decoded = [f.to_ndarray(format="rgb24") for f in container.decode(video=0)]
    assert len(decoded) == len(list(folder.glob("*.png")))
    for tick, frame in enumerate(decoded):
        picture = np.array(Image.open(folder / f"{tick}.png"), dtype=float)
        assert np.abs(picture - frame).mean() < 6


@pytest.fixture
def copied(export: Path, tmp_path: Path) -> Path:
    """A copy of the export that a test may damage."""
    return Path(shutil.copytree(export, tmp_path / "data"))


def test_without_png_frames_the_video_is_read(copied: Path) -> None:
    folder = copied / "0" / "FalseBelief" / "protagonist_pov"
    for picture in folder.glob("*.png"):
        picture.unlink()
    case = load(copied)[0].case(1, "FB")
    wanted = generated(stories=[0])[0].case(1, "FB").frames("protagonist").astype(float)
    found = case.frames("protagonist")
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).mean() < 6
    backwards = case.frames("protagonist", [30, 2])
    assert np.array_equal(backwards[::-1], case.frames("protagonist", [2, 30]))


def damage(copied: Path, how: str) -> str:
    """Damage the omniscient frames of story 0; returns what the error must say."""
    folder = copied / "0" / "TrueBelief" / "full"
    picture, video = folder / "0.png", folder / "fps3.mp4"
    if how.startswith("png"):
        if how == "png missing":
            picture.unlink()
            return r"full/0\.png: this frame is missing"
        if how == "png truncated":
            picture.write_bytes(picture.read_bytes()[:600])
            return r"full/0\.png: this picture cannot be decoded"
        if how == "png empty":
            picture.write_bytes(b"")
            return r"full/0\.png: this picture cannot be decoded"
        Image.new("RGB", (294, 400)).save(picture)
        return r"full/0\.png: must be 294 x 420, is 294 x 400"
    for each in folder.glob("*.png"):
        each.unlink()
    if how == "mp4 missing":
        video.unlink()
        return r"full: has neither PNG frames nor fps3\.mp4"
    if how == "mp4 truncated":
        video.write_bytes(video.read_bytes()[:2000])
        return r"fps3\.mp4: this file cannot be opened as a video"
    if how == "mp4 short":
        lines = (copied / "info.json").read_text().splitlines(keepends=True)
        record = json.loads(lines[0])
        end = record["nodes"][3]
        record["nodes"][3] = end + 9
        lines[0] = json.dumps(record) + "\n"
        (copied / "info.json").write_text("".join(lines))
        return rf"fps3\.mp4: frame {end + 9} lies beyond the video, which ends after {end + 1} "
    shutil.rmtree(folder)
    folder.mkdir()
    return "has neither PNG frames"


@pytest.mark.parametrize(
    "how",
    [
        "png missing",
        "png truncated",
        "png empty",
        "png size",
        "mp4 missing",
        "mp4 truncated",
        "mp4 short",
        "empty",
    ],
)
def test_damaged_media_are_named_when_read(copied: Path, how: str) -> None:
    problem = damage(copied, how)
    stories = load(copied)
    with pytest.raises(MediaError, match=problem):
        stories[0].case(1, "TB").frames()
    assert stories[1].case(1, "TB").frames().shape == (7, 420, 294, 3)


def test_fingerprint_notices_texts_and_files(copied: Path) -> None:
    before = load(copied).fingerprint
    assert before == load(copied).fingerprint
    extra = copied / "0" / "extra.txt"
    extra.write_text("x")
    changed = load(copied).fingerprint
    extra.unlink()
    assert load(copied).fingerprint == before != changed
    with (copied / "info.json").open("a") as file:
        file.write("\n")
    assert load(copied).fingerprint != before


def test_a_folder_of_metadata_alone_has_texts_but_no_frames(tmp_path: Path) -> None:
    from sally_anne.data.gridtom.build import BuildConfig, build

    build(BuildConfig(out=tmp_path / "m", stories=2, metadata_only=True))
    stories = load(tmp_path / "m")
    assert list(stories) == list(generated(stories=range(2)))
    assert not (tmp_path / "m" / "0").exists()
    with pytest.raises(BenchmarkError, match="no frames from the omniscient perspective"):
        stories[0].case(1, "TB").frames()
