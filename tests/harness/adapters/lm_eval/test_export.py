"""lm-eval's own `steered` model adds from our file what the vector adds at all positions."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from transformers import LlamaForCausalLM

pytest.importorskip("lm_eval")

from pathlib import Path
from typing import Any

import pytest
from lm_eval import simple_evaluate
from lm_eval.api.instance import Instance
from lm_eval.models.hf_steered import SteeredModel, steer
from lm_eval.tasks import TaskManager

from sally_anne.cli import main
from sally_anne.core.errors import HarnessError
from sally_anne.harness.adapters import tasks
from sally_anne.harness.adapters.lm_eval.export import export, steer_config
from sally_anne.harness.adapters.lm_eval.model import SallyAnneLM
from sally_anne.harness.model import laid_out
from sally_anne.harness.tasks import TASKS
from sally_anne.hooks.geometry import SITES
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.tiny import build_tokenizer, decoder_config
from sally_anne.steering.bake import bake_model
from tests.conftest import enlarge
from tests.harness.adapters.benchmarks import (
    ANSWERED,
    CASES,
    MODEL,
    Case,
    Expected,
    assert_results,
    expected,
    name_of,
    own_task,
    speak,
)

pytestmark = pytest.mark.plugins
PAIRS = (
    ("Where is the red agent? It is in the", " blue room."),
    ("The door", " is closed and the red agent is in the corridor."),
    ("", "The purple door is open."),
)
REQUESTS = [Instance("loglikelihood", {}, pair, 0, ("task", 0, 1)) for pair in PAIRS]


@pytest.fixture(scope="module")
def loaded(folders) -> LoadedModel:
    return load_model(str(folders["llava-next-video"]))


@pytest.fixture(scope="module")
def decoder() -> LlamaForCausalLM:
    """A plain text decoder."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(decoder_config()).eval()
    enlarge(model)
    return model


@pytest.fixture(scope="module")
def everywhere(decoder, make_vector):
    return make_vector(decoder, "all")


def tokens() -> torch.Tensor:
    return torch.randint(12, 300, (2, 9), generator=torch.Generator().manual_seed(0))


@torch.inference_mode()
def stock_logits(model, file) -> torch.Tensor:
    """What the model says with lm-eval's hooks made from the file."""
    made = SteeredModel(pretrained=model, tokenizer=build_tokenizer(), steer_path=str(file))
    with steer(model, made.hook_to_steer):
        return model(tokens()).logits


@torch.inference_mode()
def test_a_decoder_says_what_the_baked_one_says(decoder, everywhere, tmp_path) -> None:
    file = export(everywhere, decoder, tmp_path / "vector.pt")
    found = stock_logits(decoder, file)
    baked = bake_model(decoder, everywhere.delta())
    torch.testing.assert_close(found, baked(tokens()).logits, rtol=1e-5, atol=1e-5)
    assert (found - decoder(tokens()).logits).abs().max() > 0.1


@torch.inference_mode()
@pytest.mark.parametrize("site", SITES)
def test_every_site_is_held(decoder, everywhere, site, tmp_path) -> None:
    vector = replace(everywhere, site=site)
    found = stock_logits(decoder, export(vector, decoder, tmp_path / "vector.pt", alpha=3.0))
    with vector.apply(decoder, 3.0):
        wanted = decoder(tokens()).logits
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_our_models_are_steered_the_same_by_file_hooks_and_weights(
    loaded, make_vector, tmp_path
) -> None:
    vector = make_vector(loaded.skeleton, "all")
    file = export(vector, loaded.model, tmp_path / "vector.pth")
    stock = SteeredModel(
        pretrained=loaded.model, tokenizer=loaded.processor.tokenizer, steer_path=str(file)
    )
    found = [total for total, _ in stock.loglikelihood(REQUESTS)]
    own = [total for total, _ in SallyAnneLM(loaded, vector).loglikelihood(REQUESTS)]
    assert found == pytest.approx(own, abs=1e-3)
    baked = replace(loaded)
    baked.__dict__["model"] = bake_model(loaded.model, vector.delta())
    assert found == pytest.approx(
        [total for total, _ in SallyAnneLM(baked).loglikelihood(REQUESTS)], abs=1e-3
    )
    plain = [total for total, _ in SallyAnneLM(loaded).loglikelihood(REQUESTS)]
    assert max(abs(a - b) for a, b in zip(found, plain, strict=True)) > 0.1


