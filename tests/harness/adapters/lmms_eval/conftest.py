"""A steering vector on disk, and lmms-eval kept to a folder of the tests."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sally_anne.hooks.geometry import find_geometry
from sally_anne.models.loading import LoadedModel, load_model
from tests.hooks.tiny_inputs import vector_on

MODELS = ("tiny-qwen2-vl", "tiny-llava-next-video")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Data sets are built in a folder of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LMMS_EVAL_DATASETS_CACHE", str(tmp_path_factory.mktemp("datasets")))
        yield


@pytest.fixture(scope="session")
def loaded() -> Callable[[str], LoadedModel]:
    """A shipped model, loaded once: look, but do not touch."""
    return functools.cache(load_model)


@pytest.fixture(scope="session")
def vectors(loaded, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A saved vector for each model: random directions that change many of its answers."""
    folders = {}
    for name in MODELS:
        skeleton = loaded(name).skeleton
        n_heads = find_geometry(skeleton).n_heads
        heads = tuple((layer, head) for layer in (2, 3) for head in range(n_heads))
        vector = vector_on(skeleton, heads, [1.0] * len(heads), 3, alpha=40.0)
        folders[name] = vector.save(tmp_path_factory.mktemp("vectors") / name)
    return folders
