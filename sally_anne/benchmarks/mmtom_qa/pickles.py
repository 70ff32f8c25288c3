"""Reads pickles of plain values without running anything in them.

Python's own unpickler imports whatever a file names. This one only takes the file's instructions
one by one and builds lists, tuples, dicts, texts and numbers from them. numpy's arrays of numbers
become lists: the calls and states by which a pickle makes them are followed here, and numpy itself
only turns bytes into numbers. Any other class is refused by its name. Nothing here recurses, and
what is built stays in proportion to the file: how deep values are nested, which places of its
memory a file names and how often it takes one value make no difference.
"""

from __future__ import annotations

import io
import math
import pickletools
import re
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

# Protocols below 3 spell bytes as a text of which each character is one.
_GLOBALS = {("numpy", "dtype"), ("numpy", "ndarray"), ("_codecs", "encode")}
# numpy 2 moved its inner modules.
for _core in ("numpy.core", "numpy._core"):
    _GLOBALS |= {(f"{_core}.multiarray", name) for name in ("_reconstruct", "scalar")}
    _GLOBALS.add((f"{_core}.numeric", "_frombuffer"))
_NUMBERS = re.compile(r"[<>|=]?(?:i[1248]|u[1248]|f[48]|b1)")
_MARK = object()
_VALUES = (
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE"),
    *("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
)
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
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


@dataclass
class _Array:
    """A numpy array; ``values`` are its numbers as lists once they are known."""

    values: object = None


def read_pickle(data: bytes) -> object:
    """The value of a pickle.

    Args:
        data: the whole file, of any protocol.

    Returns:
        Lists, tuples, dicts with texts or numbers as keys, texts, bytes, numbers and None. One
        value may stand in several places, and a list may hold itself, as the file says. Arrays are
        lists if they are the value itself or stand up to two levels down in lists and tuples.

    Raises:
        PickleError: the data are no whole pickle, name a class that is not allowed, or use an
            instruction that plain values do not need.
    """
    machine = _Machine(4 * len(data))
    try:
        with warnings.catch_warnings():
            # Of odd backslashes in the texts of a damaged file.
            warnings.simplefilter("ignore", DeprecationWarning)
            for opcode, argument, _ in pickletools.genops(io.BytesIO(data)):
                if opcode.name == "STOP":
                    return _with_lists(machine.pop(), 2, {})
                machine.step(opcode.name, argument)
    except PickleError:
        raise
    # What a damaged file makes of its instructions: no stack left, a wrong operand, a bad text.
    except (ValueError, TypeError, LookupError, AttributeError, MemoryError) as error:
        raise PickleError(f"is no whole pickle ({_short(str(error))})") from error
    raise PickleError("is no whole pickle (it does not end)")


def _with_lists(value: object, levels: int, done: dict[tuple[int, int], object]) -> object:
    value = value.values if isinstance(value, _Array) else value
    if not levels or not isinstance(value, list | tuple):
        return value
    # A list that stands in many places is gone through once.
    place = (id(value), levels)
    if place not in done:
        done[place] = type(value)(_with_lists(element, levels - 1, done) for element in value)
    return done[place]


class _Machine:
    """The stack and memory that the instructions work on.

    Args:
        bytes_left: of how many bytes in all arrays may be made; one array's bytes may be taken
            again and again, and a small file would fill the machine.
    """

    def __init__(self, bytes_left: int) -> None:
        self.bytes_left = bytes_left
        self.stack: list[Any] = []
        self.memory: dict[object, object] = {}

    def pop(self) -> Any:
        """The topmost value."""
        value = self.stack.pop()
        if value is _MARK:
            raise PickleError("is no whole pickle (a value is missing)")
        return value

    def top(self, kind: type = object) -> Any:
        """The topmost value, left there."""
        value = self.pop()
        self.stack.append(value)
        if not isinstance(value, kind):
            raise PickleError(f"adds to something other than a {kind.__name__}")
        return value

    def marked(self) -> list[Any]:
        """The values above the last mark, which goes too."""
        values: list[Any] = []
        while (value := self.stack.pop()) is not _MARK:
            values.append(value)
        return values[::-1]

    def step(self, name: str, argument: Any) -> None:
        """Follow one instruction."""
        push = self.stack.append
        if name in _VALUES:
            push(argument)
        elif name in _CONSTANTS:
            push(_CONSTANTS[name])
        elif name in _TUPLES:
            push(tuple([self.pop() for _ in range(_TUPLES[name])][::-1]))
        elif name == "MARK":
            push(_MARK)
        elif name == "TUPLE":
            push(tuple(self.marked()))
        elif name in ("EMPTY_LIST", "LIST"):
            push([] if name == "EMPTY_LIST" else self.marked())
        elif name in ("APPEND", "APPENDS"):
            new = [self.pop()] if name == "APPEND" else self.marked()
            self.top(list).extend(new)
        elif name in ("EMPTY_DICT", "DICT"):
            push(_entries([] if name == "EMPTY_DICT" else self.marked()))
        elif name in ("SETITEM", "SETITEMS"):
            new = [self.pop(), self.pop()][::-1] if name == "SETITEM" else self.marked()
            self.top(dict).update(_entries(new))
        elif name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self.memory[len(self.memory) if name == "MEMOIZE" else argument] = self.top()
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            push(self.memory[argument])
        elif name == "GLOBAL":
            push(_global(*argument.split(" ", 1)))
        elif name == "STACK_GLOBAL":
            attribute, module = self.pop(), self.pop()
            push(_global(module, attribute))
        elif name == "INST":
            push(_global(*argument.split(" ", 1)))
            raise PickleError("makes an object; only plain values are read, so it is refused")
        elif name == "REDUCE":
            arguments, function = self.pop(), self.pop()
            push(self.call(function, arguments))
        elif name == "BUILD":
            state = self.pop()
            self.build(self.top(), state)
        elif name not in ("PROTO", "FRAME"):
            raise PickleError(f"uses instruction {name}, which plain values do not need; refused")

    def call(self, function: Any, arguments: Any) -> object:
        """What a call gives; ValueError or TypeError if it is none that an array needs."""
        if not isinstance(function, Global) or not isinstance(arguments, tuple):
            raise ValueError("calls something that is no function")
        if function.name == "dtype":
            code = arguments[0]
            if not isinstance(code, str) or not _NUMBERS.fullmatch(code):
                raise ValueError("has an array of something other than numbers")
            return _Numbers(code)
        if function.name == "encode":
            text, encoding = arguments
            if not isinstance(text, str) or encoding != "latin1":
                raise ValueError("encodes something other than bytes")
            self.spend(len(text))
            return text.encode("latin1")
        if function.name == "scalar":
            kind, raw = arguments
            return self.numbers(kind, (1,), raw, False)[0]
        if function.name == "_frombuffer":
            raw, kind, shape, order = arguments
            return _Array(self.numbers(kind, shape, raw, order == "F"))
        if function.name == "ndarray":
            raise ValueError("calls a class that is no function")
        if arguments[0] != Global("numpy", "ndarray"):
            raise ValueError("makes an array of another class")
        return _Array()

    def build(self, target: object, state: Any) -> None:
        """Give an array or a kind of numbers its state; errors as :meth:`call`."""
        known = isinstance(state, tuple)
        if known and isinstance(target, _Numbers) and state[1] in ("<", ">", "|"):
            target.order = state[1]
        elif known and isinstance(target, _Array):
            _, shape, kind, column_first, raw = state
            target.values = self.numbers(kind, shape, raw, column_first is True)
        else:
            raise ValueError("gives a state to something other than an array")

    def numbers(self, kind: object, shape: Any, raw: object, column_first: bool) -> list:
        """An array's numbers, from their bytes."""
        if not isinstance(kind, _Numbers) or not isinstance(raw, bytes | bytearray):
            raise ValueError("has an array without numbers")
        if not isinstance(shape, tuple) or not 1 <= len(shape) <= 2:
            raise ValueError("has an array with other than one or two dimensions")
        ordered = kind.order != "|"
        dtype = np.dtype(kind.order + kind.code.lstrip("<>|=") if ordered else kind.code)
        fits = all(type(length) is int and 1 <= length <= len(raw) for length in shape)
        if not fits or math.prod(shape) * dtype.itemsize != len(raw):
            raise ValueError("has an array whose lengths do not fit its bytes")
        self.spend(len(raw))
        flat = np.frombuffer(bytes(raw), dtype)
        return flat.reshape(shape, order="F" if column_first else "C").tolist()

    def spend(self, count: int) -> None:
        """Count bytes that are made into something new."""
        self.bytes_left -= count
        if self.bytes_left < 0:
            raise ValueError("takes the same bytes for too many arrays")


def _global(module: object, name: object) -> Global:
    if not isinstance(module, str) or not isinstance(name, str):
        raise PickleError("names a class by something other than a text; refused")
    if (module, name) not in _GLOBALS:
        raise PickleError(
            f"asks for {_short(f'{module}.{name}')!r}; only plain values and numpy arrays are "
            "read, so it is refused"
        )
    return Global(module, name)


def _short(text: str) -> str:
    return text if len(text) <= 100 else text[:97] + "..."


def _entries(flat: list[Any]) -> dict[object, object]:
    if len(flat) % 2:
        raise PickleError("has a key without a value")
    for key in flat[::2]:
        # A nested tuple as a key can take for ever to hash.
        usual = key.bit_length() <= _KEY_BITS if isinstance(key, int) else True
        if not isinstance(key, str | int | float) or not usual:
            raise PickleError("has a key that is neither a text nor a number of usual size")
    return dict(zip(flat[::2], flat[1::2], strict=True))
