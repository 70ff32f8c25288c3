"""What must hold on any device. On the CPU these run with the other tests, so that they are known
to work; on a GPU by ``./run-tests gpu``."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import dispatch_model
from rich.console import Console
from torch import Tensor, nn

from sally_anne.core.errors import OutOfMemoryError
from sally_anne.core.processes import ALONE, fitting
from sally_anne.core.store import ActivationStore
from sally_anne.data.gridtom.samples import build
from sally_anne.data.gridtom.stories import generated
from sally_anne.data.pairs import ContrastPair
from sally_anne.data.samples import Sample
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.hooks.geometry import find_geometry
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.prefix import extend
from sally_anne.models.prompts import open_prompt
from sally_anne.models.videos import FRAMES_AT_ONCE, frames_at_once
from sally_anne.probing.config import ProbeConfig
from sally_anne.probing.extraction import activations_of, fill_store, prepare
from sally_anne.probing.interchange import effects_of
from sally_anne.probing.pipeline import run
from sally_anne.probing.solver import fit_heads
from tests.hooks.tiny_inputs import vector_on

TINY = ("tiny-qwen2-vl", "tiny-llava-next-video")
# Of the largest number, against float32 on the CPU; the models have eight layers.
TOLERANCE = {"float32": 1e-4, "bfloat16": 6e-2, "float16": 1e-2}

pytestmark = pytest.mark.integration
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(params=["cpu", pytest.param("cuda:0", marks=[pytest.mark.gpu, NO_GPU])])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """A device, with the arithmetic of float32 as it is on the CPU."""
    fast = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    yield request.param
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = fast
    gc.collect()
    if request.param != "cpu":
        torch.cuda.empty_cache()


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    """Four samples of a story, with frames: two statements on each of two contexts."""
    return build(generated().subset([0]), {0: "test"}, 1, "matched", "multimodal")


def opened(name: str, device: str, dtype: str = "float32") -> LoadedModel:
    return load_model(name, dtype, device)


def activations(loaded: LoadedModel, samples: list[Sample]) -> np.ndarray:
    prompts = [(s, open_prompt(loaded, s.content, True)) for s in samples]
    return activations_of(loaded, prepare(loaded, prompts), "head_out")


def logits(loaded: LoadedModel, samples: list[Sample], vector: Any = None) -> Tensor:
    """After each prompt, in float32."""
    prompts = [open_prompt(loaded, s.content, True) for s in samples]
    clips = [s.frames() for s in samples]
    model = SteeredModel(loaded, vector)
    whole = [Prompt(p, c, whole=True) for p, c in zip(prompts, clips, strict=True)]
    with model.prefilled(whole) as (begun, ends):
        return extend(loaded, begun, range(len(ends)), ends).logits.float().cpu()


def a_vector(loaded: LoadedModel) -> SteeringVector:
    heads = ((0, 1), (2, 0), (find_geometry(loaded.skeleton).n_layers - 1, 1))
    return vector_on(loaded.skeleton, heads, [0.5, 1.0, 2.0], 1, alpha=40.0)


def close(found: Any, wanted: Any, dtype: str) -> bool:
    found, wanted = (torch.as_tensor(part).float() for part in (found, wanted))
    assert found.shape == wanted.shape
    return bool((found - wanted).abs().max() <= TOLERANCE[dtype] * wanted.abs().max())


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", TINY)
def test_capture_and_steering_as_on_the_cpu(
    device: str, name: str, dtype: str, samples: list[Sample]
) -> None:
    if device == "cpu" and dtype == "float16":
        pytest.skip("slow on a CPU, and bfloat16 goes the same way")
    reference, loaded = opened(name, "cpu"), opened(name, device, dtype)
    assert str(loaded.model.device) == device and loaded.model.dtype == getattr(torch, dtype)
    assert close(activations(loaded, samples), activations(reference, samples), dtype)
    vector = a_vector(reference)
    before, after = logits(reference, samples), logits(reference, samples, vector)
    plain, steered = logits(loaded, samples), logits(loaded, samples, vector)
    assert close(plain, before, dtype) and close(steered, after, dtype)
    # Not because nothing was steered; and a strength of 0 changes no bit.
    assert not close(after, before, dtype)
    assert torch.equal(logits(loaded, samples, vector.with_alpha(0.0)), plain)


def test_frames_at_once_are_frames_one_by_one(device: str, samples: list[Sample]) -> None:
    """To the bit, also of films that are not equally long."""
    shorter = replace(samples[0], video=samples[0].frames()[:6], context="")
    unlike = [replace(samples[2], context=""), shorter]
    usual, loaded = (opened("tiny-qwen2-vl", device, "bfloat16") for _ in range(2))
    usual.model.set_attn_implementation("sdpa")
    frames_at_once(loaded.model)
    tower = loaded.model.model.visual
    assert tower.config._attn_implementation == FRAMES_AT_ONCE
    assert usual.model.model.visual.config._attn_implementation == "sdpa"
    assert np.array_equal(activations(loaded, samples), activations(usual, samples))
    assert np.array_equal(activations(loaded, unlike), activations(usual, unlike))


@pytest.mark.parametrize("shape", [(5, 3, 2, 14, 14), (2, 3, 4, 28, 14)])
def test_patches_are_those_of_the_convolution(device: str, shape: tuple[int, ...]) -> None:
    """One window a row, as towers give them, and more."""
    project = opened("tiny-qwen2-vl", device).model.model.visual.patch_embed.proj
    assert type(project) is not torch.nn.Conv3d
    pixels = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device)
    found, wanted = project(pixels), torch.nn.Conv3d.forward(project, pixels)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_replies_and_effects_as_on_the_cpu(device: str, samples: list[Sample]) -> None:
    prompts = [Prompt(s.content, s.frames()) for s in samples]
    there, here = opened("tiny-qwen2-vl", device), opened("tiny-qwen2-vl", "cpu")
    said = [SteeredModel(m, a_vector(m)).generate(prompts, 8) for m in (there, here)]
    assert said[0] == said[1] and all(said[0])
    found, wanted = effects(there), effects(here)
    assert found.keys() == wanted.keys()
    assert all(close(found[name], wanted[name], "float32") for name in wanted)


def effects(loaded: LoadedModel) -> dict[str, np.ndarray]:
    """Of two statements that differ in a room, exchanged and ablated head by head."""
    rooms = ("red", "blue")
    text = "The white agent is in the {} room. Question: which room is it in? Answer:"
    a, b = (Sample(room, text.format(room), group="g", split="test") for room in rooms)
    shape = find_geometry(loaded.skeleton)
    sets = torch.ones(1, shape.n_layers, shape.n_heads, dtype=torch.bool)
    mean = torch.zeros(shape.n_layers, shape.n_heads, shape.head_dim)
    return effects_of(loaded, [ContrastPair((a, b), rooms, "g")], True, sets, mean)._asdict()


class Single(Tensor):
    """Numbers on a device without float64, as Apple's GPUs; they leave it by ``cpu()``."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = super().__torch_function__(func, types, args, kwargs or {})
        leaves = func is Tensor.cpu or (func is Tensor.to and "cpu" in map(str, args[1:]))
        if leaves and isinstance(found, Tensor):
            return found.as_subclass(Tensor)
        if isinstance(found, cls) and found.dtype is torch.float64:
            raise TypeError(f"{func.__name__}: no float64 here")
        return found


