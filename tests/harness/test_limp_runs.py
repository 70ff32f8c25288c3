"""Whole runs of LIMP, on a tiny model and at endpoints: who is asked what, what is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from sally_anne.core.errors import HarnessError, RecordError
from sally_anne.harness import limp
from sally_anne.harness.method_config import LimpConfig
from sally_anne.harness.model import SteeredModel
from sally_anne.models.loading import LoadedModel
from tests.data.muma_tom.records import silent, talking, write
from tests.harness.chat_server import Server, Step, completion, judgement, serving, words
from tests.harness.made_benchmarks import film as made_film
from tests.hooks.tiny_inputs import vector_on

pytestmark = pytest.mark.integration
MODEL = "tiny-qwen2-vl"
KEY = "sk-secret-limp"
LIKELY = 0.9


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two hand-made episodes with films of 50 frames."""
    folder = write(tmp_path / "data", {"42": silent(), "4005": talking()})
    for name in ("42", "video_4005"):
        made_film(folder / "videos" / f"{name}.mp4", seconds=5)
    return folder


@pytest.fixture
def config(data: Path, tmp_path: Path) -> LimpConfig:
    return LimpConfig(data, model=MODEL, out=tmp_path / "run", batch_size=4, max_new_tokens=12)


def run(config: LimpConfig, loaded: LoadedModel | None = None, vector=None) -> pd.DataFrame:
    return limp.run(config, vector, Console(quiet=True), loaded)


def episodes(folder: Path) -> dict[str, Any]:
    lines = map(json.loads, (folder / "episodes.jsonl").read_text().splitlines()[1:])
    return {line["item_id"]: line["episode"]["people"] for line in lines}


def test_films_are_watched_and_questions_judged(config, loaded, monkeypatch) -> None:
    seen: list[tuple[int, ...] | None] = []
    generate = SteeredModel.generate

    def watching(self, prompts, max_new_tokens=16):
        seen.extend(None if p.clip is None else p.clip.shape for p in prompts)
        return generate(self, prompts, max_new_tokens)

    monkeypatch.setattr(SteeredModel, "generate", watching)
    table = run(config, loaded)
    # Frames 0, 20 and 40 of each film.
    assert [shape for shape in seen if shape] == [(3, 64, 64, 3)] * 2
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
    assert episodes(config.folder)["4005"]["Dee"]["utterances"] == ["It lies on the bed."]


def test_a_vector_steers_the_judging_alone(config, loaded, tmp_path) -> None:
    vector = vector_on(loaded.model, ((6, 1), (7, 4)), [1.0, 1.0], 0, alpha=12.0)
    vector.save(tmp_path / "vector")
    config = replace(config, limit=1)
    plain = run(config, loaded)
    # A vector's folder does as well, and what identifies it is kept.
    out = tmp_path / "steered"
    steered = run(replace(config, out=out, steer=tmp_path / "vector", mode="official"), loaded)
    assert (plain["log_scores"] != steered["log_scores"]).all()
    assert (config.folder / "episodes.jsonl").read_text() == (out / "episodes.jsonl").read_text()
    saved = json.loads((out / "results.json").read_text())
    assert saved["about"]["steering"]["alpha"] == 12.0
    assert saved["mismatch"] == ""
    stored = pd.read_parquet(out / "answers.parquet")
    assert stored["correct"].equals(stored["official_correct"])


def test_accounts_in_place_of_films(config, loaded, data, tmp_path) -> None:
    for film in (data / "videos").iterdir():
        film.unlink()
    with pytest.raises(HarnessError, match="episode 42: "):
        run(config, loaded)
    path = tmp_path / "actions.json"
    path.write_text(json.dumps({"42": {"action": ["takes the pear"]}}))
    config = replace(config, actions=path)
    with pytest.raises(RecordError, match="4005"):
        run(config, loaded)
    path.write_text(json.dumps({k: {"action": ["takes the pear"]} for k in ("42", "4005")}))
    run(config, loaded)
    found = episodes(config.folder)
    assert found["42"]["Ada"]["actions"] == found["4005"]["Cy"]["actions"] == ["takes the pear"]
    # Another file of actions is another run.
    path.write_text(json.dumps({k: {"action": ["takes a hat"]} for k in ("42", "4005")}))
    with pytest.raises(HarnessError, match="holds another run: actions"):
        run(config, loaded)


