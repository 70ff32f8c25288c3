"""What all rooms share: errors, options, files and processes. It knows no other room."""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazy(
    package: str, exports: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package, `exports` being its names by module.

    A module with no names stands for itself, under the last part of its name. In a package:

        __getattr__, __dir__, __all__ = lazy(__name__, {"hooks.capture": ["Capture"]})
    """
    home = {name: module for module, names in exports.items() for name in names}
    modules = {module.rpartition(".")[2]: module for module, names in exports.items() if not names}

    def get(name: str) -> Any:
        if name in modules:
            return importlib.import_module(modules[name])
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    names = sorted({*home, *modules})
    return get, lambda: sorted({*vars(sys.modules[package]), *names}), names
