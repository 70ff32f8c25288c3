"""``sally-anne nulls``: the table of null thresholds, p-values and intervals beside a run."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from sally_anne.core.errors import FolderError, MissingRunFileError, RunFolderError
from sally_anne.core.folder import claimed
from sally_anne.probing import nulls
from sally_anne.probing.config import NullsConfig
from sally_anne.probing.nulls import run

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
        assert (heads[f"{label}_p_fwer"] >= heads[f"{label}_p"]).all()
        above = heads[f"{label}_accuracy"] > heads[f"{label}_threshold"]
        assert (above == (heads[f"{label}_p_fwer"] <= 0.05)).all()
        assert (heads[f"{label}_low"] <= heads[f"{label}_high"]).all()
    assert "heads above" in printed.getvalue() and "nulls-test.parquet" in printed.getvalue()


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingRunFileError, match="no run folder"):
        run(NullsConfig(tmp_path / "nowhere"))
    assert not (tmp_path / "nowhere").exists()


def test_few_permutations_reach_no_threshold(finished: Path, tmp_path: Path, monkeypatch) -> None:
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    steps, test = [], nulls.permutation_test

    def watched(*args):
        steps.append(args[-1])
        return test(*args)

    monkeypatch.setattr(nulls, "permutation_test", watched)
    (folder / "config.json").write_text(json.dumps({"config": {"c": 1.0, "max_iter": 7}}))
    printed = io.StringIO()
    run(NullsConfig(folder, permutations=3), Console(file=printed, width=200))
    assert "too few permutations for any head to stand out: take at least 19" in (
        printed.getvalue()
    )
    assert "inf" not in printed.getvalue()
    assert steps == [7, 7]


def test_a_run_that_is_written_to_is_left_alone(finished: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    with (
        claimed(folder, "a probing run"),
        pytest.raises(FolderError, match="another run is writing"),
    ):
        run(NullsConfig(folder, permutations=3))


@pytest.mark.parametrize("name", ["c", "max_iter"])
def test_a_config_without_an_option_is_named(finished: Path, tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    saved = {"config": {"c": 1.0, "max_iter": 7}}
    del saved["config"][name]
    (folder / "config.json").write_text(json.dumps(saved))
    with pytest.raises(RunFolderError, match=rf"config\.json: config\.{name} should be a number"):
        run(NullsConfig(folder, permutations=3))
