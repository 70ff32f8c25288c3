"""The build, interrupted, resumed and refused; an export reads back as the generated stories."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args

import av
import numpy as np
import pytest
from PIL import Image

from sally_anne.cli import main
from sally_anne.core.errors import BenchmarkError, FolderError, MediaError, RecordError
from sally_anne.core.folder import claimed
from sally_anne.data.gridtom.build import KIND, BuildConfig, build, info_line
from sally_anne.data.gridtom.plot import PERSPECTIVES, PLOTS
from sally_anne.data.gridtom.release import load, open_stories
from sally_anne.data.gridtom.samples import Contrast, assign, plots_of, sample_set
from sally_anne.data.gridtom.stories import generated
from tests.core.conftest import contents

pytestmark = pytest.mark.integration

VERSIONS = ("TrueBelief", "FalseBelief")
VIEWS = ("full", "protagonist_pov", "participant_pov")


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted export of the first four stories, which tests must not change."""
    out = tmp_path_factory.mktemp("export") / "data"
    build(BuildConfig(out=out, stories=4))
    return out


@pytest.fixture
def copied(export: Path, tmp_path: Path) -> Path:
    """A copy of the export that a test may damage."""
    return Path(shutil.copytree(export, tmp_path / "data"))


def finished(out: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in out.glob("[0-9]*")}


