"""Where a model's files are, and in which form: folders, the hub, GGUF files and LoRA adapters."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import transformers
from safetensors import safe_open
from transformers.integrations.ggml import GGUF_CONFIG_MAPPING
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.quantizers.auto import AutoHfQuantizer
from transformers.utils import find_adapter_config_file

from sally_anne.core import hub
from sally_anne.core.errors import HookError, ModelError, first_line
from sally_anne.core.files import LFS, POINTER, read_object
from sally_anne.core.processes import first_gpu, is_out_of_memory
from sally_anne.hooks.geometry import find_geometry, written
from sally_anne.hooks.identity import GGUF, weight_files
from sally_anne.models import prefix
from sally_anne.models.options import CATALOGUE, DEFAULT_MODEL
from sally_anne.models.prefix import extend
from sally_anne.models.processor import padded
from sally_anne.models.prompts import encode, open_prompt

# The files of an adapter, as peft writes them.
ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
# Adapters that come with the package, by name.
SHIPPED = Path(__file__).parent / "adapters"
# Settings of GGUF files that transformers does not read, by the kind of model.
_ALSO_READ = {
    "gpt2": {"context_length": "n_positions"},
    "qwen3": {"attention.key_length": "head_dim"},
    "qwen2_moe": {
        "expert_feed_forward_length": "moe_intermediate_size",
        "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    },
    "qwen3_moe": {"expert_feed_forward_length": "moe_intermediate_size"},
    "starcoder2": {"rope.freq_base": "rope_theta"},
    "stablelm": {"rope.freq_base": "rope_theta"},
}
# All that a model's repository may hold that is read.
MODEL = ("*.json", "*.jinja", "*.safetensors", "*.txt", "*.model")
_FLOATS = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}


def located(name: str, revision: str | None = None) -> str:
    """The folder, GGUF file or hub id that a name stands for; ModelError if it is none of them."""
    entry = CATALOGUE.get(name)
    location = entry.source if entry else name
    place = Path(location).expanduser()
    packed = [place] if place.suffix == GGUF else []
    if place.is_dir() and not any(place.glob("*.safetensors")):
        packed = sorted(place.glob(f"*{GGUF}"))
    if len(packed) > 1:
        holds = f"holds {len(packed)} GGUF files: give one, as --model {packed[0]}"
        raise ModelError(f"folder {place} {holds}")
    if packed:
        place = packed[0]
        if not place.exists():
            raise ModelError(f"there is no file {place}")
        if importlib.util.find_spec("gguf") is None:
            needs = "the package gguf: pip install 'sally-anne[gguf]'"
            raise ModelError(f"{place} is read with {needs}")
    elif place.is_dir() and not any((place / n).exists() for n in ("config.json", ADAPTER[0])):
        raise ModelError(f"folder {place} has no config.json: give one with it, or a GGUF file")
    if packed or place.is_dir():
        if revision is not None:
            raise ModelError(f"revision {revision!r} is for models of the hub, not for {place}")
        return str(place)
    if entry is None and not re.fullmatch(r"\w[\w.-]*/[\w.-]+", location, re.ASCII):
        known = "\n".join(f"  {name:27} {one.about}" for name, one in CATALOGUE.items())
        way = "give a folder, a GGUF file, a hub id (owner/name) or one of"
        raise ModelError(f"unknown model {name!r}: {way}:\n{known}")
    if place.is_absolute():
        raise ModelError(f"model {name!r}: {place} is not there: install the package again")
    return location


def check_files(name: str, folder: Path) -> None:
    """Refuse pointers of Git LFS, settings that are no JSON, and weights that are not whole."""
    for path in sorted({*filter(Path.is_file, folder.iterdir()), *weight_files(folder)}):
        try:
            with path.open("rb") as file:
                if file.read(len(LFS)) == LFS:
                    raise ModelError(f"model {name!r}: {path} {POINTER}")
            if path.suffix == ".safetensors":
                with safe_open(path, "pt"):
                    continue
            settings = path.name.endswith(("config.json", "index.json", "tokenizer.json"))
            if settings and not isinstance(json.loads(path.read_text("utf-8")), dict):
                raise ValueError("it holds no object")
        except ModelError:
            raise
        # Whatever safetensors and JSON make of a file that is cut short or another one's.
        except Exception as error:
            why = "is not there" if not path.exists() else f"is damaged ({first_line(error)})"
            raise ModelError(f"model {name!r}: {path} {why}; fetch it again") from error


def stored_dtype(config: Any, location: str, commit: str | None) -> str:
    """The dtype of the config, of its text part, or of the weights; float32 of unpacked ones."""
    for part in (config, config.get_text_config()):
        if part.dtype is not None:
            return str(part.dtype).removeprefix("torch.")
    for path in weight_files(location, commit) if not Path(location).is_file() else ():
        with safe_open(path, "pt") as file:
            for key in file.keys():  # noqa: SIM118
                if (stored := _FLOATS.get(file.get_slice(key).get_dtype())) is not None:
                    return stored
    return "float32"


def with_adapter(name: str, location: str, adapter: str | None) -> tuple[str, Path | None]:
    """Where the model is, and the adapter that belongs to it: given, with it, or in its place."""
    is_folder, found = Path(location).is_dir(), None
    if not Path(location).is_file():
        local = not (is_folder or hub.answers())
        found = find_adapter_config_file(location, local_files_only=local)
    if adapter is not None and found is not None:
        raise ModelError(f"{location} holds an adapter itself: give --adapter or that, not both")
    if adapter is None and found is None:
        if is_folder and (Path(location) / ADAPTER[1]).is_file():
            raise ModelError(f"{location} has an adapter's weights without {ADAPTER[0]}")
        return location, None
    if importlib.util.find_spec("peft") is None:
        what = f"has a LoRA adapter ({adapter or found}), which peft reads"
        raise ModelError(f"model {name!r} {what}: pip install peft")
    folder = Path(location) if adapter is None else SHIPPED / adapter
    if not folder.is_dir():
        folder = hub.at_hand(adapter or location, ADAPTER if adapter else MODEL)
    for file in ADAPTER:
        if not (folder / file).is_file():
            raise ModelError(f"the adapter {folder} has no {file}; write it with save_pretrained")
    check_files(name, folder)
    if adapter is not None:
        return location, folder
    if (folder / "config.json").exists():
        return str(folder), folder
    about = read_object(folder / ADAPTER[0], ModelError, "peft")
    base = str(about.get("base_model_name_or_path") or "")
    if not base or (not Path(base).is_dir() and base.count("/") != 1):
        way = f"which is not here: give --model FOLDER --adapter {location}"
        raise ModelError(f"the adapter {location} is of {base!r}, {way}")
    return base, folder


@contextmanager
def without_adapter(location: str) -> Iterator[str]:
    """A model's folder without an adapter, which transformers would load by itself, or not."""
    if not (Path(location) / ADAPTER[0]).is_file():
        yield location
        return
    with TemporaryDirectory() as made:
        for path in Path(location).resolve().iterdir():
            if not path.name.startswith("adapter_"):
                (Path(made) / path.name).symlink_to(path)
        yield made


