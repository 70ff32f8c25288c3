"""Made-up activations whose heads know the labels more or less well."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

ROWS = ((True, True, "TB"), (False, False, "TB"), (True, False, "FB"), (False, True, "FB"))
STORIES = {"train": 10, "validation": 5, "test": 8}
LAYERS, HEADS, WIDTH = 2, 4, 6


@dataclass(frozen=True)
class Made:
    """Activations ``[N, L, H, D]`` and their labels."""

    x: np.ndarray
    items: pd.DataFrame

    def rows(self, split: str) -> np.ndarray:
        return (self.items["split"] == split).to_numpy()


@pytest.fixture
def made() -> Made:
    rows = [
        {
            "item_id": f"{split}-{story}-{int(y_p)}{int(y_o)}",
            "group": f"{split}-{story}",
            "split": split,
            "condition": condition,
            "y_p": y_p,
            "y_o": y_o,
        }
        for split, count in STORIES.items()
        for story in range(count)
        for y_p, y_o, condition in ROWS
    ]
    items = pd.DataFrame(rows)
    strength = np.linspace(0.0, 2.5, LAYERS * HEADS).reshape(LAYERS, HEADS)
    x = np.random.default_rng(0).normal(size=(len(items), LAYERS, HEADS, WIDTH))
    for axis, label in enumerate(("y_p", "y_o")):
        x[..., axis] += (2.0 * items[label].to_numpy()[:, None, None] - 1.0) * strength
    return Made(x.astype(np.float32), items)
