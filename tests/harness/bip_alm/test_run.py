"""BIP-ALM end to end: a tiny model here, a model behind an address, and what is left behind."""

from __future__ import annotations

import io
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from rich.console import Console

from sally_anne.core.errors import HarnessError, RecordError
from sally_anne.harness.bip_alm import command
from sally_anne.harness.bip_alm.command import BipAlmConfig
from sally_anne.harness.bip_alm.pipeline import run as work
from sally_anne.harness.inverse_planning.models import said_by
from sally_anne.harness.model import Prompt, SteeredModel, laid_out
from sally_anne.hooks.geometry import find_geometry
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.prompts import encode
from tests.harness.bip_alm.oracle import Oracle
from tests.harness.chat_server import Server, Step
from tests.shared_data import MADE

MODEL = "tiny-qwen2-vl"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two made questions of one episode, of a belief and of a goal."""
    lines = (MADE / "mmtom_qa" / "questions.json").read_text().splitlines()
    kinds = {record["question_type"]: line for line in lines[::-1] if (record := json.loads(line))}
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "questions.json").write_text(f"{kinds[1.1]}\n{kinds[2.1]}\n")
    return tmp_path / "data"


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load_model(MODEL)


@pytest.fixture
def config(data: Path, tmp_path: Path) -> BipAlmConfig:
    return BipAlmConfig(data, model=MODEL, out=tmp_path / "run", batch_size=4)


def run(config: BipAlmConfig, *given: Any) -> tuple[pd.DataFrame, str]:
    printed = io.StringIO()
    vector, loaded = [*given, None, None][:2]
    return work(config, vector, Console(file=printed, width=160), loaded), printed.getvalue()


@pytest.mark.integration
def test_likelihoods_are_those_of_plain_forward_passes(loaded: LoadedModel) -> None:
    asked = [
        ("Where does the blue agent go?", "goes to the red room"),
        ("The red room.", "opens the red room"),
        ("What now? Where is the blue agent?", "closes the purple room"),
        ("The red room.", "is about to open the blue room"),
    ]
    model = SteeredModel(loaded)
    found = said_by(model, 3, asked)
    for (prompt, action), (score, length) in zip(asked, found, strict=True):
        before = encode(loaded, [laid_out(loaded, Prompt(prompt))], None)["input_ids"]
        (tokens,) = model.continuations(Prompt(prompt), [action])
        whole = torch.cat([before, torch.tensor([tokens], device=before.device)], 1)
        with torch.inference_mode():
            logits = loaded.model(input_ids=whole).logits[0, before.shape[1] - 1 : -1]
        alone = logits.log_softmax(-1)[range(len(tokens)), tokens].sum().item()
        assert length == len(tokens) > 2
        assert score == pytest.approx(alone, abs=1e-4)
    assert len({round(score, 3) for score, _ in found}) == len(asked)


@pytest.mark.integration
def test_a_run_and_what_it_leaves(config, loaded, monkeypatch, tmp_path) -> None:
    table, printed = run(config, None, loaded)
    assert (table["problem"] == "").all() and list(table["type"]) == ["1.1", "2.1"]
    assert "BIP-ALM, tiny-qwen2-vl, not steered" in printed and "both forms" in printed
    saved = json.loads((config.folder / "results.json").read_text())
    assert saved["results"]["log"]["overall"]["n"] == 2
    assert set(saved["results"]["official"]["groups"]) == {"1.1", "2.1"}
    assert saved["about"]["likelihood"] == "reply"
    stored = pd.read_parquet(config.folder / "answers.parquet")
    assert stored["label"].equals(stored["log_label"])

    # Nothing is asked twice, and another likelihood is another run.
    asked = SteeredModel.option_log_probs
    monkeypatch.setattr(SteeredModel, "option_log_probs", None)
    again, _ = run(config, None, loaded)
    pd.testing.assert_frame_equal(table, again)
    with pytest.raises(HarnessError, match="holds another run: likelihood is 'reply' there"):
        run(replace(config, likelihood="judged"), None, loaded)
    monkeypatch.setattr(SteeredModel, "option_log_probs", asked)

    # A vector moves the likelihoods.
    shape = find_geometry(loaded.model)
    theta = torch.randn(1, shape.head_dim, generator=torch.Generator().manual_seed(0))
    vector = SteeringVector(
        heads=((7, 4),),
        theta=theta / theta.norm(dim=1, keepdim=True),
        sigma=torch.tensor([1.0]),
        n_layers=shape.n_layers,
        n_heads=shape.n_heads,
        alpha=12.0,
    )
    steered, _ = run(replace(config, out=tmp_path / "steered"), vector, loaded)
    assert (table["log_scores"] != steered["log_scores"]).all()


@pytest.fixture
def distant(config: BipAlmConfig, server: Server) -> BipAlmConfig:
    oracle = Oracle()

    def judge(body: dict[str, Any]) -> Step:
        assert body["max_tokens"] == 1 and body["logprobs"] and body["top_logprobs"] == 5
        ((yes, no),) = oracle.judged([body["messages"][-1]["content"]])
        top = [{"token": "A", "logprob": yes}, {"token": "B", "logprob": no}]
        choice = {
            "message": {"content": "A"},
            "finish_reason": "stop",
            "logprobs": {"content": [{**top[0], "top_logprobs": top}]},
        }
        usage = {"prompt_tokens": 100, "completion_tokens": 1}
        return 200, json.dumps({"choices": [choice], "usage": usage}).encode()

    server.answer = judge
    return replace(config, model=BipAlmConfig.model, endpoint=server.url, endpoint_model="knower")


def test_a_model_behind_an_address_judges(distant: BipAlmConfig, server: Server) -> None:
    table, printed = run(distant)
    assert table["log_correct"].all() and "knower, behind an endpoint" in printed
    assert "endpoint of the model" in printed
    asked = len(server.seen)
    first = table["log_scores"][0]
    wrong, right = sorted(float(part.split(": ")[1]) for part in first.split(", "))
    assert math.exp(right) > 0.5 > math.exp(wrong)
    server.answer = None
    again, _ = run(distant)
    pd.testing.assert_frame_equal(table, again)
    assert len(server.seen) == asked


def test_an_endpoint_tells_nothing_of_given_replies(distant: BipAlmConfig, server: Server) -> None:
    with pytest.raises(HarnessError, match="--likelihood reply needs a model here"):
        run(replace(distant, likelihood="reply"))
    assert not server.seen


def test_bad_records_are_named_before_a_model_is_opened(config: BipAlmConfig) -> None:
    file = config.data / "questions.json"
    config = replace(config, model="no/such-model")
    file.write_text(file.read_text().replace('"answer": "b"', '"answer": "c"', 1))
    with pytest.raises(RecordError, match=r"questions.json, line 1.*answer.*must be a or b"):
        run(config)
    file.unlink()
    with pytest.raises(RecordError, match="is not there; the folder must hold"):
        run(config)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--limit", "0"], "--limit must be at least 1, got 0"),
        (["--alpha", "3"], "give one with --steer"),
        (["--steer", "nowhere"], "nowhere is missing"),
    ],
)
def test_bad_options_are_one_message(data, monkeypatch, arguments, message) -> None:
    monkeypatch.setattr(sys, "argv", ["bip-alm", "--data", str(data), *arguments])
    with pytest.raises(SystemExit, match=message):
        command.main()
