"""A vector that undoes a planted harm, and one that does nothing, each through a sweep of a model.

A last layer's head of the shipped model is made to put out a large constant beside what it attends
to. Nothing reads that layer but the model's own answer, so that steering by its opposite at the
last tokens gives the unharmed model's replies, and nothing else does.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console

from sally_anne.core.errors import SteeringError
from sally_anne.core.run import Run
from sally_anne.data.pairs import VERDICT, own_pairs
from sally_anne.data.tasks import open_task
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.hooks.geometry import find_geometry
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.probing.activations import reopen
from sally_anne.probing.config import ProbeConfig
from sally_anne.probing.interchange import logit_directions, read_pair
from sally_anne.steering.bake import bake_model
from sally_anne.steering.config import SweepConfig
from sally_anne.steering.fit import fit_vector, read_patched
from sally_anne.steering.pairs import Pairs, read_side
from sally_anne.steering.points import BASELINE, rows_of
from sally_anne.steering.questions import Questions
from sally_anne.steering.sweep import Sweep, of_run
from sally_anne.steering.sweep import run as sweep
from tests.made_run import make_items
from tests.shared_data import official_data
from tests.steering.conftest import Made

pytestmark = pytest.mark.integration

HARMED, ELSEWHERE = (-1, 2), (1, 5)
ALPHA, STORIES = 200.0, 4


@pytest.fixture(autouse=True)
def stories_of_one_map(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first so many, of which the unharmed model answers most."""
    monkeypatch.setattr(
        "sally_anne.harness.gridtom.sample_groups",
        lambda rows, kinds, limit, seed: {name for name, _ in rows[:limit]},
    )


@pytest.fixture(scope="module")
def whole() -> LoadedModel:
    """By itself it answers more true-belief questions than the one that sees."""
    return load_model("tiny-qwen2-vl-text")


@pytest.fixture(scope="module")
def planted(whole: LoadedModel, write: Callable[..., Made]) -> Callable[..., Path]:
    """``planted(layer, head)``: a probing run by which that head alone tells the label."""

    def make(layer: int, head: int) -> Path:
        shape = find_geometry(whole.skeleton)
        items = make_items({"train": 12, "validation": 10, "test": 4})
        draw = np.random.default_rng(3)
        x = draw.normal(size=(len(items), shape.n_layers, shape.n_heads, shape.head_dim))
        x[:, layer, head, 0] += 8.0 * items["y_p"].to_numpy()
        return write(x.astype(np.float32), items).folder

    return make


@pytest.fixture(scope="module")
def harmed(whole: LoadedModel, planted: Callable[..., Path]) -> LoadedModel:
    """Minus the vector of the last layer's planted head, in the weights."""
    delta = fit_vector(planted(*HARMED), 1).delta(ALPHA)
    loaded = load_model("tiny-qwen2-vl-text")
    vars(loaded)["model"] = bake_model(whole.model, -delta)
    return loaded


def swept(
    run: Path, loaded: LoadedModel, out: Path, draws: int
) -> tuple[Sweep, list[str], SweepConfig]:
    config = SweepConfig(
        random_controls=draws,
        k=(1,),
        alpha=(ALPHA,),
        run=run,
        setting="text",
        limit=STORIES,
        max_initial_drop=None,
        max_new_tokens=4,
        out=out,
        # The run says that it is of another model.
        allow_mismatch=True,
    )
    printed = io.StringIO()
    found = sweep(config, Console(file=printed, width=120), loaded)
    return found, printed.getvalue().splitlines(), config