def test_a_killed_build_resumes_to_the_same_bytes(export: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    command = [sys.executable, "-m", "sally_anne", "build", "--out", str(out)]
    process = subprocess.Popen(
        [*command, "--stories", "4"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 300
    while not finished(out) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(0.5)  # its workers notice and end
    before = finished(out)
    assert 1 <= len(before) < 4
    assert not (out / "info.json").exists()
    with pytest.raises(RecordError, match="not finished"):
        load(out)

    build(BuildConfig(out=out, stories=4))
    after = finished(out)
    assert {name: after[name] for name in before} == before
    assert len(after) == 4
    assert contents(out) == contents(export)


@pytest.mark.parametrize("change", [{"seed": 1}, {"stories": 5}])
def test_other_options_are_refused_and_change_nothing(export: Path, change) -> None:
    before = (export / "info.json").stat().st_mtime_ns
    with pytest.raises(BenchmarkError):
        build(BuildConfig(**{"out": export, "stories": 4, **change}))
    assert (export / "info.json").stat().st_mtime_ns == before


def test_other_folders_and_a_second_build_are_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(FolderError):
        build(BuildConfig(out=tmp_path, stories=1))
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]
    out = tmp_path / "data"
    with claimed(out, KIND, mark=False), pytest.raises(FolderError):
        build(BuildConfig(out=out, stories=1))
    assert not out.exists()


@pytest.mark.parametrize("number", ["0", "649"])
def test_more_stories_than_there_are_and_none_are_refused(number: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["build", "--stories", number])
    assert str(stopped.value.code).startswith("error: --stories")


def test_without_out_all_versions_of_all_stories_are_checked(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    main(["build"])
    printed = capsys.readouterr().out
    assert "648 stories on 27 maps, split: train 86, validation 45, test 500, none 17" in printed
    assert "checked all 2592 versions; nothing written" in printed
    assert list(tmp_path.iterdir()) == []


def test_another_plot_is_refused(export: Path, tmp_path: Path) -> None:
    line = json.loads((export / "info.json").read_text().splitlines()[1]) | {"plot": "return"}
    (tmp_path / "info.json").write_text(json.dumps(line) + "\n")
    with pytest.raises(RecordError, match=r"line 1 \(story 1\).*plot"):
        load(tmp_path)
    with pytest.raises(BenchmarkError):
        open_stories(export, plots=PLOTS)


def test_records_are_equal(export: Path) -> None:
    assert list(open_stories(export)) == list(generated(stories=range(4)))


def test_frames_are_equal_byte_for_byte(export: Path) -> None:
    for made, read in zip(generated(stories=range(3)), load(export), strict=False):
        for case, other in zip(made.versions, read.versions, strict=True):
            for perspective in PERSPECTIVES if case.second != "FB" else PERSPECTIVES[:1]:
                expected = case.frames(perspective)
                assert np.array_equal(expected, other.frames(perspective))
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


def test_without_png_frames_the_video_is_read(copied: Path) -> None:
    folder = copied / "0" / "FalseBelief" / "protagonist_pov"
    for picture in folder.glob("*.png"):
        picture.unlink()
    case = load(copied)[0].case(1, "FB")
    expected = generated(stories=[0])[0].case(1, "FB").frames("protagonist").astype(float)
    read = case.frames("protagonist")
    assert read.shape == expected.shape
    assert np.abs(read - expected).mean() < 6
    backwards = case.frames("protagonist", [30, 2])
    assert np.array_equal(backwards[::-1], case.frames("protagonist", [2, 30]))


def damage(copied: Path, how: str) -> str:
    """Damage the omniscient frames of story 0; returns what the error must name."""
    folder = copied / "0" / "TrueBelief" / "full"
    video = folder / "fps3.mp4"
    if how == "png truncated":
        picture = folder / "0.png"
        picture.write_bytes(picture.read_bytes()[:600])
        return r"full/0\.png"
    for each in folder.glob("*.png"):
        each.unlink()
    if how == "mp4 truncated":
        video.write_bytes(video.read_bytes()[:2000])
        return r"fps3\.mp4: this file cannot be opened as a video"
    first, *others = (copied / "info.json").read_text().splitlines(keepends=True)
    record = json.loads(first)
    end = record["nodes"][3]
    record["nodes"][3] = end + 9
    (copied / "info.json").write_text("".join([json.dumps(record) + "\n", *others]))
    return rf"fps3\.mp4: frame {end + 9} lies beyond the video, which ends after {end + 1} "


@pytest.mark.parametrize("how", ["png truncated", "mp4 truncated", "mp4 short"])
def test_damaged_media_are_named_when_read(copied: Path, how: str) -> None:
    problem = damage(copied, how)
    stories = load(copied)
    with pytest.raises(MediaError, match=problem):
        stories[0].case(1, "TB").frames()
    assert stories[1].case(1, "TB").frames().shape == (7, 420, 294, 3)


def test_a_missing_folder_is_named_at_once(copied: Path) -> None:
    shutil.rmtree(copied / "2" / "FalseBelief" / "full")
    with pytest.raises(MediaError, match=r"story 2: .*FalseBelief/full"):
        load(copied)


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


ROOT = Path(__file__).parents[3]
# The whole info.json of the default seed. Raise GENERATOR_VERSION with every change of it but of
# the field split.
GOLDEN_METADATA = "3baad66af28339bc5a0a2a3aacb60a210b56f0587e619adb288ef6ebb96eda8e"
# Records and key frames of two stories in all versions and perspectives.
GOLDEN_FRAMES = "e3bae95ba72fdd01c443e9e05a51d0a556895174cc8fffe14227b756568e45d4"

# All samples of both orders and all contrasts: text, labels, split, tags.
GOLDEN_SAMPLES = "a9ff2276852a473f988341905ae90a564f23d2420f56ccb09d8409d082b3e787"

SCRIPT = """
import hashlib
from sally_anne.data.gridtom.build import info_line
from sally_anne.data.gridtom.stories import generated
from sally_anne.data.gridtom.plot import PERSPECTIVES
digest = hashlib.sha256()
for record in generated(stories=[3, 400]):
    digest.update(info_line(record, "test").encode())
    for case in record.versions:
        for perspective in PERSPECTIVES:
            digest.update(case.frames(perspective).tobytes())
print(digest.hexdigest())
"""


def test_metadata() -> None:
    split = assign(generated())
    text = "".join(info_line(record, split.get(record.index)) for record in generated())
    assert hashlib.sha256(text.encode()).hexdigest() == GOLDEN_METADATA


def test_samples() -> None:
    digest = hashlib.sha256()
    for order, contrast in itertools.product((1, 2), get_args(Contrast)):
        for s in sample_set(generated(plots=plots_of(contrast)), order, contrast).samples:
            tags, labels = sorted(s.tags.items()), sorted(s.labels.items())
            parts = (s.item_id, s.text, labels, s.group, s.split, tags, s.context)
            digest.update(repr(parts).encode())
    assert digest.hexdigest() == GOLDEN_SAMPLES


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_frames_in_a_fresh_process(hash_seed: str) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == GOLDEN_FRAMES
