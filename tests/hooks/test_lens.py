"""What a user of TransformerLens gets: bridges of the video models."""

from __future__ import annotations

import copy
import tomllib
from pathlib import Path

import pytest
import torch
from transformer_lens.factories.architecture_adapter_factory import ArchitectureAdapterFactory
from transformer_lens.model_bridge import TransformerBridge
from transformer_lens.model_bridge.sources import build_bridge_from_module

from sally_anne.hooks.geometry import find_geometry
from sally_anne.hooks.lens import register
from sally_anne.models.loading import LoadedModel
from tests.hooks.tiny_inputs import asked

pytestmark = pytest.mark.plugins

GROUP = "transformer_lens.architectures"
CLASSES = ("LlavaNextVideoForConditionalGeneration", "Qwen2VLForConditionalGeneration")


@pytest.fixture(scope="module")
def bridge(loaded: LoadedModel) -> TransformerBridge:
    register()
    model = copy.deepcopy(loaded.model)
    return build_bridge_from_module(model, type(model).__name__, hf_config=model.config)


@torch.no_grad()
def run(bridge: TransformerBridge, inputs: dict[str, torch.Tensor], **options):
    rest = {name: value for name, value in inputs.items() if name != "input_ids"}
    return bridge(inputs["input_ids"], **rest, **options)


def test_transformer_lens_finds_the_entry_points(tmp_path, monkeypatch):
    """As in an environment where this package is installed with its metadata."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    points = project["entry-points"][GROUP]
    installed = tmp_path / "sally_anne_test-0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: sally-anne-test\nVersion: 0\n"
    )
    lines = [f"[{GROUP}]", *(f"{name} = {target}" for name, target in points.items())]
    (installed / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    known = {k: v for k, v in ArchitectureAdapterFactory._adapters.items() if k not in CLASSES}
    monkeypatch.setattr(ArchitectureAdapterFactory, "_adapters", known)
    monkeypatch.setattr(ArchitectureAdapterFactory, "_entry_points_discovered", False)
    ArchitectureAdapterFactory.discover_entry_points()
    for name in CLASSES:
        adapter = name.replace("ForConditionalGeneration", "ArchitectureAdapter")
        assert known[name].__name__ == adapter


@pytest.mark.parametrize("video", [True, False])
def test_forward_equals_the_model(loaded, bridge, video):
    inputs = asked(loaded, video)
    # One row: with padding on the left, the bridge derives positions of its own.
    row = {name: value[:1] for name, value in inputs.items()}
    if "video_grid_thw" in inputs:
        patches = int(inputs["video_grid_thw"][0].prod())
        row["pixel_values_videos"] = inputs["pixel_values_videos"][:patches]
    with torch.no_grad():
        assert torch.equal(run(bridge, row), loaded.model(**row).logits)
        expected = loaded.model(**inputs).logits
    real = inputs["attention_mask"].bool()
    torch.testing.assert_close(run(bridge, inputs)[real], expected[real], atol=1e-4, rtol=1e-4)


def test_heads_and_frames_of_the_bridge(loaded, bridge):
    """hook_z of every layer, the parts that only frames go through, and W_o by head."""
    inputs = asked(loaded, True)
    geometry = find_geometry(loaded.model)
    rest = {name: value for name, value in inputs.items() if name != "input_ids"}
    with torch.no_grad():
        _, cache = bridge.run_with_cache(inputs["input_ids"], **rest)
    for layer in range(geometry.n_layers):
        shape = (*inputs["input_ids"].shape, geometry.n_heads, geometry.head_dim)
        assert cache[f"blocks.{layer}.attn.hook_z"].shape == shape
    qwen = "video_grid_thw" in inputs
    inside = "vision_encoder.blocks.0.mlp.in" if qwen else "vision_resampler"
    assert {"vision_encoder.hook_out", f"{inside}.hook_out"} <= set(cache)
    o_proj = loaded.model.get_submodule(geometry.o_proj_names[1])
    columns = slice(2 * geometry.head_dim, 3 * geometry.head_dim)
    assert torch.equal(bridge.W_O[1, 2], o_proj.weight[:, columns].T)