def test_a_vector_that_undoes_the_harm_is_above_all_its_controls(
    whole: LoadedModel, harmed: LoadedModel, planted: Callable[..., Path], tmp_path: Path
) -> None:
    found, lines, config = swept(planted(*HARMED), harmed, tmp_path / "sweep", 20)
    assert found.control_rank is not None
    items = Questions(config).items("test")
    replies = SteeredModel(whole).generate([Prompt(item.text) for item in items], 4)
    own = found.test[found.test["point"] == found.chosen.name].set_index("item_id")["reply"]
    assert [own[item.item_id] for item in items] == replies
    right = [item.key[0] in reply for item, reply in zip(items, replies, strict=True)]
    pairs = [tb and fb for tb, fb in zip(right[::2], right[1::2], strict=True)]
    assert sum(pairs) > 0
    assert "rank 1 of 41, above all its controls" in lines
    (line,) = [line for line in lines if line.startswith("Both, less")]
    assert line.split("baseline's: ")[1].startswith(f"{100 * sum(pairs) / STORIES:.1f} ")
    # Reality, too, is told only when the harm is undone.
    (line,) = [line for line in lines if line.startswith("cost: reality ")]
    assert float(line.removeprefix("cost: reality ").split()[0]) < -50


def test_a_vector_elsewhere_is_not_specific(
    harmed: LoadedModel,
    planted: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(SteeringError, match="nothing to choose"):
        swept(planted(*ELSEWHERE), harmed, tmp_path / "sweep", 4)
    assert not list((tmp_path / "sweep").glob("*/vector.safetensors"))
    table = pd.read_parquet(tmp_path / "sweep" / "sweep.parquet")
    assert (table.loc[table["measure"] == "Both", "value"] == 0).all()
    monkeypatch.setattr("sally_anne.steering.points.Measure.nothing_to_choose", lambda *_: "")
    found, lines, _ = swept(planted(*ELSEWHERE), harmed, tmp_path / "sweep", 4)
    assert found.control_rank is not None and not found.control_rank["beats_controls"]
    verdict = "not specific: random controls with steps of the same length do as well"
    assert f"rank 9 of 9, {verdict}" in lines
    assert not any("above all its controls" in line for line in lines)


PLANTED = (-1, 3)


@pytest.fixture(scope="module")
def paired_run(whole: LoadedModel, write: Callable[..., Made], tmp_path_factory) -> Path:
    """A run on pairs of which one head tells the label, along what adds to its answer's logit."""
    file = tmp_path_factory.mktemp("own") / "pairs.jsonl"
    numbers = {"train": range(8), "validation": range(8, 11), "test": range(11, 14)}
    rows = [
        {"item_id": f"{n}-{room}", "text": f"the red agent goes into the {room} room {1 + n % 3} ."}
        | {"labels": {"blue": room == "blue"}, "answer": room, "split": split}
        | dict.fromkeys(("group", "pair"), str(n))
        for split, own in numbers.items()
        for n in own
        for room in ("green", "blue")
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    items = pd.DataFrame(rows).assign(blue=[row["labels"]["blue"] for row in rows])
    ids = [whole.processor.tokenizer.convert_tokens_to_ids(word) for word in ("blue", "green")]
    steps = logit_directions(whole.model, (ids[0], ids[1])).numpy()
    x = np.random.default_rng(4).normal(size=(len(rows), *steps.shape)) / 10
    step = steps[PLANTED] / np.linalg.norm(steps[PLANTED])
    x[:, PLANTED[0], PLANTED[1]] += items["blue"].to_numpy()[:, None] * step
    kept = items[["item_id", "group", "split", "blue"]]
    folder = write(x.astype("f4"), kept, labels=("blue",), samples=file, setting="text").folder
    config = json.loads((folder / "config.json").read_text())
    config["data"]["fingerprint"] = open_task(ProbeConfig(samples=file, setting="text")).fingerprint
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_sweep_on_pairs_finds_the_planted_head(
    whole: LoadedModel, paired_run: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"k": (1,), "alpha": (-9.0, 9.0), "max_text_drop": 50.0}
    config = SweepConfig(run=paired_run, out=tmp_path / "sweep", allow_mismatch=True, **options)
    config = of_run(config, Run.open(paired_run))
    found = sweep(config, Console(quiet=True), whole)
    vector = SteeringVector.load(found.vector)
    n_layers = find_geometry(whole.skeleton).n_layers
    assert vector.heads == ((n_layers - 1, PLANTED[1]),) and found.chosen.alpha == 9.0
    rank = found.control_rank
    assert rank is not None and rank["kinds"]["random"]["high"] < rank["gain"]
    # One prompt after the other, by the harness.
    (data, (blue, green)) = Pairs(config), (whole.processor.tokenizer("blue green").input_ids[-2:])
    for point, steered in ((BASELINE, None), (found.chosen, vector)):
        texts = [Prompt(s.turns[0]["content"]) for i in data.items("test") for s in i.pair.samples]
        read = SteeredModel(whole, steered).log_probs_along(texts, [[blue]] * len(texts))
        expected = np.mean([float(one[0, blue] - one[0, green]) for one in read])
        assert found.measure.of(rows_of(found.test, point))["towards"].value == pytest.approx(
            expected, abs=1e-4
        )
    # A baseline among steered readings keeps its bits.
    side = data.items("test")[0]
    parts = [torch.stack([torch.zeros_like(vector.delta()), vector.delta()])]
    plain = torch.stack([p.logit_diffs(2)[0, 0] for p in read_pair(whole, side.pair, side.reply)])
    assert read_side(whole, side, parts, "head_out")[0].equal(plain)
    # What is cut off is read again, to the byte.
    files = sorted(p for p in config.folder.iterdir() if p.suffix in (".jsonl", ".parquet"))
    whole_bytes = {path: path.read_bytes() for path in files}
    for path in files[:-1]:
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:4]))
    sweep(config, Console(quiet=True), whole)
    assert {path: path.read_bytes() for path in files} == whole_bytes


