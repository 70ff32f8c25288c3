"""What all rooms share: errors, options, files and processes. It knows no other room."""

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def lazy(
    package: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package, of what its file names for types.

    What stands below `if TYPE_CHECKING:` there is imported when it is first asked for:

        __getattr__, __dir__, __all__ = lazy(__name__, __file__)
    """
    blocks = (part.body for part in ast.parse(Path(file).read_bytes()).body if type(part) is ast.If)
    imports = (part for block in blocks for part in block if isinstance(part, ast.ImportFrom))
    home = {alias.name: str(part.module) for part in imports for alias in part.names}

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if home[name] == package:
            return importlib.import_module(f"{package}.{name}")
        value = getattr(importlib.import_module(home[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *home}), sorted(home)
