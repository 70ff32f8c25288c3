"""What all plug-ins do alike: options in words, and stories that a vector has seen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sally_anne.core.errors import HarnessError
from sally_anne.data.gridtom.stories import generated
from sally_anne.harness.adapters.common import open_steered, prepared, whole
from sally_anne.models.options import DEFAULT_MODEL


def test_words_are_numbers() -> None:
    assert [whole("n", value) for value in (3, "3", 3.0)] == [3, 3, 3]
    for value in (0, "many", 2.5, None, float("inf")):
        with pytest.raises(HarnessError, match=f"n is {value!r}: "):
            whole("n", value)


@pytest.mark.integration
def test_all_model_options_are_taken() -> None:
    words = {"device": "cuda:7", "device_map": "cpu", "attn_implementation": "eager"}
    loaded = open_steered(DEFAULT_MODEL, words | {"max_pixels": "4096"}, None).loaded
    assert loaded.changes == {"attn_implementation": "eager", "max_pixels": "4096"}
    assert loaded.device_map == "cpu"
    bad = {"quantization": "3bit", "max_pixels": "few", "colour": "red"}
    for name, value in bad.items():
        with pytest.raises(HarnessError, match=name):
            open_steered(DEFAULT_MODEL, {name: value}, None)


@pytest.mark.integration
def test_what_a_baked_vector_has_seen_is_left_out(seen_vector: str, tmp_path: Path) -> None:
    """Beside what the vector that steers has seen."""
    seen = {"train": [generated().identity(1).content], "validation": []}
    record = {"vector": {"fitted": {"seen": seen}}}
    (tmp_path / "steering.json").write_text(json.dumps(record))
    baked = prepared({"setting": "text", "model": str(tmp_path)}).work
    assert "story-0001" not in {item.group for item in baked.items}
    assert baked.left_out is not None and baked.left_out.left_out == 1
    both = prepared({"setting": "text", "model": str(tmp_path), "steer": seen_vector}).work
    assert both.left_out is not None and both.left_out.left_out == 3
