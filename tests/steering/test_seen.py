"""Runs and vectors are used with their own model, and not on stories that they have seen."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console
from safetensors.torch import load_file, save_file

from sally_anne.core.errors import HarnessError, ModelError, RunFolderError, SteeringError
from sally_anne.core.run import Run
from sally_anne.data.gridtom.stories import generated
from sally_anne.data.samples import Lineage
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.evaluate import run as evaluation
from sally_anne.harness.tasks import load_items
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import load_model
from sally_anne.probing.config import ProbeConfig
from sally_anne.steering import bake
from sally_anne.steering import sweep as sweeping
from sally_anne.steering.config import SweepConfig
from sally_anne.steering.fit import VectorConfig, fit_vector
from sally_anne.steering.fit import run as make_vector
from sally_anne.steering.questions import Questions
from sally_anne.steering.sweep import run as sweep
from tests.steering.conftest import answer_before

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def other_folder(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the same name, shape and processor, with other weights."""
    folder = tmp_path_factory.mktemp("other") / model_folder.name
    shutil.copytree(model_folder, folder)
    tensors = load_file(folder / "model.safetensors")
    tensors = {name: tensor * 1.01 for name, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def vector_folder(probed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fit_vector(probed, 2).save(tmp_path_factory.mktemp("vectors") / "own")


@pytest.fixture
def config(model_folder: Path, probed: Path, tmp_path: Path) -> SweepConfig:
    return SweepConfig(
        model=str(model_folder),
        k=(2,),
        alpha=(0.0, 1.0),
        controls=False,
        setting="text",
        run=probed,
        max_initial_drop=None,
        max_reality_drop=None,
        out=tmp_path / "sweep",
    )


@pytest.fixture
def right(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every question has an answer before it is asked: the right one where a vector steers."""
    answer_before(
        monkeypatch,
        lambda point, items: {i.item_id: i.key[0] if point.k else "nowhere" for i in items},
    )


def content_of(stories: Iterable[str]) -> set[str]:
    return {generated().identity(int(group.removeprefix("story-"))).content for group in stories}


def test_a_sweep_of_another_split_leaves_out_what_the_run_has_seen(
    config: SweepConfig,
    probed: Path,
    right: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = sweep(replace(config, split_seed=1))
    run = Lineage.read(json.loads((probed / "config.json").read_text()), "")
    assert run is not None and found.lineage is not None
    validated = content_of(found.tables[None, "validation"]["story"])
    assert not validated & run.train
    assert found.lineage == run.chosen_on(validated)
    assert not content_of(found.test["story"]) & found.lineage.seen
    # The stories with which the run trained are all tested by this seed.
    assert found.unseen.of == 500 and found.unseen.left_out >= 3
    assert found.test["story"].nunique() == 500 - found.unseen.left_out
    saved = json.loads((config.folder / "results.json").read_text())
    assert saved["unseen"] == {"left_out": found.unseen.left_out, "of": 500, "known": True}

    with pytest.raises(HarnessError, match="steer_site"):
        sweep(replace(config, split_seed=1, steer_site="attn_out"))
    with pytest.raises(SteeringError, match="patched_mean"):
        sweep(replace(config, direction="patched_mean", also=("y_o",)))

    # The chosen vector knows both, and so does the same one made again.
    made = tmp_path / "again"
    make_vector(VectorConfig(sweep=config.folder, out=made))
    for folder in (found.vector, made):
        fitted = SteeringVector.load(folder).fitted
        assert Lineage.read(fitted, "") == found.lineage
        # Its card says what the sweep found, and its code runs as it stands.
        card = (folder / "README.md").read_text()
        assert saved["found"] in card and saved["found"].startswith("Both, less")
        monkeypatch.chdir(folder)
        exec(card.partition("```python\n")[2].partition("```")[0], {})
        assert "with it: " in capsys.readouterr().out


def test_an_evaluation_leaves_out_what_its_vector_has_seen(
    model_folder: Path, vector_folder: Path, tmp_path: Path
) -> None:
    vector = SteeringVector.load(vector_folder)
    # The two test stories that a limit of 2 draws were seen, one of them under more numbers.
    asked = EvalConfig(model=str(model_folder), setting="text", limit=2, max_new_tokens=2)
    drawn = {item.group for item in load_items(asked).items}
    first = sorted(content_of(drawn))
    seen = replace(vector, fitted={**vector.fitted, "seen": {"train": first, "validation": []}})
    folder = seen.save(tmp_path / "seen")
    steered = replace(asked, steer=folder, out=tmp_path / "eval")
    evaluation(steered)
    table = pd.read_parquet(tmp_path / "eval" / "answers.parquet")
    others = set(table["story"])
    assert len(others) == 2 and content_of(others).isdisjoint(first)
    saved = json.loads((tmp_path / "eval" / "results.json").read_text())
    assert saved["unseen"] == {"left_out": 4, "of": 500, "known": True} and saved["mismatch"] == ""


def test_a_sweep_of_a_baked_model_leaves_out_what_its_vector_has_seen(
    config: SweepConfig,
    vector_folder: Path,
    model_folder: Path,
    probed: Path,
    right: None,
    tmp_path: Path,
) -> None:
    vector, baked = SteeringVector.load(vector_folder), tmp_path / "baked"
    questions = Questions(replace(config, limit=2))
    questions.leave_out(Run.open(probed))
    drawn = min(questions.members["test"])
    first = {"train": [generated().identity(drawn).content], "validation": []}
    folder = replace(vector, fitted={**vector.fitted, "seen": first}).save(tmp_path / "v")
    bake.run(bake.BakeConfig(vector=folder, out=baked, model=str(model_folder)))
    twice = bake.BakeConfig(vector_folder, tmp_path / "twice", model=str(baked))
    bake.run(replace(twice, allow_mismatch=True))
    record = json.loads((tmp_path / "twice" / "steering.json").read_text())
    both = Lineage.read(record["vector"]["fitted"], "")
    assert both is not None and {*first["train"]} < both.seen
    found = sweep(replace(config, model=str(baked), allow_mismatch=True, limit=2))
    assert found.test["story"].nunique() == 2
    assert f"story-{drawn:04d}" not in set(found.test["story"])


def test_a_sweep_takes_a_run_of_its_own_model_alone(
    config: SweepConfig,
    model_folder: Path,
    other_folder: Path,
    probed: Path,
    right: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    foreign = replace(config, model=str(other_folder), limit=2)
    # The folder that is made by default has the model's base name.
    monkeypatch.chdir(tmp_path)
    shutil.copytree(
        probed, ProbeConfig(model=str(other_folder), setting="text", position="reply").folder
    )
    for wrong in (foreign, replace(config, dtype="bfloat16"), replace(foreign, run=None)):
        with pytest.raises(ModelError):
            sweep(wrong)
    # The same weights elsewhere are the same model.
    moved = shutil.copytree(model_folder, tmp_path / "moved")
    assert len(sweep(replace(config, model=str(moved), limit=2, out=tmp_path / "m")).test)
    found = sweep(replace(foreign, allow_mismatch=True, out=tmp_path / "mismatch"))
    assert SteeringVector.load(found.vector).fitted["allow_mismatch"] is True


def test_a_run_that_does_not_say_what_it_has_seen_is_refused(
    config: SweepConfig, probed: Path, right: None, tmp_path: Path
) -> None:
    old = Path(shutil.copytree(probed, tmp_path / "old"))
    saved = json.loads((old / "config.json").read_text())
    del saved["seen"]
    del saved["model"]["fingerprint"], saved["model"]["model_type"]
    (old / "config.json").write_text(json.dumps(saved))
    with pytest.raises(SteeringError):
        sweep(replace(config, run=old))
    found = sweep(replace(config, run=old, allow_mismatch=True, limit=2))
    assert found.lineage is None and not found.unseen.known
    assert "seen" not in SteeringVector.load(found.vector).fitted


def test_a_vector_steers_its_own_model_alone(
    model_folder: Path, other_folder: Path, vector_folder: Path, tmp_path: Path
) -> None:
    own, other = (load_model(str(f)).identity.fingerprint for f in (model_folder, other_folder))
    both = f"weights {own}, not {other}"
    asked = {"setting": "text", "limit": 1, "max_new_tokens": 1}
    with pytest.raises(ModelError, match="dtype float32, not bfloat16"):
        SteeringVector.load(vector_folder, load_model(str(model_folder), "bfloat16").model)
    for name, command, record in (
        ("bake", lambda **more: bake.run(bake.BakeConfig(vector_folder, **more)), "steering.json"),
        (
            "evaluate",
            lambda **more: evaluation(EvalConfig(steer=vector_folder, **asked, **more)),
            "results.json",
        ),
    ):
        options: dict[str, Any] = {"model": str(other_folder), "out": tmp_path / name}
        with pytest.raises(ModelError, match=both):
            command(**options)
        command(**options, allow_mismatch=True)
        assert json.loads((tmp_path / name / record).read_text())["mismatch"] == both


def test_probes_read_where_vectors_act_unless_prompts_are_raw(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made: list[ProbeConfig] = []
    monkeypatch.setattr(sweeping, "probe", lambda config, console: made.append(config))
    for prompt, position in (("chat", "reply"), ("raw", "statement")):
        loaded = load_model(model_folder, prompt=prompt)
        config = SweepConfig(model=str(model_folder), prompt=prompt, setting="text", limit=2)
        source = sweeping.run_for(config, sweeping.opened(config))
        with pytest.raises(RunFolderError):
            sweeping.probing_run(config, source, loaded, Console(quiet=True))
        assert made.pop().position == position


@pytest.mark.parametrize("figures", [True, False])
def test_a_run_killed_before_its_end_is_ended_first(
    figures: bool, model_folder: Path, probed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    loaded = load_model(model_folder)
    config = SweepConfig(model=str(model_folder), setting="text", limit=8)
    folder = sweeping.opened(config).source.folder
    shutil.copytree(probed, folder)
    saved = json.loads((folder / "config.json").read_text())
    saved["config"]["figures"] = figures
    (folder / "config.json").write_text(json.dumps(saved))
    results = json.loads((folder / "results.json").read_text())
    assert results.pop("figures") == []
    (folder / "results.json").write_text(json.dumps(results))
    monkeypatch.setattr("sally_anne.probing.pipeline.fit_probes", lambda *_: pytest.fail("again"))
    for is_there in (False, True):
        source = sweeping.run_for(config, sweeping.opened(config))
        assert isinstance(source, Run) == is_there
        run = sweeping.probing_run(config, source, loaded, Console(quiet=True))
        assert run.config["permutations"] == 19 and bool(run.results["figures"]) == figures
        assert all((folder / name).exists() for name in run.results["figures"])
