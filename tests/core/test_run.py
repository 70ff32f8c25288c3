"""A run folder is read whole or refused with the file and the command that makes it."""

from __future__ import annotations

import shutil

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

from sally_anne.core.errors import FigureError, RunFolderError
from sally_anne.core.run import Run, select

pytestmark = pytest.mark.integration


def test_a_run_gives_back_what_was_written(run) -> None:
    read = Run.open(run.folder)
    pd.testing.assert_frame_equal(read.heads, run.heads)
    assert list(read.samples["item_id"]) == list(run.items["item_id"])
    np.testing.assert_array_equal(read.head_activations(4, 3), run.z[:, 4, 3].astype("float64"))
    coef, intercept = read.probe("y_o", 4, 3)
    np.testing.assert_array_equal(coef, run.probes["y_o.coef"][4, 3])
    assert intercept == run.probes["y_o.intercept"][4, 3]
    assert coef.dtype == np.float64
    assert read.title[:3] == ["tiny-qwen2-vl", "order 1", "contrast matched"]


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("config.json", lambda folder: Run.open(folder)),
        ("heads.parquet", lambda folder: Run.open(folder).heads),
        ("probes.safetensors", lambda folder: Run.open(folder).probe("y_p", 0, 0)),
        ("activations", lambda folder: Run.open(folder).samples),
    ],
)
def test_a_missing_file_is_named_with_the_command_that_makes_it(run, name, use) -> None:
    path = run.folder / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(RunFolderError) as caught:
        use(run.folder)
    assert str(path) in str(caught.value)
    assert "sally-anne probe" in str(caught.value)


def test_probes_that_do_not_fit_are_refused(run) -> None:
    with pytest.raises(RunFolderError, match="no probe of y_p for L6H0"):
        Run.open(run.folder).probe("y_p", 6, 0)
    save_file({"y_p.coef": run.probes["y_p.coef"]}, run.folder / "probes.safetensors")
    with pytest.raises(RunFolderError, match="no probe of y_p"):
        Run.open(run.folder).probe("y_p", 0, 0)


@pytest.mark.parametrize("text", ["{", "[]", '{"results": {}}'])
def test_a_broken_config_is_named(run, text) -> None:
    (run.folder / "config.json").write_text(text)
    with pytest.raises(RunFolderError, match=r"config\.json"):
        Run.open(run.folder)


def test_other_heads_are_refused(run) -> None:
    with pytest.raises(RunFolderError, match="heads 0 to 7, not 8"):
        Run.open(run.folder).head_activations(0, 8)


def test_select_keeps_the_splits_shown(run) -> None:
    assert set(run.items["split"][select(run.items, "held-out")]) == {"validation", "test"}
    assert select(run.items, "all").all()
    with pytest.raises(FigureError, match="no sample in split test"):
        select(run.items[run.items["split"] == "train"], "test")
