"""Errors that are shown to the user as one message rather than a traceback."""

from __future__ import annotations


def expected_errors() -> tuple[type[Exception], ...]:
    """The named errors of this room and of the rooms below it."""
    from benchmarks.errors import BenchmarkError
    from hooks.errors import SallyAnneError
    from models.errors import ModelError
    from probing.errors import ProbingError

    return (BenchmarkError, SallyAnneError, ModelError, ProbingError)
