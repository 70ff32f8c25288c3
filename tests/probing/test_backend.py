"""Another library reads the same activations into the store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sally_anne.core.errors import StoreMismatchError
from sally_anne.data.gridtom.release import open_stories
from sally_anne.data.gridtom.samples import build
from sally_anne.models.loading import load_model
from sally_anne.probing.extraction import fill_store

pytestmark = pytest.mark.integration


def test_nnsight_extracts_the_same(model_folder: Path, tmp_path: Path) -> None:
    loaded = load_model(str(model_folder))
    chosen = [0, 1]
    stories = open_stories(None, 2025)
    samples = build((stories.story(i) for i in chosen), chosen, 1, "matched", "multimodal")

    def activations(name: str, folder: str) -> np.ndarray:
        store = fill_store(loaded, samples, tmp_path / folder, "head_out", 4, {}, backend=name)
        return np.asarray(store.read())

    expected = activations("native", "native")
    found = activations("nnsight", "nnsight")
    assert expected.shape[0] == len(samples) == found.shape[0]
    assert not np.array_equal(expected, 0 * expected)
    # The native way reads what samples share once and goes on from its cache.
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max(), rtol=0)
    for other, folder in (("native", "nnsight"), ("nnsight", "native")):
        with pytest.raises(StoreMismatchError, match="backend"):
            activations(other, folder)
