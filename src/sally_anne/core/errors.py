"""Errors raised on purpose, one family: each names what is at fault and says what to do."""

from __future__ import annotations


class SallyAnneError(Exception):
    """Base of all errors raised on purpose by this toolkit."""


# Options, files and folders.


class OptionError(SallyAnneError, ValueError):
    """An option of a command is out of its range."""


class FolderError(SallyAnneError):
    """A folder cannot be written into: it holds something else, or another run is at work."""


class HubError(SallyAnneError):
    """A repository of a hub cannot be read or written as asked."""


class ProcessError(SallyAnneError):
    """The processes of a run do not fit together, or one of them has ended."""


# A model's inside.


class GeometryError(SallyAnneError):
    """The layers and heads of a model were not found, or do not add up."""


class PositionError(SallyAnneError):
    """The tokens asked for are not known in this forward pass."""


class CaptureError(SallyAnneError):
    """A capture was used in a way that would mix up or lose activations."""


class EditError(SallyAnneError):
    """Activations cannot be edited as asked."""


class NonFiniteError(SallyAnneError):
    """An activation is NaN or infinite."""


class OutOfMemoryError(SallyAnneError):
    """What was to be computed together does not fit in memory."""


class BackendError(SallyAnneError):
    """A backend is unknown, not installed, or does not know the model."""


class StoreError(SallyAnneError):
    """An activation store cannot be read or written."""


class StoreMismatchError(StoreError):
    """A store on disk was made by a different run than the one that wants to use it."""


class StoreDamagedError(StoreError):
    """A file of a store is missing, cut short or altered."""


# Models.


class ModelError(SallyAnneError, ValueError):
    """A model or its processor cannot be used as asked."""


class ContextError(ModelError):
    """A prompt is longer than the model can read."""


class UnknownModelError(ModelError):
    """No such name, folder or hub id."""


class OtherModelError(ModelError):
    """A run or vector was made with another model than the one it is used with."""


class UnsupportedModelError(ModelError):
    """The model's class is not one that this version can drive."""


# Data.


class BenchmarkError(SallyAnneError, ValueError):
    """A benchmark's file, record or option is not usable as it is."""


class RecordError(BenchmarkError):
    """A record is malformed; the message names file, record and field."""


class ClipError(BenchmarkError):
    """A video or frame is missing, damaged, or shorter than what is asked of it."""


# Work.


class HarnessError(SallyAnneError, ValueError):
    """An evaluation or its data cannot be used as asked; the message says what to change."""


class ProbingError(SallyAnneError, ValueError):
    """A run or its data cannot be probed as asked; the message says what to change."""


class SteeringError(SallyAnneError, ValueError):
    """A vector cannot be made, read or applied as asked; the message says what to change."""


class FigureError(SallyAnneError):
    """A figure cannot be drawn; the message says why and what to do."""


class RunFolderError(FigureError):
    """A run folder is damaged, or its files do not agree with each other."""


class MissingRunFileError(RunFolderError, FileNotFoundError):
    """A run folder lacks a file; the message names the file and the command that makes it."""


class ChoiceError(FigureError, ValueError):
    """The chosen head, label or split does not exist in this run."""
