"""Every command that writes into a folder leaves a folder that is not its own alone."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sally_anne.core import run_folder
from sally_anne.core.errors import FolderError
from sally_anne.core.run_folder import EVALUATION, claimed

pytestmark = pytest.mark.integration

NOWHERE = Path("no-such-thing")
# Module, function and config of each command; nothing that they name exists, so that whoever looks
# for it before the folder ends in another error.
COMMANDS: dict[str, tuple[str, str, str, str, dict[str, Any]]] = {
    "probing": (
        "sally_anne.probing.pipeline",
        "run",
        "sally_anne.probing.config",
        "ProbeConfig",
        {},
    ),
    "sweep": (
        "sally_anne.steering.pipeline",
        "run",
        "sally_anne.steering.sweep",
        "SweepConfig",
        {},
    ),
    "vector": (
        "sally_anne.steering.make",
        "run",
        "sally_anne.steering.make",
        "VectorConfig",
        {"run": NOWHERE, "k": 1, "alpha": 1.0},
    ),
    "side effects": (
        *(
            "sally_anne.steering.measuring",
            "measure",
            "sally_anne.steering.side_effects",
            "SideEffectsConfig",
        ),
        {"vector": NOWHERE},
    ),
    "bake": (
        "sally_anne.steering.bake",
        "run",
        "sally_anne.steering.bake",
        "BakeConfig",
        {"vector": NOWHERE},
    ),
    "LIMP": (
        "sally_anne.harness.limp.pipeline",
        "run",
        "sally_anne.harness.limp.command",
        "LimpConfig",
        {},
    ),
    "BIP-ALM": (
        *("sally_anne.harness.bip_alm.pipeline", "run"),
        *("sally_anne.harness.bip_alm.command", "BipAlmConfig", {}),
    ),
    "distractors": (
        *("sally_anne.harness.distractors_run", "run"),
        *("sally_anne.harness.distractors", "DistractorConfig"),
        {},
    ),
    "copilot": (
        *("sally_anne.harness.copilot_run", "run"),
        *("sally_anne.harness.copilot", "CopilotConfig"),
        {},
    ),
    "films": (
        *("sally_anne.harness.films_run", "run"),
        *("sally_anne.harness.films", "FilmsConfig"),
        {},
    ),
    "transcripts": (
        *("sally_anne.data.transcribe_run", "run"),
        *("sally_anne.data.transcribe", "TranscribeConfig"),
        {"whisper": "nowhere"},
    ),
    "build": (
        "sally_anne.data.gridtom.build",
        "build",
        "sally_anne.data.gridtom.build",
        "BuildConfig",
        {},
    ),
    "table 1": (
        "sally_anne.experiments.table1",
        "run",
        "sally_anne.experiments.table1",
        "Table1Config",
        {},
    ),
    "transfer": (
        *(
            "sally_anne.experiments.transfer",
            "run",
            "sally_anne.experiments.transfer",
            "TransferConfig",
        ),
        {"runs": (NOWHERE, NOWHERE)},
    ),
    "planting": (
        *("sally_anne.experiments.localisation.plant", "run"),
        *("sally_anne.experiments.localisation.plant", "PlantConfig", {}),
    ),
    "localisation": (
        *("sally_anne.experiments.localisation.bench", "run"),
        *(
            "sally_anne.experiments.localisation.config",
            "LocalisationConfig",
            {"models": (NOWHERE,)},
        ),
    ),
    "training": (
        *("sally_anne.experiments.train_tiny.stages", "train_family"),
        *("sally_anne.experiments.train_tiny.config", "TrainConfig"),
        {"family": "qwen2-vl"},
    ),
    "evaluation": (
        "sally_anne.harness.pipeline",
        "run",
        "sally_anne.harness.config",
        "EvalConfig",
        {},
    ),
}

KINDS = {
    "probing": run_folder.PROBING,
    "sweep": run_folder.SWEEP,
    "side effects": run_folder.SIDE_EFFECTS,
    "LIMP": run_folder.LIMP,
    "BIP-ALM": run_folder.BIP_ALM,
    "distractors": run_folder.DISTRACTORS,
    "copilot": run_folder.COPILOT,
    "films": run_folder.FILMS,
    "transcripts": run_folder.TRANSCRIPTS,
    "build": run_folder.BUILD,
    "table 1": run_folder.TABLE1,
    "transfer": run_folder.TRANSFER,
    "planting": run_folder.PLANTING,
    "localisation": run_folder.LOCALISATION,
    "training": run_folder.TRAINING,
    "evaluation": run_folder.EVALUATION,
}


def command(name: str, out: Path) -> Callable[[], object]:
    """The command, with ``out`` for its folder."""
    module, function, of, config_type, given = COMMANDS[name]
    run = getattr(importlib.import_module(module), function)
    kind = getattr(importlib.import_module(of), config_type)
    options: dict[str, Any] = {"out": out, **given}
    if name == "build":
        options |= {"stories": 1, "metadata_only": True}
    else:
        options |= {"model": str(NOWHERE)} if "model" in kind.__dataclass_fields__ else {}
        options |= {"data": NOWHERE} if "data" in kind.__dataclass_fields__ else {}
    config = kind(**options)
    return lambda: run(config)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    "files", [["config.json", "model.safetensors", "README.md"], ["thesis.txt"]], ids=str
)
def test_somebody_elses_folder(tmp_path: Path, name: str, files: list[str]) -> None:
    for file in files:
        (tmp_path / file).write_text(f"precious {file}")
    before = contents(tmp_path)
    # A baked model wants a folder of its own, and always has.
    with pytest.raises(
        Exception if name == "bake" else FolderError, match="--out|not an empty folder"
    ) as caught:
        command(name, tmp_path)()
    assert str(tmp_path) in str(caught.value)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"evaluation", "bake"}))
def test_a_finished_evaluation(tmp_path: Path, name: str) -> None:
    out = tmp_path / "eval"
    with claimed(out, EVALUATION):
        for file in ("answers.jsonl", "answers.parquet", "results.json"):
            (out / file).write_text(file)
    before = contents(out)
    with pytest.raises(FolderError, match=r"holds an evaluation \(answers.jsonl, "):
        command(name, out)()
    assert contents(out) == before


@pytest.mark.parametrize("name", KINDS)
def test_a_folder_at_work(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_folder, "_PATIENCE", 0.05)
    out = tmp_path / "run"
    with (
        claimed(out, KINDS[name]),
        pytest.raises(FolderError, match=f"another run is writing to {out}"),
    ):
        command(name, out)()
