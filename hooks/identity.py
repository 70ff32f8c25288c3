"""What a run or a vector keeps of the model that it was made with, and compares with others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sally_anne.core.errors import ModelError

if TYPE_CHECKING:
    from torch import nn

GGUF = ".gguf"
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
# The entry of a vector's facts: it may steer another model than it was fitted on.
ALLOW_MISMATCH = "allow_mismatch"
# The attribute of a loaded model that an adapter is merged into: the hash of both.
FINGERPRINT = "_sally_anne_fingerprint"
# The entry of a run's config and of a vector's facts that says what was seen in fitting.
SEEN = "seen"
_READ_WHOLE, _STRIDE, _PIECE = 64 << 20, 4 << 20, 4 << 10


@dataclass(frozen=True)
class ModelIdentity:
    """What distinguishes models; an empty string stands for what is not known."""

    source: str = ""  # hub id, folder or catalogue name
    revision: str = ""  # commit of the hub, or hash of the folder
    model_type: str = ""  # of its config, e.g. qwen2_vl
    dtype: str = ""  # of the weights, e.g. float32
    quantization: str = ""  # of its linear layers
    fingerprint: str = ""  # weights_hash
    prompt: str = ""  # what stands around texts: chat or raw

    @classmethod
    def of_run(cls, model: Mapping[str, Any]) -> ModelIdentity:
        """From the ``model`` entry of a probing run's config."""
        return cls(**{field.name: str(model.get(field.name) or "") for field in fields(cls)})

    @classmethod
    def of_vector(cls, fitted: Mapping[str, Any]) -> ModelIdentity:
        """From the facts of a vector; one made by hand has none."""
        return cls.of_run({**fitted, "source": fitted.get("model")})

    @classmethod
    def of_module(cls, model: nn.Module) -> ModelIdentity:
        """Of a loaded Hugging Face model; later changes of its weights are not noticed."""
        config = getattr(model, "config", None)
        names = ("_name_or_path", "_commit_hash", "model_type")
        source, revision, kind = (getattr(config, name, None) or "" for name in names)
        # Modules without weights, or with quantised ones, have no dtype of their own.
        packed = getattr(config, "quantization_config", None) is not None
        known = not (packed or any(parameter.is_meta for parameter in model.parameters()))
        dtype = str(getattr(model, "dtype", "")).removeprefix("torch.") if known else ""
        return cls(source, revision, kind, dtype, "", _fingerprint(model, source, revision))

    def facts(self) -> dict[str, str]:
        """As a probing run's config keeps it: what is known."""
        return {name: value for name, value in asdict(self).items() if value}

    def same_type(self, other: ModelIdentity) -> bool:
        """Whether both are of one type, or one is the other's text decoder."""
        types = self.model_type, other.model_type
        return types[0].startswith(types[1]) or types[1].startswith(types[0])

    @property
    def _dtype(self) -> str:
        return self.dtype and self.dtype + f" ({self.quantization})" * bool(self.quantization)

    def difference(self, other: ModelIdentity) -> str:
        """What of ``other`` is not as here, both values named; empty if they are the same."""
        parts = []
        if not self.same_type(other):
            parts.append(f"a {self.model_type}, not a {other.model_type}")
        if not (self.fingerprint and other.fingerprint):
            places = (self.source, self.revision), (other.source, other.revision)
            if all(map(all, places)) and places[0] != places[1]:
                parts.append(", not ".join(map("@".join, places)))
        named = {"weights": "fingerprint", "prompt": "prompt", "dtype": "_dtype"}
        for name, field in named.items():
            own, others = getattr(self, field), getattr(other, field)
            if own and others and own != others:
                parts.append(f"{name} {own}, not {others}")
        return "; ".join(parts)


def require_same(what: str, made_with: ModelIdentity, here: ModelIdentity, remedy: str) -> None:
    """Raise ModelError if ``what`` was made with another model than the one ``here``."""
    if difference := made_with.difference(here):
        raise ModelError(f"{what} was made with another model ({difference}); {remedy}")


def require_fitted(steering: Any, here: ModelIdentity) -> str:
    """The difference if a vector allows it, else empty; ModelError if it is another model's."""
    made_with = ModelIdentity.of_vector(steering.fitted)
    if not steering.fitted.get(ALLOW_MISMATCH):
        remedy = "fit one on this model, or allow it by --allow-mismatch (Python: allow_mismatch)"
        require_same("the vector", made_with, here, remedy)
    return made_with.difference(here)


def weights_hash(source: str | Path, commit: str | None = None) -> str:
    """Hash of a model's :func:`weight_files`; empty if one is not here."""
    with suppress(OSError):
        if files := weight_files(source, commit):
            return file_hash(files)
    return ""


def weight_files(source: str | Path, commit: str | None = None) -> list[Path]:
    """The weights of a model, safetensors in a folder or in the hub's cache, or its GGUF file."""
    folder = Path(source).expanduser()
    if folder.suffix == GGUF and folder.is_file():
        return [folder]
    if not (str(source) and folder.is_dir()):
        if not commit or str(source).count("/") != 1:
            return []
        from huggingface_hub import try_to_load_from_cache

        paths = (try_to_load_from_cache(str(source), n, revision=commit) for n in (SINGLE, INDEX))
        folder = next((Path(path).parent for path in paths if isinstance(path, str)), folder)
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        return [folder / str(name) for name in sorted(set(index["weight_map"].values()))]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def added_hash(weights: str, added: str) -> str:
    """Hash of weights with an adapter, of the hash of each; empty if that of the weights is."""
    return weights and hashlib.sha256(f"{weights} {added}".encode()).hexdigest()[:16]


def _fingerprint(model: nn.Module, source: str, revision: str) -> str:
    """Of a loaded model's weights; an adapter of peft that is not merged counts by its numbers."""
    if known := getattr(model, FINGERPRINT, ""):
        return str(known)
    weights = weights_hash(source, revision)
    if hasattr(model, "peft_config"):
        adapter = hashlib.sha256()
        for name, parameter in model.named_parameters():
            if "lora_" in name or "modules_to_save" in name:
                adapter.update(name.encode() + parameter.detach().float().cpu().numpy().tobytes())
        return added_hash(weights, adapter.hexdigest())
    setattr(model, FINGERPRINT, weights)
    return weights


def folder_hash(folder: Path) -> str:
    """Hash of a model folder: its configs and weights; or of a GGUF file, which is both."""
    if folder.is_file():
        return file_hash([folder])
    kinds = (".json", ".jinja", ".safetensors")
    return file_hash(path for path in folder.iterdir() if path.suffix in kinds)


def file_hash(paths: Iterable[Path]) -> str:
    """Hash of files with their names, in 16 hexadecimal digits; a GGUF file may be renamed.

    Of a large file the beginning and a piece every few MB are read: all of it would take minutes.
    """
    digest = hashlib.sha256()
    for path in sorted(paths):
        size = path.stat().st_size
        name = GGUF if path.suffix == GGUF else path.name
        digest.update(f"{name} {size}\n".encode())
        with path.open("rb") as file:
            digest.update(file.read(_READ_WHOLE))
            for start in range(_READ_WHOLE, size, _STRIDE):
                file.seek(start)
                digest.update(file.read(_PIECE))
    return digest.hexdigest()[:16]