def test_patched_means_are_of_what_patching_exchanges(
    whole: LoadedModel, paired_run: Path, tmp_path: Path
) -> None:
    x = read_patched(reopen(paired_run), "blue", Console(quiet=True), whole, tmp_path)
    unread: Any = SimpleNamespace(identity=whole.identity)
    again = read_patched(reopen(paired_run), "blue", Console(quiet=True), unread, tmp_path)
    assert np.array_equal(again.x, x.x) and again.items["blue"].equals(x.items["blue"])
    pairs = own_pairs(reopen(paired_run).data.samples).choose("train", 99)
    heads = [torch.cat([p.heads for p in read_pair(whole, pair, True)]) for pair in pairs]
    np.testing.assert_allclose(x.x, torch.cat(heads).numpy(), atol=1e-5)
    step = np.where(x.values("blue")[:, None, None, None], x.x, -x.x).mean(0) * 2
    vector = fit_vector(paired_run, 1, direction="patched_mean", patched=x)
    found = vector.theta[0].numpy() * np.linalg.norm(step[vector.heads[0]])
    np.testing.assert_allclose(found, step[vector.heads[0]], atol=1e-6)


def test_statements_on_beliefs_are_swept_by_either_label(tmp_path: Path) -> None:
    lines = official_data("made", "mmtom_qa", "questions.json").read_text().splitlines()
    records = [json.loads(line) | {"episode": n} for line in lines for n in range(9)]
    (tmp_path / "questions.json").write_text("\n".join(map(json.dumps, records)))
    told: dict[str, Any] = {"data": tmp_path, "setting": "text"}
    for label, (task, more, (yes, no)) in product(
        ("y_p", "y_o"), (("beliefs", {"limit": 8}, ("true", "false")), ("mmtom_qa", told, VERDICT))
    ):
        config = SweepConfig(task=task, label=label, out=tmp_path / task / label, **more)
        for side in Pairs(config).items("test"):
            true = [sample.labels[label] for sample in side.pair.samples]
            assert side.pair.answers == tuple(yes if one else no for one in true)
            assert sorted(true) == [False, True] and side.sign == (1 if true[0] else -1)


def test_what_has_no_pairs_is_refused_at_once(tmp_path: Path) -> None:
    file = tmp_path / "single.jsonl"
    rows = [{"text": f"red {n}", "labels": {"a": n % 2 == 0}, "group": str(n)} for n in range(9)]
    file.write_text("\n".join(map(json.dumps, rows)))
    for wrong in ({"samples": file}, {"task": "ioi", "parser": "official"}, {"max_other_drop": 1}):
        with pytest.raises(SteeringError):
            sweep(SweepConfig(model="nowhere", out=tmp_path / "s", **wrong), Console(quiet=True))
