"""Errors that are shown to the user as one message rather than a traceback."""

from __future__ import annotations


def expected_errors() -> tuple[type[Exception], ...]:
    """The named errors of this room and of the rooms below it."""
    from harness.errors import HarnessError
    from probing import failures
    from steering.errors import SteeringError

    return (*failures.expected_errors(), HarnessError, SteeringError)
