"""The errors a figure can end in; a command prints their text and exits with status 1."""

from __future__ import annotations

from hooks.errors import SallyAnneError


class FigureError(SallyAnneError):
    """A figure cannot be drawn; the message says why and what to do."""


class RunFolderError(FigureError):
    """A run folder is damaged, or its files do not agree with each other."""


class MissingRunFileError(RunFolderError, FileNotFoundError):
    """A run folder lacks a file; the message names the file and the command that makes it."""


class ChoiceError(FigureError, ValueError):
    """The chosen head, label or split does not exist in this run."""
