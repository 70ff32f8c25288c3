"""Errors raised on purpose, one family: each names what is at fault and says what to do."""

from __future__ import annotations


class SallyAnneError(Exception):
    """Base of all errors raised on purpose by this toolkit."""


# Options, files and folders.


class OptionError(SallyAnneError, ValueError):
    """An option of a command is out of its range."""


class FolderError(SallyAnneError):
    """A folder cannot be written into: it holds something else, or another run is at work."""


class RunFolderError(SallyAnneError):
    """A run folder lacks a file, is damaged, or its files do not agree with each other."""


class HubError(SallyAnneError):
    """A repository of a hub cannot be read or written as asked."""


class ProcessError(SallyAnneError):
    """The processes of a run do not fit together, or one of them has ended."""


class StoreError(SallyAnneError):
    """An activation store cannot be read or written, or is that of a different run."""


class StoreDamagedError(StoreError):
    """A file of a store is missing, cut short or altered."""


# A model's inside.


class HookError(SallyAnneError):
    """Activations cannot be captured or edited as asked; or a model's heads were not found."""


class PositionError(HookError):
    """The tokens asked for are not known in this forward pass."""


class NonFiniteError(SallyAnneError):
    """An activation is NaN or infinite."""


class OutOfMemoryError(SallyAnneError):
    """What was to be computed together does not fit in memory."""


# Models.


class ModelError(SallyAnneError, ValueError):
    """A model or its processor is unknown, unsupported, or cannot be used as asked."""


class ContextError(ModelError):
    """A prompt is longer than the model can read."""


# Data.


class BenchmarkError(SallyAnneError, ValueError):
    """A benchmark's file, record or option is not usable as it is."""


class RecordError(BenchmarkError):
    """A record is malformed; the message names file, record and field."""


class MediaError(BenchmarkError):
    """A video or frame is missing, damaged, of the wrong size, or shorter than what is asked."""


# Work.


class HarnessError(SallyAnneError, ValueError):
    """An evaluation or its data cannot be used as asked; the message says what to change."""


class ProbingError(SallyAnneError, ValueError):
    """A run or its data cannot be probed as asked; the message says what to change."""


class SteeringError(SallyAnneError, ValueError):
    """A vector cannot be made, read or applied as asked; the message says what to change."""


class FigureError(SallyAnneError, ValueError):
    """A figure cannot be drawn: the chosen head, label or split does not exist in this run."""


def first_line(error: BaseException) -> str:
    """What an error says, in one line, with what follows a colon; its type if it says nothing."""
    first, *more = str(error).strip().splitlines() or [type(error).__name__]
    return f"{first} {more[0].strip()}" if more and first.endswith(":") else first
