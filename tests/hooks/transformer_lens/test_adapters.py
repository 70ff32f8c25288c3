"""What a user of TransformerLens gets: bridges of the video models, by name and by entry point."""

from __future__ import annotations

import copy
import tomllib
from pathlib import Path

import pytest
import torch
from transformer_lens.factories.architecture_adapter_factory import (
    ArchitectureAdapterFactory,
)
from transformer_lens.model_bridge import TransformerBridge
from transformer_lens.model_bridge.sources import build_bridge_from_module

from sally_anne.hooks.backends.transformer_lens_adapters import register
from sally_anne.hooks.geometry import find_geometry
from sally_anne.models.loading import LoadedModel
from sally_anne.models.options import CATALOGUE
from tests.hooks.tiny_inputs import asked

pytestmark = pytest.mark.plugins

GROUP = "transformer_lens.architectures"
CLASSES = ("LlavaNextVideoForConditionalGeneration", "Qwen2VLForConditionalGeneration")


@pytest.fixture(scope="module")
def bridge(loaded: LoadedModel) -> TransformerBridge:
    """A bridge around a copy of the model."""
    register()
    model = copy.deepcopy(loaded.model)
    return build_bridge_from_module(model, type(model).__name__, hf_config=model.config)


@torch.no_grad()
def run(bridge: TransformerBridge, inputs: dict[str, torch.Tensor], **options):
    rest = {name: value for name, value in inputs.items() if name != "input_ids"}
    return bridge(inputs["input_ids"], **rest, **options)


def test_transformer_lens_finds_the_entry_points(tmp_path, monkeypatch):
    """As in an environment where this package is installed with its metadata."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    points = project["entry-points"][GROUP]
    assert sorted(points) == sorted(CLASSES)
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
        wanted = name.replace("ForConditionalGeneration", "ArchitectureAdapter")
        assert known[name].__name__ == wanted


def test_registering_again_is_quiet(recwarn):
    register()
    register()
    assert not [w for w in recwarn if "adapter" in str(w.message)]
    assert set(CLASSES) <= set(ArchitectureAdapterFactory._adapters)


@pytest.mark.parametrize("video", [True, False])
def test_forward_equals_the_model(loaded, bridge, video):
    inputs = asked(loaded, video)
    # One row: with padding on the left, the bridge derives positions of its own (see below).
    row = {name: value[:1] for name, value in inputs.items()}
    if "video_grid_thw" in inputs:
        patches = int(inputs["video_grid_thw"][0].prod())
        row["pixel_values_videos"] = inputs["pixel_values_videos"][:patches]
    with torch.no_grad():
        expected = loaded.model(**row).logits
    assert torch.equal(run(bridge, row), expected)
    with torch.no_grad():
        expected = loaded.model(**inputs).logits
    real = inputs["attention_mask"].bool()
    # Rotary positions count from the first real token instead of the first column, which attention
    # cannot tell but by rounding.
    torch.testing.assert_close(run(bridge, inputs)[real], expected[real], atol=1e-4, rtol=1e-4)


def test_cache_of_activations(loaded, bridge):
    """hook_z of every layer, and the parts that only frames go through."""
    inputs = asked(loaded, True)
    found = find_geometry(loaded.model)
    rest = {name: value for name, value in inputs.items() if name != "input_ids"}
    with torch.no_grad():
        _, cache = bridge.run_with_cache(inputs["input_ids"], **rest)
    rows, columns = inputs["input_ids"].shape
    for layer in range(found.n_layers):
        z = cache[f"blocks.{layer}.attn.hook_z"]
        assert z.shape == (rows, columns, found.n_heads, found.head_dim)
        assert cache[f"blocks.{layer}.attn.hook_pattern"].shape == (
            rows,
            found.n_heads,
            columns,
            columns,
        )
    seen = {name for name in cache if name.startswith("vision")}
    assert {"vision_encoder.hook_out", "vision_projector.hook_out"} <= seen
    inside = (
        "vision_encoder.blocks.0.mlp.in.hook_out"
        if "video_grid_thw" in inputs
        else "vision_resampler.hook_out"
    )
    assert inside in seen


def test_frames_change_activations_through_the_bridge(loaded, bridge):
    inputs = asked(loaded, True)
    before = run(bridge, inputs)
    darker = {**inputs, "pixel_values_videos": inputs["pixel_values_videos"] - 1}
    assert not torch.equal(run(bridge, darker), before)


def test_an_edit_of_hook_z_reaches_the_logits(loaded, bridge):
    inputs = asked(loaded, True)
    before = run(bridge, inputs)

    def without_head_2(z, hook):
        z = z.clone()
        z[:, :, 2] = 0
        return z

    with bridge.hooks(fwd_hooks=[("blocks.0.attn.hook_z", without_head_2)]):
        assert not torch.equal(run(bridge, inputs), before)
    assert torch.equal(run(bridge, inputs), before)


def test_weights_by_head(loaded, bridge):
    found = find_geometry(loaded.model)
    assert bridge.W_O.shape == (
        found.n_layers,
        found.n_heads,
        found.head_dim,
        found.hidden_size,
    )
    o_proj = loaded.model.get_submodule(found.o_proj_names[1])
    columns = slice(2 * found.head_dim, 3 * found.head_dim)
    assert torch.equal(bridge.W_O[1, 2], o_proj.weight[:, columns].T)
    vision = loaded.config.vision_config
    width = getattr(vision, "embed_dim", None) or vision.hidden_size
    assert bridge.cfg.vision_hidden_size == width
    assert bridge.cfg.is_multimodal


def test_boot_by_name(loaded):
    """From a checkpoint, as TransformerLens loads its own models."""
    register()
    source = CATALOGUE[loaded.name].source
    booted = TransformerBridge.boot_transformers(str(source), device="cpu")
    inputs = asked(loaded, True)
    with torch.no_grad():
        expected = loaded.model(**inputs).logits
        assert torch.equal(booted.original_model(**inputs).logits, expected)
    assert booted.processor is not None
