"""Errors of the steering room."""

from __future__ import annotations

from hooks.errors import SallyAnneError


class SteeringError(SallyAnneError, ValueError):
    """A vector cannot be made, read or applied as asked; the message says what to change."""
