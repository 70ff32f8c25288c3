"""Reads pickles of plain values without running anything in them.

Python's own reader in Python does so, which reserves no memory that a file merely names; classes,
calls and dicts are refused. Frame intervals are lists of pairs of whole numbers.
"""

from __future__ import annotations

import io
import pickle
import warnings
from functools import partial
from typing import Any, ClassVar

# Dicts, as a nested tuple can take for ever to hash; a bytearray, as it would be made as long as
# the file says, before it is read.
_REFUSED = (
    "EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID", "EMPTY_SET", "FROZENSET", "ADDITEMS", "INST",
    "OBJ", "NEWOBJ", "NEWOBJ_EX", "DUP", "NEXT_BUFFER", "READONLY_BUFFER", "REDUCE", "BUILD",
    "DICT", "EMPTY_DICT", "SETITEM", "SETITEMS", "BYTEARRAY8",
)  # fmt: skip


class PickleError(ValueError):
    """A file is no pickle, is cut short, or asks for more than plain values."""


def read_pickle(data: bytes) -> object:
    """The value of a pickle of any protocol: lists, tuples, texts, bytes, numbers and None.

    One value may stand in several places, and a list may hold itself, as the file says.

    Raises:
        PickleError: the data are no whole pickle, name a class, or use an instruction that such
            values do not need.
    """
    try:
        with warnings.catch_warnings():
            # Of odd backslashes in the texts of a damaged file.
            warnings.simplefilter("ignore", DeprecationWarning)
            return _Reader(io.BytesIO(data), encoding="latin1").load()
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
    def find_class(self, module: str, name: str) -> Any:
        raise PickleError(
            f"asks for {_short(f'{module}.{name}')!r}; only plain values are read, so it is refused"
        )

    dispatch: ClassVar[dict[int, Any]] = {
        **pickle._Unpickler.dispatch,
        **{getattr(pickle, name)[0]: partial(_refuse, name) for name in _REFUSED},
    }


def _short(text: str) -> str:
    return text if len(text) <= 100 else text[:97] + "..."
