"""Every error the toolkit raises on purpose, so that a caller can catch one family."""

from __future__ import annotations


class SallyAnneError(Exception):
    """Base of all errors raised on purpose by this toolkit."""


class OptionError(SallyAnneError, ValueError):
    """An option of a command is out of its range."""


class GeometryError(SallyAnneError):
    """The layers and heads of a model were not found, or do not add up."""


class PositionError(SallyAnneError):
    """The tokens asked for cannot be told apart in this forward pass."""


class CaptureError(SallyAnneError):
    """A capture was used in a way that would mix up or lose activations."""


class EditError(SallyAnneError):
    """Activations cannot be edited as asked."""


class StoreError(SallyAnneError):
    """An activation store cannot be read or written."""


class StoreMismatchError(StoreError):
    """A store on disk was made by a different run than the one that wants to use it."""


class StoreDamagedError(StoreError):
    """A file of a store is missing, cut short or altered."""


class NonFiniteError(SallyAnneError):
    """An activation is NaN or infinite."""


class OutOfMemoryError(SallyAnneError):
    """What was to be computed together does not fit in memory."""


class FolderError(SallyAnneError):
    """A folder cannot be written into: it holds something else, or another run is at work."""


class AlteredError(SallyAnneError):
    """A file of a finished run is not as the run wrote it."""
