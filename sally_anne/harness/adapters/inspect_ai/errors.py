"""Our errors as inspect-ai shows them: one message instead of a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from inspect_ai._util.error import PrerequisiteError
from rich.text import Text

from sally_anne.core.errors import SallyAnneError


@contextmanager
def shown_plainly() -> Iterator[None]:
    """Expected errors in the block come out as inspect-ai's own kind.

    Raises:
        PrerequisiteError: with the message of the error, which no longer reads as markup.
    """
    try:
        yield
    except SallyAnneError as error:
        raise PrerequisiteError(Text(str(error))) from error
