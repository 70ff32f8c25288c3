"""Real records of public benchmarks, kept beside the checkout and never in it."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data"


def shared_data(*parts: str) -> Path:
    """A file or folder of real records; skips the test where there is none."""
    path = FOLDER.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no real records at {path.relative_to(FOLDER.parents[1])}")
    return path
