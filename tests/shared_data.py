"""Records in the official layouts of public benchmarks: made by hand, and the published ones.

A few made records of each benchmark lie in ``tests/records``, in the fields and forms of its
release and in words of our own. The published records are kept beside the checkout and never in it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

MADE = Path(__file__).resolve().parent / "records"
FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data"
SOURCES = ("made", "published")


def shared_data(*parts: str) -> Path:
    """A file or folder of real records; skips the test where there is none."""
    path = FOLDER.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no real records at {path.relative_to(FOLDER.parents[1])}")
    return path


def official_data(source: str, *parts: str) -> Path:
    """A file or folder in an official layout: ``made``, or ``published`` where it is there."""
    return MADE.joinpath(*parts) if source == "made" else shared_data(*parts)
