"""The one reader of a finished run's folder, and heads, chosen on validation samples alone."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from safetensors.numpy import load_file

from sally_anne.core.console import number
from sally_anne.core.errors import FigureError, RunFolderError
from sally_anne.core.files import read_object, reading, write_atomic, write_json
from sally_anne.core.folder import CONFIG, RESULTS
from sally_anne.core.hub import CARD, card, short_name, without_paths

if TYPE_CHECKING:
    from sally_anne.core.store import ActivationStore

MADE_BY = "sally-anne probe"
# The splits of a figure's option, by its name.
SPLITS = {"held-out": ("validation", "test"), "all": ("train", "validation", "test")}
SPLITS |= {split: (split,) for split in SPLITS["all"]}
# Family-wise p of label permutations up to which a head is called readable.
LEVEL = 0.05
# Verdicts on heads and on sets of heads.
USED, AGAINST, NOT_USED = "used", "used against", "not used"
HEADS, PROBES = "heads.parquet", "probes.safetensors"
PATCHING, PROMPTS = "patching.json", "prompts.parquet"
ACTIVATIONS = "activations"
MANIFEST = f"{ACTIVATIONS}/index.json"
# What a run is in a hub's repository: prompts and activations are there on demand alone.
SHARED = (CARD, CONFIG, RESULTS, PATCHING, HEADS, PROBES, PROMPTS, f"{ACTIVATIONS}/*")
# Heads of each label that its card lists.
BEST = 10
TITLE_WORDS: tuple[str, ...] = ("order", "contrast", "setting", "site", "position")
# The task of runs that do not say theirs, and the only one of which all these words tell something.
FIRST_TASK = "gridtom"


class Head(NamedTuple):
    """One attention head; printed and read as ``L4H0``."""

    layer: int
    head: int

    def __str__(self) -> str:
        return f"L{self.layer}H{self.head}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """The head of a text such as ``L4H0``; ValueError for any other text."""
        if (match := re.fullmatch(r"L(\d+)H(\d+)", text.strip())) is None:
            raise ValueError(f"{text!r} is no head; write one as L4H0")
        return cls(int(match[1]), int(match[2]))


def symbol(label: str) -> str:
    """How a label is written: Y_p and Y_o as in the paper, others as they are."""
    return {"y_p": "Y_p", "y_o": "Y_o"}.get(label, label)


def saved_results(
    path: Path, made_by: str, parts: dict[str, tuple[str, ...]] | None = None
) -> dict[str, Any]:
    """A file of results that ``made_by`` wrote, as of :func:`read_object`; empty without it."""
    return read_object(path, RunFolderError, made_by, parts) if path.exists() else {}


def read_table(path: Path, made_by: str, columns: Iterable[str] = ()) -> pd.DataFrame:
    """A Parquet table that ``made_by`` wrote, with these columns; else a RunFolderError."""
    with reading(path, RunFolderError, made_by):
        table = pd.read_parquet(path)
    require_columns(table, columns, path)
    return table


@dataclass(frozen=True)
class Run:
    """A finished probing run in a folder, with what ``config.json`` holds: options, model, data.

    What is read of it is kept. A file that is missing or damaged is a RunFolderError, or a
    StoreError of the activations.
    """

    folder: Path
    saved: dict[str, Any] = field(repr=False)

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        """Open a run folder; only ``config.json`` is read, all else when it is asked for."""
        folder = Path(folder)
        if not folder.is_dir():
            raise RunFolderError(f"no run folder at {folder}; make one with `{MADE_BY}`")
        saved = read_object(folder / CONFIG, RunFolderError, MADE_BY, {"config": ()})
        if saved["config"].get("position") == "last_prompt":
            raise RunFolderError(f"{folder} was made by an earlier version: make the run again")
        return cls(folder, saved)

    @property
    def config(self) -> dict[str, Any]:
        """The options of the run."""
        return self.saved["config"]

    @property
    def title(self) -> list[str]:
        """What was probed: model; order and contrast, or whose samples; setting, site, position."""
        parts, words = [short_name(self.config.get("model", "model not recorded"))], TITLE_WORDS
        task = self.config.get("task", FIRST_TASK)
        if (own := self.config.get("samples")) or task != FIRST_TASK:
            # Of samples without pictures and films there is one setting.
            words = TITLE_WORDS[2 if self.saved.get("data", {}).get("shows", True) else 3 :]
            parts.append(f"samples {Path(own).name}" if own else f"task {task}")
        for word in words:
            value = self.config.get(word)
            if value is None:  # the store always knows its site and position
                value = getattr(self.store.meta, word, None) or "not recorded"
            parts.append(f"{word} {value}")
        return parts

    @cached_property
    def results(self) -> dict[str, Any]:
        """``results.json``: ``results`` by label, ``confounds``, ``figures``; empty without it."""
        return saved_results(self.folder / RESULTS, MADE_BY)

    @cached_property
    def patching(self) -> dict[str, Any]:
        """``patching.json``, what patching said of each kind of pairs; empty without it."""
        return saved_results(self.folder / PATCHING, "sally-anne patch")

    def asks(self, kind: str) -> str:
        """What pairs of a kind decide, in words, such as answer to the belief question."""
        return self.patching.get(kind, {}).get("asks", kind)

    @cached_property
    def prompts(self) -> pd.Series | None:
        """What each sample says, by ``item_id``; None of runs of earlier versions."""
        path = self.folder / PROMPTS
        if not path.exists():
            return None
        return read_table(path, MADE_BY, ("item_id", "text")).set_index("item_id")["text"]

    @cached_property
    def heads(self) -> pd.DataFrame:
        """``heads.parquet``: one row a head, each with ``layer`` and ``head``."""
        return read_table(self.folder / HEADS, MADE_BY, ("layer", "head"))

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels by which heads are ranked, in the order of the table's columns."""
        return labels_of(self.heads)

    def ranked(self, label: str) -> pd.DataFrame:
        """The table of heads, best by validation accuracy of ``label`` first."""
        require_columns(self.heads, [f"{label}_rank"], self.folder / HEADS)
        return self.heads.sort_values([f"{label}_rank", "layer", "head"])

    @cached_property
    def probes(self) -> dict[str, np.ndarray]:
        """``probes.safetensors``: ``{label}.coef [L, H, D]``, ``{label}.intercept [L, H]``, ..."""
        with reading(self.folder / PROBES, RunFolderError, MADE_BY):
            return load_file(self.folder / PROBES)

    def probe(self, label: str, layer: int, head: int) -> tuple[np.ndarray, float]:
        """Weight ``[D]`` and intercept of one head's probe, in float64."""
        parts = (f"{label}.{part}" for part in ("coef", "intercept"))
        try:
            coef, intercept = (self.probes[part][layer, head].astype("float64") for part in parts)
        except (KeyError, IndexError) as error:
            where = f"{self.folder / PROBES} has no probe of {label}"
            raise RunFolderError(f"{where} for {Head(layer, head)}") from error
        return coef, float(intercept)

    @property
    def samples(self) -> pd.DataFrame:
        """The samples: a row each, in the order of the activations' rows."""
        require_columns(self.store.items, ("item_id", "split"), self.folder / ACTIVATIONS)
        return self.store.items.reset_index(drop=True)

    def activations(self, layers: Sequence[int] | None = None) -> np.ndarray:
        """Activations ``[N, L, H, D]`` in float32, of some layers or all, rows as ``samples``."""
        return self.store.read(layers).float().numpy()

    def head_activations(self, layer: int, head: int) -> np.ndarray:
        """Activations of one head, ``[N, D]`` in float64, all finite, rows as ``samples``."""
        values, where = self.activations([layer])[:, 0], self.folder / ACTIVATIONS
        if not 0 <= head < values.shape[1]:
            raise RunFolderError(f"{where} has heads 0 to {values.shape[1] - 1}, not {head}")
        values = values[:, head].astype("float64")
        if broken := int((~np.isfinite(values)).any(axis=1).sum()):
            what = f"is not finite in {broken} of {len(values)} samples"
            raise RunFolderError(f"{where}: {Head(layer, head)} {what}")
        return values

    @cached_property
    def store(self) -> ActivationStore:
        """The activations on disk."""
        # The one part of a run that needs torch.
        from sally_anne.core.store import ActivationStore

        folder = self.folder / ACTIVATIONS
        if not folder.exists():
            raise RunFolderError(f"{folder} is missing; `{MADE_BY}` makes it")
        return ActivationStore.open(folder)


