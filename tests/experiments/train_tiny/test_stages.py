"""The recipe from its first stage to a folder that loads, a step a level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sally_anne.core.errors import OptionError
from sally_anne.experiments.config import TrainConfig
from sally_anne.experiments.train_tiny import looking, stages, videos
from sally_anne.experiments.train_tiny.trainer import CHECKPOINT, Level, train
from sally_anne.models.loading import load_model
from sally_anne.models.tiny import FAMILIES, Family, build_model, decoder_of

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_of_every_level_ends_in_a_model_that_loads(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: dict[str, list[str]] = {}

    def short(model: Any, levels: Sequence[Level], folder: Path, settings: Any, stage: str) -> None:
        names[stage] = [level.name for level in levels]
        train(model, [replace(level, most=1) for level in levels], folder, settings, stage)

    monkeypatch.setattr(stages, "train", short)
    monkeypatch.setattr(looking, "FILMS", 8)
    monkeypatch.setattr(stages, "STORIES", 4)
    monkeypatch.setattr(videos, "TEXTS", 4)
    finished = stages.train_family(TrainConfig(family, out=tmp_path, threads=1))
    assert list(names) == ["decoder", "looking", "seeing", "mixing"]
    assert names["looking"][0] == "two agents" and names["looking"][-1] == "whole"
    marked = [f"narrated ({share} % marked)" for share in (100, 30, 0)]
    assert names["mixing"] == ["single", "checked", *marked, "mixed"]
    loaded = load_model(str(finished))
    assert loaded.model.config.text_config.num_hidden_layers == stages.DEPTH
    seen = load_file(tmp_path / family / "seeing" / CHECKPOINT)
    looked = load_file(tmp_path / family / "looking" / CHECKPOINT)
    for name, weights in loaded.model.named_parameters():
        key = f"model.model.{name}"
        if "language_model" in name:
            torch.testing.assert_close(seen[key], looked[key], rtol=0, atol=0)
        else:
            torch.testing.assert_close(seen[key], weights, rtol=0, atol=0)
    assert {path.name for path in finished.glob("loss*")} == {
        *(f"loss-{stage}.csv" for stage in names),
    }
    names.clear()
    (tmp_path / "on").mkdir()
    going_on = TrainConfig(family, out=tmp_path / "on", start=str(finished), threads=1)
    gone_on = stages.train_family(going_on)
    assert load_model(str(gone_on))
    # What loading adds to a tokenizer is not kept.
    ours, on = (folder / "tokenizer.json" for folder in (finished, gone_on))
    assert ours.read_bytes() == on.read_bytes()
    assert list(names) == ["looking", "seeing", "mixing"]
    names.clear()
    (tmp_path / "mixed").mkdir()
    nothing = replace(going_on, out=tmp_path / "mixed", looking_steps=0, seeing_steps=0)
    mixed = load_model(str(stages.train_family(nothing))).model
    assert list(names) == ["mixing"]
    for name, weights in mixed.named_parameters():
        same = torch.equal(weights, loaded.model.get_parameter(name))
        assert same == ("language_model" not in name or not weights.any()), name
    names.clear()
    (other,) = set(FAMILIES) - {family}
    (tmp_path / "other").mkdir()
    across = replace(going_on, family=other, out=tmp_path / "other")
    assert load_model(str(stages.train_family(across))).family.name == other
    assert list(names) == ["looking", "seeing", "mixing"]


def test_a_start_of_other_words_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = stages.build_tokenizer()
    tokenizer.add_tokens(["quite", "others"])
    monkeypatch.setattr(stages, "build_tokenizer", lambda: tokenizer)
    wrong = TrainConfig("qwen2-vl", out=tmp_path, start="tiny-qwen2-vl", threads=1)
    with pytest.raises(OptionError, match="tiny-qwen2-vl"):
        stages.train_family(wrong)


def test_a_model_of_the_other_family_lends_its_decoder() -> None:
    lender = load_model("tiny-llava-next-video")
    decoder = decoder_of(lender.model)
    borrower = build_model("qwen2-vl", lender.processor.tokenizer, decoder, 0)
    ids = torch.randint(10, 90, (2, 30), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        needed = lender.model(input_ids=ids).logits
        for model in (decoder, borrower):
            torch.testing.assert_close(model.eval()(input_ids=ids).logits, needed)
