"""Errors of the benchmarks. Each message names the file, record and field at fault."""

from __future__ import annotations

from hooks.errors import SallyAnneError


class BenchmarkError(SallyAnneError, ValueError):
    """A benchmark's file, record or option is not usable as it is."""


class RecordError(BenchmarkError):
    """A record is malformed; the message names file, record and field."""


class ClipError(BenchmarkError):
    """A video or frame is missing, damaged, or shorter than what is asked of it."""
