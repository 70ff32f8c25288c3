"""Options of models: refused in one line before anything is made, used, and recorded."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from sally_anne.core.errors import HarnessError, ModelError
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.evaluate import evaluate
from sally_anne.models.loading import load_model
from sally_anne.models.options import ModelOptions
from sally_anne.models.tiny import Family
from sally_anne.probing.config import ProbeConfig
from sally_anne.probing.pipeline import run as probe
from sally_anne.steering.config import SweepConfig
from sally_anne.steering.sweep import run as sweep

pytestmark = pytest.mark.integration

COMMANDS: list[tuple[Callable[[Any], object], type[ModelOptions]]] = [
    (probe, ProbeConfig),
    (evaluate, EvalConfig),
    (sweep, SweepConfig),
]


def _reached(*args: Any, **options: Any) -> None:
    pytest.fail("the hub was asked")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without GPU, bitsandbytes and flash-attention, and out of the hub's reach."""
    find = importlib.util.find_spec
    missing = ("bitsandbytes", "flash_attn", "flash_attn_interface")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in missing else find(name)
    )
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", _reached)


@pytest.mark.parametrize(("run", "kind"), COMMANDS)
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"device_map": "cuda:99"}, "device 'cuda:99' cannot be used here.*--device cpu"),
        ({"device": "cpu", "device_map": "auto"}, "--device cpu and --device-map auto both say"),
        (
            {"model": "gemma3", "setting": "multimodal"},
            "'gemma3' takes no videos: run it with --setting text",
        ),
    ],
)
@pytest.mark.usefixtures("bare")
def test_refused_before_anything_is_made(run, kind, options, said, tmp_path) -> None:
    config = kind(**{"model": "qwen2-vl", "out": tmp_path / "run"} | options)
    with pytest.raises(ModelError, match=said) as caught:
        run(config)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_attention_is_the_one_asked_for(folders: dict[Family, Path]) -> None:
    plain = load_model(str(folders["qwen2-vl"]), device_map="cpu")
    eager = load_model(str(folders["qwen2-vl"]), device_map="cpu", attn_implementation="eager")
    assert (plain.attention, plain.changes) == ("sdpa", {})
    assert (eager.attention, eager.changes) == ("eager", {"attn_implementation": "eager"})
    assert eager.model.config.get_text_config()._attn_implementation == "eager"


def test_quantization_reaches_bitsandbytes(folders, monkeypatch) -> None:
    """No more than that: it is not installed here."""
    asked: dict[str, Any] = {}

    def from_pretrained(*args: Any, **options: Any) -> None:
        asked.update(options)
        raise OSError("far enough")

    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    loaded = load_model(str(folders["qwen2-vl"]), quantization="8bit")
    kind = getattr(transformers, loaded.family.class_name)
    monkeypatch.setattr(kind, "from_pretrained", from_pretrained)
    with pytest.raises(ModelError, match="far enough"):
        _ = loaded.model
    assert asked["quantization_config"].load_in_8bit
    assert loaded.changes == {"quantization": "8bit"}


def test_options_are_part_of_what_a_run_is(folders: dict[Family, Path], tmp_path: Path) -> None:
    how: Any = {"setting": "text", "attn_implementation": "eager", "max_pixels": 4096}
    where: Any = {"model": str(folders["qwen2-vl"]), "out": tmp_path / "asked", "device": "cpu"}
    config = EvalConfig(limit=1, **how, **where)
    evaluate(config)
    about = json.loads((config.folder / "results.json").read_text())["about"]
    assert (about["attn_implementation"], about["max_new_tokens"]) == ("eager", 16)
    assert about["max_pixels"] == "4096"
    with pytest.raises(HarnessError, match="attn_implementation"):
        evaluate(replace(config, attn_implementation=None))
    with pytest.raises(HarnessError, match="max_pixels is '4096' there, None here"):
        evaluate(replace(config, max_pixels=None))
