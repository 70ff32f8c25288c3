"""Probes and heads come back from disk as they were."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from probing.ranking import fit_probes, rank_heads
from probing.saving import load_probes, save_heads, save_probes
from sally_anne.core.errors import ProbingError


def test_probes_and_heads_come_back(made, tmp_path) -> None:
    probes = fit_probes(made.x, made.items, 0.05, 200)
    heads = rank_heads(made.x, made.items, probes)
    save_probes(tmp_path / "probes.safetensors", probes, heads)
    save_heads(tmp_path / "heads.parquet", heads)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "heads.parquet"), heads)
    tensors = load_probes(tmp_path / "probes.safetensors")
    own = {
        f"{name}.{part}": getattr(getattr(probes, name), f"{part}_")
        for name in ("y_p", "y_o", "op")
        for part in ("coef", "intercept", "theta")
    }
    for name in ("y_p", "y_o"):
        own[f"{name}.sigma"] = getattr(probes, name).sigma(made.x[made.rows("train")])
    own["op.classes"] = np.arange(4)
    assert tensors.keys() == own.keys()
    for name, value in own.items():
        np.testing.assert_array_equal(tensors[name], value)
        assert tensors[name].shape == value.shape


def test_equal_probes_give_equal_bytes(made, tmp_path) -> None:
    for name in ("a", "b"):
        probes = fit_probes(made.x, made.items, 0.05, 200)
        save_probes(tmp_path / name, probes, rank_heads(made.x, made.items, probes))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_missing_and_damaged_files_are_named(made, tmp_path) -> None:
    path = tmp_path / "probes.safetensors"
    with pytest.raises(ProbingError, match=r"probes\.safetensors is missing.*probing\.run"):
        load_probes(path)
    probes = fit_probes(made.x, made.items, 0.05, 200)
    save_probes(path, probes, rank_heads(made.x, made.items, probes))
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ProbingError, match=r"probes\.safetensors is damaged"):
        load_probes(path)