def test_the_file_holds_plain_tensors(decoder, everywhere, tmp_path) -> None:
    file = export(everywhere, decoder, tmp_path / "vector.pt", alpha=2.0)
    held = torch.load(file, weights_only=True)
    assert list(held) == ["layers.1.self_attn.o_proj", "layers.4.self_attn.o_proj"]
    for entry in held.values():
        assert entry["action"] == "add" and entry["steering_coefficient"] == 1.0
        assert entry["bias"] is None and entry["head_index"] is None
        assert entry["steering_vector"].shape == (decoder.config.hidden_size,)
    wanted = decoder.model.layers[4].self_attn.o_proj.weight @ everywhere.delta(2.0)[4].flatten()
    torch.testing.assert_close(held["layers.4.self_attn.o_proj"]["steering_vector"], wanted.data)
    assert steer_config(everywhere, decoder, alpha=0.0) == {}


def test_other_positions_are_refused(decoder, everywhere) -> None:
    vector = replace(everywhere, positions="last_prompt")
    with pytest.raises(HarnessError, match="--all-positions"):
        steer_config(vector, decoder)
    wide = steer_config(vector, decoder, all_positions=True)
    assert wide.keys() == steer_config(everywhere, decoder).keys()


def test_the_command_writes_the_file(loaded, vector, tmp_path, monkeypatch, capsys) -> None:
    saved = vector.save(tmp_path / "saved")
    file = tmp_path / "vector.pt"
    options = ["export-lm-eval", "--vector", str(saved), "--out", str(file)]
    options += ["--model", loaded.source]
    with pytest.raises(SystemExit, match="error: the vector was made for positions"):
        main(options)
    assert not file.exists()
    main([*options, "--all-positions", "--alpha", "2"])
    assert "acts at ALL positions, not at last_prompt+generated" in capsys.readouterr().out
    held = torch.load(file, weights_only=True)
    assert list(held) == [f"language_model.layers.{n}.self_attn.o_proj" for n in (1, 4)]


CLASS = "sally_anne.harness.adapters.lm_eval.model.Questions"


@pytest.fixture(scope="module")
def model() -> SallyAnneLM:
    return SallyAnneLM(load_model(MODEL))


def assert_same(
    model: SallyAnneLM, files: Path, case: Case, folder: Path, **steering: Any
) -> Expected:
    own = expected(case, folder, **steering)
    options = own.options
    if (name := name_of(own.task, options)) is None:
        name, files, options = own_task(folder, CLASS, own), folder, {}
    manager = TaskManager(include_path=str(files), include_defaults=False, metadata=options)
    found = simple_evaluate(
        model=model, tasks=[name], task_manager=manager, apply_chat_template=True, bootstrap_iters=0
    )
    assert_results(own, found, name)
    for sample in found["samples"][name]:
        prompt = own.prompts[sample["doc"]["item_id"]]
        frames = 0 if prompt.clip is None else len(prompt.clip)
        assert sample["doc"]["text"] == "<image>" * frames + prompt.text
        if not frames:
            assert sample["arguments"][0][0] == laid_out(model.loaded, prompt)
    return own


@pytest.mark.parametrize("name", ANSWERED)
def test_replies_and_scores_are_those_of_evaluate(model, files, name, tmp_path) -> None:
    assert_same(model, files, CASES[name], tmp_path)


def test_steered_replies_and_scores_are_those_of_evaluate(files, make_vector, tmp_path) -> None:
    vector = make_vector(load_model(MODEL).skeleton)
    folder = vector.save(tmp_path / "vector")
    case = CASES["gridtom"]
    steered = SallyAnneLM(load_model(MODEL), str(folder), 300.0)
    own = assert_same(steered, files, case, tmp_path, steer=folder, alpha=300.0)
    assert own.replies != expected(case, tmp_path / "plain").replies


@pytest.mark.parametrize("name", CASES)
def test_what_is_said_by_hand_has_the_scores_of_evaluate(
    model, files, name, tmp_path, monkeypatch
) -> None:
    reply = speak(monkeypatch)
    monkeypatch.setattr(
        SallyAnneLM,
        "generate_until",
        lambda self, requests, disable_tqdm=False: [reply(r.args[0]) for r in requests],
    )
    assert_same(model, files, CASES[name], tmp_path)


def test_all_benchmarks_are_tasks(files) -> None:
    manager = TaskManager(include_path=str(files), include_defaults=False)
    assert set(TASKS[1:]) <= set(tasks()) == set(manager.all_subtasks) - {"own"}
