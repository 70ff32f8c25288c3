"""Keeping compiled models eager while hooks are set.

Compiled code does not look at hooks: what was set after the first compiled call is ignored without
a word, and what was set during it would stay in the graph for good. While a capture or an edit is
open, nothing that `torch.compile` has made or would make is used, whichever part of a model was
compiled and by whom (`generate` compiles decoding itself where a cache is static). Afterwards the
compiled code is used again as it is.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import nn

_lock = threading.Lock()
_open = 0
_stance: Any = None


def keep_eager() -> None:
    """From now on run everything eagerly, until `allow_compiled` was called as often.

    Raises:
        RuntimeError: called from within compiled code.
    """
    global _open, _stance
    with _lock:
        if not _open:
            _stance = torch.compiler.set_stance("force_eager")
        _open += 1


def allow_compiled() -> None:
    """The counterpart of `keep_eager`; the last one brings back what was set before the first."""
    global _open, _stance
    with _lock:
        _open -= 1
        if not _open:
            _stance.__exit__(None, None, None)
            _stance = None


def uncompiled(model: nn.Module) -> nn.Module:
    """The model inside the wrapper that `torch.compile(model)` returns; another as it is."""
    return getattr(model, "_orig_mod", model)