def labels_of(heads: pd.DataFrame) -> tuple[str, ...]:
    """The labels by which a table ranks its heads, in the order of its columns."""
    return tuple(str(name)[:-5] for name in heads if str(name).endswith("_rank"))


def best(heads: pd.DataFrame, label: str) -> Head:
    """The head with rank 1 for ``label`` (best validation accuracy); FigureError if none has."""
    ranked = heads.dropna(subset=[f"{label}_rank"]).sort_values([f"{label}_rank", "layer", "head"])
    if ranked.empty:
        raise FigureError(f"the table of heads ranks none by {label}")
    return heads_of(ranked)[0]


def best_named(heads: pd.DataFrame) -> dict[str, object]:
    """How many heads a table has, and the best by each label with its accuracy and the null."""
    facts: dict[str, object] = {"heads": len(heads)}
    for label in labels_of(heads):
        row = row_of(heads, head := best(heads, label))
        null = number(row.get(f"{label}_threshold"))
        facts[f"best by {label}"] = f"{head} {row[f'{label}_validation_accuracy']:.2f}, null {null}"
    return facts


def heads_of(table: pd.DataFrame) -> list[Head]:
    """The heads of a table's rows."""
    return [Head(int(layer), int(head)) for layer, head in table[["layer", "head"]].to_numpy()]


