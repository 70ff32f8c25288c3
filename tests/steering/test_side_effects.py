"""Side effects of a vector on tiny models, and what they are measured on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

import sally_anne.harness.evaluate
import sally_anne.steering.side_effects
from sally_anne.core.errors import SteeringError
from sally_anne.core.folder import Journal
from sally_anne.data.items import Question
from sally_anne.harness.evaluate import ask
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.hooks.geometry import find_geometry
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.prompts import encode, reply_prompt
from sally_anne.models.tiny import Family
from sally_anne.steering.config import SideEffectsConfig
from sally_anne.steering.side_effects import divergences, evaluation, run

pytestmark = pytest.mark.integration

PROMPTS = [Prompt("Where is the red agent now?"), Prompt("The door of the blue room is closed.")]


@pytest.fixture(scope="module")
def loaded(folders: dict[Family, Path]) -> LoadedModel:
    return load_model(str(folders["qwen2-vl"]))


@pytest.fixture(scope="module")
def vector(loaded: LoadedModel) -> SteeringVector:
    found = find_geometry(loaded.model)
    theta = torch.nn.functional.one_hot(torch.tensor([0, 1]), found.head_dim).float()
    heads = ((0, 1), (1, 0))
    return SteeringVector(heads, theta, torch.ones(2), found.n_layers, found.n_heads, alpha=30.0)


def test_divergence_is_that_of_plain_forwards(loaded: LoadedModel, vector: SteeringVector) -> None:
    plain, steered = SteeredModel(loaded), SteeredModel(loaded, vector)
    found = divergences(plain, steered, PROMPTS, 3, 2)
    for prompt, kl in zip(PROMPTS, found, strict=True):
        reply = plain.replies([prompt], 3)[0].tokens
        inputs = encode(loaded, [reply_prompt(loaded, prompt.text, False)], None)
        n = inputs["input_ids"].shape[1]
        logs = []
        for alpha in (0.0, 30.0):
            ids, rows = inputs["input_ids"], []
            with torch.no_grad(), vector.apply(loaded.model, alpha):
                cache = None
                for token in reply:
                    out = loaded.model(
                        input_ids=ids,
                        attention_mask=torch.ones(1, n + len(rows), dtype=torch.long),
                        past_key_values=cache,
                        use_cache=True,
                    )
                    cache = out.past_key_values
                    rows.append(out.logits[0, -1].double().log_softmax(-1))
                    ids = torch.tensor([[token]])
            logs.append(torch.stack(rows))
        p, q = logs
        assert kl == pytest.approx(float((p.exp() * (p - q)).sum(-1).mean()), rel=1e-3, abs=1e-6)
    assert found.min() > 0
    nothing = SteeredModel(loaded, vector, 0.0)
    assert np.array_equal(divergences(plain, nothing, PROMPTS, 3, 1), np.zeros(2))


# Of 30 initial-belief and 20 belief questions: how many are answered rightly without and with the
# vector, and how many of the others choose nothing.
PLAN = {
    ("initial", "plain"): (24, 3),
    ("initial", "steered"): (15, 6),
    ("1", "plain"): (8, 0),
    ("1", "steered"): (14, 2),
}
ALPHA = 2.5


def answered(model: SteeredModel, items: Sequence[Question]) -> list[dict[str, str]]:
    """What a model says that is moved by the vector at its strength, and by nothing else."""
    if model.steering is not None and model.alpha != ALPHA:
        return [{"item_id": item.item_id, "reply": "Hm."} for item in items]
    order = "1" if items[0].condition else "initial"
    how = "plain" if model.steering is None else "steered"
    right, mute = PLAN[order, how]
    found = []
    for n, item in enumerate(items):
        wrong = next(o.text for o in item.options if o.label not in item.key)
        said = " and ".join(item.key) if n < right else wrong
        reply = "Hm." if right <= n < right + mute else said
        found.append({"item_id": item.item_id, "reply": reply})
    return found


def test_every_number_is_where_it_belongs(
    model_folder: Path, steering_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replies and divergences are made up, so that each saved number is known."""

    def prepared(model: SteeredModel, items: Sequence[Question], journal: Journal, *rest, **named):
        journal.add(answered(model, items))
        return ask(model, items, journal, *rest, **named)

    moved: list[float | None] = []

    def divergences(plain: SteeredModel, steered: SteeredModel, *rest) -> np.ndarray:
        assert plain.steering is None and steered.steering is not None
        moved.append(steered.alpha)
        return np.repeat([0.0, 1.0], 50)

    monkeypatch.setattr(sally_anne.harness.evaluate, "ask", prepared)
    monkeypatch.setattr(sally_anne.steering.side_effects, "divergences", divergences)
    config = SideEffectsConfig(
        steering_folder,
        model=str(model_folder),
        alpha=ALPHA,
        tasks=("gridtom:initial", "gridtom:1"),
        setting="text",
        limit=10,
        out=tmp_path / "out",
    )
    run(config)
    saved = json.loads((tmp_path / "out" / "results.json").read_text())
    assert moved == [ALPHA]
    planned = {
        ("gridtom:initial", "overall"): (80.0, 50.0, -30.0),
        ("gridtom:initial", "invalid"): (10.0, 20.0, 10.0),
        ("gridtom:1", "overall"): (40.0, 70.0, 30.0),
        ("gridtom:1", "invalid"): (0.0, 10.0, 10.0),
    }
    for (task, measure), numbers in planned.items():
        points = saved["tasks"][task][measure]
        found = [100 * points[name]["value"] for name in ("plain", "steered", "difference")]
        assert found == pytest.approx(numbers)
    # The interval of a half over 100 values: 1.96 standard errors of 0.05.
    kl = saved["kl"]
    assert (kl["value"], kl["n"]) == (0.5, 100)
    assert [kl["low"], kl["high"]] == pytest.approx([0.402, 0.598], abs=0.01)

    # What is there is not asked again.
    monkeypatch.setattr(sally_anne.harness.evaluate, "ask", ask)
    monkeypatch.setattr(SteeredModel, "replies", None)
    assert json.loads(json.dumps(run(config), default=str)).items() <= saved.items()


QUESTION = (
    '{"question": "Where is Ann?", "options": ["red", "blue"], "answer": "red", "group": "1"}\n'
)
CONFIG = SideEffectsConfig(Path("v"), limit=7, batch_size=3, setting="text")


def test_tasks_by_name_order_and_folder(tmp_path: Path) -> None:
    found = evaluation(CONFIG, "gridtom:initial")
    options = (found.task, found.order, found.setting, found.limit)
    assert options == ("gridtom", "initial", "text", 7)
    found = evaluation(CONFIG, "bigtom=some/folder")
    assert (found.task, found.data, found.batch_size) == ("bigtom", Path("some/folder"), 3)
    assert evaluation(CONFIG, "gridtom").order == "1"
    own = tmp_path / "a=1" / "film.jsonl"
    own.parent.mkdir()
    own.write_text(QUESTION)
    assert (evaluation(CONFIG, str(own)).task, evaluation(CONFIG, str(own)).data) == (
        str(own),
        None,
    )
    for wrong in ("gridtom:3", "bigtom:1"):
        with pytest.raises(SteeringError):
            evaluation(CONFIG, wrong)
