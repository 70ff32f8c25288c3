"""The tiny models, for the TransformerLens adapters."""

from __future__ import annotations

import pytest

from sally_anne.models.loading import LoadedModel, load_model
from tests.hooks.tiny_inputs import TINY


@pytest.fixture(scope="module", params=TINY)
def loaded(request: pytest.FixtureRequest) -> LoadedModel:
    """Each shipped model, with the step-by-step attention that TransformerLens computes, too."""
    found = load_model(request.param)
    found.model.set_attn_implementation("eager")
    return found
