"""Reads pickles of plain values without running anything in them.

Python's own reader in Python does so, but what a file names is a :class:`Global`, never imported,
and calls and states make numpy's arrays alone, as lists. Nothing recurses, and what is built stays
in proportion to the file.
"""

from __future__ import annotations

import io
import math
import pickle
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

# Protocols below 3 spell bytes as a text of which each character is one.
_GLOBALS = {("numpy", "dtype"), ("numpy", "ndarray"), ("_codecs", "encode")}
# numpy 2 moved its inner modules.
for _core in ("numpy.core", "numpy._core"):
    _GLOBALS |= {(f"{_core}.multiarray", name) for name in ("_reconstruct", "scalar")}
    _GLOBALS.add((f"{_core}.numeric", "_frombuffer"))
_NUMBERS = re.compile(r"[<>|=]?(?:i[1248]|u[1248]|f[48]|b1)")
# The others of no use to plain values make nothing of a `Global`.
_REFUSED = (
    "EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID", "EMPTY_SET", "FROZENSET", "ADDITEMS", "INST",
    "OBJ", "NEWOBJ", "NEWOBJ_EX", "DUP", "NEXT_BUFFER", "READONLY_BUFFER",
)  # fmt: skip
# Keys are hashed each time they are taken, which for a huge number is slow.
_KEY_BITS = 64


class PickleError(ValueError):
    """A file is no pickle, is cut short, or asks for more than plain values."""


@dataclass(frozen=True)
class Global:
    """A class or function that a pickle names."""

    module: str
    name: str


@dataclass
class _Numbers:
    """numpy's dtype; an order of ``<`` or ``>`` stands before that of the code."""

    code: str
    order: str = "|"


class _Array(list):
    """A numpy array; its numbers are there once they are known."""


def read_pickle(data: bytes) -> object:
    """The value of a pickle, which may be of any protocol.

    Returns:
        Lists, tuples, dicts with texts or numbers as keys, texts, bytes, numbers and None. One
        value may stand in several places, and a list may hold itself, as the file says. numpy's
        arrays are lists.

    Raises:
        PickleError: the data are no whole pickle, name a class that is not allowed, or use an
            instruction that plain values do not need.
    """
    try:
        with warnings.catch_warnings():
            # Of odd backslashes in the texts of a damaged file.
            warnings.simplefilter("ignore", DeprecationWarning)
            return _Reader(data).load()
    except PickleError:
        raise
    # What a damaged file makes of its instructions: no stack left, a wrong operand, a bad text.
    except Exception as error:
        raise PickleError(
            f"is no whole pickle ({_short(str(error)) or 'it does not end'})"
        ) from error


def _refuse(name: str, _: _Reader) -> None:
    raise PickleError(f"uses instruction {name}, which plain values do not need; refused")


class _Reader(pickle._Unpickler):
    stack: list[Any]
    pop_mark: Callable[[], list[Any]]

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="latin1")
        # Of all arrays: one's bytes may be taken again and again, and would fill the machine.
        self.bytes_left = 4 * len(data)

    def find_class(self, module: str, name: str) -> Global:
        if (module, name) not in _GLOBALS:
            raise PickleError(
                f"asks for {_short(f'{module}.{name}')!r}; only plain values and numpy arrays are "
                "read, so it is refused"
            )
        return Global(module, name)

    def call(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if not isinstance(function, Global) or not isinstance(arguments, tuple):
            raise ValueError("calls something that is no function")
        self.stack.append(self.made(function.name, arguments))

    def made(self, name: str, arguments: tuple[Any, ...]) -> object:
        match name, arguments:
            case "dtype", (str(code), *_) if _NUMBERS.fullmatch(code):
                return _Numbers(code)
            case "dtype", (_, *_):
                raise ValueError("has an array of something other than numbers")
            case "encode", (str(text), "latin1"):
                self.spend(len(text))
                return text.encode("latin1")
            case "encode", _:
                raise ValueError("encodes something other than bytes")
            case "scalar", (kind, raw):
                return self.numbers(kind, (1,), raw, False)[0]
            case "_frombuffer", (raw, kind, shape, order):
                return self.numbers(kind, shape, raw, order == "F")
            case "ndarray", _:
                raise ValueError("calls a class that is no function")
            case "_reconstruct", (Global("numpy", "ndarray"), *_):
                return _Array()
        raise ValueError("makes an array of another class")

    def build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        known = isinstance(state, tuple)
        if known and isinstance(target, _Numbers) and state[1] in ("<", ">", "|"):
            target.order = state[1]
        elif known and isinstance(target, _Array):
            _, shape, kind, column_first, raw = state
            target[:] = self.numbers(kind, shape, raw, column_first is True)
        else:
            raise ValueError("gives a state to something other than an array")

    def numbers(self, kind: object, shape: Any, raw: object, column_first: bool) -> list:
        """An array's numbers, from their bytes."""
        if not isinstance(kind, _Numbers) or not isinstance(raw, bytes):
            raise ValueError("has an array without numbers")
        if not isinstance(shape, tuple) or not 1 <= len(shape) <= 2:
            raise ValueError("has an array with other than one or two dimensions")
        ordered = kind.order != "|"
        dtype = np.dtype(kind.order + kind.code.lstrip("<>|=") if ordered else kind.code)
        fits = all(type(length) is int and 1 <= length <= len(raw) for length in shape)
        if not fits or math.prod(shape) * dtype.itemsize != len(raw):
            raise ValueError("has an array whose lengths do not fit its bytes")
        self.spend(len(raw))
        flat = np.frombuffer(raw, dtype)
        return flat.reshape(shape, order="F" if column_first else "C").tolist()

    def spend(self, count: int) -> None:
        """Count bytes that are made into something new."""
        self.bytes_left -= count
        if self.bytes_left < 0:
            raise ValueError("takes the same bytes for too many arrays")

    def set_item(self) -> None:
        self.enter([self.stack.pop(-2), self.stack.pop()])

    def set_items(self) -> None:
        self.enter(self.pop_mark())

    def make_dict(self) -> None:
        flat = self.pop_mark()
        self.stack.append({})
        self.enter(flat)

    def enter(self, flat: list[Any]) -> None:
        if not isinstance(self.stack[-1], dict):
            raise PickleError("adds to something other than a dict")
        if len(flat) % 2:
            raise PickleError("has a key without a value")
        for key in flat[::2]:
            # A nested tuple as a key can take for ever to hash.
            usual = key.bit_length() <= _KEY_BITS if isinstance(key, int) else True
            if not isinstance(key, str | int | float) or not usual:
                raise PickleError("has a key that is neither a text nor a number of usual size")
        self.stack[-1].update(zip(flat[::2], flat[1::2], strict=True))

    dispatch: ClassVar[dict[int, Any]] = {
        **pickle._Unpickler.dispatch,
        **{getattr(pickle, name)[0]: partial(_refuse, name) for name in _REFUSED},
        # A bytearray would be made as long as the file says, before it is read.
        pickle.BYTEARRAY8[0]: pickle._Unpickler.dispatch[pickle.BINBYTES8[0]],
        pickle.REDUCE[0]: call,
        pickle.BUILD[0]: build,
        pickle.DICT[0]: make_dict,
        pickle.SETITEM[0]: set_item,
        pickle.SETITEMS[0]: set_items,
    }


def _short(text: str) -> str:
    return text if len(text) <= 100 else text[:97] + "..."
