"""Vectors, probes and runs to a hub on this machine and back."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub.constants as constants
import numpy as np
import pandas as pd
import pytest
import torch
from huggingface_hub import ModelCard

import sally_anne as sa
from sally_anne.core.errors import FolderError, ProbingError, RunFolderError, SteeringError
from sally_anne.core.files import write_json
from sally_anne.core.hub import without_paths
from sally_anne.hooks.vector import FILE
from sally_anne.probing.probes import FILE as PROBES
from tests.hooks.tiny_inputs import vector_on
from tests.made_run import CONFIG, MadeRun, three_kinds
from tests.sharing.fake_hub import Hub

pytestmark = pytest.mark.integration


@pytest.fixture
def vector(tmp_path: Path) -> sa.SteeringVector:
    generator = torch.Generator().manual_seed(1)
    theta = torch.randn(3, 8, generator=generator).double()
    return sa.SteeringVector(
        heads=((2, 1), (0, 3), (2, 0)),
        theta=theta / theta.norm(dim=1, keepdim=True),
        sigma=torch.rand(3, generator=generator).double(),
        n_layers=3,
        n_heads=4,
        fitted={
            "model": f"{tmp_path}/models/mine",
            "revision": "0123456789abcdef",
            "data": f"{tmp_path}/GridToM/",
            "split": f"of {tmp_path}/GridToM, by map",
        },
    )


@pytest.fixture
def activations(tmp_path: Path) -> sa.Activations:
    return three_kinds(model={"model": f"{tmp_path}/models/mine", "fingerprint": "ab"})


def new_cache(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))


def require_clean(hub: Hub, name: str, *paths: Path) -> None:
    """No byte of what was pushed names these paths, and its card is a valid one."""
    for file, data in hub.files(name).items():
        if file.endswith(".parquet"):  # it is compressed
            data += pd.read_parquet(io.BytesIO(data)).to_csv().encode()
        assert not [path for path in paths if str(path).encode() in data], file
    card = ModelCard(hub.files(name)["README.md"].decode())
    assert (card.data.license, card.data.library_name) == ("apache-2.0", "sally-anne")
    assert {"theory-of-mind", "interpretability"} < set(card.data.tags)
    assert "POST /api/validate-yaml" in hub.asked


def same(one: sa.SteeringVector, other: sa.SteeringVector) -> bool:
    return one.describe() == other.describe() and torch.equal(one.delta(), other.delta())


def test_a_vector_goes_there_and_back(
    hub: Hub, vector: sa.SteeringVector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = vector.push_to_hub("me/vector").rpartition("/")[2]
    stronger = vector.with_alpha(3.0)
    stronger.push_to_hub("me/vector")
    require_clean(hub, "me/vector", tmp_path)
    assert set(hub.files("me/vector")) == {".gitattributes", "README.md", FILE}
    assert ModelCard(hub.files("me/vector")["README.md"].decode()).data.base_model is None
    new_cache(monkeypatch, tmp_path / "new")
    found = sa.SteeringVector.load("me/vector")
    assert same(found, stronger) and not same(found, vector)
    assert found.fitted == {
        "model": "mine",
        "revision": "0123456789abcdef",
        "data": "GridToM",
        "split": "of GridToM, by map",
    }
    assert same(sa.SteeringVector.load(f"me/vector@{first}"), vector)
    assert same(sa.SteeringVector.from_pretrained("me/vector@main"), stronger)


def test_a_vector_of_a_hub_steers_as_the_one_pushed(
    hub: Hub, model_folder: Path, tmp_path: Path
) -> None:
    model = sa.load_model(str(model_folder))
    fitted = {"model": str(model_folder), **model.identity.facts()}
    vector = vector_on(model.model, ((3, 1), (1, 0)), [1.0, 1.0], 3, alpha=40.0, fitted=fitted)
    commit = vector.push_to_hub("me/vector").rpartition("/")[2]
    assert not any(str(model_folder).encode() in data for data in hub.files("me/vector").values())
    inputs = model.processor(text=["the red agent goes into"], return_tensors="pt")

    def logits(steering: sa.SteeringVector | None) -> torch.Tensor:
        with torch.inference_mode():
            if steering is None:
                return model.model(**inputs).logits
            with steering.apply(model):
                return model.model(**inputs).logits

    found = sa.SteeringVector.load(f"me/vector@{commit}", model)
    assert torch.equal(logits(found), logits(vector))
    assert not torch.equal(logits(found), logits(None))


def test_what_is_here_goes_first(
    hub: Hub, vector: sa.SteeringVector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    vector.with_alpha(7.0).save_pretrained("me/vector")
    vector.push_to_hub("me/vector")
    hub.asked.clear()
    assert sa.SteeringVector.load("me/vector").alpha == 7.0
    assert sa.SteeringVector.load("me/vector/vector.safetensors").alpha == 7.0
    assert not hub.asked


def test_an_altered_file_is_refused(hub: Hub, vector: sa.SteeringVector) -> None:
    vector.push_to_hub("me/vector")
    data = bytearray(hub.files("me/vector")[FILE])
    data[-1] ^= 1
    hub.add("me/vector", {FILE: bytes(data)})
    with pytest.raises(SteeringError, match="is altered"):
        sa.SteeringVector.load("me/vector")


@pytest.mark.parametrize("place", ["me/nothing", "me/vector@v9"])
def test_what_is_nowhere_is_named(place: str, hub: Hub, vector: sa.SteeringVector) -> None:
    vector.push_to_hub("me/vector")
    with pytest.raises(FolderError, match=f"there is no {place} here, and from the hub"):
        sa.SteeringVector.load(place)
    with pytest.raises(SteeringError, match="nothing is missing"):
        sa.SteeringVector.load("nothing")


def test_a_repository_of_something_else_is_left_as_it_is(
    hub: Hub, vector: sa.SteeringVector, activations: sa.Activations
) -> None:
    files = {"README.md": b"a model", "model.safetensors": b"weights"}
    hub.add("me/model", files)
    with pytest.raises(FolderError, match=r"me/model holds other files \(model.safetensors\)"):
        vector.push_to_hub("me/model")
    assert hub.files("me/model") == files
    vector.push_to_hub("me/vector")
    probes = sa.HeadProbes(c=1.0).fit(activations.train, label="warm")
    with pytest.raises(FolderError, match="holds other files"):
        probes.push_to_hub("me/vector")
    with pytest.raises(FolderError, match="not a name cannot be pushed to"):
        vector.push_to_hub("not a name")


@pytest.mark.parametrize("label", ["warm", "kind"])
def test_probes_go_there_and_back(
    label: str,
    hub: Hub,
    activations: sa.Activations,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    towards = "dog" if label == "kind" else None
    probes = sa.HeadProbes(c=1.0).fit(activations.train, label=label)
    probes.rank(activations.validation)
    probes.push_to_hub("me/probes")
    require_clean(hub, "me/probes", tmp_path)
    new_cache(monkeypatch, tmp_path / "new")
    found = sa.HeadProbes.load("me/probes")
    assert found.get_params() == probes.get_params()
    x = activations.test.x
    assert np.array_equal(found.predict_proba(x), probes.predict_proba(x))
    assert np.array_equal(found.predict(x), probes.predict(x))
    own, theirs = (p.to_vector(k=2, alpha=2.0, towards=towards) for p in (probes, found))
    assert same(own, theirs) and theirs.fitted["model"] == "mine" == Path(own.fitted["model"]).name
    with pytest.raises(ProbingError, match="read from a file, which has no samples"):
        found.rank(activations.validation)


def test_probes_of_a_folder(activations: sa.Activations, tmp_path: Path) -> None:
    probes = sa.HeadProbes(c=1.0).fit(activations.train, label="warm")
    folder = probes.save(tmp_path / "probes")
    found = sa.HeadProbes.load(folder)
    with pytest.raises(ProbingError, match="rank the heads first"):
        found.to_vector(k=1)
    file = folder / PROBES
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(ProbingError, match="set of probes.*HeadProbes.save"):
        sa.HeadProbes.load(folder)
    with pytest.raises(ProbingError, match="fit the probes on activations first"):
        sa.HeadProbes(c=1.0).fit(activations.x, activations.values("warm")).save(tmp_path / "more")


@pytest.fixture
def local(make_run: Callable[..., MadeRun], tmp_path: Path) -> MadeRun:
    """A run on a model, data and samples of this machine."""
    paths = {"model": f"{tmp_path}/models/mine", "data": f"{tmp_path}/GridToM"}
    made = make_run(config=CONFIG | paths | {"out": str(tmp_path / "run"), "stories": 50})
    about = {
        "config": json.loads((made.folder / "config.json").read_text())["config"],
        "model": {"source": paths["model"], "revision": "0123456789abcdef"},
        "data": {"source": paths["data"], "fingerprint": "ab"},
    }
    write_json(made.folder / "config.json", about)
    found: dict[str, Any] = {"results": {}, "confounds": [], "figures": ["figures/heatmap.png"]}
    write_json(made.folder / "results.json", found | {"of": f"stories in {paths['data']}"})
    (made.folder / "report.html").write_text(paths["model"])
    table = pd.DataFrame({"item_id": made.items["item_id"], "text": "a story"})
    table.to_parquet(made.folder / "prompts.parquet")
    return made


@pytest.mark.parametrize("asked", [False, True])
def test_a_run_goes_there_and_back(
    asked: bool, hub: Hub, local: MadeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = sa.Run.open(local.folder)
    run.push_to_hub("me/run", activations=not asked)
    run.push_to_hub("me/run", activations=asked)
    require_clean(hub, "me/run", tmp_path)
    data = {"README.md", "config.json", "results.json", "heads.parquet", "probes.safetensors"}
    names = {name for name in hub.files("me/run") if name != ".gitattributes"}
    assert data <= names and ("prompts.parquet" in names) == asked
    assert not [n for n in names - data if not asked or not n.startswith(("activations/", "pro"))]
    new_cache(monkeypatch, tmp_path / "new")
    found = sa.Run.open("me/run")
    assert found.config["model"] == "mine" and found.config["stories"] == 50
    assert found.saved["data"] == {"source": "GridToM", "fingerprint": "ab"}
    assert found.results["figures"] == [] and found.results["of"] == "stories in GridToM"
    pd.testing.assert_frame_equal(found.heads, run.heads)
    assert all(np.array_equal(found.probes[name], run.probes[name]) for name in run.probes)
    if not asked:
        with pytest.raises(RunFolderError, match="activations is missing"):
            _ = found.samples
        return
    found.store.verify()
    assert np.array_equal(found.activations(), run.activations())
    assert list(found.prompts) == list(run.prompts)


def test_paths_are_told_from_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here" / "a").mkdir(parents=True)
    given = {
        "a": "/x/a",
        "b": ["n/x/a", "/x/ab", "of /x/a.", "in /x/a, /x/ab/", None, 1.5, True],
        "c": {"~/m": "here/a", "hub": "Qwen/Qwen2-VL-7B-Instruct", "k": "1/(L x H)"},
        "d": "here/nowhere",
    }
    assert without_paths(given) == {
        "a": "a",
        "b": ["n/x/a", "ab", "of a.", "in a, ab", None, 1.5, True],
        "c": {"m": "a", "hub": "Qwen/Qwen2-VL-7B-Instruct", "k": "1/(L x H)"},
        "d": "here/nowhere",
    }
