"""What ``--dry-run`` of an evaluation or a sweep says beforehand is what is then read and asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sally_anne.core.errors import SteeringError
from sally_anne.harness import model as asking
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.evaluate import dry_run as evaluation_dry_run
from sally_anne.harness.evaluate import evaluate
from sally_anne.probing.config import ProbeConfig
from sally_anne.probing.pipeline import run as probe
from sally_anne.steering import questions, sweep
from sally_anne.steering.config import SweepConfig
from sally_anne.steering.points import Measure

pytestmark = pytest.mark.integration

QUIET = Console(quiet=True)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Tokens that the model is given, padding aside, pass by pass."""
    seen: list[int] = []
    own_prefill, own_extend = asking.prefill, asking.extend

    def reading(loaded: Any, inputs: Any) -> Any:
        seen.append(int(inputs["attention_mask"].sum()))
        return own_prefill(loaded, inputs)

    def going_on(loaded: Any, state: Any, rows: Any, endings: Any) -> Any:
        seen.append(sum(len(ending) for ending in endings))
        return own_extend(loaded, state, rows, endings)

    monkeypatch.setattr(asking, "prefill", reading)
    for module in (asking, questions):
        monkeypatch.setattr(module, "extend", going_on)
    return seen


def test_an_evaluation_reads_what_was_said(tmp_path: Path, read: list[int]) -> None:
    config = EvalConfig(model="tiny-llava-next-video", limit=3, batch_size=4, out=tmp_path / "run")
    figures = evaluation_dry_run(config, QUIET)
    assert not config.folder.exists() and not read
    with pytest.raises(SteeringError, match="nowhere"):
        evaluation_dry_run(replace(config, steer=tmp_path / "nowhere"), QUIET)
    table = evaluate(config, console=QUIET)
    assert figures["items"].value == len(table) == 6
    assert figures["batches"].value == 2
    assert figures["tokens read"].value == sum(read)
    assert figures["tokens written"].value == len(table) * config.reply_tokens


def test_a_sweep_asks_and_reads_what_was_said(
    tmp_path: Path, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Steering by half a deviation gains nothing on two stories.
    monkeypatch.setattr(Measure, "nothing_to_choose", lambda *_: "")
    probes = ProbeConfig(
        setting="text",
        stories=20,
        figures=False,
        permutations=19,
        patching=False,
        out=tmp_path / "probes",
    )
    probe(probes, QUIET)
    config = SweepConfig(
        setting="text",
        run=probes.folder,
        limit=2,
        k=(2,),
        alpha=(0.0, 0.5),
        # No choice drops so far: the first is taken.
        max_initial_drop=2.0,
        max_reality_drop=2.0,
        random_controls=2,
        batch_size=3,
        decode_batch_size=8,
        out=tmp_path / "sweep",
    )
    figures = sweep.dry_run(config, QUIET)
    assert not config.folder.exists()
    read.clear()
    sweep.run(config, QUIET)
    journals = sorted(config.folder.glob("*.jsonl"))
    answers = sum('"reply"' in line for path in journals for line in path.open())
    assert figures["points"].value == 1 + 3
    assert figures["answers"].value == answers
    assert figures["tokens read"].value == sum(read)
