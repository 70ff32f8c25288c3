"""What a finished run leaves behind, and what the command prints when it cannot go on."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file

from sally_anne.cli import main
from sally_anne.core.files import LOCK
from sally_anne.core.store import ActivationStore
from sally_anne.data.gridtom.stories import generated
from sally_anne.data.tasks import open_task
from sally_anne.hooks.geometry import find_geometry
from sally_anne.hooks.identity import weights_hash
from sally_anne.models.loading import load_model
from sally_anne.models.prompts import encode, open_prompt
from sally_anne.probing import pipeline
from sally_anne.probing.config import ProbeConfig

pytestmark = pytest.mark.integration

LAYERS, HEADS, WIDTH = 6, 8, 16
LABELS = ("y_p", "y_o")


def samples_of(config: ProbeConfig):
    return open_task(config).samples


def test_config_says_what_was_run(finished: Path, model_folder: Path) -> None:
    saved = json.loads((finished / "config.json").read_text())
    found = json.loads((finished / "results.json").read_text())
    config = saved["config"]
    assert (config["order"], config["contrast"], config["setting"]) == (1, "matched", "text")
    assert (config["site"], config["position"]) == ("head_out", "statement")
    assert (config["c"], config["max_iter"], config["split_seed"]) == (0.015, 400, 0)
    assert saved["model"] == {
        "source": str(model_folder),
        "revision": load_model(str(model_folder)).revision,
        "model_type": "qwen2_vl",
        "fingerprint": weights_hash(model_folder),
        "class": "Qwen2VLForConditionalGeneration",
        "dtype": "float32",
        "prompt": "chat",
        "attention": "sdpa",
        "layers": LAYERS,
        "heads": HEADS,
        "head_dim": WIDTH,
    }
    assert saved["data"]["fingerprint"] == generated().fingerprint
    items = ActivationStore.open(finished / "activations").items
    for part, contents in saved["seen"].items():
        stories = set(items.loc[items["split"] == part, "group"])
        assert set(contents) == {generated().story(int(i[6:])).identity.content for i in stories}
        assert len(contents) == found["results"]["stories"][part]
    begun = json.loads((finished / "run.json").read_text())
    assert (saved["versions"], saved["dtype"]) == (begun["versions"], "float32")
    assert saved["versions"]["torch"] == torch.__version__.split("+")[0]
    results = found["results"]
    assert results["stories"] == {"test": 19, "train": 3, "validation": 2}
    assert results["samples"] == {"test": 76, "train": 12, "validation": 8}
    assert results["unconverged_heads"] == {"y_p": 0, "y_o": 0, "op": 0}
    assert {row["feature"] for row in found["confounds"]}
    assert saved["unknown_words"] == {"prompts": 0, "of": 96, "tokens": 0, "examples": []}


def test_table_of_heads(finished: Path) -> None:
    heads = pd.read_parquet(finished / "heads.parquet")
    assert len(heads) == LAYERS * HEADS
    assert heads.notna().all(axis=None)
    for label in ("y_p", "y_o"):
        assert sorted(heads[f"{label}_rank"]) == list(range(1, LAYERS * HEADS + 1))
        # In the first layer context and statement hardly meet in the last token, so a matched
        # contrast may leave its probes at zero.
        assert (heads.loc[heads["layer"] > 0, f"{label}_sigma"] > 0).all()
    saved = json.loads((finished / "results.json").read_text())["results"]["y_p"]
    best = heads[heads["y_p_rank"] == 1].iloc[0]
    assert (saved["best_layer"], saved["best_head"]) == (best["layer"], best["head"])
    assert saved["best_test_accuracy"] == best["y_p_test_accuracy"]


def test_probes_have_the_models_shape_and_score_as_in_the_table(finished: Path) -> None:
    saved = load_file(finished / "probes.safetensors")
    probes = {name: tensor.numpy() for name, tensor in saved.items()}
    for label in ("y_p", "y_o"):
        assert probes[f"{label}.coef"].shape == (LAYERS, HEADS, WIDTH)
        assert probes[f"{label}.intercept"].shape == (LAYERS, HEADS)
        assert probes[f"{label}.sigma"].shape == (LAYERS, HEADS)
        length = np.linalg.norm(probes[f"{label}.theta"], axis=-1)
        np.testing.assert_allclose(length[1:], 1.0)
    assert probes["op.coef"].shape == (LAYERS, HEADS, 4, WIDTH)
    assert probes["op.intercept"].shape == (LAYERS, HEADS, 4)
    store = ActivationStore.open(finished / "activations")
    x, items = store.read().double().numpy(), store.items
    guess = np.einsum("nlhd,lhd->nlh", x, probes["y_p.coef"]) + probes["y_p.intercept"] > 0
    held = (items["split"] == "test").to_numpy()
    right = (guess == items["y_p"].to_numpy()[:, None, None])[held].mean(axis=0)
    heads = pd.read_parquet(finished / "heads.parquet")
    np.testing.assert_allclose(heads["y_p_test_accuracy"], right.ravel())
    train = x[(items["split"] == "train").to_numpy()]
    along = np.einsum("nlhd,lhd->nlh", train, probes["y_p.theta"])
    np.testing.assert_allclose(probes["y_p.sigma"], along.std(axis=0))
    np.testing.assert_allclose(heads["y_p_sigma"], along.std(axis=0).ravel())


def test_activations_are_what_goes_into_w_o_at_the_last_token(finished: Path, options) -> None:
    """Read again for single items, by a hook of the test's own."""
    store = ActivationStore.open(finished / "activations")
    x, samples = store.read(), samples_of(ProbeConfig(**options))
    loaded = load_model(options["model"])
    seen: list[torch.Tensor] = []
    names = find_geometry(loaded.model).o_proj_names
    handles = [
        loaded.model.get_submodule(name).register_forward_pre_hook(
            lambda module, args: seen.append(args[0][0, -1])
        )
        for name in names
    ]
    for row in (0, 50, 95):
        seen.clear()
        inputs = encode(loaded, [open_prompt(loaded, samples[row].content, False)], None)
        with torch.inference_mode():
            loaded.model(**inputs)
        z = torch.stack(seen).unflatten(-1, (HEADS, WIDTH))
        torch.testing.assert_close(x[row], z.cpu(), rtol=1e-3, atol=1e-4)
    for handle in handles:
        handle.remove()


