"""numpy's arrays and numbers in pickles, as lists and numbers, made from their bytes alone.

A pickle says how numpy would make them: by calls and by states. Those that belong to arrays of
numbers are followed here with our own functions; numpy itself only turns bytes into numbers.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

# numpy 2 moved its inner modules.
_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray")
_GLOBALS = {
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("_codecs", "encode"),
    ("numpy.core.numeric", "_frombuffer"),
    ("numpy._core.numeric", "_frombuffer"),
    *((module, name) for module in _MODULES for name in ("_reconstruct", "scalar")),
}
ORDERS = ("<", ">", "|")
_NUMBERS = re.compile(r"[<>|=]?(?:i[1248]|u[1248]|f[48]|b1)")


@dataclass(frozen=True)
class Global:
    """A class or function that a pickle names."""

    module: str
    name: str


@dataclass
class Numbers:
    """numpy's dtype: one kind of number."""

    code: str
    order: str = "|"

    def dtype(self) -> np.dtype:
        """As numpy has it; an order of ``<`` or ``>`` stands before that of the code."""
        order = "" if self.order == "|" else self.order
        return np.dtype(order + (self.code.lstrip("<>|=") if order else self.code))


@dataclass
class Array:
    """A numpy array; ``values`` are its numbers as lists once they are known."""

    values: object = None


def known(module: str, name: str) -> bool:
    """Whether arrays of numbers need it."""
    return (module, name) in _GLOBALS


class Arrays:
    """Follows the calls and states that :func:`known` allows.

    Args:
        bytes_left: of how many bytes in all arrays may be made; one array's bytes may be taken
            again and again, and a small file would fill the machine.
    """

    def __init__(self, bytes_left: int) -> None:
        self.bytes_left = bytes_left

    def call(self, function: object, arguments: object) -> object:
        """What a call gives.

        Raises:
            ValueError, TypeError: the arguments are not those of an array of numbers.
        """
        if not isinstance(function, Global) or not isinstance(arguments, tuple):
            raise ValueError("calls something that is no function")
        if function.name == "dtype":
            return _numbers(arguments)
        if function.name == "encode":
            return self._encoded(arguments)
        if function.name == "scalar":
            kind, raw = arguments
            return self._values(kind, (1,), raw, False)[0]
        if function.name == "_reconstruct":
            if arguments[0] != Global("numpy", "ndarray"):
                raise ValueError("makes an array of another class")
            return Array()
        if function.name == "_frombuffer":
            raw, kind, shape, order = arguments
            return Array(self._values(kind, shape, raw, order == "F"))
        raise ValueError("calls a class that is no function")

    def build(self, target: object, state: object) -> None:
        """Give an array or a kind of numbers its state.

        Raises:
            ValueError, TypeError: the state is not that of an array of numbers.
        """
        if isinstance(target, Numbers) and isinstance(state, tuple) and state[1] in ORDERS:
            target.order = state[1]
        elif isinstance(target, Array) and isinstance(state, tuple):
            _, shape, kind, column_first, raw = state
            target.values = self._values(kind, shape, raw, column_first is True)
        else:
            raise ValueError("gives a state to something other than an array")

    def _encoded(self, arguments: tuple) -> bytes:
        """Bytes as protocols below 3 spell them: as a text of which each character is a byte."""
        text, encoding = arguments
        if not isinstance(text, str) or encoding != "latin1":
            raise ValueError("encodes something other than bytes")
        self._spend(len(text))
        return text.encode("latin1")

    def _values(self, kind: object, shape: object, raw: object, column_first: bool) -> list:
        if not isinstance(kind, Numbers) or not isinstance(raw, bytes | bytearray):
            raise ValueError("has an array without numbers")
        if not isinstance(shape, tuple) or not 1 <= len(shape) <= 2:
            raise ValueError("has an array with other than one or two dimensions")
        if not all(type(length) is int and 1 <= length <= len(raw) for length in shape):
            raise ValueError("has an array whose lengths do not fit its bytes")
        dtype = kind.dtype()
        if math.prod(shape) * dtype.itemsize != len(raw):
            raise ValueError("has an array whose lengths do not fit its bytes")
        self._spend(len(raw))
        flat = np.frombuffer(bytes(raw), dtype)
        return flat.reshape(shape, order="F" if column_first else "C").tolist()

    def _spend(self, count: int) -> None:
        self.bytes_left -= count
        if self.bytes_left < 0:
            raise ValueError("takes the same bytes for too many arrays")


def plain(value: object) -> object:
    """The value with arrays as lists.

    Arrays may be the value itself, or stand in lists and tuples, up to two levels down; deeper
    ones stay as they are, for nobody asks for them.
    """
    return _with_lists(value, 2, {})


def _with_lists(value: object, levels: int, done: dict[tuple[int, int], object]) -> object:
    value = _unpacked(value)
    if not levels or not isinstance(value, list | tuple):
        return value
    # A list that stands in many places is gone through once.
    place = (id(value), levels)
    if place not in done:
        done[place] = type(value)(_with_lists(element, levels - 1, done) for element in value)
    return done[place]


def _unpacked(value: object) -> object:
    return value.values if isinstance(value, Array) else value


def _numbers(arguments: tuple) -> Numbers:
    code = arguments[0]
    if not isinstance(code, str) or not _NUMBERS.fullmatch(code):
        raise ValueError("has an array of something other than numbers")
    return Numbers(code)
