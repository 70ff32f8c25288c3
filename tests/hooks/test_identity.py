"""Which model it is: the same weights wherever they lie, and nothing else."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from sally_anne.core.errors import ModelError
from sally_anne.hooks import identity
from sally_anne.hooks.identity import (
    ALLOW_MISMATCH,
    ModelIdentity,
    folder_hash,
    require_fitted,
    require_same,
    weights_hash,
)

MODEL = ModelIdentity("folder/ckpt", "aa", "qwen2_vl", "float32", "", "f00d")


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({}, ""),
        ({"source": "elsewhere", "revision": "bb"}, ""),
        ({"fingerprint": "beef"}, "weights f00d, not beef"),
        ({"dtype": "bfloat16"}, "dtype float32, not bfloat16"),
        ({"model_type": "llava_next_video"}, "a qwen2_vl, not a llava_next_video"),
        ({"model_type": "qwen2_vl_text"}, ""),
        ({"fingerprint": ""}, ""),
        ({"fingerprint": "", "revision": "bb"}, "folder/ckpt@aa, not folder/ckpt@bb"),
        ({"fingerprint": "", "source": "", "revision": ""}, ""),
    ],
)
def test_what_differs_is_named_with_both_values(change: dict[str, str], difference: str) -> None:
    other = replace(MODEL, **change)
    assert MODEL.difference(other) == difference
    if difference:
        with pytest.raises(ModelError, match="the run .* use another"):
            require_same("the run R", MODEL, other, "use another")
    else:
        require_same("the run R", MODEL, other, "use another")


def test_a_vector_is_for_its_model_unless_a_mismatch_is_allowed() -> None:
    fitted = {"model": "m", "revision": "aa", "dtype": "float32", "fingerprint": "beef"}
    with pytest.raises(ModelError, match="weights beef, not f00d.*--allow-mismatch"):
        require_fitted(SimpleNamespace(fitted=fitted), MODEL)
    allowed = SimpleNamespace(fitted=fitted | {ALLOW_MISMATCH: True})
    assert require_fitted(allowed, MODEL) == "weights beef, not f00d"
    # Made by hand, or by something that only steers: nothing to compare.
    assert require_fitted(SimpleNamespace(fitted={}), MODEL) == ""
    assert require_fitted(SimpleNamespace(), MODEL) == ""


def test_a_moved_folder_has_the_same_weights_and_one_of_its_name_has_not(tmp_path: Path) -> None:
    first, second = tmp_path / "A" / "ckpt", tmp_path / "B" / "ckpt"
    for number, folder in enumerate((first, second)):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(bytes([number]) * 100)
    before = weights_hash(first)
    assert before and before != weights_hash(second)
    moved = Path(shutil.move(first, tmp_path / "moved"))
    (moved / "config.json").write_text('{"a": 1}')
    (moved / "adapter.safetensors").write_bytes(b"another file")
    assert weights_hash(moved) == before
    assert weights_hash(first) == ""


def test_the_hash_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte of a small checkpoint counts, of a large one its pieces; never the card."""
    weights, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    config.write_text("{}")
    weights.write_bytes(bytes(1000))
    hashes = [folder_hash(tmp_path)]

    def alter(place: int) -> None:
        data = bytearray(weights.read_bytes())
        data[place] ^= 1
        weights.write_bytes(data)
        hashes.append(folder_hash(tmp_path))

    for place in (0, 500, 999):
        alter(place)
    config.write_text('{"a": 1}')
    hashes.append(folder_hash(tmp_path))
    (tmp_path / "README.md").write_text("a card")
    assert folder_hash(tmp_path) == hashes[-1]
    assert len(set(hashes)) == len(hashes) == 5

    for name, size in (("_READ_WHOLE", 100), ("_STRIDE", 50), ("_PIECE", 5)):
        monkeypatch.setattr(identity, name, size)
    hashes = [folder_hash(tmp_path)]
    for place in (99, 100, 104, 954):
        alter(place)
    assert len(set(hashes)) == 5
    alter(120)  # between two pieces
    assert hashes[-1] == hashes[-2]