def row_of(heads: pd.DataFrame, head: Head) -> pd.Series:
    """A head's row of the table; FigureError if there is no such head."""
    rows = heads[(heads["layer"] == head.layer) & (heads["head"] == head.head)]
    if rows.empty:
        raise FigureError(f"this run has no head {head}; its last is {heads_of(heads)[-1]}")
    return rows.iloc[0]


def select(samples: pd.DataFrame, split: str) -> np.ndarray:
    """Rows of ``samples`` in the splits shown: a bool mask ``[N]``; FigureError if all False."""
    mask = samples["split"].isin(SPLITS[split]).to_numpy()
    if not mask.any():
        raise FigureError(f"this run has no sample in split {split}")
    return mask


def confounded(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Rows of ``confounds`` of a ``results.json`` whose feature is right .1 above chance."""

    def chance(label: str) -> float:
        return found.get("results", {}).get(label, {}).get("chance_test_accuracy", 0.5)

    return [r for r in found.get("confounds", ()) if r["accuracy"] > chance(r["label"]) + 0.1]


def verdicts(effect: ArrayLike, ends: ArrayLike, random: ArrayLike, floor: float) -> np.ndarray:
    """Whether heads, or sets of heads, carry the answer, work against it, or do neither: ``[n]``.

    :data:`USED` has a normalised ``effect [n]`` above ``random [2, n]`` ones and at least
    ``floor``, and an interval ``ends [2, n]`` above zero; :data:`AGAINST` is the same with a
    negative sign. Empty where there is no interval.
    """
    effect, (low, high), (least, most) = map(np.asarray, (effect, ends, random))
    used = (effect > most) & (effect >= floor) & (low > 0)
    against = (effect < least) & (effect <= -floor) & (high < 0)
    return np.select([np.isnan(effect + low), used, against], ["", USED, AGAINST], NOT_USED)


def in_words(readable: bool | None, used: str) -> str:
    """What heads are, by their verdict; ``readable`` is None where that was not tested."""
    if readable is None or not used:
        return used
    if used == NOT_USED:
        return "readable, not used" if readable else "neither readable nor used"
    return f"readable and {used}" if readable else f"{used}, not readable"


def conclusions(heads: pd.DataFrame, kind: str, label: str) -> list[str]:
    """Of each row of a table of heads, whether it is readable and used, for one kind of pairs."""
    null = heads[f"{label}_p_fwer"]
    readable = [None if np.isnan(p) else bool(p <= LEVEL) for p in null]
    return list(map(in_words, readable, heads[f"{kind}_used"]))


def require_columns(table: pd.DataFrame, columns: Iterable[str], source: Path | str) -> None:
    """Raise RunFolderError if a table lacks columns; it names them and ``source``."""
    lacking = [column for column in columns if column not in table.columns]
    if lacking:
        raise RunFolderError(f"{source} has no column {', '.join(lacking)}")


def copy_run(run: Run, folder: Path, activations: bool = False) -> None:
    """Write a run, without paths of this machine, into an empty folder, to share it.

    Figures and page may show such paths, and are left out; ``activations`` come with the prompts.
    """
    _ = run.heads, run.probes
    copied = [HEADS, PROBES]
    if activations:
        from sally_anne.core.store import INDEX_NAME, Index

        run.store.verify()
        source = run.folder / ACTIVATIONS
        others = shutil.ignore_patterns(".*", INDEX_NAME)
        # Links, which a push follows, but for paths in the index.
        links: Any = {"ignore": others, "copy_function": os.symlink}
        shutil.copytree(source.resolve(), folder / ACTIVATIONS, **links)
        index = Index.read(source)
        meta = index.meta
        facts = without_paths({"model_id": meta.model_id, "extra": meta.extra}, run.saved)
        replace(index, meta=replace(meta, **facts)).write(folder / ACTIVATIONS)
        copied += [] if run.prompts is None else [PROMPTS]
    for name in copied:
        shutil.copyfile(run.folder / name, folder / name)
    for name, facts in ((RESULTS, {**run.results, "figures": []}), (PATCHING, run.patching)):
        if (run.folder / name).exists():
            write_json(folder / name, without_paths(facts, run.saved))
    write_json(folder / CONFIG, without_paths(dict(run.saved)))
    write_atomic(folder / CARD, _card(run))


def _card(run: Run) -> bytes:
    model = run.saved.get("model", {})
    parts = without_paths(run.title, run.saved)
    rows = [
        f"| {symbol(label)} | {Head(row.layer, row.head)} | {getattr(row, column):.3f} |"
        for label in run.labels
        if (column := f"{label}_validation_accuracy") in run.heads
        for row in run.ranked(label).head(BEST).itertuples()
    ]
    body = f"""# Probes of every attention head: {parts[0]}

{", ".join(parts[1:])}.

| label | head | validation accuracy |
|---|---|---|
{chr(10).join(rows)}

## Use

```python
import sally_anne as sa

run = sa.Run.open("user/name")
run.heads  # accuracy, AUC and rank of every head
```
"""
    return card(body, {**model, "model": model.get("source")}, "probes")
