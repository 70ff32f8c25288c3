"""Errors of the GridToM room. Each message names the file, story or field at fault."""

from __future__ import annotations

from benchmarks import errors
from benchmarks.errors import BenchmarkError


class GridToMError(BenchmarkError):
    """A map, story, record or file of GridToM is not usable as it is."""


class MapError(GridToMError):
    """A map breaks a rule of its layout."""


class RecordError(GridToMError, errors.RecordError):
    """A record of ``info.json`` is malformed."""


class MediaError(GridToMError):
    """A frame or video is missing, truncated or of the wrong size."""
