"""The two commands: what they are asked is kept, and what they cannot write is said at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sally_anne.core.options import read_options
from sally_anne.experiments.config import TrainConfig
from sally_anne.experiments.train_tiny import stages


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
