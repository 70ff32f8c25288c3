"""Reading a finished run's folder: its config, table of heads, probes and activations.

A folder of ``sally-anne probe`` is read here and nowhere else. Nothing in it is a pickle:
JSON, Parquet and safetensors, each checked against the checksums in ``config.json``.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from safetensors.numpy import load

from sally_anne.core.errors import MissingRunFileError, RunFolderError
from sally_anne.core.files import intact, read_object, reading, require_sealed

if TYPE_CHECKING:
    from hooks.store import ActivationStore

MADE_BY = "sally-anne probe"
CONFIG, HEADS, PROBES = "config.json", "heads.parquet", "probes.safetensors"
ACTIVATIONS = "activations"
MANIFEST = f"{ACTIVATIONS}/manifest.json"
# How a damaged file is made again, with the run's folder.
AGAIN = (
    f"Delete that file and run `{MADE_BY}` again with the run's options and --out {{}}: "
    "it goes on from the activations."
)
TITLE_WORDS = ("order", "contrast", "setting", "site", "position")


def saved_results(path: Path, made_by: str) -> dict[str, Any] | None:
    """A ``results.json`` with its object ``config``; None where there is no such file.

    Args:
        path: the file.
        made_by: command that writes it, for errors.

    Raises:
        RunFolderError: it is not JSON or has no ``config`` object.
        AlteredError: it is not as it was written.
    """
    if not path.exists():
        return None
    saved = read_object(path, RunFolderError, made_by, {"config": ()})
    require_sealed(path, saved, f"Run `{made_by}` again: its answers are kept.")
    return saved


def read_table(path: Path, results: str, made_by: str) -> pd.DataFrame:
    """A table that a run wrote, checked against the run's own checksum of it.

    Args:
        path: the Parquet file.
        results: name of the JSON beside it that may know its checksum.
        made_by: command that writes it, for errors.

    Raises:
        MissingRunFileError: it is not there.
        RunFolderError: it is damaged.
        AlteredError: it is not the one that the run wrote.
    """
    if not path.exists():
        raise MissingRunFileError(f"{path} is missing; `{made_by}` makes it")
    sealed = saved_results(path.with_name(results), made_by) or {}
    again = f"Run `{made_by}` again: its answers are kept."
    with reading(path, RunFolderError, made_by):
        return pd.read_parquet(io.BytesIO(intact(path.parent, path.name, sealed, again)))


@dataclass(frozen=True)
class Run:
    """A finished probing run.

    Attributes:
        folder: the run folder.
        saved: all that ``config.json`` holds: options, model, data, checksums.
    """

    folder: Path
    saved: dict[str, Any] = field(repr=False)

    @classmethod
    def open(cls, folder: Path | str) -> Run:
        """Open a run folder; only ``config.json`` is read, all else when it is asked for.

        Raises:
            MissingRunFileError: no such folder, or it has no ``config.json``.
            RunFolderError: ``config.json`` is not JSON, has no ``config`` object, or what
                headings say of it is neither text nor a number.
            AlteredError: it is not as the run wrote it.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise MissingRunFileError(f"no run folder at {folder}; make one with `{MADE_BY}`")
        path = _required(folder, CONFIG)
        saved = read_object(path, RunFolderError, MADE_BY, {"config": ()})
        require_sealed(path, saved, AGAIN.format(folder))
        for word in ("model", *TITLE_WORDS):
            value = saved["config"].get(word)
            if not isinstance(value, str | int | float | None):
                raise RunFolderError(
                    f"{path}: config.{word} should be text or a number, "
                    f"is of type {type(value).__name__}"
                )
        return cls(folder, saved)

    @property
    def config(self) -> dict[str, Any]:
        """The options of the run."""
        return self.saved["config"]

    @property
    def title(self) -> list[str]:
        """What was probed: model; order and contrast, or whose samples; setting, site, position.

        A word that the config lacks is taken from the activation store, which always knows its
        site and position.

        Raises:
            MissingRunFileError: a word is looked for in the store and there is none.
        """
        parts = [str(self.config.get("model", "model not recorded"))]
        words: tuple[str, ...] = TITLE_WORDS
        task = self.config.get("task", "gridtom")
        if (own := self.config.get("samples")) or task != "gridtom":
            words = TITLE_WORDS[2:]
            parts.append(f"samples {Path(own).name}" if own else f"task {task}")
        for word in words:
            value = self.config.get(word)
            if value is None:
                value = getattr(self.store.meta, word, None) or "not recorded"
            parts.append(f"{word} {value}")
        return parts

    @cached_property
    def heads(self) -> pd.DataFrame:
        """``heads.parquet``: one row a head.

        Raises:
            MissingRunFileError: the file is not there.
            AlteredError: it is not the one that the run wrote.
            RunFolderError: it has no ``layer`` or ``head``, no rows, or one head twice.
        """
        path = _required(self.folder, HEADS)
        with reading(path, RunFolderError, MADE_BY):
            heads = pd.read_parquet(io.BytesIO(self._intact(HEADS)))
        require_columns(heads, ("layer", "head"), path)
        if heads.empty:
            raise RunFolderError(f"{path} has no rows")
        twice = heads[heads.duplicated(["layer", "head"])]
        if not twice.empty:
            layer, head = int(twice["layer"].iloc[0]), int(twice["head"].iloc[0])
            raise RunFolderError(f"{path} has layer {layer}, head {head} more than once")
        return heads

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels by which heads are ranked, in the order of the table's columns."""
        names = [str(column) for column in self.heads if str(column).endswith("_rank")]
        return tuple(name.removesuffix("_rank") for name in names)

    def ranked(self, label: str) -> pd.DataFrame:
        """The table of heads, best by validation accuracy of ``label`` first.

        Raises:
            RunFolderError: heads are not ranked by it.
        """
        require_columns(self.heads, [f"{label}_rank"], self.folder / HEADS)
        return self.heads.sort_values([f"{label}_rank", "layer", "head"])

    @cached_property
    def probes(self) -> dict[str, np.ndarray]:
        """``probes.safetensors``: ``{label}.coef [L, H, D]``, ``{label}.intercept [L, H]``, ...

        Raises:
            MissingRunFileError: the file is not there.
            AlteredError: it is not the one that the run wrote.
        """
        path = _required(self.folder, PROBES)
        with reading(path, RunFolderError, MADE_BY):
            return load(self._intact(PROBES))

    def probe(self, label: str, layer: int, head: int) -> tuple[np.ndarray, float]:
        """Weight ``[D]`` and intercept of one head's probe, in float64.

        Raises:
            RunFolderError: the tensors are missing or do not reach to this head.
        """
        path = self.folder / PROBES
        probes = self.probes
        lacking = [n for n in (f"{label}.coef", f"{label}.intercept") if n not in probes]
        if lacking:
            raise RunFolderError(f"{path} has no tensor {', '.join(lacking)}")
        coef, intercept = probes[f"{label}.coef"], probes[f"{label}.intercept"]
        if coef.ndim != 3 or intercept.shape != coef.shape[:2]:
            raise RunFolderError(
                f"{path}: {label}.coef {list(coef.shape)} should be [L, H, D] and "
                f"{label}.intercept {list(intercept.shape)} should be [L, H]"
            )
        if not (0 <= layer < coef.shape[0] and 0 <= head < coef.shape[1]):
            raise RunFolderError(
                f"{path} has no probe for layer {layer}, head {head}: "
                f"{label}.coef is {list(coef.shape)}"
            )
        return coef[layer, head].astype("float64"), float(intercept[layer, head])

    @property
    def samples(self) -> pd.DataFrame:
        """The samples: a row each, in the order of the activations' rows.

        Raises:
            MissingRunFileError: there is no folder ``activations``.
            StoreError: the store is damaged.
            RunFolderError: a sample has no name or no split.
        """
        samples = self.store.items
        require_columns(samples, ("item_id", "split"), self.folder / ACTIVATIONS)
        return samples.reset_index(drop=True)

    def activations(self, layers: Sequence[int] | None = None) -> np.ndarray:
        """Activations ``[N, L, H, D]`` in float32, of some layers or all, rows as ``samples``.

        Raises:
            MissingRunFileError: there is no folder ``activations``.
            StoreError: the store is damaged or unfinished, or has no such layer.
        """
        return self.store.read(layers=None if layers is None else list(layers)).float().numpy()

    def head_activations(self, layer: int, head: int) -> np.ndarray:
        """Activations of one head, ``[N, D]`` in float64, rows as ``samples``.

        Raises:
            MissingRunFileError, StoreError: as :meth:`activations`.
            RunFolderError: there is no such head, or an activation is not finite.
        """
        found = self.activations([layer])
        where = self.folder / ACTIVATIONS
        if not 0 <= head < found.shape[2]:
            raise RunFolderError(f"{where} has heads 0 to {found.shape[2] - 1}, not {head}")
        values = found[:, 0, head].astype("float64")
        broken = int((~np.isfinite(values)).any(axis=1).sum())
        if broken:
            raise RunFolderError(
                f"{where}: layer {layer}, head {head} is not finite "
                f"in {broken} of {len(values)} samples"
            )
        return values

    @cached_property
    def store(self) -> ActivationStore:
        """The activations on disk.

        Raises:
            MissingRunFileError: there is no folder ``activations``.
            StoreError, AlteredError: the store is damaged, or not the run's.
        """
        # The one part of a run that needs torch.
        from hooks.store import ActivationStore

        folder = _required(self.folder, ACTIVATIONS)
        if (folder / "manifest.json").exists():
            self._intact(MANIFEST)
        return ActivationStore.open(folder)

    def _intact(self, name: str) -> bytes:
        """A file of the run, checked against its checksum in ``config.json``."""
        return intact(self.folder, name, self.saved, AGAIN.format(self.folder))


def require_columns(table: pd.DataFrame, columns: Iterable[str], source: Path | str) -> None:
    """Check that a table has all ``columns``.

    Raises:
        RunFolderError: some are missing; the message names them and ``source``.
    """
    lacking = [column for column in columns if column not in table.columns]
    if lacking:
        raise RunFolderError(f"{source} has no column {', '.join(lacking)}")


def _required(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.exists():
        raise MissingRunFileError(f"{path} is missing; `{MADE_BY}` makes it")
    return path
