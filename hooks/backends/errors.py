"""The error that a backend raises when it cannot do what it is asked."""

from __future__ import annotations

from hooks.errors import SallyAnneError


class BackendError(SallyAnneError):
    """A backend is unknown, not installed, or does not know the model."""
