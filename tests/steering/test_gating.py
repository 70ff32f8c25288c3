"""A gate is the probe that scikit-learn fits, and steers where it says so and nowhere else."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from sally_anne.cli import main
from sally_anne.core.console import Console
from sally_anne.data.gridtom.release import open_stories
from sally_anne.data.gridtom.samples import question_pairs
from sally_anne.data.pairs import PairSet
from sally_anne.data.samples import Split
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.hooks.capture import Capture
from sally_anne.hooks.geometry import find_geometry
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.prompts import encode, reply_prompt
from sally_anne.probing.probes import Activations
from sally_anne.steering.fit import VectorConfig, fit_gate, read_questions, run
from tests.hooks.tiny_inputs import vector_on

C = 0.05
SPLITS = {"train": 60, "validation": 40, "test": 30}


def made(seed: int = 0) -> Activations:
    """Questions whose condition is told a little by L0H1, well by L1H2, and fully by L2H0."""
    rng = np.random.default_rng(seed)
    split = np.repeat(list(SPLITS), list(SPLITS.values()))
    fb = np.arange(len(split)) % 2 == 1
    x = rng.normal(size=(len(split), 3, 4, 5))
    for (layer, head), size in {(0, 1): 0.5, (1, 2): 1.5, (2, 0): 9.0}.items():
        x[:, layer, head, 0] += size * (2 * fb - 1)
    items = pd.DataFrame(
        {
            "condition": np.where(fb, "FB", "TB"),
            "split": split,
            "cluster": [f"map {i // 2 % 5}" for i in range(len(split))],
        }
    )
    return Activations(x.astype(np.float32), items, ("condition",))


@pytest.mark.parametrize(("opens_at", "last", "head"), [("FB", 1, (1, 2)), ("TB", 0, (0, 1))])
def test_the_best_early_head_as_scikit_learn_fits_it(
    opens_at: str, last: int, head: tuple[int, int]
) -> None:
    x = made()
    gate, validation, measured = fit_gate(x, opens_at, last, C, normalise=False)
    assert (gate.layer, gate.head, gate.above) == (*head, True)
    rows = {split: (x.items["split"] == split).to_numpy() for split in SPLITS}
    z, wanted = x.x[:, head[0], head[1]].astype(np.float64), x.items["condition"] == opens_at
    reference = LogisticRegression(C=C, tol=1e-10, max_iter=10_000)
    reference.fit(z[rows["train"]], wanted[rows["train"]])
    np.testing.assert_allclose(gate.weight, reference.coef_[0], atol=1e-6)
    assert gate.bias == pytest.approx(reference.intercept_[0], abs=1e-6)
    right = (reference.predict_proba(z)[:, 1] > gate.threshold) == wanted
    assert validation == right[rows["validation"]].mean()
    assert (measured.value, measured.n) == (right[rows["test"]].mean(), 30)
    assert measured.low <= measured.value <= measured.high


def test_test_questions_decide_nothing() -> None:
    x = made()
    test = (x.items["split"] == "test").to_numpy()
    x.x[test] *= -3
    (one, _, before), (other, _, after) = fit_gate(made(), "FB", 1, C), fit_gate(x, "FB", 1, C)
    assert torch.equal(one.weight, other.weight)
    assert (one.bias, one.threshold) == (other.bias, other.threshold)
    assert after.value < 0.5 < before.value


@pytest.fixture(scope="module")
def shipped() -> LoadedModel:
    """Do not change it."""
    return load_model("tiny-llava-next-video")


@pytest.fixture(scope="module")
def pair_set() -> PairSet:
    found = question_pairs(open_stories(None), setting="text")
    most: dict[Split, int] = {"train": 16, "validation": 6, "test": 3}
    chosen = [pair for split, n in most.items() for pair in found.choose(split, n)]
    return replace(found, pairs=chosen)


@pytest.fixture(scope="module")
def vector(shipped: LoadedModel, pair_set: PairSet) -> SteeringVector:
    """Two random heads, and a gate that opens at false beliefs."""
    heads = ((2, 1), (find_geometry(shipped.model).n_layers - 1, 0))
    x = read_questions(shipped, pair_set, Console(quiet=True))
    how = {"positions": "last_prompt", "gate": fit_gate(x, "FB", 2, 1.0)[0]}
    return vector_on(shipped.model, heads, [1.0, 1.0], 0, alpha=5.0, **how)


@pytest.fixture(scope="module")
def prompts(pair_set: PairSet) -> list[Prompt]:
    """Questions on true and on false beliefs in turn."""
    return [Prompt(s.text) for pair in pair_set.choose("test", 3) for s in pair.samples]


@pytest.mark.integration
def test_rows_at_which_it_is_closed_keep_their_bits(
    shipped: LoadedModel, vector: SteeringVector, prompts: list[Prompt], tmp_path: Path
) -> None:
    def said(steering: SteeringVector | None) -> list[torch.Tensor]:
        return SteeredModel(shipped, steering).log_probs_along(prompts, [[20, 21, 22]] * 6)

    assert vector.gate is not None
    saved = SteeringVector.load(vector.save(tmp_path), shipped)
    plain, everywhere, found = said(None), said(replace(vector, gate=None)), said(saved)
    for row in range(6):
        assert not torch.equal(everywhere[row], plain[row])
        assert torch.equal(found[row], everywhere[row] if row % 2 else plain[row])
    blind = torch.zeros_like(vector.gate.weight)
    for threshold, expected in ((0.25, everywhere), (0.75, plain)):
        always = replace(vector.gate, weight=blind, bias=0.0, threshold=threshold)
        for one, other in zip(said(replace(vector, gate=always)), expected, strict=True):
            assert torch.equal(one, other)


@pytest.mark.integration
def test_the_command_fits_vector_and_gate(
    probed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    folder = Path(shutil.copytree(probed, tmp_path / "run"))
    words = ["--run", str(folder), "--K", "4", "--alpha", "3", "--gate", "FB"]
    main(["steer", *words])
    printed = capsys.readouterr().out
    vector = SteeringVector.load(folder / "vectors" / "logistic-y_p-gate-FB-K4-alpha3")
    plain = tmp_path / "plain"
    run(VectorConfig(run=folder, k=4, alpha=3.0, out=plain))
    gate, same = vector.gate, SteeringVector.load(plain)
    assert gate is not None and same.gate is None
    assert torch.equal(vector.delta(), same.delta()) and vector.heads == same.heads
    assert (vector.positions, same.positions) == ("last_prompt", "last_prompt+generated")
    assert gate.layer <= min(vector.heads)[0]
    # What it is at the questions' ends, one question at a time.
    loaded = load_model(str(vector.fitted["model"]))
    found = question_pairs(open_stories(None), setting="text", count=24).choose("test", 100)
    right = []
    for pair in found:
        for sample, wanted in zip(pair.samples, (False, True), strict=True):
            inputs = encode(loaded, [reply_prompt(loaded, sample.text, False)], None)
            with torch.inference_mode(), Capture(loaded.model, layers=[gate.layer]) as capture:
                loaded.model(**inputs)
                z = capture.take()[0, 0, 0, gate.head].double()
            says = torch.sigmoid(z @ gate.weight + gate.bias) > gate.threshold
            right.append(bool(says) == wanted)
    facts = vector.fitted["gate"]
    assert (facts["opens_at"], facts["test_questions"]) == ("FB", len(right))
    assert facts["test_accuracy"] == np.mean(right)
    assert f"L{gate.layer}H{gate.head} tells" in printed
