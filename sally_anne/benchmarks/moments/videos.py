"""Which file in a folder is which video: by the id in its address, or by the title."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from sally_anne.core.errors import BenchmarkError

# In order of preference where one video has several files.
VIDEOS = (".mp4", ".mkv", ".webm", ".mov", ".avi")
_BRACKETS = re.compile(r"\[([^\[\]]+)\]$")


def video_id(url: str) -> str | None:
    """The id of the video at an address of YouTube, Vimeo or Dailymotion; None for others.

    ``watch?v=ID``, ``youtu.be/ID``, ``vimeo.com/ID``, ``vimeo.com/ID/HASH``, ``/video/ID``.

    Raises:
        ValueError: not an address at all.
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").removeprefix("www.").removeprefix("m.")
    first, *rest = [step for step in parts.path.split("/") if step] or [""]
    if host == "youtube.com" and first == "watch":
        return parse_qs(parts.query).get("v", [None])[0]
    if host == "youtu.be":
        return first or None
    if host in ("vimeo.com", "player.vimeo.com"):
        return next((step for step in (first, *rest) if re.fullmatch("[0-9]+", step)), None)
    folders = {"youtube.com": ("embed", "shorts", "v"), "dailymotion.com": ("video",)}
    return rest[0] if rest and first in folders.get(host, ()) else None


class Shelf:
    """Files of a folder by video.

    A file belongs to a video if its name without ending is the video's id, or ends in the id in
    brackets (``Title [ID].mp4``), or is the title of the video, whatever its case, blanks and
    punctuation. Of several the id in the question's own address goes before those of its
    alternatives, these before the title, and endings in the order of ``suffixes``.

    Args:
        folder: it may be missing.
        suffixes: endings of the files that count, in order of preference.

    Raises:
        BenchmarkError: the folder cannot be listed.
    """

    def __init__(self, folder: Path, suffixes: Sequence[str]) -> None:
        self._ids: dict[str, list[Path]] = {}
        self._titles: dict[str, list[Path]] = {}
        self._order = {suffix: place for place, suffix in enumerate(suffixes)}
        if not folder.is_dir():
            return
        try:
            files = sorted(p for p in folder.iterdir() if p.suffix.lower() in self._order)
        except OSError as error:
            raise BenchmarkError(f"{folder}: cannot be listed ({error.strerror})") from error
        for path in files:
            self._ids.setdefault(path.stem, []).append(path)
            if match := _BRACKETS.search(path.stem):
                self._ids.setdefault(match[1], []).append(path)
            self._titles.setdefault(_plain(path.stem), []).append(path)

    def find(self, urls: Sequence[str], title: str) -> Path | None:
        """The file of a video; None if there is none.

        Args:
            urls: the question's own address, then its alternatives.
            title: of the video.

        Raises:
            BenchmarkError: two files are meant alike; names both.
        """
        shelves = [self._ids.get(found, []) for url in urls if (found := video_id(url))]
        shelves.append(self._titles.get(_plain(title), []) if _plain(title) else [])
        files = next((files for files in shelves if files), [])
        ranked = sorted(files, key=self._rank)
        if len(ranked) > 1 and self._rank(ranked[0]) == self._rank(ranked[1]):
            raise BenchmarkError(
                f"{ranked[0]} and {ranked[1].name} are both of the video {title!r}; keep one"
            )
        return ranked[0] if ranked else None

    def _rank(self, path: Path) -> int:
        return self._order[path.suffix.lower()]


def _plain(title: str) -> str:
    return "".join(letter for letter in title.casefold() if letter.isalnum())
