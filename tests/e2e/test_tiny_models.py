"""What the shipped models must be able to do, on test stories, and how large they may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from sally_anne.data.gridtom import samples
from sally_anne.data.gridtom.stories import generated
from sally_anne.experiments.train_tiny.evaluate import measure
from sally_anne.models.loading import load_model

pytestmark = pytest.mark.e2e

TINY = ("tiny-qwen2-vl", "tiny-llava-next-video")


@pytest.mark.parametrize("name", TINY)
def test_abilities_in_the_multimodal_setting(name: str) -> None:
    test = samples.members(generated(), "test")[::10]
    right = measure(load_model(name), generated(stories=test), "multimodal", 8)
    assert right["initial belief"] >= 0.98
    assert right["statements TB"] >= 0.9
    assert right["statements FB"] >= 0.9
    assert right["belief FB"] >= 0.9
    assert 0.05 <= right["belief TB"] <= 0.5
    # What was said before, true or false, decides about the habit.
    after = "belief TB after {} statements"
    assert right[after.format("true")] >= right[after.format("false")] + 0.5


@pytest.mark.parametrize("name", [*TINY, *(f"{name}-text" for name in TINY)])
def test_size_and_card(name: str) -> None:
    import sally_anne.models as models

    folder = Path(models.__file__).parent / "tiny" / name
    assert sum(p.stat().st_size for p in folder.iterdir()) <= 12e6
    card = (folder / "README.md").read_text()
    assert f"sally-anne evaluate-tiny --model {name}" in card
    assert list(folder.glob("loss-*.csv"))
