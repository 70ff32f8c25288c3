"""The top package: its names load when they are asked for; no two files import each other."""

from __future__ import annotations

import importlib
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter

import grimp
import pytest

import sally_anne as sa


def test_no_circle_of_files() -> None:
    graph = grimp.build_graph("sally_anne", cache_dir=None, exclude_type_checking_imports=True)
    known = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    try:
        TopologicalSorter(known).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_names_load_when_they_are_asked_for() -> None:
    code = "import sys, sally_anne as sa; assert 'torch' not in sys.modules; sa.Capture"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert sa.Capture is importlib.import_module("sally_anne.hooks.capture").Capture
    assert {"Capture", "plot", "__version__"} <= set(dir(sa))
    assert all(getattr(sa, name) is not None for name in sa.__all__)
    with pytest.raises(AttributeError, match="Captain"):
        sa.Captain  # noqa: B018