@pytest.fixture
def single() -> LoadedModel:
    """A model on such a device."""
    loaded = opened("tiny-qwen2-vl", "cpu")
    for module in loaded.model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                module._parameters[name] = nn.Parameter(weight.data.as_subclass(Single), False)
    return loaded


def test_nothing_asks_a_device_without_float64_for_it(
    single: LoadedModel, samples: list[Sample]
) -> None:
    with pytest.raises(TypeError, match="no float64 here"):
        next(single.model.parameters()).double()
    reference = opened("tiny-qwen2-vl", "cpu")
    vector = a_vector(reference)
    assert np.array_equal(activations(single, samples), activations(reference, samples))
    both = [logits(model, samples, vector).numpy() for model in (single, reference)]
    np.testing.assert_allclose(*both, rtol=1e-5, atol=1e-5)
    prompts = [Prompt(s.content, s.frames()) for s in samples]
    options = [["red room", "blue"]] * len(prompts)
    models = (SteeredModel(each, vector) for each in (single, reference))
    np.testing.assert_allclose(*(m.option_log_probs(prompts, options) for m in models), rtol=1e-5)
    found, wanted = effects(single), effects(reference)
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-4, atol=1e-5)


def test_a_run_with_the_batch_size_that_fits(device: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"setting": "text", "stories": 20, "permutations": 19}
    options |= {"figures": False, "patching": False}
    quiet = Console(quiet=True)
    runs = {
        "auto": ProbeConfig(out=tmp_path / "auto", batch_size="auto", device_map=device, **options),
        "cpu": ProbeConfig(out=tmp_path / "cpu", batch_size=4, device_map="cpu", **options),
    }
    heads = {name: run(config, quiet) for name, config in runs.items()}
    stores = [ActivationStore.open(c.folder / "activations").read() for c in runs.values()]
    assert close(*stores, "float32")
    found, wanted = (heads[name]["y_p_test_accuracy"] for name in runs)
    assert np.abs(found - wanted).mean() < 0.01


