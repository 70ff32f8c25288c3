"""The hash that stands for a folder's weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from sally_anne.hooks import identity
from sally_anne.hooks.identity import folder_hash


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(bytes(1000))
    (tmp_path / "README.md").write_text("a card")
    return tmp_path


def altered(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("at", [0, 500, 999])
def test_any_byte_of_a_small_checkpoint_counts(folder: Path, at: int) -> None:
    before = folder_hash(folder)
    assert folder_hash(folder) == before
    altered(folder / "model.safetensors", at)
    assert folder_hash(folder) != before


def test_a_large_checkpoint_is_read_in_pieces(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "_READ_WHOLE", 100)
    monkeypatch.setattr(identity, "_STRIDE", 50)
    monkeypatch.setattr(identity, "_PIECE", 5)
    found = {folder_hash(folder)}
    for at in (99, 100, 104, 954):
        altered(folder / "model.safetensors", at)
        found.add(folder_hash(folder))
    assert len(found) == 5
    altered(folder / "model.safetensors", 120)
    assert folder_hash(folder) in found


def test_names_and_settings_count_and_the_card_does_not(folder: Path) -> None:
    before = folder_hash(folder)
    (folder / "README.md").write_text("another card")
    assert folder_hash(folder) == before
    (folder / "config.json").write_text('{"a": 1}')
    changed = folder_hash(folder)
    assert changed != before
    (folder / "model.safetensors").rename(folder / "other.safetensors")
    assert folder_hash(folder) not in (before, changed)
