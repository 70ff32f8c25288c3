"""A run folder is read whole or refused with the file and the command that makes it."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

from sally_anne.core.errors import FigureError, RunFolderError, StoreDamagedError
from sally_anne.core.head import select
from sally_anne.core.run import Run

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


def test_the_title_says_what_was_probed(run) -> None:
    assert Run.open(run.folder).title == [
        "tiny-qwen2-vl",
        "order 1",
        "contrast matched",
        "setting multimodal",
        "site head_out",
        "position last_prompt",
    ]


def test_a_word_missing_from_the_config_comes_from_the_store_or_is_said(make_run) -> None:
    title = Run.open(make_run(config={"model": "m", "order": 2}).folder).title
    assert title == [
        "m",
        "order 2",
        "contrast not recorded",
        "setting not recorded",
        "site head_out",
        "position last_prompt",
    ]


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


def test_a_missing_folder_is_named(tmp_path) -> None:
    with pytest.raises(RunFolderError, match="no run folder at .*nowhere.*sally-anne probe"):
        Run.open(tmp_path / "nowhere")


@pytest.mark.parametrize("text", ["{", "[]", json.dumps({"results": {}})])
def test_a_broken_config_is_named(run, text) -> None:
    (run.folder / "config.json").write_text(text)
    with pytest.raises(RunFolderError, match=r"config\.json"):
        Run.open(run.folder)


@pytest.mark.parametrize("word", ["model", "order", "position"])
@pytest.mark.parametrize("value", [["a"], {"a": 1}])
def test_a_word_of_the_wrong_type_is_named(make_run, word, value) -> None:
    run = make_run(layers=1, heads=1, config={word: value})
    with pytest.raises(RunFolderError, match=rf"config\.json: config\.{word} should be text") as c:
        Run.open(run.folder)
    assert type(value).__name__ in str(c.value)


def test_other_entries_of_the_config_file_do_not_matter(run) -> None:
    path = run.folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"results": "lost", "figures": 3}))
    assert Run.open(run.folder).title[0] == "tiny-qwen2-vl"


def test_one_head_twice_is_refused(run) -> None:
    pd.concat([run.heads, run.heads.iloc[[10]]]).to_parquet(run.folder / "heads.parquet")
    with pytest.raises(RunFolderError, match="L1H2 more than once"):
        _ = Run.open(run.folder).heads


def test_an_empty_head_table_is_refused(run) -> None:
    run.heads.iloc[:0].to_parquet(run.folder / "heads.parquet")
    with pytest.raises(RunFolderError, match="no rows"):
        _ = Run.open(run.folder).heads


def test_probes_that_do_not_fit_are_refused(run) -> None:
    with pytest.raises(RunFolderError, match=r"no probe for L6H0: .*\[6, 8, 6\]"):
        Run.open(run.folder).probe("y_p", 6, 0)
    path = run.folder / "probes.safetensors"
    save_file({"y_p.coef": run.probes["y_p.coef"]}, path)
    with pytest.raises(RunFolderError, match=r"no tensor y_p\.intercept"):
        Run.open(run.folder).probe("y_p", 0, 0)
    wrong = {"y_p.coef": run.probes["y_p.coef"], "y_p.intercept": np.zeros((6, 7), "float32")}
    save_file(wrong, path)
    with pytest.raises(RunFolderError, match=r"intercept \[6, 7\] should be \[L, H\]"):
        Run.open(run.folder).probe("y_p", 0, 0)


def test_a_head_beyond_the_store_is_refused(run) -> None:
    with pytest.raises(RunFolderError, match="heads 0 to 7, not 8"):
        Run.open(run.folder).head_activations(0, 8)


def test_a_damaged_shard_is_named(run) -> None:
    shard = run.folder / "activations" / "shard-00000.safetensors"
    shard.write_bytes(shard.read_bytes()[:-4])
    with pytest.raises(StoreDamagedError, match="shard-00000"):
        Run.open(run.folder).head_activations(0, 0)


def test_select_keeps_the_splits_shown(run) -> None:
    assert select(run.items, "held-out").sum() == 4 * 25
    assert set(run.items["split"][select(run.items, "held-out")]) == {"validation", "test"}
    assert select(run.items, "all").all()


def test_an_empty_split_is_refused(run) -> None:
    only_train = run.items[run.items["split"] == "train"]
    with pytest.raises(FigureError, match="no sample in split test"):
        select(only_train, "test")
