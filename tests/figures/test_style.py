"""Saving: three files, whole or not at all, equal bytes; no trace in matplotlib's state."""

from __future__ import annotations

import struct

import matplotlib
import pandas as pd
import pytest

from sally_anne.figures import style

pytestmark = pytest.mark.integration


def drawn(title: str = "a  ·  b"):
    figure = style.new_figure(2.0, 1.5)
    figure.subplots().plot([0, 1], [1, 0], color=style.TRUE)
    figure.suptitle(title)
    return figure


def test_save_writes_png_pdf_and_the_numbers(tmp_path) -> None:
    data = pd.DataFrame({"x": [0, 1], "y": [1.0, 0.0]})
    with style.look():
        paths = style.save(drawn(), tmp_path / "new", "one", data)
    assert [path.name for path in paths] == ["one.png", "one.pdf", "one.parquet"]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(
        path.name for path in paths
    )
    png = paths[0].read_bytes()
    assert struct.unpack(">II", png[16:24]) == (2 * style.DPI, int(1.5 * style.DPI))
    assert style.DPI >= 150
    assert paths[1].read_bytes().startswith(b"%PDF-")
    pd.testing.assert_frame_equal(pd.read_parquet(paths[2]), data)


def test_no_date_and_no_version_is_saved(tmp_path) -> None:
    with style.look():
        png, pdf, _ = style.save(drawn(), tmp_path, "one", pd.DataFrame({"x": [0]}))
    assert b"tEXt" not in png.read_bytes()
    for word in (b"CreationDate", b"Producer", b"Creator", b"ModDate"):
        assert word not in pdf.read_bytes()


def test_two_savings_are_equal_and_replace_each_other(tmp_path) -> None:
    data = pd.DataFrame({"x": [0]})
    with style.look():
        first = [p.read_bytes() for p in style.save(drawn(), tmp_path, "one", data)]
        second = [p.read_bytes() for p in style.save(drawn(), tmp_path, "one", data)]
        other = [p.read_bytes() for p in style.save(drawn("c"), tmp_path, "one", data)]
    assert first == second
    assert other[0] != first[0]
    assert len(list(tmp_path.iterdir())) == 3


def test_a_failed_write_leaves_the_old_file_and_no_leftover(tmp_path, monkeypatch) -> None:
    data = pd.DataFrame({"x": [0]})
    with style.look():
        png = style.save(drawn(), tmp_path, "one", data)[0]
        before = png.read_bytes()

        def fail(*_: object) -> None:
            raise OSError("disk full")

        monkeypatch.setattr("sally_anne.core.files.os.replace", fail)
        with pytest.raises(OSError, match="disk full"):
            style.save(drawn("other"), tmp_path, "one", data)
    assert png.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 3


def test_the_look_ends_with_its_block() -> None:
    before = dict(matplotlib.rcParams)
    with style.look():
        assert matplotlib.rcParams["pdf.fonttype"] == 42
        assert matplotlib.rcParams["font.family"] == ["DejaVu Sans"]
    assert dict(matplotlib.rcParams) == before


def test_a_long_heading_is_wrapped_evenly_within_its_room() -> None:
    parts = [f"word number {i}" for i in range(7)]
    room = style.text_width("  ·  ".join(parts), 9.0) * 0.6
    wrapped = style.wrap(parts, room, 9.0)
    assert len(wrapped) == 2
    assert "  ·  ".join(wrapped) == "  ·  ".join(parts)
    assert all(style.text_width(line, 9.0) <= room for line in wrapped)
    assert [line.count("word") for line in wrapped] in ([4, 3], [3, 4])
    assert style.wrap(parts, 10_000.0, 9.0) == ["  ·  ".join(parts)]
    assert style.wrap(parts, 1.0, 9.0) == parts


def test_no_two_groups_share_a_colour_or_a_marker() -> None:
    assert len(set(style.CLUSTER_COLOURS.values())) == len(set(style.CLUSTER_MARKERS.values())) == 4
    assert len(set(style.CLASS_MARKERS)) == len(style.CLASS_COLOURS)