def test_the_batch_size_that_fits_is_the_largest(device: str) -> None:
    """Of trials that ask for more and more memory."""
    model = opened("tiny-qwen2-vl", device).model

    def trial(size: int) -> None:
        if device == "cpu":
            pytest.fail("nothing is tried on a CPU")
        total = torch.cuda.get_device_properties(device).total_memory
        torch.empty(size * total // 8, dtype=torch.uint8, device=device)

    assert fitting(model, trial, 5, ALONE) == (5 if device == "cpu" else 4)


def test_the_map_auto_and_layers_on_disk(
    device: str, tmp_path: Path, samples: list[Sample]
) -> None:
    name = "tiny-qwen2-vl"
    wanted = activations(opened(name, device), samples)
    spread = load_model(name, "float32", "auto" if device != "cpu" else "cpu")
    assert close(activations(spread, samples), wanted, "float32")

    loaded = opened(name, device)
    layers = find_geometry(loaded.model).layer_names
    places: dict[str, Any] = {
        name: device
        for name, module in loaded.model.named_modules()
        if not list(module.children()) and not name.startswith(layers)
    }
    places |= {layer: device if n < 4 else "disk" for n, layer in enumerate(layers)}
    dispatch_model(loaded.model, places, main_device=device, offload_dir=str(tmp_path))
    assert next(loaded.model.get_submodule(layers[-1]).parameters()).device.type == "meta"
    assert close(activations(loaded, samples), wanted, "float32")
    plain = logits(loaded, samples)
    vector = a_vector(loaded)
    assert close(
        logits(loaded, samples, vector), logits(opened(name, device), samples, vector), "float32"
    )
    assert torch.equal(logits(loaded, samples), plain)


def test_the_batched_solver_as_on_the_cpu(device: str) -> None:
    made = np.random.default_rng(0)
    x = torch.from_numpy(made.normal(size=(60, 2, 3, 8))).float()
    labels = torch.from_numpy((made.random((3, 60)) < 0.5).astype(np.int64))
    for wanted, found in zip(
        fit_heads(x, labels, c=0.5), fit_heads(x.to(device), labels.to(device), c=0.5), strict=True
    ):
        assert bool(found.converged.all()) and found.coef.device.type == device.partition(":")[0]
        torch.testing.assert_close(found.coef.cpu(), wanted.coef, rtol=1e-5, atol=1e-8)


@contextmanager
def no_memory_left(model: nn.Module, device: str) -> Iterator[None]:
    """So little that the model's next pass does not fit."""
    if device == "cpu":

        def full(*_: Any) -> None:
            raise torch.OutOfMemoryError("no memory left")

        first = model.get_submodule(find_geometry(model).layer_names[0])
        handle = first.register_forward_pre_hook(full)
        try:
            yield
        finally:
            handle.remove()
        return
    gc.collect()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(
        (torch.cuda.memory_reserved(device) + (4 << 20)) / total, device
    )
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)


def test_what_does_not_fit_is_named(device: str, tmp_path: Path, samples: list[Sample]) -> None:
    loaded = opened("tiny-qwen2-vl", device)
    assert loaded.model is not None  # its weights are read while there is room

    def take() -> ActivationStore:
        folder = tmp_path / "store"
        return fill_store(loaded, samples, folder, "head_out", 4, {})

    with (
        no_memory_left(loaded.model, device),
        pytest.raises(OutOfMemoryError, match="--batch-size"),
    ):
        take()
    # The memory is there again, and what was begun goes on.
    assert take().complete
