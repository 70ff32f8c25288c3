"""LoRA adapters, found with a model or in its place, and models in llama.cpp's GGUF files."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import transformers
from transformers.utils import find_adapter_config_file

from sally_anne.core import hub
from sally_anne.core.errors import ModelError
from sally_anne.core.files import read_object
from sally_anne.hooks.identity import GGUF

# The files of an adapter, as peft writes them.
ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
# Adapters that come with the package, by name.
SHIPPED = Path(__file__).parent / "adapters"
# Earlier versions read some vocabularies of GGUF files otherwise than they were written.
_READS_GGUF = (5, 23)
# All that a model's repository may hold that is read.
MODEL = ("*.json", "*.jinja", "*.safetensors", "*.txt", "*.model")


def with_adapter(name: str, location: str, adapter: str | None) -> tuple[str, Path | None]:
    """Where the model is, and the adapter that belongs to it: given, with it, or in its place."""
    is_folder = Path(location).is_dir()
    local = not (is_folder or hub.answers())
    found = None
    if not Path(location).is_file():
        found = find_adapter_config_file(location, local_files_only=local)
    if adapter is not None and found is not None:
        raise ModelError(f"{location} holds an adapter itself: give --adapter or that, not both")
    if adapter is None and found is None:
        return location, None
    if importlib.util.find_spec("peft") is None:
        raise ModelError(
            f"model {name!r} has a LoRA adapter ({adapter or found}), and peft, which reads it, is "
            "not installed: pip install peft, or merge it into the weights (merge_and_unload)"
        )
    place = Path(location) if is_folder or adapter else hub.at_hand(location, MODEL)
    folder = place
    if adapter is not None:
        shipped = SHIPPED / adapter
        folder = shipped if shipped.is_dir() else hub.at_hand(adapter, ADAPTER)
    for file in ADAPTER:
        if not (folder / file).is_file():
            raise ModelError(f"the adapter {folder} has no {file}; write it with save_pretrained")
    if adapter is not None:
        return location, folder
    if (place / "config.json").exists():
        return str(place), folder
    about = read_object(folder / ADAPTER[0], ModelError, "peft")
    base = str(about.get("base_model_name_or_path") or "")
    if not Path(base).is_dir() and base.count("/") != 1:
        raise ModelError(
            f"the adapter {location} is of the model {base!r}, which is not here: give "
            f"--model FOLDER --adapter {location}"
        )
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
        return peft.PeftModel.from_pretrained(model, str(folder)).merge_and_unload()
    # Whatever peft raises of an adapter that fits another model, or of a kind without weights.
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(
            f"model {name!r}: the adapter in {folder} cannot be merged into it: {reason}"
        ) from error


def gguf_at(place: Path) -> Path | None:
    """The GGUF file that a path is, or that is all the weights of its folder.

    A ModelError if it is not there, if there are several, or without the package that reads them.
    """
    if place.suffix == GGUF and not place.exists():
        raise ModelError(f"there is no file {place}")
    found = [place] if place.suffix == GGUF and place.is_file() else []
    if place.is_dir() and not any(place.glob("*.safetensors")):
        found = sorted(place.glob(f"*{GGUF}"))
    if len(found) > 1:
        raise ModelError(
            f"folder {place} holds {len(found)} GGUF files: give one, as --model {found[0]}"
        )
    version = tuple(map(int, transformers.__version__.split(".")[:2]))
    if found and (version < _READS_GGUF or importlib.util.find_spec("gguf") is None):
        raise ModelError(
            f"{found[0]} is read with the package gguf, and with transformers {_READS_GGUF[0]}."
            f"{_READS_GGUF[1]} or newer: pip install 'sally-anne[gguf]'"
        )
    return found[0] if found else None


def read_from(location: str) -> tuple[str, dict[str, str]]:
    """A model's folder or hub id, and what tells transformers the GGUF file in it, if it is one."""
    file = Path(location)
    is_gguf = file.suffix == GGUF and file.is_file()
    return (str(file.parent), {"gguf_file": file.name}) if is_gguf else (location, {})


def forget_packing(model: Any) -> None:
    """Of unpacked weights transformers says that they are packed, and would not save them."""
    for name in ("hf_quantizer", "quantization_method", "is_quantized"):
        vars(model).pop(name, None)
    vars(model.config).pop("quantization_config", None)
