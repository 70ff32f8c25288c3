"""nnsight sees and changes exactly what this project's own hooks do."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from sally_anne.core.errors import (
    BackendError,
    CaptureError,
    EditError,
    NonFiniteError,
    PositionError,
)
from sally_anne.hooks.backends import BACKENDS, backend
from sally_anne.hooks.capture import Capture
from sally_anne.hooks.edit import Edit
from sally_anne.hooks.geometry import SITES, find_geometry
from sally_anne.models.loading import LoadedModel, load_model
from tests.hooks.tiny_inputs import TINY, asked, delta_for

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
PROMPTS = [[5, 9, 7, 3, 8, 2], [4, 11, 6], [30, 2, 17, 21, 9]]


@pytest.fixture(scope="module", params=TINY)
def tiny(request: pytest.FixtureRequest) -> LoadedModel:
    return load_model(request.param)


def padded(side: str) -> dict[str, Tensor]:
    ids = torch.zeros(3, 6, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(PROMPTS):
        place = slice(0, len(prompt)) if side == "right" else slice(6 - len(prompt), 6)
        ids[row, place] = torch.tensor(prompt)
        mask[row, place] = 1
    return {"input_ids": ids, "attention_mask": mask}


def traces(model: nn.Module) -> list[str]:
    """What nnsight leaves in the modules that it wraps."""
    return [
        f"{name} {attribute}"
        for name, module in model.named_modules()
        for attribute in ("forward", "__nnsight__")
        if attribute in vars(module)
    ]


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("video", [True, False])
def test_nnsight_equals_native(tiny, video, site):
    inputs = asked(tiny, video)
    native, other = backend("native"), backend("nnsight")
    for positions in ("last_prompt", "all"):
        expected = native.read(tiny.model, inputs, site, positions)
        found = other.read(tiny.model, inputs, site, positions)
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)
    plain = native.logits(tiny.model, inputs, torch.zeros_like(delta_for(tiny.model, site)), site)
    for rows in (None, 2):
        delta = delta_for(tiny.model, site, rows)
        for positions in ("last_prompt+generated", "all"):
            expected = native.logits(tiny.model, inputs, delta, site, positions)
            assert not torch.equal(expected, plain)
            assert torch.equal(other.logits(tiny.model, inputs, delta, site, positions), expected)
    assert torch.equal(other.logits(tiny.model, inputs, torch.zeros_like(delta), site), plain)
    assert not traces(tiny.model)


@pytest.mark.parametrize("name", ["llama", "qwen3"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_nnsight_equals_native_in_text_models(build, name, side):
    model, inputs = build(name), padded(side)
    native, other = backend("native"), backend("nnsight")
    options = {"site": "head_out", "positions": "all", "layers": [2, 0]}
    assert torch.equal(other.read(model, inputs, **options), native.read(model, inputs, **options))
    delta = delta_for(model, "head_out")
    assert torch.equal(other.logits(model, inputs, delta), native.logits(model, inputs, delta))


def test_the_remote_way_of_nnsight(tiny):
    """Everything but the network: the trace is serialised, read back and run here."""
    inputs = asked(tiny, True)
    native, other = backend("native"), backend("nnsight", remote="local")
    assert torch.equal(other.read(tiny.model, inputs), native.read(tiny.model, inputs))
    delta = delta_for(tiny.model, "head_out", rows=2)
    assert torch.equal(
        other.logits(tiny.model, inputs, delta), native.logits(tiny.model, inputs, delta)
    )


def test_remote_needs_a_checkpoint_of_the_hub(tiny):
    with pytest.raises(BackendError, match="checkpoint of the hub"):
        backend("nnsight", remote=True).read(tiny.model, asked(tiny, False))


@pytest.mark.parametrize("name", ["native", "nnsight"])
def test_bad_requests(build, name):
    model, inputs, chosen = build("llama"), padded("left"), backend(name)
    delta = delta_for(model, "head_out", rows=2)
    with pytest.raises(CaptureError, match="'generated'"):
        chosen.read(model, inputs, positions="generated")
    with pytest.raises(CaptureError, match="'z'"):
        chosen.read(model, inputs, site="z")
    with pytest.raises(PositionError, match="'last'"):
        chosen.logits(model, inputs, delta[0], positions="last")
    with pytest.raises(EditError, match="2 rows, but the model runs 3 rows"):
        chosen.logits(model, inputs, delta)
    with pytest.raises(EditError, match="shape"):
        chosen.logits(model, inputs, delta[0, 1:])
    with torch.no_grad():
        model.get_input_embeddings().weight[11] = float("nan")
    with pytest.raises(NonFiniteError, match="row 1 at layer 0"):
        chosen.read(model, inputs)
    with pytest.raises(NonFiniteError, match="item 'b' at layer 0"):
        chosen.read(model, inputs, items=["a", "b", "c"])
    with pytest.raises(CaptureError, match="2 items"):
        chosen.read(model, inputs, items=["a", "b"])


def test_hooks_around_shared_weights_are_refused(build):
    """They would not count there."""
    model, inputs = build("llama"), padded("left")
    delta = delta_for(model, "head_out")
    steered = backend("nnsight")
    for opened in (Capture(model), Edit(model, delta)):
        with opened, pytest.raises(BackendError, match="has a forward hook"):
            steered.read(model, inputs)
    with Edit(model, delta):
        expected = model(**inputs).logits
        assert torch.equal(backend("native").logits(model, inputs, 0 * delta), expected)
    steered.read(model, inputs)


def test_a_changed_model_is_built_around_anew(build):
    model, inputs = build("qwen2_vl"), padded("left")
    native, other = backend("native"), backend("nnsight")
    first = other.read(model, inputs)
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(2)
    second = other.read(model, inputs)
    assert not torch.equal(second, first)
    o_proj = model.get_submodule(find_geometry(model).o_proj_names[0])
    o_proj.weight = nn.Parameter(o_proj.weight * 2)
    third = other.read(model, inputs)
    assert not torch.equal(third, second)
    assert torch.equal(third, native.read(model, inputs))
    model.set_attn_implementation("eager")
    assert torch.equal(other.read(model, inputs), native.read(model, inputs))


def test_choice_by_name(monkeypatch):
    assert BACKENDS == ("native", "nnsight", "transformer_lens")
    assert backend().name == "native"
    with pytest.raises(BackendError, match="'hooks'.*native, nnsight, transformer_lens"):
        backend("hooks")
    with pytest.raises(BackendError, match="does not take these options"):
        backend("native", remote=True)
    monkeypatch.setattr("sally_anne.hooks.backends.find_spec", lambda name: None)
    for name, package in (("nnsight", "nnsight"), ("transformer_lens", "transformer-lens")):
        with pytest.raises(BackendError, match=rf"dependency that is missing.*install {package},"):
            backend(name)


def test_the_libraries_of_the_backends_are_dependencies_and_loaded_late():
    code = "import sys, probing.extraction; print({'nnsight', 'transformer_lens'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    for name in ("nnsight", "transformer-lens"):
        assert any(line.startswith(f"{name}>=") for line in declared)
