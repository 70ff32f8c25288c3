"""The error of a timing that cannot be made as it is asked."""

from __future__ import annotations

from sally_anne.core.errors import SallyAnneError


class PerfError(SallyAnneError):
    """An option does not make sense, or a measurement broke off."""
