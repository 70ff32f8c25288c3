"""Baked checkpoints, opened by plain transformers, equal the vector at all positions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from sally_anne.cli import main
from sally_anne.core.errors import SteeringError
from sally_anne.hooks.edit import Edit, Gate
from sally_anne.hooks.geometry import find_geometry
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.prompts import encode, reply_prompt
from sally_anne.models.tiny import FAMILIES, Family
from sally_anne.models.videos import patches_as_product
from sally_anne.steering.bake import bake, bake_model
from tests.conftest import save_model

pytestmark = pytest.mark.integration

TEXTS = (
    "The red agent is in the blue room.",
    "The video ends here. At first the white agent was in the corridor. Where is it now?",
)
HEADS = ((1, 0), (1, 1), (2, 5), (4, 7))


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[Family, Path]:
    """A saved untrained model of each family, with weights so large that heads matter."""

    def change(model: Any) -> None:
        for name, weight in model.model.language_model.named_parameters():
            if name.endswith("_proj.weight"):
                weight *= 4
            elif name.endswith("_proj.bias"):
                weight.normal_(std=0.3)

    return {f: save_model(f, tmp_path_factory.mktemp(f), change) for f in FAMILIES}


@pytest.fixture(scope="session", params=FAMILIES)
def loaded(request: pytest.FixtureRequest, folders: dict[Family, Path]) -> LoadedModel:
    """Each family's model, opened once: do not change it."""
    return load_model(str(folders[request.param]))


@pytest.fixture(scope="session")
def qwen(folders: dict[Family, Path]) -> LoadedModel:
    """The model of the Qwen2-VL family: do not change it."""
    return load_model(str(folders["qwen2-vl"]))


@pytest.fixture(scope="session")
def llava(folders: dict[Family, Path]) -> LoadedModel:
    """The model of the LLaVA-NeXT-Video family: do not change it."""
    return load_model(str(folders["llava-next-video"]))


@pytest.fixture(scope="session")
def clips() -> list[np.ndarray]:
    """Two clips of four frames."""
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (4, 420, 294, 3), dtype=np.uint8) for _ in range(2)]


def make_vector(site: str = "head_out", **changes: Any) -> SteeringVector:
    torch.manual_seed(1)
    theta = torch.nn.functional.normalize(torch.randn(len(HEADS), 16, dtype=torch.float64), dim=-1)
    sigma = torch.rand(len(HEADS), dtype=torch.float64) + 0.5
    vector = SteeringVector(HEADS, theta, sigma, n_layers=6, n_heads=8, alpha=2.0, site=site)
    return replace(vector, **changes)


def reopen(loaded: LoadedModel, folder: Path) -> Any:
    kind = getattr(transformers, loaded.family.class_name)
    model, report = kind.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    return model.eval()


def make_inputs(loaded: LoadedModel, clips: list[np.ndarray] | None) -> dict[str, Any]:
    prompts = [reply_prompt(loaded, text, clips is not None) for text in TEXTS]
    return encode(loaded, prompts, clips)


def logits(model: Any, inputs: dict[str, Any]) -> torch.Tensor:
    """Of the real tokens, [N, vocabulary]."""
    with torch.inference_mode():
        return model(**inputs).logits[inputs["attention_mask"].bool()]


def said(model: Any, inputs: dict[str, Any]) -> torch.Tensor:
    with torch.inference_mode():
        return model.generate(**inputs, max_new_tokens=6, do_sample=False, eos_token_id=None)


def close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return bool((found - expected).abs().max() <= 1e-5 * expected.abs().max())


@pytest.fixture(scope="session")
def baked(loaded: LoadedModel, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The vector's checkpoint, and what plain transformers makes of it."""
    folder = bake(loaded, make_vector(), None, tmp_path_factory.mktemp("bake") / "out")
    return folder, reopen(loaded, folder)


@pytest.mark.parametrize("video", [True, False])
def test_equals_the_vector_at_all_positions(
    loaded: LoadedModel, baked: tuple[Path, Any], clips: list[np.ndarray], video: bool
) -> None:
    inputs = make_inputs(loaded, clips if video else None)
    assert bool(inputs["attention_mask"].eq(0).any())
    delta = make_vector().delta()
    plain = logits(loaded.model, inputs)
    with Edit(loaded.model, delta, positions="all"):
        expected, tokens = logits(loaded.model, inputs), said(loaded.model, inputs)
    assert (expected - plain).abs().max() > 0.02 * plain.abs().max()
    assert close(logits(baked[1], inputs), expected)
    assert torch.equal(said(baked[1], inputs), tokens)


def test_alpha_zero_is_the_same_function(
    loaded: LoadedModel, clips: list[np.ndarray], tmp_path: Path
) -> None:
    model = reopen(loaded, bake(loaded, make_vector(), 0.0, tmp_path / "out"))
    patches_as_product(model)  # as in models that are opened here
    inputs = make_inputs(loaded, clips)
    assert torch.equal(logits(model, inputs), logits(loaded.model, inputs))
    assert find_geometry(model) == find_geometry(loaded.model)


def test_the_model_stays_as_it_is_and_shares_its_weights(loaded: LoadedModel) -> None:
    before = {name: weight.clone() for name, weight in loaded.model.state_dict().items()}
    config = loaded.model.config.to_dict()
    baked = bake_model(loaded.model, make_vector().delta())
    after = loaded.model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], weight) for name, weight in before.items())
    assert loaded.model.config.to_dict() == config
    embedding = baked.get_input_embeddings().weight
    assert embedding is loaded.model.get_input_embeddings().weight
    assert baked.get_output_embeddings().weight is embedding


def test_what_is_saved_beside(loaded: LoadedModel, baked: tuple[Path, Any]) -> None:
    folder, model = baked
    again = load_model(str(folder))
    assert again.processor_hash == loaded.processor_hash
    assert model.generation_config.to_dict() == loaded.model.generation_config.to_dict()
    record = json.loads((folder / "steering.json").read_text())
    assert record["revision"] == loaded.revision and record["acts_at"] == "all"
    assert str(Path(loaded.source).parent) not in json.dumps(record)
    assert not list(folder.parent.glob(".*"))


def test_the_command(qwen: LoadedModel, tmp_path: Path) -> None:
    make_vector().save(tmp_path / "vector")
    out = tmp_path / "out"
    words = ["--model", qwen.source, "--vector", str(tmp_path / "vector"), "--out", str(out)]
    main(["bake", *words, "--alpha", "3"])
    found = load_model(str(out))
    expected = bake_model(qwen.model, SteeringVector.load(tmp_path / "vector").delta(3.0))
    theirs = expected.state_dict()
    assert all(torch.equal(w, theirs[name]) for name, w in found.model.state_dict().items())
    with pytest.raises(SystemExit):
        main(["bake", *words])


def test_neither_a_gate_nor_another_site_can_be_baked(llava: LoadedModel, tmp_path: Path) -> None:
    for vector in (make_vector(gate=Gate(0, 1, torch.ones(16), 0.0)), make_vector("attn_out")):
        with pytest.raises(SteeringError):
            bake(llava, vector, None, tmp_path / "baked")
    assert not (tmp_path / "baked").exists()
