"""Probes come back from disk as they were."""

from __future__ import annotations

import numpy as np
from safetensors.numpy import load_file

from sally_anne.probing.config import ProbeConfig
from sally_anne.probing.pipeline import fit_probes, rank_heads, save_probes

CONFIG = ProbeConfig(c=0.05, max_iter=200)


def test_probes_come_back(made, tmp_path) -> None:
    probes = fit_probes(made, CONFIG)
    heads = rank_heads(made, probes)
    save_probes(tmp_path / "probes.safetensors", probes, heads)
    tensors = load_file(tmp_path / "probes.safetensors")
    own = {
        f"{name}.{part}": getattr(probes[name], f"{part}_")
        for name in ("y_p", "y_o", "op")
        for part in ("coef", "intercept", "theta")
    }
    for name in ("y_p", "y_o"):
        own[f"{name}.sigma"] = probes[name].sigma(made.x[made.rows("train")])
    own["op.classes"] = np.arange(4)
    assert tensors.keys() == own.keys()
    for name, value in own.items():
        np.testing.assert_array_equal(tensors[name], value)
        assert tensors[name].shape == value.shape


def test_equal_probes_give_equal_bytes(made, tmp_path) -> None:
    for name in ("a", "b"):
        probes = fit_probes(made, CONFIG)
        save_probes(tmp_path / name, probes, rank_heads(made, probes))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
