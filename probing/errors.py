"""Errors of the probing room."""

from __future__ import annotations

from hooks.errors import SallyAnneError


class ProbingError(SallyAnneError, ValueError):
    """A run or its data cannot be probed as asked; the message says what to change."""
