"""The two commands: what they are asked is kept, and what they cannot write is said at once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sally_anne.core.errors import OptionError
from sally_anne.core.options import read_options
from sally_anne.experiments.train_tiny import stages
from sally_anne.experiments.train_tiny.config import EvaluateConfig, TrainConfig
from sally_anne.experiments.train_tiny.evaluate import run


def test_a_training_can_be_repeated_by_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(stages, "train", stop)
    config = TrainConfig("qwen2-vl", out=tmp_path, mixing_steps=3)
    with pytest.raises(KeyboardInterrupt):
        stages.train_family(config)
    words = ["--config", str(tmp_path / "qwen2-vl")]
    assert read_options(TrainConfig, "sally-anne train-tiny", words) == config


@pytest.mark.parametrize("option", ["out", "card"])
def test_a_missing_folder_is_named_before_anything_is_measured(tmp_path: Path, option: str) -> None:
    with pytest.raises(OptionError, match=f"there is no folder {tmp_path / 'none'}"):
        run(EvaluateConfig(**{option: tmp_path / "none" / "file"}))


def test_a_card_of_another_family_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = SimpleNamespace(family=SimpleNamespace(name="llama"))
    monkeypatch.setattr(
        "sally_anne.experiments.train_tiny.evaluate.load_model", lambda name: opened
    )
    with pytest.raises(OptionError, match="--card is for qwen2-vl and .*, mine is llama"):
        run(EvaluateConfig("mine", card=tmp_path / "card.md"))
