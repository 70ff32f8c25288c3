"""No two files import each other."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


def test_no_circle_of_files() -> None:
    graph = grimp.build_graph("sally_anne", cache_dir=None, exclude_type_checking_imports=True)
    known = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    try:
        TopologicalSorter(known).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))
