"""A vector is checked when it is made, adds alpha * sigma * theta, and comes back from its file."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from sally_anne.core.errors import HookError, ModelError, SteeringError
from sally_anne.hooks import identity
from sally_anne.hooks.edit import Gate
from sally_anne.hooks.identity import (
    ALLOW_MISMATCH,
    ModelIdentity,
    folder_hash,
    require_fitted,
    require_same,
    weights_hash,
)
from sally_anne.hooks.vector import FACTS, FILE, SteeringVector


def test_delta_by_hand(make) -> None:
    vector = make()
    delta = vector.delta()
    assert delta.shape == (3, 4, 8) and delta.dtype == torch.float32
    expected = torch.zeros(3, 4, 8, dtype=torch.float64)
    for (layer, head), theta, sigma in zip(vector.heads, vector.theta, vector.sigma, strict=True):
        expected[layer, head] = 2.0 * sigma * theta
    assert torch.equal(delta, expected.float())
    assert torch.equal(vector.delta(5), vector.with_alpha(5.0).delta())
    # A head that never varies may have no width.
    assert not make(sigma=torch.tensor([0.0, 1.0, 1.0])).delta()[2, 1].any()
    for wrong in (float("nan"), float("inf"), torch.ones(2, 2)):
        with pytest.raises(SteeringError):
            vector.delta(wrong)


@pytest.mark.parametrize("shape", [(2, 4, 8), (3, 8, 8), (3, 4, 16)])
def test_another_geometry_is_refused(make, skeleton, tmp_path: Path, shape) -> None:
    make().save(tmp_path)
    assert make().check(skeleton()).n_layers == SteeringVector.load(tmp_path, skeleton()).n_layers
    for use in (make().check, make().apply, lambda model: SteeringVector.load(tmp_path, model)):
        with pytest.raises(SteeringError) as caught:
            use(skeleton(*shape))
        assert "(3, 4, 8)" in str(caught.value) and str(shape) in str(caught.value)
    if shape[2] == 16:  # slices of hidden / H are 8 wide, heads 16
        make(site="resid").check(skeleton(*shape))


def facts_of(vector) -> dict:
    return {name: getattr(vector, name) for name in FACTS}


def same(one, other) -> bool:
    if facts_of(one) != facts_of(other) or bool(one.gate) != bool(other.gate):
        return False
    if one.gate and vars(one.gate) | {"weight": None} != vars(other.gate) | {"weight": None}:
        return False
    pairs = [(getattr(one, name), getattr(other, name)) for name in ("theta", "sigma")]
    pairs += [(one.gate.weight, other.gate.weight)] if one.gate else []
    return all(torch.equal(*pair) for pair in pairs)


@pytest.mark.parametrize("path", ["", FILE])
def test_comes_back_as_it_was(make, tmp_path: Path, path: str) -> None:
    weight = torch.randn(8, generator=torch.Generator().manual_seed(1)).double()
    gate = Gate(0, 3, weight, -0.1, threshold=1 / 3, above=False)
    changes = {"site": "resid", "positions": "all", "direction": "multinomial:o0p1", "alpha": -0.1}
    folder = tmp_path / "new" / "folder"
    for vector in (make(**changes), make(gate=gate), make(sigma=make().sigma.half().double())):
        assert vector.save(folder) == folder  # a later one in its place
        loaded = SteeringVector.load(folder / path)
        assert same(loaded, vector) and loaded.describe() == vector.describe()
        assert torch.equal(loaded.delta(), vector.delta())
        again = loaded.save(tmp_path / "again") / FILE
        assert again.read_bytes() == (folder / FILE).read_bytes()
    assert sorted(p.name for p in folder.iterdir()) == ["README.md", FILE]


def test_a_sweep_that_went_on_is_its_last_vector(make, skeleton, tmp_path: Path) -> None:
    for alpha in (2.0, 3.0):
        make(alpha=alpha).save(tmp_path / f"alpha{alpha:g}")
    (tmp_path / "results.json").write_text('{"vector": "alpha3"}')
    assert SteeringVector.load(tmp_path).alpha == 3.0
    foreign, model = make(fitted={"model_type": "llama"}), skeleton()
    model.config.model_type = "qwen2_vl"
    assert foreign.apply(model, allow_mismatch=True)
    with pytest.raises(ModelError, match="llama"):
        foreign.apply(model)


@pytest.mark.parametrize("gate", [None, Gate(0, 1, torch.tensor([0.5, -2.0]).double(), 0.25)])
def test_every_flipped_bit_is_noticed(make, tmp_path: Path, gate: Gate | None) -> None:
    """Header, facts and numbers: the file is refused by name, or is still the same vector."""
    vector = make(fitted={"model": "m", "c": 1e-05}, gate=gate)
    file = vector.save(tmp_path) / FILE
    whole = file.read_bytes()
    taken = 0
    handle = os.open(file, os.O_WRONLY)
    for place in range(8 * len(whole)):
        byte, bit = divmod(place, 8)
        os.pwrite(handle, bytes([whole[byte] ^ 1 << bit]), byte)
        try:
            loaded = SteeringVector.load(file)
        except SteeringError as error:
            assert str(file) in str(error)
        else:
            taken += 1
            assert same(loaded, vector), f"bit {bit} of byte {byte}"
        os.pwrite(handle, whole[byte : byte + 1], byte)
    os.close(handle)
    assert file.read_bytes() == whole
    assert taken < 10


def test_apply_edits_as_it_says(make, skeleton) -> None:
    own = Gate(0, 1, torch.ones(8), 0.5)
    vector, model = make(site="attn_out", positions="generated", gate=own), skeleton()
    edit = vector.apply(model)
    assert (edit.site, edit.positions, edit.layers) == ("attn_out", "generated", (0, 2))
    assert torch.equal(edit.values[0, 0], vector.delta())
    assert vector.apply(model, 0.0).layers == ()
    assert edit.gate is own
    with pytest.raises(HookError, match="reads layer 1, but layer 0 is edited"):
        make(gate=Gate(1, 0, torch.ones(8), 0.0)).apply(model)


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
    # Made by hand: nothing to compare.
    assert require_fitted(SimpleNamespace(fitted={}), MODEL) == ""


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