def merged(model: Any, name: str, folder: Path) -> Any:
    """A model with an adapter in its weights; ModelError if it is one for another model."""
    import peft

    try:
        adapted = peft.PeftModel.from_pretrained(model, str(folder))
        if not hasattr(adapted.base_model, "merge_and_unload"):
            raise ValueError(f"{type(adapted).__name__} has no weights to merge")
        with safe_open(folder / ADAPTER[1], "pt") as file:
            # What the file lacks stays random, and what the model lacks is dropped.
            odd = sorted({*file.keys()} ^ {*peft.get_peft_model_state_dict(adapted)})  # noqa: SIM118
        if odd:
            raise ValueError(f"{len(odd)} weights are of one of them alone, the first is {odd[0]}")
        return adapted.merge_and_unload()
    # Whatever peft raises of an adapter that fits another model, or of a kind without weights.
    except Exception as error:
        why = f"cannot be merged into it: {first_line(error)}"
        raise ModelError(f"model {name!r}: the adapter in {folder} {why}") from error


def read_from(location: str) -> tuple[str, dict[str, Any]]:
    """A model's folder or hub id, and the options by which transformers reads it."""
    file = Path(location)
    local: dict[str, Any] = {"local_files_only": not (file.exists() or hub.answers())}
    if file.suffix == GGUF and file.is_file():
        mapping: Any = GGUF_CONFIG_MAPPING
        for kind, names in _ALSO_READ.items():
            mapping.get(kind, {}).update(names)
        return str(file.parent), local | {"gguf_file": file.name}
    return location, local


