"""Last-token activations of every head for every sample, kept in a store."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Future
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from hooks.backends import NATIVE, Backend
from hooks.backends import backend as backend_named
from hooks.batch_size import AUTO, BatchSize, fitting, within_memory
from hooks.capture import Capture
from hooks.geometry import find_geometry, slice_width
from hooks.positions import LAST_PROMPT
from hooks.store import ActivationStore, BatchWriter, StoreMeta
from hooks.store.manifest import MANIFEST_NAME, mismatch, read_manifest
from probing.ahead import ahead
from probing.batches import Prepared, plan_batches, prepare_shared, prepare_whole
from probing.config import DEFAULT_BATCH
from probing.contrasts import Sample
from sally_anne.core.errors import ProbingError
from sally_anne.core.processes import ALONE, Processes
from sally_anne.models.decoding import extend, prefill
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prompts import open_prompt, to_model

POSITION = LAST_PROMPT
# Parameters below which a batch needs little memory, and the most that run side by side.
_SMALL, _MOST_WORKERS = 1_000_000_000, 8


def items_table(samples: Sequence[Sample]) -> pd.DataFrame:
    """Labels and groups of the samples, one row each."""
    columns = ("item_id", "story", "group", "split", "condition", "perspective", "room")
    table = {name: [getattr(s, name) for s in samples] for name in columns}
    table |= {name: [bool(getattr(s, name)) for s in samples] for name in ("y_p", "y_o")}
    return pd.DataFrame(table)


@within_memory(
    "use a smaller --batch-size, and if it is 1 smaller --max-pixels",
    "its batches belong to the store, so delete the run's activations or give another --out too",
)
def extract(
    loaded: LoadedModel,
    samples: Sequence[Sample],
    folder: Path,
    site: str,
    video: bool,
    batch_size: BatchSize,
    about: dict[str, str],
    processes: Processes = ALONE,
    backend: str = NATIVE,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> ActivationStore:
    """Run every sample through the model once and keep its activations; resumes.

    Samples with the same frames and context share one pass over them. Several processes share the
    batches, which are the same however many there are, and so is the store.

    Args:
        loaded: the model.
        samples: what is run, in the order of the store.
        folder: of the store.
        site: where activations are read.
        video: whether the samples' frames are shown.
        batch_size: samples that go through the model together. With auto a store that is there
            keeps its own; else what fits is tried.
        about: further facts that must agree when a store is resumed.
        processes: those that call this with the same arguments, each from its own place.
        backend: which library reads; one of `hooks.backends.BACKENDS`. All but the native
            one read every prompt whole, from its first token on, which differs by rounding.
        on_progress: told how many of how many batches are stored, also at the start; of several
            processes, each counts what was stored before and its own share.

    Returns:
        The complete store, ``[N, L, H, D]``.

    Raises:
        StoreMismatchError: the folder holds the store of another run.
        NonFiniteError: an activation is not a number; names the item and layer.
        OutOfMemoryError: a batch does not fit.
        ProbingError: a worker was killed.
        ProcessError: another of the processes has ended.
        BackendError: the backend is not installed, or does not know the model.
    """
    reader = None if backend == NATIVE else backend_named(backend)
    if reader is not None:
        about = about | {"backend": backend}
    geometry = find_geometry(loaded.skeleton)
    prompts = [open_prompt(loaded, s.content, video) for s in samples]
    meta = StoreMeta(
        site=site,
        position=POSITION,
        model_id=loaded.source,
        model_revision=loaded.revision,
        processor_hash=loaded.processor_hash,
        prompt_hash=hashlib.sha256("\0".join(prompts).encode()).hexdigest(),
        dtype=loaded.dtype,
        n_layers=geometry.n_layers,
        n_heads=geometry.n_heads,
        head_dim=slice_width(geometry, site),
        extra=about,
    )
    _require_same_options(folder, about)

    def prepared(rows: Sequence[int]) -> Prepared:
        chosen = [(samples[i], prompts[i]) for i in rows]
        return (prepare_shared if reader is None else prepare_whole)(loaded, chosen, video)

    def items(rows: Sequence[int]) -> list[str]:
        return [samples[i].item_id for i in rows]

    def trial(size: int) -> None:
        longest = max(plan_batches(samples, size), key=lambda b: max(len(prompts[i]) for i in b))
        activations_of(loaded, prepared(longest), site, items(longest), reader)

    if batch_size == AUTO:
        batch_size = stored_size(folder) or fitting(loaded.model, trial, DEFAULT_BATCH, processes)
    batches = plan_batches(samples, batch_size)

    def prepare(b: int) -> Prepared:
        return prepared(batches[b])

    def run(b: int, batch: Prepared) -> np.ndarray:
        return activations_of(loaded, batch, site, items(batches[b]), reader)

    with _open(folder, meta, items_table(samples), batches, processes) as store:
        if processes.first:
            processes.wait()
        pending = store.pending()
        processes.wait()  # all see the same batches pending before any is stored
        stored = len(batches) - len(pending)
        pending = processes.share(pending)
        total = stored + len(pending)
        on_progress(stored, total)
        workers = _models_at_once(loaded) if pending and reader is None else 1
        alone = workers > 1
        work = (lambda b: run(b, prepare(b))) if alone else prepare
        with ahead(work, pending, workers) as results:
            for b, future in zip(pending, results, strict=True):
                result = _result(future)
                activations = torch.from_numpy(result if alone else run(b, result))
                store.write_batch(b, activations.to(getattr(torch, loaded.dtype)))
                stored += 1
                on_progress(stored, total)
        if not isinstance(store, ActivationStore):
            store.close()
        processes.wait()
        if isinstance(store, ActivationStore):
            store.finish()
    processes.wait()
    # What was written here need not be hashed again.
    return store if isinstance(store, ActivationStore) else ActivationStore.open(folder)


def _open(
    folder: Path,
    meta: StoreMeta,
    items: pd.DataFrame,
    batches: Sequence[Sequence[int]],
    processes: Processes,
) -> BatchWriter:
    """The store for the first process, which begins it; the others join in once it is there."""
    if processes.first:
        return ActivationStore.open_or_create(folder, meta, items, batches)
    processes.wait()
    return BatchWriter.join(folder, meta, items, batches)


def activations_of(
    loaded: LoadedModel,
    batch: Prepared,
    site: str,
    items: Sequence[str] | None = None,
    reader: Backend | None = None,
) -> np.ndarray:
    """Run one batch.

    Args:
        loaded: the model.
        batch: of `prepare_shared`, or of `prepare_whole` if a backend reads it.
        site: where activations are read.
        items: one id a sample, to name in errors.
        reader: a backend; the native hooks by default.

    Returns:
        ``float32 [B, L, H, D]``.

    Raises:
        NonFiniteError: an activation is not a number; names the item and layer.
    """
    with torch.inference_mode():
        inputs = to_model(loaded, batch.inputs)
        if reader is not None:
            found = reader.read(loaded.model, inputs, site, POSITION, items=items)
            return found[:, 0].float().numpy()
        prefix = prefill(loaded, inputs)
        with Capture(loaded.model, site=site, positions=POSITION) as capture:
            extend(loaded, prefix, batch.rows, batch.endings)
            return capture.take(items=items)[:, 0].float().cpu().numpy()


def stored_size(folder: Path) -> int | None:
    """The size of a store's batches; None if there is no store."""
    if not (folder / MANIFEST_NAME).exists():
        return None
    return max(len(batch) for batch in read_manifest(folder).batches)


def _models_at_once(loaded: LoadedModel) -> int:
    """Processes that run the model side by side: on the CPU one a core, unless it is large.

    They share its weights, and none waits for another, as the threads of one layer do.
    """
    model = loaded.model
    small = sum(p.numel() for p in model.parameters()) < _SMALL
    on_cpu = all(p.device.type == "cpu" for p in model.parameters())
    return min(torch.get_num_threads(), _MOST_WORKERS) if small and on_cpu else 1


def _result(future: Future[Any]) -> Any:
    try:
        return future.result()
    except BrokenExecutor as error:
        raise ProbingError(
            "a process that was working on the next frames was killed, perhaps for want of "
            "memory; the same command goes on where it stopped"
        ) from error


def _require_same_options(folder: Path, about: dict[str, str]) -> None:
    """Name the option that differs; the store by itself would name the hash of the prompts first.

    Raises:
        StoreMismatchError: names the option and both values.
    """
    if not (folder / MANIFEST_NAME).exists():
        return
    stored = read_manifest(folder).meta.extra
    for name, value in about.items():
        if stored.get(name) != value:
            raise mismatch(
                folder, f"{name} is {stored.get(name)!r} in the store, {value!r} in this run"
            )