def planner(body: dict[str, Any]) -> Step:
    """Sums up, and judges by what the true options say of a mind."""
    text = words(body)
    if "Is the last line likely?" in text:
        helps = "Dee's aim towards Cy: help" in text and "a hat on the bed" in text
        hinders = "Dee's aim towards Cy: hinder" in text and "hat in the box" in text
        wanted = "that Ada wants: to place the pear inside the oven" in text
        other = 0.5 if "neither help" in text else 0.2
        return judgement(body, LIKELY if helps or hinders or wanted else other)
    if "before anybody acted" in text:
        hat = "hat" in text
        said = '["There is a hat in the box."]' if hat else '["There is a pear in the hall."]'
        return 200, completion(said, usage=(50, 10))
    if "what Bob does" in text:
        return 200, completion('["puts the pear in the oven"]', usage=(50, 10))
    moved = '["takes the hat from the box"]' if "Cy" in text else '["puts the pear on the shelf"]'
    return 200, completion(moved, usage=(50, 10))


@pytest.fixture
def distant(config: LimpConfig, server: Server, monkeypatch) -> LimpConfig:
    monkeypatch.setenv("LIMP_KEY", KEY)
    server.answer = planner
    return replace(
        config,
        model=LimpConfig.model,
        endpoint=server.url,
        endpoint_model="reader",
        endpoint_key="LIMP_KEY",
    )


def test_one_model_watches_and_another_reads_and_judges(
    distant: LimpConfig, server: Server
) -> None:
    with serving() as other:
        other.answer = lambda body: (200, completion("moves something", usage=(900, 5)))
        config = replace(
            distant,
            perceiver=other.url,
            perceiver_model="watcher",
            perceiver_key="LIMP_KEY",
            endpoint_fields='{"seed": 5}',
        )
        table = run(config)
        watched = [body for _, _, body in other.seen]
    assert [body["model"] for body in watched] == ["watcher"] * 2
    kinds = [part["type"] for body in watched for part in body["messages"][-1]["content"]]
    assert kinds == [*["image_url"] * 3, "text"] * 2
    asked = [body for _, _, body in server.seen]
    assert {body["model"] for body in asked} == {"reader"}
    assert {body["seed"] for body in asked + watched} == {5}
    assert all(isinstance(body["messages"][-1]["content"], str) for body in asked)
    assert table["log_correct"].all() and (table["problem"] == "").all()
    saved = json.loads((config.folder / "results.json").read_text())
    assert saved["about"]["perceiver"]["endpoint_model"] == "watcher"
    for file in config.folder.rglob("*"):
        assert KEY not in (file.read_text(errors="replace") if file.is_file() else "")

    # Both addresses are gone, and nothing has to be asked again.
    server.answer = other.answer = None
    again = run(config)
    pd.testing.assert_frame_equal(table, again)
    with pytest.raises(HarnessError, match="holds another run"):
        run(replace(config, perceiver_model="another"))


def test_the_model_reads_the_options_and_has_the_last_word(
    distant: LimpConfig, server: Server
) -> None:
    mind = {"belief": "a hat on the bed", "social_goal": "help Cy"}

    def reading(body: dict[str, Any]) -> Step:
        text = words(body)
        if "For each option, tell" in text:
            return 200, completion(json.dumps(dict.fromkeys("ABC", mind)), usage=(50, 10))
        if "Go by these probabilities" in text:
            assert body["max_tokens"] == 16 and text.count("probability that this is so") == 3
            return 200, completion("B", usage=(50, 1))
        return planner(body)

    server.answer = reading
    config = replace(distant, latents="model", utterance_goal=False)
    plain = run(config)
    assert "model_label" not in plain
    # All hypotheses are the same, so that the posterior chooses none of them; the model does.
    asked = len(server.seen)
    table = run(replace(config, choice="model"))
    assert len(server.seen) == asked + 4
    assert plain["log_invalid"].all() and set(table["model_label"]) == {"B"}
    saved = json.loads((config.folder / "results.json").read_text())
    assert saved["results"]["model"]["overall"]["value"] == table["model_correct"].mean()
    assert saved["about"]["latents"] == "model"
    stored = pd.read_parquet(config.folder / "answers.parquet")
    assert stored["label"].equals(stored["model_label"])
    with pytest.raises(HarnessError, match="holds another run: utterance_goal"):
        run(replace(config, utterance_goal=True))
