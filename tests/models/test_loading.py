"""Opening models by name, folder and hub id, and what is said when that fails."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import ViTConfig

from sally_anne.core.errors import HarnessError, ModelError, OptionError, SallyAnneError
from sally_anne.core.files import LFS
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.evaluate import evaluate
from sally_anne.hooks.geometry import find_geometry, o_projs, w_o
from sally_anne.models.check import checked
from sally_anne.models.estimate import row_bytes_by_device
from sally_anne.models.loading import load_model
from sally_anne.models.options import CATALOGUE, ModelOptions
from sally_anne.models.prompts import encode, reply_prompt
from sally_anne.models.tiny import FAMILIES, Family, deepen
from sally_anne.probing.config import ProbeConfig
from sally_anne.probing.pipeline import run as probe
from sally_anne.steering.config import SweepConfig
from sally_anne.steering.sweep import run as sweep

pytestmark = pytest.mark.integration

WEIGHTS = "model.safetensors"


def rewrite(path: Path, change) -> None:
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def test_check_says_what_is_captured_and_whether_heads_add_up(copy) -> None:
    loaded = load_model(str(copy()), dtype="float32")
    geometry = find_geometry(loaded.model)
    found = checked(loaded)
    shape = geometry.n_layers, geometry.n_heads, geometry.head_dim
    assert found["heads"].startswith("{} layers x {} heads x {},".format(*shape))
    assert geometry.o_proj_names[-1] in found["captured"]
    assert found["a step of 0"] == "changes no bit" and "nothing" not in found["a step of 1"]
    off = re.compile(r"within (\S+) of it")
    assert float(off.search(found["heads add up"])[1]) < 1e-5
    module = o_projs(loaded.model)[1]
    module.register_forward_hook(lambda module, args, out: 1.5 * out)
    # What stands between W_o and the stream is a third of what comes out.
    assert float(off.search(checked(loaded)["heads add up"])[1]) == pytest.approx(1 / 3, rel=0.1)


def test_dtype_is_the_checkpoints_or_the_one_asked_for(copy) -> None:
    folder = copy()
    assert load_model(str(folder)).dtype == "float32"
    for dtype in ("float32", "bfloat16", "float16"):
        loaded = load_model(str(folder), dtype=dtype)
        assert str(loaded.model.dtype) == f"torch.{dtype}"
    config = json.loads((folder / "config.json").read_text())
    config.pop("dtype", None)
    # Checkpoints of 2024 have the older name of the field.
    (folder / "config.json").write_text(json.dumps({**config, "torch_dtype": "bfloat16"}))
    assert load_model(str(folder)).dtype == "bfloat16"
    # Some have it in the part for texts alone, others nowhere but in the weights.
    config["text_config"]["dtype"] = "bfloat16"
    (folder / "config.json").write_text(json.dumps(config))
    assert str(load_model(folder).model.dtype) == "torch.bfloat16"
    del config["text_config"]["dtype"]
    (folder / "config.json").write_text(json.dumps(config))
    rewrite(folder / WEIGHTS, lambda t: t.update({n: w.half() for n, w in t.items()}))
    assert load_model(folder).dtype == "float16"


def test_revision_follows_the_weights(copy) -> None:
    folder = copy()
    before = load_model(str(folder)).revision
    assert load_model(str(folder)).revision == before

    def nudge(tensors) -> None:
        last = sorted(tensors)[-1]
        tensors[last].view(-1)[-1] += 1e-3

    rewrite(folder / WEIGHTS, nudge)
    assert load_model(str(folder)).revision != before


def test_processor_hash_follows_the_settings(fresh) -> None:
    other = load_model(fresh.name)
    other.processor.video_processor.image_mean = [0.0, 0.0, 0.0]
    assert other.processor_hash != fresh.processor_hash


@pytest.mark.parametrize(
    ("options", "named"),
    [
        *(({"name": n}, n) for n in ("no-such-model", "/no/folder", "./folder", "~/folder")),
        ({"name": "nobody/no-such-model"}, "nobody/no-such-model"),
        ({"name": "tests"}, "config.json"),
    ],
)
def test_what_cannot_be_opened_is_named(monkeypatch, options, named: str) -> None:
    with pytest.raises(OptionError, match="int8"):
        load_model(dtype="int8")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match=named):
        load_model(**options)


def test_a_type_that_transformers_does_not_open_with_words(tmp_path) -> None:
    ViTConfig().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="is of type 'vit', which transformers opens neither"):
        load_model(str(tmp_path))


@pytest.mark.parametrize(
    ("method", "named"),
    [
        ({"quant_method": "awq", "bits": 4}, "gptqmodel"),
        ({"quant_method": "gptq", "bits": 4}, "optimum"),
        ({"quant_method": "compressed-tensors"}, "compressed-tensors"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes"),
        ({"quant_method": "home-made"}, "home-made"),
        ({"quant_algo": "FP8"}, "no method"),
    ],
)
def test_stored_quantised_the_library_is_named_at_once(copy, method, named) -> None:
    folder = copy()
    config = json.loads((folder / "config.json").read_text()) | {"quantization_config": method}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=f"stored quantised.*{named}"):
        load_model(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", WEIGHTS])
def test_a_pointer_is_no_file(copy, name: str) -> None:
    folder = copy()
    (folder / name).write_bytes(LFS + b".github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(ModelError, match=f"{name} is a pointer"):
        load_model(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", WEIGHTS])
@pytest.mark.parametrize("kept", [0, 4, 200])
def test_a_file_that_is_cut_short_is_named(copy, name: str, kept: int) -> None:
    folder = copy()
    (folder / name).write_bytes((folder / name).read_bytes()[:kept])
    with pytest.raises(ModelError, match=f"{name} is damaged"):
        load_model(str(folder))


def test_missing_and_misshapen_weights_are_refused(copy) -> None:
    for family, change, said in (
        ("qwen2-vl", lambda t, n: t.pop(n), "1 missing keys"),
        ("llava-next-video", lambda t, n: t.update({n: t[n][:-1].clone()}), "1 mismatched keys"),
    ):
        folder = copy(family)
        name = next(
            n for n in load_file(folder / WEIGHTS) if n.endswith("3.self_attn.o_proj.weight")
        )
        rewrite(folder / WEIGHTS, lambda t, n=name, c=change: c(t, n))
        loaded = load_model(str(folder))
        with pytest.raises(ModelError, match=f"{said}, the first is .*o_proj.weight"):
            _ = loaded.model


def test_pickled_weights_are_not_opened(copy, monkeypatch) -> None:
    folder = copy()
    torch.save(load_file(folder / WEIGHTS), folder / "pytorch_model.bin")
    (folder / WEIGHTS).unlink()
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("a pickle was opened"))
    loaded = load_model(str(folder))
    with pytest.raises(ModelError, match="safetensors"):
        _ = loaded.model


def test_code_that_comes_with_a_model_is_not_run(tmp_path) -> None:
    (tmp_path / "code.py").write_text("raise SystemExit('the code was run')\n")
    config = {"model_type": "home-made", "auto_map": {"AutoConfig": "code.Config"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="its files cannot be read"):
        load_model(str(tmp_path))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_deeper_model_is_the_same_function(folders: dict[Family, Path], family: Family) -> None:
    shallow = load_model(str(folders[family])).model
    deeper = deepen(shallow, 9)
    assert find_geometry(deeper).n_layers == 9
    ids = torch.randint(20, 200, (2, 12))
    with torch.inference_mode():
        assert torch.equal(deeper(input_ids=ids).logits, shallow(input_ids=ids).logits)


SOURCE = Path(CATALOGUE["tiny-qwen2-vl"].source)
FILES = ("config.json", "processor_config.json", "tokenizer.json", "tokenizer_config.json")
FILES += ("generation_config.json", "chat_template.jinja", "model.safetensors")
CONTENTS: dict[str, bytes | None] = {
    "empty": b"",
    "text": b"hello",
    "object": b"{}",
    "list": b"[]",
    "bytes": b"\xff\xfe\x00" * 50,
    "folder": None,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "model"
    made.mkdir()
    for name in FILES:
        shutil.copy(SOURCE / name, made / name)
    return made


def ends_plainly(folder: Path) -> str | None:
    """What is said, None if all goes well (not every file is needed)."""
    try:
        loaded = load_model(str(folder))
        find_geometry(loaded.skeleton)
        assert loaded.processor_hash
        loaded.model(**encode(loaded, [reply_prompt(loaded, "Where is Ann?", False)], None))
    except SallyAnneError as error:
        return str(error)
    return None


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_replaced(folder, name, content) -> None:
    (folder / name).unlink()
    data = CONTENTS[content]
    (folder / name).mkdir() if data is None else (folder / name).write_bytes(data)
    said = ends_plainly(folder)
    assert said is None or str(folder) in said
    if name in ("config.json", "model.safetensors", "tokenizer.json"):
        assert said is not None


@pytest.mark.parametrize("template", ["{% for x in %}", "{{ 1 / 0 }}", "{{ messages[7].role.x }}"])
def test_a_template_that_cannot_be_used(folder, template) -> None:
    (folder / "chat_template.jinja").write_text(template)
    said = ends_plainly(folder)
    assert said is not None and "chat template cannot be used" in said and str(folder) in said


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
            {"model": "llama3", "setting": "multimodal"},
            "'llama3' takes no videos: run it with --setting text",
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


class Packed(nn.Module):
    """A linear layer of bytes, with a scale for each row, as quantised layers are."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach()
        self.in_features, self.out_features = weight.T.shape
        self.register_buffer("scale", weight.abs().amax(1, keepdim=True) / 127)
        self.register_buffer("bytes", (weight / self.scale).round().to(torch.int8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ (self.bytes * self.scale).T


def test_w_o_of_a_quantised_layer_is_what_it_makes_of_unit_vectors() -> None:
    loaded = load_model("tiny-qwen2-vl-text", device_map="cpu")
    for name in find_geometry(loaded.model).o_proj_names:
        loaded.model.set_submodule(name, Packed(loaded.model.get_submodule(name)))
    for module in o_projs(loaded.model):
        assert torch.equal(w_o(module, torch.float32), module.bytes * module.scale)
    found = checked(loaded)
    assert float(found["heads add up"].split()[-3]) < 1e-5
    assert found["a step of 0"] == "changes no bit"
    assert [*row_bytes_by_device(loaded.model, 1)] == [torch.device("cpu")]


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
