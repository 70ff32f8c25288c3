"""The shipped tiny models, and a vector that changes what they say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from sally_anne.harness.adapters.common import asked_by
from sally_anne.hooks.geometry import find_geometry, o_projs
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel, load_model

MODELS = ("tiny-qwen2-vl", "tiny-llava-next-video")


def run(task: Any, folder: Path, model: Any = None, **options: Any) -> Any:
    """The log of an evaluation that went through."""
    import inspect_ai
    from inspect_ai.model import get_model

    model = model or get_model(f"sally-anne/{MODELS[0]}", memoize=False)
    options |= {"log_dir": str(folder), "display": "none"}
    log = inspect_ai.eval(task, model=model, **options)[0]
    assert log.status == "success", log.error
    return log


@pytest.fixture(autouse=True)
def prepared_anew() -> Iterator[None]:
    """Tests change what questions are made of, which are prepared once otherwise."""
    yield
    asked_by.cache_clear()


@pytest.fixture(scope="session", params=MODELS)
def loaded(request: pytest.FixtureRequest) -> LoadedModel:
    """Each family's shipped model."""
    return load_model(request.param)


@pytest.fixture(scope="session")
def vector_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``vector_folder(model)``: a saved vector for a shipped model, made by hand."""

    def make(model: str) -> Path:
        loaded = load_model(model)
        found = find_geometry(loaded.model)
        last = found.n_layers - 1
        heads = ((last, 0), (last, 1), (last - 1, 0), (last - 1, 2))
        # Towards a word: what the head has to put out for the word to become likelier.
        token = loaded.processor.tokenizer.convert_tokens_to_ids("red")
        word = loaded.model.get_output_embeddings().weight[token].detach().double()
        projections: list[Any] = list(o_projs(loaded.model))
        weights = [projection.weight.detach().double() for projection in projections]
        slices = [w.unflatten(1, (found.n_heads, found.head_dim)) for w in weights]
        theta = torch.stack([word @ slices[layer][:, head] for layer, head in heads])
        vector = SteeringVector(
            heads=heads,
            theta=theta / theta.norm(dim=1, keepdim=True),
            sigma=torch.full((4,), 24.0, dtype=torch.float64),
            n_layers=found.n_layers,
            n_heads=found.n_heads,
            alpha=1.0,
        )
        return vector.save(tmp_path_factory.mktemp("vector"))

    return make
