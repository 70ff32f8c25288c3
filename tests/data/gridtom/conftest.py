"""One small export, shared by the tests of this folder; they must not change it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sally_anne.data.gridtom.build import BuildConfig, build

STORIES = 4


@pytest.fixture(scope="session")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted export of the first four stories."""
    out = tmp_path_factory.mktemp("export") / "data"
    build(BuildConfig(out=out, stories=STORIES, workers=1))
    return out
