"""A saved vector comes back as it was, or is refused by name."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
import yaml
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from sally_anne.core.errors import FolderError, SteeringError
from sally_anne.hooks.edit import Gate
from sally_anne.hooks.vector import FACTS, FILE, FORMAT, SteeringVector


def facts_of(vector) -> dict:
    return {name: getattr(vector, name) for name in FACTS}


def rewrite(folder: Path, tensors=None, **changes) -> None:
    """Save the file as earlier versions did, without a checksum, with other tensors or facts.

    A fact that is None is left out.
    """
    file = folder / FILE
    with safe_open(file, "pt") as stored:
        (entry,) = stored.metadata().values()
    facts = {**json.loads(json.loads(entry)["vector"]), **changes}
    text = json.dumps({k: v for k, v in facts.items() if v is not None})
    metadata = {"format": "sally-anne steering vector 1", "vector": text}
    save_file(load_file(file) if tensors is None else tensors, file, metadata)


def same(one, other) -> bool:
    if facts_of(one) != facts_of(other) or bool(one.gate) != bool(other.gate):
        return False
    if one.gate and vars(one.gate) | {"weight": None} != vars(other.gate) | {"weight": None}:
        return False
    pairs = [(getattr(one, name), getattr(other, name)) for name in ("theta", "sigma")]
    pairs += [(one.gate.weight, other.gate.weight)] if one.gate else []
    return all(torch.equal(*pair) for pair in pairs)


def test_a_gate_comes_back_and_older_readers_refuse_it(make, tmp_path: Path) -> None:
    weight = torch.randn(8, generator=torch.Generator().manual_seed(1)).double()
    vector = make(gate=Gate(0, 3, weight, -0.1, threshold=1 / 3, above=False))
    file = vector.save(tmp_path) / FILE
    assert same(SteeringVector.load(tmp_path), vector)
    assert SteeringVector.load(tmp_path).describe() == vector.describe()
    with safe_open(file, "pt") as stored:
        entry = json.loads(stored.metadata()["sally-anne"])
    assert entry["format"] == "sally-anne steering vector 3" != FORMAT
    text = (tmp_path / "README.md").read_text()
    assert "`last_prompt+generated`,\nthere only where the probe of L0H3 says p <= 0.3333." in text


def test_a_vector_of_an_earlier_version_opens(make, tmp_path: Path) -> None:
    vector = make()
    vector.save(tmp_path)
    rewrite(tmp_path)
    assert same(SteeringVector.load(tmp_path), vector)


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


def test_the_same_vector_is_the_same_bytes(make, tmp_path: Path) -> None:
    """safetensors itself writes several entries of metadata in an order left to chance."""
    files = {(make().save(tmp_path / str(n)) / FILE).read_bytes() for n in range(30)}
    assert len(files) == 1
    assert SteeringVector.load(tmp_path / "0").save(tmp_path / "again")
    assert (tmp_path / "again" / FILE).read_bytes() in files


@pytest.mark.parametrize("path", ["", FILE])
def test_comes_back_as_it_was(make, tmp_path: Path, path: str) -> None:
    vector = make(site="resid", positions="all", direction="multinomial:o0p1", alpha=-0.1)
    assert vector.save(tmp_path / "new" / "folder") == tmp_path / "new" / "folder"
    loaded = SteeringVector.load(tmp_path / "new" / "folder" / path)
    assert facts_of(loaded) == facts_of(vector)
    for name in ("theta", "sigma"):
        assert torch.equal(getattr(loaded, name), getattr(vector, name))
    assert torch.equal(loaded.delta(), vector.delta())
    assert loaded.describe() == vector.describe()
    assert sorted(p.name for p in (tmp_path / "new" / "folder").iterdir()) == ["README.md", FILE]


def test_numbers_of_lower_precision_are_kept_exactly(make, tmp_path: Path) -> None:
    vector = make(theta=make().theta.float(), sigma=make().sigma.half())
    loaded = SteeringVector.load(vector.save(tmp_path))
    assert torch.equal(loaded.theta, vector.theta.double())
    assert torch.equal(loaded.sigma, vector.sigma.double())


def test_saved_twice_is_the_later_one(make, tmp_path: Path) -> None:
    make().save(tmp_path)
    make(alpha=7.0).save(tmp_path)
    assert SteeringVector.load(tmp_path).alpha == 7.0
    assert "| alpha | 7 |" in (tmp_path / "README.md").read_text()


def test_a_vector_for_another_model_is_refused(make, skeleton, tmp_path: Path) -> None:
    make().save(tmp_path)
    assert SteeringVector.load(tmp_path, skeleton()).k == 3
    with pytest.raises(SteeringError, match="3 layers x 4 heads x 8, .* has 2 x 4 x 8"):
        SteeringVector.load(tmp_path, skeleton(layers=2))


@pytest.mark.parametrize("path", ["", FILE, "none"])
def test_a_missing_file_is_named(tmp_path: Path, path: str) -> None:
    with pytest.raises(SteeringError, match="is missing; `sally-anne steer`") as caught:
        SteeringVector.load(tmp_path / path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("kept", [0, 4, 40, -1])
def test_a_truncated_file_is_named(make, tmp_path: Path, kept: int) -> None:
    file = make().save(tmp_path) / FILE
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(SteeringError, match="is damaged or another kind of file") as caught:
        SteeringVector.load(tmp_path)
    assert str(file) in str(caught.value)


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    file = tmp_path / "vector.pt"
    torch.save({"theta": torch.ones(2)}, file)
    with pytest.raises(SteeringError, match="vector.pt is damaged or another kind of file"):
        SteeringVector.load(file)


@pytest.mark.parametrize(
    "metadata",
    [None, {"format": "pt"}, {"sally-anne": "{"}, {"sally-anne": "[]"}, {"sally-anne": "{}"}],
)
def test_somebody_elses_safetensors_are_named(tmp_path: Path, metadata) -> None:
    file = tmp_path / FILE
    save_file({"theta": torch.ones(2, 2), "sigma": torch.ones(2)}, file, metadata)
    with pytest.raises(SteeringError, match="not a steering vector of this toolkit") as caught:
        SteeringVector.load(tmp_path)
    assert str(file) in str(caught.value) and FORMAT in str(caught.value)


@pytest.mark.parametrize("part", ["theta", "sigma"])
def test_a_missing_tensor_is_named(make, tmp_path: Path, part: str) -> None:
    make().save(tmp_path)
    tensors = load_file(tmp_path / FILE)
    del tensors[part]
    rewrite(tmp_path, tensors)
    with pytest.raises(SteeringError, match=f"{FILE} lacks a part .*{part}"):
        SteeringVector.load(tmp_path)


@pytest.mark.parametrize("part", FACTS)
def test_a_missing_fact_is_named(make, tmp_path: Path, part: str) -> None:
    make().save(tmp_path)
    rewrite(tmp_path, **{part: None})
    with pytest.raises(SteeringError, match=f"{FILE} lacks a part .*{part}"):
        SteeringVector.load(tmp_path)


def test_facts_that_are_not_json_are_named(make, tmp_path: Path) -> None:
    make().save(tmp_path)
    metadata = {"format": "sally-anne steering vector 1", "vector": "{heads"}
    save_file(load_file(tmp_path / FILE), tmp_path / FILE, metadata)
    with pytest.raises(SteeringError, match=f"{FILE} lacks a part"):
        SteeringVector.load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"heads": [[0, 0], [0, 1]]}, "2 heads need theta"),
        ({"heads": [[0, 0], [0, 1], [0, 2, 3]]}, "too many values"),
        ({"heads": [[0, 0], [0, 1], [9, 2]]}, "L9H2"),
        ({"alpha": float("nan")}, "finite"),
        ({"alpha": "strong"}, "strong|str"),
        ({"site": "z"}, "'z'"),
        ({"positions": "last"}, "'last'"),
    ],
)
def test_facts_that_cannot_be_are_named_with_the_file(
    make, tmp_path: Path, changes, match: str
) -> None:
    make().save(tmp_path)
    rewrite(tmp_path, **changes)
    with pytest.raises(SteeringError, match=match) as caught:
        SteeringVector.load(tmp_path)
    assert str(tmp_path / FILE) in str(caught.value)


def test_a_folder_that_cannot_be_made(make, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match="file/vector cannot be made"):
        make().save(tmp_path / "file" / "vector")


@pytest.mark.parametrize(
    "model", ["tiny-qwen2-vl", "Qwen/Qwen2-VL-7B-Instruct", "#1", "C:\\q", "- x"]
)
def test_card_has_front_matter(make, tmp_path: Path, model: str) -> None:
    commit = "0123456789" * 4 if "/" in model else "0123456789abcdef"
    vector = make(fitted={"model": model, "revision": commit, "stories": None})
    text = (vector.save(tmp_path) / "README.md").read_text()
    start, matter, body = text.split("---\n", 2)
    assert start == ""
    assert yaml.safe_load(matter) == {
        "license": "apache-2.0",
        "library_name": "sally-anne",
        **({"base_model": model} if "/" in model else {}),
        "tags": ["steering-vector", "theory-of-mind", "interpretability"],
    }
    assert body.startswith(f"# Steering vector for {model}\n")


def test_card_says_what_the_vector_is(make, tmp_path: Path) -> None:
    text = (make().save(tmp_path) / "README.md").read_text()
    for said in (
        "`head_out` of 3 attention heads",
        "(3 layers x 4 heads x 8), at `last_prompt+generated`",
        "| direction | logistic |",
        "| K | 3 |",
        "| heads, best first | L2H1, L0H3, L2H0 |",
        "| model | tiny-qwen2-vl |",
        "| stories | `null` |",
        "| c | `0.015` |",
    ):
        assert said in text
    made_by_hand = make(fitted={}).save(tmp_path) / "README.md"
    assert "base_model" not in made_by_hand.read_text()


def test_describe_tells_vectors_apart(make) -> None:
    vector = make()
    about = vector.describe()
    assert about == make(fitted={}).describe()
    assert json.loads(json.dumps(about))["heads"] == [[2, 1], [0, 3], [2, 0]]
    others = [
        make(theta=-vector.theta),
        make(sigma=vector.sigma * 2),
        make(alpha=3.0),
        make(positions="all"),
        vector.top(2),
    ]
    assert all(other.describe() != about for other in others)
