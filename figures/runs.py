"""Reading a finished run folder: its config, head table, probes and activations.

A run folder is written by ``python -m probing.run`` and is read here and nowhere else in
this room. Nothing in it is a pickle: JSON, Parquet and safetensors.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sally_anne.core.errors import ChoiceError, MissingRunFileError, RunFolderError
from sally_anne.core.files import intact, read_object, reading, require_sealed

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

Label = Literal["y_p", "y_o"]
Split = Literal["train", "validation", "test"]
Shown = Literal["held-out", "validation", "test", "train", "all"]

LABELS: tuple[Label, Label] = ("y_p", "y_o")
SHOWN_SPLITS: dict[str, tuple[str, ...]] = {
    "held-out": ("validation", "test"),
    "validation": ("validation",),
    "test": ("test",),
    "train": ("train",),
    "all": ("train", "validation", "test"),
}
MADE_BY = "python -m probing.run"
ITEM_COLUMNS = ("item_id", "split", "condition", "y_p", "y_o")
TITLE_WORDS = ("order", "contrast", "setting", "site", "position")


def saved_results(path: Path, made_by: str) -> dict[str, Any] | None:
    """A ``results.json`` with its object ``config``; None where there is no such file.

    Args:
        path: the file.
        made_by: command that writes it, for errors.

    Raises:
        RunFolderError: it is not JSON or has no ``config`` object.
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
    import pandas as pd

    if not path.exists():
        raise MissingRunFileError(f"{path} is missing; `{made_by}` makes it")
    sealed = saved_results(path.with_name(results), made_by) or {}
    again = f"Run `{made_by}` again: its answers are kept."
    with reading(path, RunFolderError, made_by):
        return pd.read_parquet(io.BytesIO(intact(path.parent, path.name, sealed, again)))


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        folder: the run folder.
        config: the ``config`` entry of ``config.json``.
    """

    folder: Path
    config: dict[str, Any]
    _saved: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    _opened: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def open(cls, folder: Path | str) -> Run:
        """Open a run folder; only ``config.json`` is read, all else when it is asked for.

        Raises:
            MissingRunFileError: no such folder, or it has no ``config.json``.
            RunFolderError: ``config.json`` is not JSON, has no ``config`` object, or what the
                figures' headings say of it is neither text nor a number.
            AlteredError: it is not as the run wrote it.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise MissingRunFileError(f"no run folder at {folder}; make one with `{MADE_BY}`")
        path = _required(folder, "config.json")
        saved = read_object(path, RunFolderError, MADE_BY, {"config": ()})
        require_sealed(path, saved, _again(folder))
        config = saved["config"]
        for word in ("model", *TITLE_WORDS):
            value = config.get(word)
            if not isinstance(value, str | int | float | None):
                raise RunFolderError(
                    f"{path}: config.{word} should be text or a number, "
                    f"is of type {type(value).__name__}"
                )
        return cls(folder=folder, config=config, _saved=saved)

    @property
    def title(self) -> list[str]:
        """What was probed: model, order, contrast, setting, site, position.

        A word that the config lacks is taken from the activation store, which always knows its
        site and position.

        Raises:
            MissingRunFileError: a word is looked for in the store and there is none.
        """
        parts = [str(self.config.get("model", "model not recorded"))]
        for word in TITLE_WORDS:
            value = self.config.get(word)
            if value is None:
                value = getattr(self._store().meta, word, None) or "not recorded"
            parts.append(f"{word} {value}")
        return parts

    @property
    def heads(self) -> pd.DataFrame:
        """``heads.parquet``: one row a head.

        Raises:
            MissingRunFileError: the file is not there.
            AlteredError: it is not the one that the run wrote.
            RunFolderError: it has no ``layer`` or ``head``, no rows, or one head twice.
        """
        if "heads" not in self._opened:
            import pandas as pd

            path = _required(self.folder, "heads.parquet")
            with reading(path, RunFolderError, MADE_BY):
                heads = pd.read_parquet(io.BytesIO(self._intact(path.name)))
            require_columns(heads, ("layer", "head"), path)
            if heads.empty:
                raise RunFolderError(f"{path} has no rows")
            twice = heads[heads.duplicated(["layer", "head"])]
            if not twice.empty:
                layer, head = int(twice["layer"].iloc[0]), int(twice["head"].iloc[0])
                raise RunFolderError(f"{path} has layer {layer}, head {head} more than once")
            self._opened["heads"] = heads
        return self._opened["heads"]

    @property
    def probes(self) -> dict[str, np.ndarray]:
        """``probes.safetensors``: ``{label}.coef [L, H, D]`` and ``{label}.intercept [L, H]``.

        Raises:
            MissingRunFileError: the file is not there.
            AlteredError: it is not the one that the run wrote.
        """
        if "probes" not in self._opened:
            from safetensors.numpy import load

            path = _required(self.folder, "probes.safetensors")
            with reading(path, RunFolderError, MADE_BY):
                self._opened["probes"] = load(self._intact(path.name))
        return self._opened["probes"]

    @property
    def items(self) -> pd.DataFrame:
        """The items of the activation store, one row a sample, in the order of its rows.

        Raises:
            MissingRunFileError: there is no folder ``activations``.
            StoreError: the store is damaged.
            RunFolderError: it lacks a column that the figures need.
        """
        items = self._store().items
        require_columns(items, ITEM_COLUMNS, self.folder / "activations")
        return items.reset_index(drop=True)

    def probe(self, label: Label, layer: int, head: int) -> tuple[np.ndarray, float]:
        """Weight ``[D]`` and intercept of one head's probe, in float64.

        Raises:
            RunFolderError: the tensors are missing or do not reach to this head.
        """
        path = self.folder / "probes.safetensors"
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

    def has_weights(self, layer: int, head: int) -> bool:
        """Whether neither of the head's two probes has stayed at zero weights.

        Raises:
            RunFolderError: the tensors are missing or do not reach to this head.
        """
        return all(self.probe(label, layer, head)[0].any() for label in LABELS)

    def activations(self, layer: int, head: int) -> np.ndarray:
        """Activations of one head, ``[N, D]`` in float64, in the order of ``items``.

        Raises:
            MissingRunFileError: there is no folder ``activations``.
            StoreError: the store is damaged or unfinished, or has no such layer.
            RunFolderError: it has no such head, or an activation is not finite.
        """
        import numpy as np

        read = self._store().read(layers=[layer])
        if not 0 <= head < read.shape[2]:
            raise RunFolderError(
                f"{self.folder / 'activations'} has heads 0 to {read.shape[2] - 1}, not {head}"
            )
        values = read[:, 0, head].float().numpy().astype("float64")
        broken = int((~np.isfinite(values)).any(axis=1).sum())
        if broken:
            raise RunFolderError(
                f"{self.folder / 'activations'}: layer {layer}, head {head} is not finite "
                f"in {broken} of {len(values)} samples"
            )
        return values

    def _intact(self, name: str) -> bytes:
        """A file of the run, checked against its checksum in ``config.json``."""
        return intact(self.folder, name, self._saved, _again(self.folder))

    def _store(self) -> Any:
        if "store" not in self._opened:
            folder = _required(self.folder, "activations")
            from hooks.store import ActivationStore

            if (folder / "manifest.json").exists():
                self._intact("activations/manifest.json")
            self._opened["store"] = ActivationStore.open(folder)
        return self._opened["store"]


def _again(folder: Path) -> str:
    return f"Delete that file and run `{MADE_BY}` again with the run's options and --out {folder}."


def select(items: pd.DataFrame, shown: str) -> np.ndarray:
    """Rows of ``items`` that belong to the splits shown: a bool mask ``[N]``.

    Raises:
        ChoiceError: no sample belongs to them.
    """
    if shown not in SHOWN_SPLITS:
        raise ChoiceError(f"no split named {shown!r}; one of {', '.join(SHOWN_SPLITS)}")
    mask = items["split"].isin(SHOWN_SPLITS[shown]).to_numpy()
    if not mask.any():
        there = ", ".join(sorted(map(str, items["split"].unique()))) or "none"
        raise ChoiceError(f"this run has no sample in split {shown} (splits there: {there})")
    return mask


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
