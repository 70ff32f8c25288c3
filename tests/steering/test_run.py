"""The vector command: K and alpha come from a sweep or from the user, never from nowhere."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from sally_anne.cli import main
from sally_anne.core.errors import ProbingError, SteeringError
from sally_anne.hooks.vector import SteeringVector
from sally_anne.steering.fit import fit_vector
from sally_anne.steering.make import VectorConfig, run

pytestmark = pytest.mark.integration


@pytest.fixture
def swept(made, tmp_path: Path) -> Callable[..., Path]:
    """``swept(**changes)``: what a sweep of the run leaves, with parts of it changed."""

    def write(**changes: Any) -> Path:
        saved = {
            "config": {"direction": "logistic", "label": "y_p"},
            "about": {"fitted": dict(fit_vector(made.folder, 1).fitted)},
            "chosen": {"k": 3, "alpha": 2.5},
            "run": str(made.folder),
        }
        folder = tmp_path / "sweep"
        folder.mkdir(exist_ok=True)
        (folder / "results.json").write_text(json.dumps(saved | changes))
        return folder

    return write


@pytest.mark.parametrize(
    ("words", "k", "alpha"),
    [
        ((), 3, 2.5),
        (("--K", "2"), 2, 2.5),
        (("--alpha", "-1.5"), 3, -1.5),
        (("--run", "RUN", "--K", "5", "--alpha", "7"), 5, 7.0),
    ],
)
def test_the_sweep_gives_what_is_left_out(
    made,
    swept: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    k: int,
    alpha: float,
) -> None:
    given = [str(made.folder) if word == "RUN" else word for word in words]
    arguments = [
        "steer",
        "--sweep",
        str(swept()),
        *given,
        "--out",
        str(tmp_path / "v"),
    ]
    main(arguments)
    assert capsys.readouterr().out == f"the vector is in {tmp_path / 'v'}\n"
    vector, unit = SteeringVector.load(tmp_path / "v"), fit_vector(made.folder, k)
    assert (vector.k, vector.alpha, unit.alpha) == (k, alpha, 1.0)
    assert vector.heads == unit.heads
    assert torch.equal(vector.delta(), unit.delta(alpha))


def test_the_folder_is_named_after_what_was_settled(swept, copy) -> None:
    run(VectorConfig(sweep=swept(run=str(copy.folder))))
    folder = copy.folder / "vectors" / "logistic-y_p-K3-alpha2.5"
    assert SteeringVector.load(folder).alpha == 2.5


@pytest.mark.parametrize(
    ("options", "named"),
    [({}, "--K and --alpha: "), ({"k": 3}, "--alpha: "), ({"alpha": 1.0}, "--K: ")],
)
def test_without_a_sweep_the_commands_that_choose_are_told(
    made, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(SteeringError, match=f"^{named}") as caught:
        run(VectorConfig(run=made.folder, label="y_o", **options))
    sweep, vector = (shlex.split(line) for line in str(caught.value).splitlines()[1:])
    assert sweep == [
        *("sally-anne", "sweep", "--model", "tiny", "--label", "y_o"),
        *("--run", str(made.folder)),
    ]
    assert vector[:3] == ["sally-anne", "steer", "--sweep"]
    assert vector[3] == "runs/sweep/tiny-order1-multimodal-logistic-labely_o"
    given = [word for o, v in options.items() for word in ("--K" if o == "k" else f"--{o}", str(v))]
    assert sorted(vector[4:]) == sorted([*given, "--label", "y_o"])


@pytest.mark.parametrize(
    ("own", "task"), [({"samples": "mine.jsonl"}, "FILE"), ({"task": "mmtom_qa"}, "mmtom_qa")]
)
def test_what_no_sweep_asks_is_compared_by_hand(again, own: dict[str, str], task: str) -> None:
    folder = again(lambda x, items: None, **own).folder
    with pytest.raises(SteeringError, match=f"by `sally-anne evaluate --task {task} --steer`") as e:
        run(VectorConfig(run=folder))
    assert "sally-anne sweep" not in str(e.value)


def test_label_and_value_are_the_sweeps(made, swept, tmp_path: Path) -> None:
    options = {"direction": "logistic", "label": "y_o", "towards": "False"}
    fitted = fit_vector(made.folder, 1, label="y_o", towards="False").fitted
    sweep = swept(config=options, about={"fitted": dict(fitted)})
    run(VectorConfig(sweep=sweep, out=tmp_path / "v"))
    vector, ours = SteeringVector.load(tmp_path / "v"), fit_vector(made.folder, 3, label="y_o")
    assert torch.equal(vector.theta, -ours.theta)
    with pytest.raises(SteeringError, match="chose --towards False, not True"):
        run(VectorConfig(sweep=sweep, towards="True", out=tmp_path / "w"))


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"config": {"direction": "pca", "label": "y_p"}}, {}, "chose --direction pca, not logis"),
        ({}, {"label": "y_o"}, "chose --label y_p, not y_o"),
        (
            {"chosen": {"k": 3, "alpha": 1.0, "heads": "cause"}},
            {"heads": "probe"},
            "cause, not pro",
        ),
        ({"run": None}, {}, "does not say which probing run"),
        ({"chosen": {"k": 3}}, {}, "results.json is damaged .*'chosen' lacks 'alpha'"),
        ({"about": {"fitted": {"data_hash": "xyz"}}}, {}, "data_hash is 'xyz' there, 'abc' here"),
        ({}, {"k": 13}, "K = 13: the model has 3 x 4 = 12 heads"),
    ],
)
def test_what_does_not_belong_together_is_refused(
    made, swept, tmp_path: Path, changes: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    config = VectorConfig(sweep=swept(**changes), out=tmp_path / "v", **options)
    with pytest.raises((SteeringError, ProbingError), match=message):
        run(config)
    assert not (tmp_path / "v").exists()


def test_a_sweep_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SteeringError, match="results.json is missing; `sally-anne sweep`"):
        run(VectorConfig(sweep=tmp_path))
    (tmp_path / "results.json").write_text("{")
    with pytest.raises(SteeringError, match="results.json is damaged"):
        run(VectorConfig(sweep=tmp_path))
    with pytest.raises(SteeringError, match="give a finished sweep with --sweep"):
        run(VectorConfig())
