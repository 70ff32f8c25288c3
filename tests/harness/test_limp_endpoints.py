"""LIMP with its two models at endpoints: who is asked what, what is read, what is kept."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from sally_anne.core.errors import HarnessError
from sally_anne.data.items import Question
from sally_anne.harness.limp import run
from sally_anne.harness.method_config import LimpConfig
from sally_anne.harness.planning import from_top_tokens
from tests.data.muma_tom.records import silent, talking, write
from tests.harness.chat_server import Server, Step, completion, serving

pytestmark = pytest.mark.integration

KEY = "sk-secret-limp"

LIKELY = 0.9


def film(item: Question) -> np.ndarray:
    return np.zeros((2, 28, 28, 3), np.uint8)


def judgement(likely: float, finish: str = "stop") -> bytes:
    """A reply whose first token is A with this probability, and B otherwise."""
    answers = (("A", likely), ("B", 1 - likely))
    top = [{"token": token, "logprob": math.log(p)} for token, p in answers]
    choice = {
        "message": {"content": "A" if likely > 0.5 else "B"},
        "finish_reason": finish,
        "logprobs": {"content": [{**top[0], "top_logprobs": top}]},
    }
    usage = {"prompt_tokens": 100, "completion_tokens": 1}
    return json.dumps({"choices": [choice], "usage": usage}).encode()


def words(body: dict[str, Any]) -> str:
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else content[-1]["text"]


def planner(body: dict[str, Any]) -> Step:
    """Sums up, and judges by what the true options say of a mind."""
    text = words(body)
    if "Is the last line likely?" in text:
        assert body["max_tokens"] == 1 and body["logprobs"] and body["top_logprobs"] == 5
        helps = "Dee's aim towards Cy: help" in text and "a hat on the bed" in text
        hinders = "Dee's aim towards Cy: hinder" in text and "hat in the box" in text
        wanted = "that Ada wants: to place the pear inside the oven" in text
        other = 0.5 if "neither help" in text else 0.2
        return 200, judgement(LIKELY if helps or hinders or wanted else other)
    if "before anybody acted" in text:
        hat = "hat" in text
        said = '["There is a hat in the box."]' if hat else '["There is a pear in the hall."]'
        return 200, completion(said, usage=(50, 10))
    if "what Bob does" in text:
        return 200, completion('["puts the pear in the oven"]', usage=(50, 10))
    moved = '["takes the hat from the box"]' if "Cy" in text else '["puts the pear on the shelf"]'
    return 200, completion(moved, usage=(50, 10))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    films = "videos/42.mp4 videos/video_4005.mp4"
    return write(tmp_path / "data", {"42": silent(), "4005": talking()}, films=films)


@pytest.fixture
def config(data: Path, tmp_path: Path, server: Server, monkeypatch) -> LimpConfig:
    monkeypatch.setenv("LIMP_KEY", KEY)
    server.answer = planner
    return LimpConfig(
        data,
        out=tmp_path / "run",
        endpoint=server.url,
        endpoint_model="reader",
        endpoint_key="LIMP_KEY",
        endpoint_prices=(2.0, 8.0),
        batch_size=4,
    )


def worked(config: LimpConfig) -> pd.DataFrame:
    return run(config, console=Console(file=io.StringIO()), frames=film)


def test_one_model_watches_and_another_reads_and_judges(config: LimpConfig, server: Server) -> None:
    with serving() as other:
        other.answer = lambda body: (200, completion("moves something", usage=(900, 5)))
        config = replace(
            config,
            perceiver=other.url,
            perceiver_model="watcher",
            perceiver_key="LIMP_KEY",
            perceiver_prices=(1.0, 4.0),
            endpoint_fields='{"seed": 5}',
        )
        table = worked(config)
        watched = [body for _, _, body in other.seen]
    assert [body["model"] for body in watched] == ["watcher"] * 2
    kinds = [part["type"] for body in watched for part in body["messages"][-1]["content"]]
    assert kinds == ["image_url", "image_url", "text"] * 2
    asked = [body for _, _, body in server.seen]
    assert {body["model"] for body in asked} == {"reader"}
    assert {body["seed"] for body in asked + watched} == {5}
    assert all(isinstance(body["messages"][-1]["content"], str) for body in asked)
    assert table["log_correct"].all() and (table["problem"] == "").all()
    saved = json.loads((config.folder / "results.json").read_text())
    assert saved["about"]["perceiver"]["endpoint_model"] == "watcher"
    spent = saved["endpoints"]["perceiver"]["cost"]
    assert spent == pytest.approx(2 * (900 * 1.0 + 5 * 4.0) / 1e6)
    for file in config.folder.rglob("*"):
        assert KEY not in (file.read_text(errors="replace") if file.is_file() else "")

    # Both addresses are gone, and nothing has to be asked again.
    server.answer = other.answer = None
    again = worked(config)
    pd.testing.assert_frame_equal(table, again)
    with pytest.raises(HarnessError, match="holds another run"):
        worked(replace(config, perceiver_model="another"))


def test_the_model_reads_the_options_and_has_the_last_word(
    config: LimpConfig, server: Server
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
    config = replace(config, latents="model", utterance_goal=False)
    plain = worked(config)
    assert not plain["latents_agree"].any() and "model_label" not in plain
    # All hypotheses are the same, so that the posterior chooses none of them; the model does.
    asked = len(server.seen)
    table = worked(replace(config, choice="model"))
    assert len(server.seen) == asked + 4
    assert plain["log_invalid"].all() and set(table["model_label"]) == {"B"}
    saved = json.loads((config.folder / "results.json").read_text())
    assert saved["results"]["model"]["overall"]["value"] == table["model_correct"].mean()
    assert saved["results"]["latents"]["n"] == 4 and saved["about"]["latents"] == "model"
    stored = pd.read_parquet(config.folder / "answers.parquet")
    assert stored["label"].equals(stored["model_label"])
    with pytest.raises(HarnessError, match="holds another run: utterance_goal"):
        worked(replace(config, utterance_goal=True))


@pytest.mark.parametrize(
    ("first", "found"),
    [
        ({"A": 0.7, "B": 0.2, "The": 0.1}, (0.7, 0.2)),
        ({"A": 0.5, " A": 0.2, "B)": 0.2, "b": 0.1}, (0.7, 0.2)),
        # Not listed: as much as is left, or as the last one has.
        ({"A": 0.9, "The": 0.06}, (0.9, 0.04)),
        ({"A": 0.6, "The": 0.1, "It": 0.05}, (0.6, 0.05)),
        ({"The": 0.5, "It": 0.1}, (0.1, 0.1)),
        ({"A": 1.0}, (1.0, 1e-9)),
    ],
)
def test_answers_among_the_likeliest_tokens(
    first: dict[str, float], found: tuple[float, float]
) -> None:
    judged = from_top_tokens({token: math.log(p) for token, p in first.items()})
    assert [math.exp(value) for value in judged] == pytest.approx(found)
