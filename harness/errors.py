"""Errors of the harness."""

from __future__ import annotations

from hooks.errors import SallyAnneError


class HarnessError(SallyAnneError, ValueError):
    """An evaluation or its data cannot be used as asked; the message says what to change."""
