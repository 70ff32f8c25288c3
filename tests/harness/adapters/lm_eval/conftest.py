"""Models and vectors for the lm-eval plug-in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.tiny import FAMILIES, Family
from tests.conftest import enlarge, save_model
from tests.hooks.tiny_inputs import vector_on


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[Family, Path]:
    """A saved model of each family, with weights that make replies differ."""

    def change(model: torch.nn.Module) -> None:
        enlarge(model)
        # Tied to small embeddings, it would say the same word again and again.
        model.get_input_embeddings().weight.normal_(std=0.5)

    return {f: save_model(f, tmp_path_factory.mktemp(f), change) for f in FAMILIES}


@pytest.fixture(scope="module", params=FAMILIES)
def loaded(request: pytest.FixtureRequest, folders: dict[Family, Path]) -> LoadedModel:
    """Each family's model."""
    return load_model(str(folders[request.param]))


def vector_for(model: torch.nn.Module, positions: str = "last_prompt+generated") -> SteeringVector:
    """Three heads, directions drawn at random, and strong enough to change what is said."""
    heads = ((1, 2), (1, 5), (4, 0))
    return vector_on(model, heads, (1.0, 0.5, 2.0), 2, alpha=8.0, positions=positions)


@pytest.fixture(scope="session")
def make_vector() -> Callable[..., SteeringVector]:
    """Makes a vector for a model."""
    return vector_for


@pytest.fixture(scope="module")
def vector(loaded: LoadedModel) -> SteeringVector:
    """A vector for the model."""
    return vector_for(loaded.skeleton)
