"""Errors raised on purpose, one family: each names what is at fault and says what to do."""


class SallyAnneError(Exception):
    """Base of all errors raised on purpose by this toolkit."""


class OptionError(SallyAnneError, ValueError):
    """An option of a command is out of its range."""


class FolderError(SallyAnneError):
    """A folder, or a hub's repository, cannot be read or written: it holds something else, say."""


class RunFolderError(SallyAnneError):
    """A run folder lacks a file, is damaged, or its files do not agree with each other."""


class ProcessError(SallyAnneError):
    """The processes of a run do not fit together, or one of them has ended."""


class StoreError(SallyAnneError):
    """An activation store cannot be read or written, or is that of a different run."""


class StoreDamagedError(StoreError):
    """A file of a store is missing, cut short or altered."""


class HookError(SallyAnneError):
    """Heads or tokens were not found; activations cannot be read or edited, or are not finite."""


class OutOfMemoryError(SallyAnneError):
    """What was to be computed together does not fit in memory."""


class ModelError(SallyAnneError, ValueError):
    """A model or its processor is unknown, unsupported, or cannot be used as asked."""


class ContextError(ModelError):
    """A prompt is longer than the model can read."""


class BenchmarkError(SallyAnneError, ValueError):
    """A benchmark's file, record or option is not usable as it is."""


class RecordError(BenchmarkError):
    """A record is malformed; the message names file, record and field."""


class MediaError(BenchmarkError):
    """A video or frame is missing, damaged, of the wrong size, or shorter than what is asked."""


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
