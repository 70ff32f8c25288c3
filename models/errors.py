"""Errors of the models room. Each message names the model or option at fault and what to do."""

from __future__ import annotations

from hooks.errors import SallyAnneError


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