def snapshot(folder: Path) -> dict[str, tuple[int, str]]:
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in folder.rglob("*")
        if path.is_file() and path.name != LOCK  # which some versions of filelock touch
    }


def test_a_second_run_computes_and_writes_nothing(finished: Path, carry, no_weights) -> None:
    before = snapshot(finished)
    printed = carry(finished, figures=True)
    assert "nothing was computed again" in printed
    assert "Y_p: best head L" in printed
    assert snapshot(finished) == before


@pytest.mark.parametrize("site", ["resid"])
def test_other_sites_are_read_and_recorded(finished: Path, carry, tmp_path, site: str) -> None:
    carry(tmp_path / "run", site=site, stories=18)
    store = ActivationStore.open(tmp_path / "run" / "activations")
    assert store.meta.site == site
    assert json.loads((tmp_path / "run" / "config.json").read_text())["config"]["site"] == site
    assert store.read().shape == (72, LAYERS, HEADS, WIDTH)
    other = ActivationStore.open(finished / "activations")
    row = other.items["item_id"].tolist().index(store.items["item_id"][0])
    assert not torch.allclose(store.read()[0], other.read()[row], atol=1e-4)


def test_second_order_runs(carry, tmp_path) -> None:
    printed = carry(tmp_path / "run", order=2, stories=18)
    items = ActivationStore.open(tmp_path / "run" / "activations").items
    assert len(items) == 18 * 8
    assert set(items["condition"]) == {"TB/TB", "FB/TB", "TB/FB", "FB/FB"}
    assert "Y_p: does the statement fit the participant's idea" in printed


def command(*words: str) -> str | int | None:
    """Run the command line in this process; what it exits with."""
    with pytest.raises(SystemExit) as ended:
        main(["probe", *words])
    return ended.value.code


@pytest.mark.parametrize(
    "words", [("--model", "no-such-model"), ("--stories", "3"), ("--out", "file/run")]
)
def test_what_cannot_be_done_is_named(monkeypatch, tmp_path, words) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    code = command("--stories", "20", "--out", "run", *words)
    assert isinstance(code, str) and code.startswith("error: ") and words[1] in code
    assert not (tmp_path / "run").exists()


def test_weights_that_are_not_numbers(tmp_path, model_folder) -> None:
    folder = Path(shutil.copytree(model_folder, tmp_path / "broken"))
    weights = load_file(folder / "model.safetensors")
    name = next(n for n in weights if n.endswith("layers.2.self_attn.v_proj.weight"))
    weights[name][0, 0] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    words = ("--model", str(folder), "--setting", "text", "--stories", "20")
    code = command(*words, "--out", str(tmp_path / "run"))
    assert isinstance(code, str) and "item 'story-" in code and "at layer 2" in code


def test_interrupt_says_how_to_go_on(monkeypatch, tmp_path, capsys) -> None:
    def interrupted(config) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "run", interrupted)
    assert command("--out", str(tmp_path / "run")) == 130
    assert str(tmp_path / "run") in capsys.readouterr().err
