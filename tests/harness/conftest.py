"""What the tests of this room share."""

import pytest

from sally_anne.models.loading import LoadedModel, load_model
from tests.harness.chat_server import server  # noqa: F401  # a fixture


@pytest.fixture(scope="session")
def loaded() -> LoadedModel:
    """A shipped model: do not change it."""
    return load_model("tiny-qwen2-vl")
