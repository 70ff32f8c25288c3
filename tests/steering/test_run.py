"""The vector command: K and alpha come from a sweep or from the user, never from nowhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from sally_anne.cli import main
from sally_anne.core.errors import SteeringError
from sally_anne.hooks.vector import SteeringVector
from sally_anne.steering.fit import VectorConfig, fit_vector, run

pytestmark = pytest.mark.integration


@pytest.fixture
def swept(made, tmp_path: Path) -> Callable[..., Path]:
    """``swept(**changes)``: what a sweep of the run leaves, with parts of it changed."""

    def write(**changes: Any) -> Path:
        saved = {
            "config": {"direction": "logistic", "label": "y_p", "towards": None},
            "about": {"fitted": dict(fit_vector(made.folder, 1).fitted)},
            "chosen": {"k": 3, "alpha": 2.5, "rank_by": "probe_accuracy"},
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


def test_label_and_value_are_the_sweeps(made, swept, tmp_path: Path) -> None:
    options = {"direction": "logistic", "label": "y_o", "towards": "False"}
    fitted = fit_vector(made.folder, 1, label="y_o", towards="False").fitted
    sweep = swept(config=options, about={"fitted": dict(fitted)})
    run(VectorConfig(sweep=sweep, out=tmp_path / "v"))
    vector, ours = SteeringVector.load(tmp_path / "v"), fit_vector(made.folder, 3, label="y_o")
    assert torch.equal(vector.theta, -ours.theta)
    with pytest.raises(SteeringError, match="chose --towards False, not True"):
        run(VectorConfig(sweep=sweep, towards="True", out=tmp_path / "w"))
