"""The options of ``sally-anne compare``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

TABLE = "comparison.parquet"


@dataclass(frozen=True)
class CompareConfig:
    """Compare finished evaluations of the same questions: each later run against the first."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folders, as `sally-anne evaluate` leaves them; the first is what the others are compared
    with."""
    parser: str | None = None
    """Whose parsing of the replies, e.g. robust or judge; by default all that the runs share."""
    out: Path | None = None
    """Folder to write to; runs/compare/FIRST-against-SECOND if not given."""

    @property
    def folder(self) -> Path:
        """Where the comparison is written."""
        first, second, *more = (path.resolve().name for path in self.runs)
        others = f"-and-{len(more)}-more" if more else ""
        return self.out or Path("runs/compare") / f"{first}-against-{second}{others}"