def complete(config: Any, file: str) -> None:
    """Put into a config what a GGUF file says elsewhere, or llama.cpp knows of the type."""
    if (config.pad_token_id or 0) >= config.vocab_size:
        config.pad_token_id = None
    if hasattr(config, "query_pre_attn_scalar"):  # Gemma's; that of 27B is no head's width
        shared = config.hidden_size // config.num_attention_heads
        wide = config.num_hidden_layers in (46, 62)
        config.query_pre_attn_scalar = shared if wide else config.head_dim
    with open(file, "rb") as opened:
        head = opened.read(1 << 26)  # settings and names of tensors
    if b"rope_freqs.weight" in head:
        from gguf import GGUFReader

        (freqs,) = (t.data for t in GGUFReader(file).tensors if t.name == "rope_freqs.weight")
        plain, _ = LlamaRotaryEmbedding.compute_default_rope_parameters(config)
        # The rule of Llama 3.1 and later; each file has its own factor.
        rule = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        rule |= {"factor": float(freqs.max()), "original_max_position_embeddings": 8192}
        config.rope_parameters |= rule
        made, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
        known = torch.allclose(plain / made, torch.tensor(freqs), rtol=1e-3)
    else:
        scaled = b".rope.scaling.factor" in head and config.model_type != "gpt_oss"
        known = not scaled and b"rope_factors_" not in head
    if not known:
        why = "by a rule that is not read of GGUF files: give the model's folder or hub id"
        raise ModelError(f"{file} stretches positions {why}")


def read_weights(loaded: Any) -> Any:
    """The model with its weights; a ModelError for gaps, which transformers fills at random."""
    name, location, dtype = loaded.name, loaded.location, getattr(torch, loaded.dtype)
    folder, how = read_from(location)
    if chosen := loaded.changes.get("attn_implementation"):
        how["attn_implementation"] = chosen
    if bits := loaded.changes.get("quantization"):
        how["quantization_config"] = transformers.BitsAndBytesConfig(
            **{f"load_in_{bits}": True}, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype
        )
    if packed := "gguf_file" in how:
        how["config"] = loaded.config
        # Newer versions can leave weights as they are packed, of which heads cannot be read.
        if (packing := getattr(transformers, "GgufConfig", None)) is not None:
            how["quantization_config"] = packing(dequantize=True)
    try:
        with without_adapter(folder) as place:
            model, report = getattr(transformers, loaded.family.class_name).from_pretrained(
                place,
                revision=loaded.hub_revision,
                dtype=dtype,
                device_map=loaded.device_map or first_gpu(),
                # The other format is a pickle, which runs code when it is opened.
                use_safetensors=True,
                output_loading_info=True,
                # Reported below, with the model's name.
                ignore_mismatched_sizes=True,
                **how,
            )
    except ImportError as error:
        why = f"needs a library that is missing here: {first_line(error)}"
        raise ModelError(f"model {name!r} {why}") from error
    # A damaged file, or a method of quantisation that wants a GPU, ends in any kind of error.
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise unavailable(name, location, error, loaded.config) from error
    weights = f"model {name!r}: the weights in {location}"
    for problem in ("missing_keys", "mismatched_keys"):
        # A mismatched key comes with both shapes.
        if keys := sorted(k if isinstance(k, str) else str(k[0]) for k in report.get(problem, ())):
            what = f"{len(keys)} {problem.replace('_', ' ')}, the first is {keys[0]}"
            raise ModelError(f"{weights} do not fit its config: {what}")
    with suppress(HookError):
        layers, count = (heads := find_geometry(model)).layer_names[0], heads.n_layers
        of_layer = re.compile(re.escape(layers.rpartition(".")[0]) + r"\.(\d+)\.")
        known = map(of_layer.match, map(str, report.get("unexpected_keys", ())))
        if more := [int(match[1]) for match in known if match and int(match[1]) >= count]:
            raise ModelError(f"{weights} are of {max(more) + 1} layers, its config says {count}")
    model = model.get_submodule(loaded.family.part)
    model.config._name_or_path = location
    if packed:
        # Of unpacked weights transformers says that they are packed, and would not save them.
        for part in ("hf_quantizer", "quantization_method", "is_quantized"):
            vars(model).pop(part, None)
        vars(model.config).pop("quantization_config", None)
    return model


