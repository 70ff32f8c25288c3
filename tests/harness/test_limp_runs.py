"""LIMP end to end on a tiny model: films watched, questions judged, files left."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console

from sally_anne.core.errors import HarnessError
from sally_anne.harness.limp import from_json, read_entries
from sally_anne.harness.limp import run as work
from sally_anne.harness.method_config import LimpConfig
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.harness.planning import judge_likely
from sally_anne.hooks.geometry import find_geometry
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel, load_model
from tests.data.muma_tom.records import silent, talking, write

pytestmark = pytest.mark.integration

MODEL = "tiny-qwen2-vl"

EPISODES = {
    "42": {
        "initial": ["There is a pear in the hall."],
        "people": {
            "Ada": {"actions": ["takes the pear from the hall", "puts the pear on the shelf"]},
            "Bob": {"actions": ["takes the pear from the shelf", "puts the pear in the oven"]},
        },
    },
    "4005": {
        "initial": ["There is a hat in the box."],
        "people": {
            "Cy": {"actions": ["walks to the bed"], "utterances": ["Have you seen a hat?"]},
            "Dee": {"utterances": ["It lies on the bed."]},
        },
    },
}


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load_model(MODEL)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two hand-made episodes with films of 45 frames."""
    folder = write(tmp_path / "data", {"42": silent(), "4005": talking()})
    (folder / "videos").mkdir()
    rng = np.random.default_rng(0)
    for name in ("42", "video_4005"):
        with av.open(str(folder / "videos" / f"{name}.mp4"), "w") as container:
            stream = container.add_stream("mpeg4", rate=10)
            stream.width = stream.height = 84
            for _ in range(45):
                picture = rng.integers(0, 256, (84, 84, 3), dtype=np.uint8)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            container.mux(stream.encode())
    return folder


@pytest.fixture
def config(data: Path, tmp_path: Path) -> LimpConfig:
    return LimpConfig(data, model=MODEL, out=tmp_path / "run", batch_size=4, max_new_tokens=12)


@pytest.fixture
def parsed(tmp_path: Path) -> Path:
    path = tmp_path / "parsed.json"
    path.write_text(json.dumps(EPISODES))
    return path


def run(config: LimpConfig, loaded: LoadedModel, steering=None) -> pd.DataFrame:
    return work(config, steering, Console(file=io.StringIO()), loaded)


def test_films_are_watched_and_questions_judged(config, loaded, monkeypatch) -> None:
    seen: list[tuple[int, ...] | None] = []
    generate = SteeredModel.generate

    def watching(self, prompts, max_new_tokens=16):
        seen.extend(None if p.clip is None else p.clip.shape for p in prompts)
        return generate(self, prompts, max_new_tokens)

    monkeypatch.setattr(SteeredModel, "generate", watching)
    table = run(config, loaded)
    # Frames 0, 20 and 40 of each film.
    assert [shape for shape in seen if shape] == [(3, 84, 84, 3)] * 2
    assert list(table["item_id"]) == ["42/1", "42/2", "4005/1", "4005/2"]
    saved = json.loads((config.folder / "results.json").read_text())
    assert saved["results"]["log"]["overall"]["n"] == 4
    assert set(saved["results"]["official"]["groups"]) == {
        "belief",
        "belief_of_goal",
        "social_goal",
    }
    stored = pd.read_parquet(config.folder / "answers.parquet")
    assert stored["label"].equals(stored["log_label"])
    # The utterance is known without any model, so that talk is always judged.
    talk = table[table["story"] == "4005"]
    assert (talk["steps"] == 1).all() and (talk["problem"] == "").all()

    seen.clear()
    monkeypatch.setattr(SteeredModel, "option_log_probs", None)
    again = run(config, loaded)
    assert seen == []
    pd.testing.assert_frame_equal(table, again)
    # A run's episodes serve another run as they are.
    episodes = {n: from_json(e) for n, e in read_entries(config.folder / "episodes.json").items()}
    assert episodes["4005"].person("Dee").utterances == ("It lies on the bed.",)


def test_likelihoods_are_the_models_own(loaded) -> None:
    texts = ["Is it likely? A) yes B) no", "The red room.", "Where is the blue agent now?"]
    model = SteeredModel(loaded)
    found = judge_likely(model, 2, texts)
    for text, pair in zip(texts, found, strict=True):
        alone = model.option_log_probs([Prompt(text)], [("A", "B")])[0]
        assert pair == pytest.approx(tuple(alone), abs=1e-4)
    assert len({round(p, 4) for p, _ in found}) == 3


def test_a_vector_steers_the_judging_alone(config, loaded, parsed, tmp_path, monkeypatch) -> None:
    shape = find_geometry(loaded.model)
    theta = torch.randn(2, shape.head_dim, generator=torch.Generator().manual_seed(0))
    vector = SteeringVector(
        heads=((6, 1), (7, 4)),
        theta=theta / theta.norm(dim=1, keepdim=True),
        sigma=torch.tensor([1.0, 1.0]),
        n_layers=shape.n_layers,
        n_heads=shape.n_heads,
        alpha=12.0,
    )
    vector.save(tmp_path / "vector")
    config = replace(config, limit=1)
    plain = run(config, loaded)
    steered = run(replace(config, out=tmp_path / "steered"), loaded, vector)
    assert (plain["log_scores"] != steered["log_scores"]).all()
    read = [
        (folder / "episodes.json").read_text() for folder in (config.folder, tmp_path / "steered")
    ]
    assert read[0] == read[1]

    # A vector's folder does as well, and what identifies it is kept.
    by_command = tmp_path / "by-command"
    work(
        replace(config, parsed=parsed, out=by_command, steer=tmp_path / "vector", mode="official"),
        console=Console(file=io.StringIO()),
        loaded=loaded,
    )
    saved = json.loads((by_command / "results.json").read_text())
    assert saved["about"]["steering"]["alpha"] == 12.0
    assert saved["mismatch"] == ""
    stored = pd.read_parquet(by_command / "answers.parquet")
    assert (
        saved["drawn"]["groups"] == list(stored["story"].unique()) == list(plain["story"].unique())
    )
    assert stored["correct"].equals(stored["official_correct"])


def test_accounts_in_place_of_films(config, loaded, data, tmp_path) -> None:
    for film in (data / "videos").iterdir():
        film.unlink()
    with pytest.raises(HarnessError, match="episode 42: "):
        run(config, loaded)
    path = tmp_path / "actions.json"
    path.write_text(json.dumps({"42": {"action": ["takes the pear"]}}))
    config = replace(config, actions=path)
    with pytest.raises(HarnessError, match="episode 4005"):
        run(config, loaded)
    path.write_text(json.dumps({k: {"action": ["takes the pear"]} for k in ("42", "4005")}))
    run(config, loaded)
    episodes = {n: from_json(e) for n, e in read_entries(config.folder / "episodes.json").items()}
    assert episodes["42"].person("Ada").actions == ("takes the pear",)
    assert episodes["4005"].person("Cy").actions == ("takes the pear",)
    # Another file of actions is another run.
    path.write_text(json.dumps({k: {"action": ["takes a hat"]} for k in ("42", "4005")}))
    with pytest.raises(HarnessError, match="holds another run: actions"):
        run(config, loaded)
