"""The rehearsal at a tiny size: the same commands, frames and tokens as at full size."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from bench.errors import PerfError
from bench.rehearsal import TINY, RehearsalConfig, run
from bench.untrained import save_published
from sally_anne.models.loading import load_model
from sally_anne.models.prompts import open_prompt, process
from sally_anne.models.published import open_published

pytestmark = pytest.mark.integration


def test_every_step_stands_beside_what_was_said_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(RehearsalConfig(out=tmp_path / "out", size="tiny", items=2, threads=1))
    saved = json.loads((tmp_path / "out" / "results.json").read_text())
    steps = saved["steps"]
    assert list(steps) == [
        "sally_anne.probing.run",
        "sally_anne.steering.sweep",
        "sally_anne.harness.run",
    ]
    assert steps["sally_anne.probing.run"]["said"]["samples N"] == 4 * 8
    # Two contexts a story, of 600 tokens of frames each, and a text.
    assert steps["sally_anne.probing.run"]["said"]["tokens read"] > 2 * 8 * 800
    assert steps["sally_anne.steering.sweep"]["said"]["cells"] == 3
    assert steps["sally_anne.harness.run"]["said"]["items"] == 2
    said, found = (steps["sally_anne.probing.run"][key] for key in ("disk said", "disk"))
    assert said == 32 * TINY.layers * TINY.heads * TINY.width * 2
    assert 0 < found - said < 1024  # the header of the one shard
    assert all(step["seconds"] > 0 and step["peak"] > 0 for step in steps.values())
    table = (tmp_path / "out" / "table.md").read_text()
    assert table.splitlines()[0] in capsys.readouterr().out
    for name, step in steps.items():
        assert f"| {name} | {step['said']['tokens read']:,.0f} |" in table


def test_a_made_checkpoint_is_the_published_one_but_for_its_size(tmp_path: Path) -> None:
    made = load_model(str(save_published(tmp_path / "model", "qwen2-vl-2b", TINY)))
    published = open_published("qwen2-vl-2b")
    assert made.dtype == published.dtype == "bfloat16"
    assert made.model.dtype == torch.bfloat16
    assert made.config.get_text_config().vocab_size == 151_936
    for part in ("image_processor", "video_processor"):
        ours, theirs = (getattr(m.processor, part).to_dict() for m in (made, published))
        assert ours == theirs
    prompt = open_prompt(made, "Where is the blue agent?", video=True)
    inputs = process(made, [prompt], [np.zeros((7, 420, 294, 3), dtype=np.uint8)])
    assert (inputs["input_ids"] == made.config.video_token_id).sum() == 600
    assert all(bool(p.isfinite().all()) for p in made.model.parameters())


def test_what_cannot_be_rehearsed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PerfError, match="takes a Qwen2-VL"):
        save_published(tmp_path, "llama3")
    with pytest.raises(PerfError, match="--stories must be at least 8"):
        run(RehearsalConfig(out=tmp_path / "out", stories=3))
    monkeypatch.setattr("sally_anne.hooks.batch_size.free_memory", lambda device: 1 << 30)
    with pytest.raises(PerfError, match=r"qwen2-vl-2b needs 6.63 GB of memory, 1.07 GB are free"):
        run(RehearsalConfig(out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()
