"""Reads pickles of plain values without running anything in them.

Python's own unpickler imports whatever a file names. This one only takes the file's instructions
one by one and builds lists, tuples, dicts, texts and numbers from them; numpy's arrays and
numbers become lists and numbers. Any other class is
refused by its name. Nothing here recurses, and what is built stays in proportion to the file: how
deep values are nested, which places of its memory a file names and how often it takes one value
make no difference.
"""

from __future__ import annotations

import io
import math
import pickletools
import re
import warnings
from dataclasses import dataclass

import numpy as np


class PickleError(ValueError):
    """A file is no pickle, is cut short, or asks for more than plain values."""


class _Mark:
    """Where the elements of a collection begin."""


_MARK = _Mark()
_VALUES = (
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE"),
    *("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
)
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_PUT = ("PUT", "BINPUT", "LONG_BINPUT")
_GET = ("GET", "BINGET", "LONG_BINGET")
_IGNORED = ("PROTO", "FRAME")
# Keys are hashed each time they are taken, which for a huge number is slow.
_KEY_BITS = 64


def read_pickle(data: bytes) -> object:
    """The value of a pickle.

    Args:
        data: the whole file, of any protocol.

    Returns:
        Lists, tuples, dicts with texts or numbers as keys, texts, bytes, numbers and None. One
        value may stand in several places, and a list may hold itself, as the file says.

    Raises:
        PickleError: the data are no whole pickle, name a class that is not allowed, or use an
            instruction that plain values do not need.
    """
    try:
        with warnings.catch_warnings():
            # Of odd backslashes in the texts of a damaged file.
            warnings.simplefilter("ignore", DeprecationWarning)
            return plain(_followed(data))
    except PickleError:
        raise
    # What a damaged file makes of its instructions: no stack left, a wrong operand, a bad text.
    except (ValueError, TypeError, LookupError, AttributeError, MemoryError) as error:
        raise PickleError(f"is no whole pickle ({_short(str(error))})") from error


def _followed(data: bytes) -> object:
    machine = _Machine(Arrays(bytes_left=4 * len(data)))
    for opcode, argument, _ in pickletools.genops(io.BytesIO(data)):
        if opcode.name == "STOP":
            return machine.pop()
        machine.step(opcode.name, argument)
    raise PickleError("is no whole pickle (it does not end)")


class _Machine:
    """The stack and memory that the instructions work on.

    Args:
        arrays: makes numpy's values.
    """

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays
        self.stack: list[object] = []
        self.memory: dict[object, object] = {}

    def pop(self) -> object:
        """The topmost value."""
        value = self.stack.pop()
        if value is _MARK:
            raise PickleError("is no whole pickle (a value is missing)")
        return value

    def top(self) -> object:
        """The topmost value, left there."""
        value = self.pop()
        self.stack.append(value)
        return value

    def marked(self) -> list[object]:
        """The values above the last mark, which goes too."""
        values: list[object] = []
        while (value := self.stack.pop()) is not _MARK:
            values.append(value)
        return values[::-1]

    def extend(self, new: list[object]) -> None:
        """Add to the list on top."""
        target = self.top()
        if not isinstance(target, list):
            raise PickleError("adds to something other than a list")
        target.extend(new)

    def update(self, new: dict[object, object]) -> None:
        """Add to the dict on top."""
        target = self.top()
        if not isinstance(target, dict):
            raise PickleError("adds to something other than a dict")
        target.update(new)

    def step(self, name: str, argument: object) -> None:
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
            self.extend(new)
        elif name in ("EMPTY_DICT", "DICT"):
            push(_entries([] if name == "EMPTY_DICT" else self.marked()))
        elif name in ("SETITEM", "SETITEMS"):
            new = [self.pop(), self.pop()][::-1] if name == "SETITEM" else self.marked()
            self.update(_entries(new))
        elif name in _PUT:
            self.memory[argument] = self.top()
        elif name == "MEMOIZE":
            self.memory[len(self.memory)] = self.top()
        elif name in _GET:
            push(self.memory[argument])
        elif name == "GLOBAL":
            push(_global(*str(argument).split(" ", 1)))
        elif name == "STACK_GLOBAL":
            attribute, module = self.pop(), self.pop()
            push(_global(module, attribute))
        elif name == "REDUCE":
            arguments, function = self.pop(), self.pop()
            push(self.arrays.call(function, arguments))
        elif name == "BUILD":
            state = self.pop()
            self.arrays.build(self.top(), state)
        elif name == "INST":
            raise PickleError(_refusal(str(argument).replace(" ", ".")))
        elif name not in _IGNORED:
            raise PickleError(f"uses instruction {name}, which plain values do not need; refused")


def _global(module: object, name: object) -> Global:
    if not isinstance(module, str) or not isinstance(name, str):
        raise PickleError("names a class by something other than a text; refused")
    if not known(module, name):
        raise PickleError(_refusal(f"{module}.{name}"))
    return Global(module, name)


def _refusal(name: str) -> str:
    return (
        f"asks for {_short(name)!r}; only plain values and numpy arrays are read, so it is refused"
    )


def _short(text: str) -> str:
    return text if len(text) <= 100 else text[:97] + "..."


def _entries(flat: list[object]) -> dict[object, object]:
    if len(flat) % 2:
        raise PickleError("has a key without a value")
    keys = flat[::2]
    # A nested tuple as a key can take for ever to hash.
    if not all(map(_is_key, keys)):
        raise PickleError("has a key that is neither a text nor a number of usual size")
    return dict(zip(keys, flat[1::2], strict=True))


def _is_key(key: object) -> bool:
    if isinstance(key, int):
        return key.bit_length() <= _KEY_BITS
    return isinstance(key, str | float)


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
