"""Run folders that are made in a moment, and what a folder holds."""

from __future__ import annotations

from pathlib import Path

from tests.made_run import make_run, run  # noqa: F401


def contents(folder: Path) -> dict[str, bytes]:
    """Every file."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
