"""Which file is which film."""

from __future__ import annotations

from pathlib import Path

import pytest

from sally_anne.data.moments import VIDEOS, Shelf, video_id


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://www.youtube.com/watch?v=3-7IY1VNKuA", "3-7IY1VNKuA"),
        ("https://m.youtube.com/watch?feature=x&v=3-7IY1VNKuA&t=3", "3-7IY1VNKuA"),
        ("https://youtu.be/3-7IY1VNKuA?si=1", "3-7IY1VNKuA"),
        ("https://www.youtube.com/embed/3-7IY1VNKuA", "3-7IY1VNKuA"),
        ("https://www.youtube.com/embed", None),
        ("https://www.youtube.com/", None),
        ("https://vimeo.com/695852386", "695852386"),
        ("https://vimeo.com/1044466992/d0dbf232cd", "1044466992"),
        ("https://player.vimeo.com/video/695852386", "695852386"),
        ("https://www.dailymotion.com/video/x8yiiu8", "x8yiiu8"),
        ("https://films.example/watch?v=1", None),
        ("", None),
    ],
)
def test_ids_of_addresses(url: str, expected: str | None) -> None:
    assert video_id(url) == expected


@pytest.mark.parametrize("name", ["AbC-1.mp4", "Some [x] film [AbC-1].MKV", "doesnt fall FAR.avi"])
def test_names_that_mean_a_film(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    shelf = Shelf(tmp_path, VIDEOS)
    urls = ["https://youtu.be/AbC-1"]
    assert shelf.find(urls, "DOESN'T FALL FAR") == tmp_path / name


def test_its_own_address_goes_first(tmp_path: Path) -> None:
    urls = ["https://youtu.be/one", "https://vimeo.com/22"]
    for name in ("A Film.mp4", "22.mp4", "one.avi"):
        (tmp_path / name).touch()
        assert Shelf(tmp_path, VIDEOS).find(urls, "A FILM") == tmp_path / name
