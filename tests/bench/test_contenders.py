"""Contenders that did not read the same numbers would not be worth comparing."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.clock import Clock
from bench.contenders import (
    Bare,
    BareInParallel,
    Captured,
    Contender,
    Ours,
    Shared,
    prepare,
    reference,
)
from bench.peers import Nnsight, Pyvene, TransformerLens
from bench.released import GridToM, HonestLlama
from bench.workload import Workload, probe_set
from sally_anne.experiments.train_tiny.families import FAMILIES, Family
from sally_anne.hooks.geometry import HEAD_OUT, RESID

pytestmark = pytest.mark.integration

READING: tuple[type[Contender], ...] = (
    Captured,
    Shared,
    HonestLlama,
    Nnsight,
    TransformerLens,
    Pyvene,
)


@pytest.fixture(scope="module", params=FAMILIES)
def work(request: pytest.FixtureRequest, folders: dict[Family, Path]) -> Workload:
    """One story with its frames; the first batch has prompts of two lengths."""
    return probe_set(str(folders[request.param]), 1, "multimodal", 3)


@pytest.fixture(scope="module")
def wanted(work: Workload) -> torch.Tensor:
    return reference(work, work.batches[0], HEAD_OUT)


def error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    assert found.shape == wanted.shape
    return float((found - wanted).abs().max() / wanted.abs().max())


@pytest.mark.parametrize("kind", READING, ids=lambda kind: kind.name)
def test_all_read_the_same_head_outputs(
    kind: type[Contender], work: Workload, wanted: torch.Tensor
) -> None:
    if kind.package and find_spec(kind.package) is None:
        pytest.skip(f"{kind.package} is not installed (extra perf)")
    if kind is Pyvene and work.loaded.family.model_type != "qwen2_vl":
        pytest.skip("pyvene removes the hooks by which transformers reads LLaVA's vision tower")
    contender = kind()
    found = contender.forward(work, prepare(work, contender.form, work.batches[0]))
    assert found is not None
    assert error(found, wanted) < 1e-5


def test_the_gridtom_release_reads_the_residual_stream(work: Workload) -> None:
    rows = work.batches[0]
    contender = GridToM()
    found = contender.forward(work, prepare(work, contender.form, rows))
    assert found is not None
    resid = reference(work, rows, RESID)
    assert error(found[:, :-1], resid[:, :-1]) < 1e-5
    # Its last layer is what comes after the last norm.
    with torch.no_grad():
        normed = work.loaded.model.model.language_model.norm(resid[:, -1].flatten(1))
    assert error(found[:, -1].flatten(1), normed) < 1e-5


def test_bare_forwards_read_nothing_and_leave_no_hook(work: Workload) -> None:
    rows = work.batches[-1]
    assert Bare().forward(work, prepare(work, "whole", rows)) is None
    for kind in (Captured, HonestLlama):
        kind().forward(work, prepare(work, kind.form, rows))
    # transformers leaves hooks of its own where hidden states were once asked for.
    left = [
        hook.__module__
        for module in work.loaded.model.modules()
        for hook in (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    ]
    assert all(name.startswith("transformers.") for name in left)


def run_whole(contender: Contender, work: Workload, folder: Path) -> tuple[Any, Clock]:
    folder.mkdir()
    clock = Clock()
    return contender.whole(work, clock, folder), clock


def test_whole_procedures_give_the_samples_in_their_order(
    folders: dict[Family, Path], tmp_path: Path
) -> None:
    work = probe_set(str(folders["qwen2-vl"]), 1, "text", 3)
    order = range(len(work.samples))
    wanted = torch.cat([reference(work, [i], HEAD_OUT) for i in order])
    reading: tuple[type[Contender], ...] = (Captured, Ours, Shared, HonestLlama)
    for kind in reading:
        found, clock = run_whole(kind(), work, tmp_path / kind.__name__)
        assert error(found, wanted) < 1e-5
        assert (clock.preparation > 0) == (kind is not Ours)
    for bare in (Bare, BareInParallel):
        assert run_whole(bare(), work, tmp_path / bare.__name__)[0] is None
    # Released code leaves its files: one a prompt, or one at the end.
    found, _ = run_whole(GridToM(), work, tmp_path / "files")
    for row in order:
        assert np.array_equal(np.load(tmp_path / "files" / f"{row}.npy"), found[row].numpy())
    written = np.load(tmp_path / "HonestLlama" / "all.npy")
    assert written.shape == tuple(wanted.shape)


def test_beginnings_hold_each_context_once(folders: dict[Family, Path]) -> None:
    work = probe_set(str(folders["qwen2-vl"]), 1, "multimodal", 4)
    whole, shared = (prepare(work, form, work.batches[0]) for form in ("whole", "beginnings"))
    assert len(work.samples) == len(whole["input_ids"]) == 4
    assert len(shared.inputs["input_ids"]) == 2
    assert shared.rows == [0, 0, 1, 1] and len(shared.endings) == 4