def check_installed(attn_implementation: str | None, quantization: str) -> None:
    """Refuse kinds of attention and quantisation whose packages are not here."""
    needed = {"flash_attention_2": "flash_attn", "flash_attention_3": "flash_attn_interface"}
    needed |= {"8bit": "bitsandbytes", "4bit": "bitsandbytes"}
    chosen = {"attn-implementation": attn_implementation, "quantization": quantization}
    for option, value in chosen.items():
        package = needed.get(value or "")
        if package is not None and importlib.util.find_spec(package) is None:
            raise ModelError(f"--{option} {value} needs the package {package}, which is not here")


def check_quantised(name: str, config: Any, place: str | None) -> None:
    """Refuse weights that are stored quantised by a method that nothing here opens."""
    how = getattr(config, "quantization_config", None) or {}
    if not how:
        return
    try:
        kind = AutoHfQuantizer.from_config(how, pre_quantized=True)
        kind.validate_environment(device_map=place or first_gpu())
    except RuntimeError:
        return  # It wants a GPU, without which --dry-run can still count.
    # Each method asks for its library by errors of its own.
    except Exception as error:
        raise unavailable(name, "", error, config) from error


def limits_of(loaded: Any) -> dict[str, str]:
    """How a loaded model of a type that is not known here cannot be read, each with the reason.

    Ways are of padding on the left, a cache, words side by side after one text, frames before what
    several texts share, and the first frames of two films before the others. A ModelError if it
    does not run on words alone or sees later ones, or if a W_o puts out something else than the sum
    over heads of z_h W_o,h (+ bias).
    """
    name, model, limits = loaded.name, loaded.model, loaded.limits
    row = (loaded.processor.tokenizer("one two three four five six")["input_ids"] * 6)[:8]
    ids = torch.tensor([row], device=model.device)
    seen: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
    hooks = []
    with suppress(HookError):  # without heads it can be asked, if not steered
        for place in find_geometry(model).o_proj_names:
            keep = partial(lambda place, m, args, out: seen.update({place: (args[0], out)}), place)
            hooks.append(model.get_submodule(place).register_forward_hook(keep))
    try:
        with torch.no_grad():
            part, whole = (model(input_ids=each).logits for each in (ids[:, :-1], ids))
    # Whatever a class does without the pictures that it expects.
    except Exception as error:
        why = first_line(error)
        raise ModelError(f"model {name!r} does not run on words alone: {why}") from error
    finally:
        for hook in hooks:
            hook.remove()
    if not bool(whole.isfinite().all()):
        return {}  # said where it is read
    # Quantised layers round what they read, too, some of them a batch together.
    packed = getattr(model.config, "quantization_config", None) is not None
    rounding = 1e-4 if model.dtype == torch.float32 and not packed else 0.05

    def alike(first: torch.Tensor, second: torch.Tensor) -> bool:
        gap = (first.float() - second.float()).abs().max()
        return bool(gap <= rounding * second.abs().max())

    if not alike(whole[:, :-1], part):
        raise ModelError(f"model {name!r} sees later words, too: take one that goes on with a text")
    for place, (z, out) in seen.items():
        if not alike(written(model.get_submodule(place), z), out):
            raise ModelError(f"model {name!r}: {place} adds to what W_o makes of its heads")

    def begun(*rows: list[int], logits: bool = False) -> prefix.State:
        given = (part.to(model.device) for part in padded(loaded, rows))
        inputs = dict(zip(("input_ids", "attention_mask"), given, strict=True))
        return prefix.prefill(loaded, inputs, logits=logits)

    def with_frames(*films: str) -> torch.Tensor:
        greys = (np.array([*film.encode()], np.uint8) for film in films)
        clips = [grey.repeat(3 << 12).reshape(-1, 64, 64, 3) for grey in greys]
        text, count = open_prompt(loaded, "one two three four", True), len(films)
        plain = model(**encode(loaded, [text] * count, clips)).logits[:, -1]
        cut = prefix.split_common_prefix(loaded, [text])
        inputs = encode(loaded, [cut.beginning] * count, clips)
        shown = prefix.prefill(loaded, inputs, logits=False)
        # Below it is compared with a pass without frames.
        return whole[:, -1] + then(shown, *map(list, cut.endings * count)).logits - plain

    def then(state: prefix.State, *ends: list[int]) -> prefix.State:
        return extend(loaded, state, range(len(ends)), ends)

    def with_cache(logits: bool) -> torch.Tensor:
        begins = begun(row[:-3], logits=logits)
        return prefix.step(loaded, then(begins, row[-3:-1]), ids[:, -1]).logits

    twice = partial(prefix.read_side_by_side, loaded, rows=[0], tokens=row[-1:], count=2)
    ways: dict[str, Callable[[], torch.Tensor]] = {
        "a cache": lambda: torch.cat([*map(with_cache, (False, True))]),
        "padding": lambda: then(begun(row[:-2], [*row, *row]), row[-2:], row[:4]).logits[:1],
        "words side by side": lambda: twice(begun(row[:-1]))[0],
    }
    if loaded.showing.kind:
        # Each letter is a frame of its own grey.
        ways["frames"] = lambda: with_frames(" z")
    if loaded.showing.kind == "video":
        # Of three frames, as some towers join two.
        ways[prefix.IN_PARTS] = lambda: with_frames(" z zz ", " z    ")
    for way, read in ways.items():
        try:
            with torch.no_grad():
                if not alike(read(), whole[:, -1]):
                    limits[way] = "its numbers are others"
        # Classes take what they do not know for errors of any kind.
        except Exception as error:
            limits[way] = first_line(error)
    return limits


def unavailable(name: str, location: str, error: Exception, config: Any = None) -> ModelError:
    """What is said of a model whose files are not here, make no sense or are quantised."""
    why = first_line(error).rstrip(".")
    if how := getattr(config, "quantization_config", None):
        method = how.get("quant_method") if isinstance(how, dict) else how
        how = f"({method or 'by no method'}), which cannot be opened here"
        return ModelError(f"model {name!r} is stored quantised {how}: {why}")
    if not Path(location).exists() and not hub.answers():
        way = f"fetch it where there is a network (`hf download {location}`, HF_HOME says where to)"
        why = "is not in the hub's cache, and the hub cannot be reached from here"
        return ModelError(f"model {name!r} {why}: {way}, or give a folder (--model FOLDER)")
    way = f"give its folder, or a model of this package (--model {DEFAULT_MODEL})"
    return ModelError(f"model {name!r}: its files cannot be read from {location}: {why}; {way}")
