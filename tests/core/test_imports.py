"""No two files import each other, not even by way of others; layers are held by lint-imports."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest

ROOMS = ("experiments", "figures", "hooks", "probing", "sally_anne", "steering")


def test_no_circle_of_files() -> None:
    graph = grimp.build_graph(*ROOMS, cache_dir=None)
    known = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    try:
        TopologicalSorter(known).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))
