"""Which model it is: what a run or a vector keeps of the model that it was made with.

The same weights in a moved folder are the same model, two folders of one name are not, and what
was measured in one dtype does not hold in another. So the weights' hash and the dtype are compared
wherever a run or a vector is used; where the weights' files are not at hand, source and commit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sally_anne.core.errors import OtherModelError

if TYPE_CHECKING:
    from torch import nn

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
# The entry of a vector's facts that says why another model was insisted on.
FORCED = "forced"
# The entry of a run's config and of a vector's facts that says what was seen in fitting.
SEEN = "seen"
_READ_WHOLE, _STRIDE, _PIECE = 64 << 20, 4 << 20, 4 << 10


@dataclass(frozen=True)
class ModelIdentity:
    """What tells one model from another; an empty string stands for what is not known.

    Attributes:
        source: hub id, folder or catalogue name.
        revision: commit of the hub, or hash of the folder.
        model_type: of its config, e.g. ``qwen2_vl``.
        dtype: of the weights, e.g. ``float32``.
        quantization: of its linear layers; empty if there is none.
        fingerprint: :func:`weights_hash`.
    """

    source: str = ""
    revision: str = ""
    model_type: str = ""
    dtype: str = ""
    quantization: str = ""
    fingerprint: str = ""

    @classmethod
    def of_run(cls, model: Mapping[str, Any]) -> ModelIdentity:
        """From the ``model`` entry of a probing run's config."""
        names = [field.name for field in fields(cls)]
        return cls(**{name: str(model.get(name) or "") for name in names})

    @classmethod
    def of_vector(cls, fitted: Mapping[str, Any]) -> ModelIdentity:
        """From the facts of a vector, or of whatever else steers; hand-made ones say nothing."""
        return cls.of_run({**fitted, "source": fitted.get("model")})

    @classmethod
    def type_of(cls, model: nn.Module) -> ModelIdentity:
        """Nothing but the type of a Hugging Face model."""
        config = getattr(model, "config", None)
        return cls(model_type=str(getattr(config, "model_type", "") or ""))

    @classmethod
    def of_module(cls, model: nn.Module) -> ModelIdentity:
        """As far as a Hugging Face model can tell; changes after it was loaded do not show."""
        config = getattr(model, "config", None)
        source = str(getattr(config, "_name_or_path", "") or "")
        commit = str(getattr(config, "_commit_hash", "") or "")
        # Modules without weights, or with quantised ones, have no dtype of their own.
        placeless = any(parameter.is_meta for parameter in model.parameters())
        placeless |= getattr(config, "quantization_config", None) is not None
        dtype = str(getattr(model, "dtype", "")).removeprefix("torch.")
        return cls(
            source=source,
            revision=commit,
            model_type=cls.type_of(model).model_type,
            dtype="" if placeless else dtype,
            fingerprint=weights_hash(source, commit or None),
        )

    def facts(self) -> dict[str, str]:
        """As a probing run's config keeps it: what is known."""
        return {name: value for name, value in asdict(self).items() if value}

    def same_type(self, other: ModelIdentity) -> bool:
        """Whether both are of one type, or one is the other's text decoder."""
        mine, theirs = self.model_type, other.model_type
        return mine.startswith(theirs) or theirs.startswith(mine)

    @property
    def _numbers(self) -> str:
        return f"{self.dtype} ({self.quantization})" if self.quantization else self.dtype

    def difference(self, other: ModelIdentity) -> str:
        """What of ``other`` is not as here, both values named; empty if they are the same."""
        found = []
        if not self.same_type(other):
            found.append(f"a {self.model_type}, not a {other.model_type}")
        if self.fingerprint and other.fingerprint:
            if self.fingerprint != other.fingerprint:
                found.append(f"weights {self.fingerprint}, not {other.fingerprint}")
        else:
            mine, theirs = (self.source, self.revision), (other.source, other.revision)
            if all((*mine, *theirs)) and mine != theirs:
                found.append(f"{'@'.join(mine)}, not {'@'.join(theirs)}")
        if self.dtype and other.dtype and self._numbers != other._numbers:
            found.append(f"dtype {self._numbers}, not {other._numbers}")
        return "; ".join(found)


def require_same(what: str, made_with: ModelIdentity, here: ModelIdentity, remedy: str) -> None:
    """Refuse what was made with another model.

    Args:
        what: run or vector, as the message names it.
        made_with: its model.
        here: the model that it is used with.
        remedy: what to do.

    Raises:
        OtherModelError: names both values of all that differs.
    """
    if found := made_with.difference(here):
        raise OtherModelError(f"{what} was made with another model ({found}); {remedy}")


def require_fitted(steering: Any, here: ModelIdentity) -> str:
    """Refuse to steer another model than the vector was fitted on.

    Args:
        steering: a vector; one without facts, as made by hand, is taken as it is.
        here: the model.

    Returns:
        The difference that was insisted on; empty if there is none.

    Raises:
        OtherModelError: another model, and the vector was not opened with ``force``.
    """
    fitted = getattr(steering, "fitted", None) or {}
    made_with = ModelIdentity.of_vector(fitted)
    if not fitted.get(FORCED):
        require_same("the vector", made_with, here, "fit one on this model, or insist with --force")
    return made_with.difference(here)


def weights_hash(source: str | Path, commit: str | None = None) -> str:
    """Hash of a model's weights, wherever they lie.

    Args:
        source: a folder, or a hub id whose files are in the cache.
        commit: of the hub id.

    Returns:
        16 hexadecimal digits; empty where the files are not here or not all of them.
    """
    if not (files := _weights(source, commit)):
        return ""
    try:
        return file_hash(files)
    except OSError:
        return ""


def folder_hash(folder: Path) -> str:
    """Hash of a model folder: its configs and weights."""
    kinds = (".json", ".jinja", ".safetensors")
    return file_hash(path for path in folder.iterdir() if path.suffix in kinds)


def file_hash(paths: Iterable[Path]) -> str:
    """Hash of files with their names.

    Of a large file the beginning and a piece every few MB are read, which meets every matrix of a
    7B checkpoint; reading all of it would take minutes.
    """
    digest = hashlib.sha256()
    for path in sorted(paths):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            digest.update(file.read(_READ_WHOLE))
            for start in range(_READ_WHOLE, size, _STRIDE):
                file.seek(start)
                digest.update(file.read(_PIECE))
    return digest.hexdigest()[:16]


def _weights(source: str | Path, commit: str | None) -> list[Path]:
    """The files that transformers reads the weights from; none unless all of them are here."""
    folder = Path(source).expanduser()
    if str(source) and folder.is_dir():

        def find(name: str) -> Path | None:
            return folder / name if (folder / name).is_file() else None

    elif commit and str(source).count("/") == 1:
        from huggingface_hub import try_to_load_from_cache

        def find(name: str) -> Path | None:
            found = try_to_load_from_cache(str(source), name, revision=commit)
            return Path(found) if isinstance(found, str) else None

    else:
        return []
    if single := find(SINGLE):
        return [single]
    if not (index := find(INDEX)):
        return []
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []
    files = [find(str(name)) for name in sorted(names)]
    return [file for file in files if file is not None] if all(files) else []
