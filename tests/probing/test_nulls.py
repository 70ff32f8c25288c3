"""``sally-anne nulls``: the table of null thresholds, p-values and intervals beside a run."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from probing.nulls import NullsConfig, run
from sally_anne.core.errors import MissingRunFileError

pytestmark = pytest.mark.integration


def test_a_runs_heads_against_permuted_labels(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    printed = io.StringIO()
    config = NullsConfig(folder, permutations=39, bootstraps=20, split="test", seed=1)
    heads = run(config, Console(file=printed, width=200))
    pd.testing.assert_frame_equal(heads, pd.read_parquet(folder / "nulls-test.parquet"))
    own = pd.read_parquet(folder / "heads.parquet")
    for label in ("y_p", "y_o"):
        # Of the same probes, up to samples beside a boundary.
        off = (heads[f"{label}_accuracy"] - own[f"{label}_test_accuracy"]).abs()
        assert off.max() <= 0.02
        assert heads[f"{label}_p"].between(1 / 40, 1).all()
        assert (heads[f"{label}_p_best"] >= heads[f"{label}_p"]).all()
        above = heads[f"{label}_accuracy"] > heads[f"{label}_threshold"]
        assert (above == (heads[f"{label}_p_best"] <= 0.05)).all()
        assert (heads[f"{label}_low"] <= heads[f"{label}_high"]).all()
    assert "heads above" in printed.getvalue() and "nulls-test.parquet" in printed.getvalue()


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingRunFileError, match="no run folder"):
        run(NullsConfig(tmp_path / "nowhere"))
