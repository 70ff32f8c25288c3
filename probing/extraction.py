"""Last-token activations of every head for every sample, in memory or kept in a store."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sally_anne.core.errors import ProbingError
from sally_anne.core.processes import ALONE, Processes
from sally_anne.core.store import INDEX_NAME, ActivationStore, Index, StoreMeta
from sally_anne.data.samples import Sample, fingerprint, with_splits
from sally_anne.hooks.backends import NATIVE, Backend
from sally_anne.hooks.backends import backend as backend_named
from sally_anne.hooks.batch_size import AUTO, BatchSize, fitting, in_batches, within_memory
from sally_anne.hooks.capture import Capture
from sally_anne.hooks.geometry import HEAD_OUT, find_geometry, slice_width
from sally_anne.hooks.positions import LAST_PROMPT
from sally_anne.models.decoding import extend, prefill, split_common_prefix
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prompts import open_prompt, process, to_model
from sally_anne.probing.config import DEFAULT_BATCH
from sally_anne.probing.prefetch import Piece, Result, prefetch
from sally_anne.probing.probes import Activations, items_table

POSITION = LAST_PROMPT
# Parameters below which a batch needs little memory, and the most that run side by side.
_SMALL, _MOST_WORKERS = 1_000_000_000, 8


@dataclass(frozen=True)
class Cut:
    """Prompts of a batch, cut where those of one context part.

    ``beginnings`` are the texts of the contexts, and ``firsts`` the first sample of each, whose
    frames are those of all. ``rows`` says each sample's context, and ``endings`` the token ids of
    its own end; where nothing is shared both are empty, and beginnings are whole prompts.
    """

    beginnings: list[str]
    firsts: list[Sample]
    rows: list[int]
    endings: list[tuple[int, ...]]


@dataclass(frozen=True)
class Prepared:
    """A batch ready for the model: what the processor makes of a :class:`Cut`."""

    inputs: dict[str, np.ndarray]
    rows: list[int]
    endings: list[tuple[int, ...]]


def plan_batches(samples: Sequence[Sample], batch_size: int) -> list[Sequence[int]]:
    """Rows of each batch.

    What is nearly equally long goes together: without padding, attention computes half as much.
    Contexts of one kind are. Samples of one context stay together, too. Of the others, those that
    show as many frames of one size do.
    """
    shapes = [None if sample.context else sample.shape() for sample in samples]

    def kind(row: int) -> tuple[bool, bool, tuple[int, ...]]:
        sample = samples[row]
        return sample.shows, not sample.context, shapes[row] or ()

    def place(row: int) -> tuple[Any, ...]:
        sample = samples[row]
        return *kind(row), sample.context, 0 if sample.context else len(sample.content), row

    rows = sorted(range(len(samples)), key=place)
    alike = [list(members) for _, members in groupby(rows, kind)]
    return [batch for members in alike for batch in in_batches(members, batch_size)]


def cut(loaded: LoadedModel, chosen: Sequence[tuple[Sample, str]], shared: bool = True) -> Cut:
    """Cut samples of a batch, of which those of one context stand together; whole if not shared."""
    if not shared or not chosen[0][0].context:
        return Cut([prompt for _, prompt in chosen], [sample for sample, _ in chosen], [], [])
    found = Cut([], [], [], [])
    for _, members in groupby(chosen, lambda m: (m[0].group, m[0].context)):
        group = list(members)
        parts = split_common_prefix(loaded, [prompt for _, prompt in group])
        found.rows.extend([len(found.beginnings)] * len(group))
        found.endings.extend(parts.endings)
        found.beginnings.append(parts.beginning)
        found.firsts.append(group[0][0])
    return found


def prepare(
    loaded: LoadedModel, chosen: Sequence[tuple[Sample, str]], shared: bool = True
) -> Prepared:
    """A batch's inputs, drawn and processed; contexts once each if they are ``shared``."""
    parts = cut(loaded, chosen, shared)
    frames = [sample.frames() for sample in parts.firsts] if parts.firsts[0].shows else None
    return Prepared(process(loaded, parts.beginnings, frames), parts.rows, parts.endings)


def activations_of(
    loaded: LoadedModel,
    batch: Prepared,
    site: str,
    items: Sequence[str] | None = None,
    reader: Backend | None = None,
) -> np.ndarray:
    """Run one batch, whose prompts are whole if a backend reads it; ``items`` are its samples' ids.

    Returns:
        ``float32 [B, L, H, D]``.

    Raises:
        NonFiniteError: an activation is not a number; names the item and layer.
    """
    with torch.inference_mode():
        inputs = to_model(loaded, batch.inputs)
        if not batch.rows:
            reader = reader or backend_named(NATIVE)
            found = reader.read(loaded.model, inputs, site, POSITION, items=items)
            return found[:, 0].float().numpy()
        prefix = prefill(loaded, inputs)
        with Capture(loaded.model, site=site, positions=POSITION) as capture:
            extend(loaded, prefix, batch.rows, batch.endings)
            return capture.take(items=items)[:, 0].float().cpu().numpy()


@dataclass(frozen=True)
class _Extraction:
    """Samples on their way through a model."""

    loaded: LoadedModel
    samples: Sequence[Sample]
    site: str
    backend: str

    @cached_property
    def reader(self) -> Backend:
        return backend_named(self.backend)

    @cached_property
    def prompts(self) -> list[str]:
        return [open_prompt(self.loaded, s.turns, s.shows) for s in self.samples]

    def prepare(self, rows: Sequence[int]) -> Prepared:
        chosen = [(self.samples[i], self.prompts[i]) for i in rows]
        return prepare(self.loaded, chosen, self.backend == NATIVE)

    def activations(self, rows: Sequence[int], batch: Prepared) -> np.ndarray:
        items = [self.samples[i].item_id for i in rows]
        return activations_of(self.loaded, batch, self.site, items, self.reader)

    def whole(self, rows: Sequence[int]) -> np.ndarray:
        return self.activations(rows, self.prepare(rows))

    def plan(self, batch_size: BatchSize, processes: Processes) -> list[Sequence[int]]:
        """Rows of each batch; the largest that fit, if that is asked for."""

        def trial(size: int) -> None:
            batches = plan_batches(self.samples, size)
            self.whole(max(batches, key=lambda b: max(len(self.prompts[i]) for i in b)))

        if batch_size == AUTO:
            batch_size = fitting(self.loaded.model, trial, DEFAULT_BATCH, processes)
        return plan_batches(self.samples, batch_size)

    def run(
        self, batches: Sequence[Sequence[int]], pending: Sequence[int]
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Number and activations of each pending batch."""
        workers = models_at_once(self.loaded) if pending and self.backend == NATIVE else 1
        work: Callable[[Sequence[int]], Any] = self.whole if workers > 1 else self.prepare
        with closing(prefetch(lambda b: work(batches[b]), pending, workers)) as results:
            for b, result in zip(pending, results, strict=True):
                yield b, result if workers > 1 else self.activations(batches[b], result)


@within_memory(
    "use a smaller batch_size, and if it is 1 smaller max_pixels",
    "without a folder nothing was kept",
)
def extract(
    loaded: LoadedModel,
    samples: Sequence[Sample],
    folder: Path | str | None = None,
    site: str = HEAD_OUT,
    batch_size: BatchSize = DEFAULT_BATCH,
    backend: str = NATIVE,
    seed: int = 0,
) -> Activations:
    """Run every sample through the model once and take its activations.

    Args:
        loaded: the model.
        samples: those without a split are drawn into one, group by group.
        folder: keeps the activations in a store, which is resumed and read again; in memory alone
            by default.
        site: where activations are read, see :mod:`hooks.geometry`.
        batch_size: samples that go through the model together, or auto.
        backend: which library reads; one of `hooks.backends.BACKENDS`.
        seed: of splits that are drawn.

    Raises:
        RecordError: too few groups for three splits, or a picture or film cannot be read.
        StoreMismatchError: the folder holds the store of another run.
        NonFiniteError: an activation is not a number; names the item and layer.
        OutOfMemoryError: a batch does not fit.
        ProbingError: there are no samples, or a worker was killed.
        BackendError: the backend is not installed, or does not know the model.
    """
    if not samples:
        raise ProbingError("there are no samples")
    samples = with_splits(samples, seed)
    if folder is not None:
        about = {"samples": fingerprint(samples)}
        store = fill_store(loaded, samples, Path(folder), site, batch_size, about, backend=backend)
        x = store.read().float().numpy()
    else:
        run = _Extraction(loaded, samples, site, backend)
        batches = run.plan(batch_size, ALONE)
        geometry = find_geometry(loaded.skeleton)
        shape = (geometry.n_layers, geometry.n_heads, slice_width(geometry, site))
        x = np.empty((len(samples), *shape), dtype=np.float32)
        for b, found in run.run(batches, range(len(batches))):
            x[list(batches[b])] = found
    facts = loaded.identity.facts()
    model = {"model": facts.pop("source"), **facts}
    return Activations(x, items_table(samples), tuple(samples[0].labels), site, model)


@within_memory(
    "use a smaller --batch-size, and if it is 1 smaller --max-pixels",
    "its batches belong to the store, so delete the run's activations or give another --out too",
)
def fill_store(
    loaded: LoadedModel,
    samples: Sequence[Sample],
    folder: Path,
    site: str,
    batch_size: BatchSize,
    about: Mapping[str, str],
    processes: Processes = ALONE,
    backend: str = NATIVE,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> ActivationStore:
    """Run every sample through the model once and keep its activations; resumes.

    Samples of one context share one pass over it. Several processes share the batches, which are
    the same however many there are, and so is the store.

    Args:
        loaded, site, backend: as of :func:`extract`, errors too. All backends but the native one
            read every prompt whole, from its first token on, which differs by rounding.
        samples: what is run, in the order of the store; each in a split.
        folder: of the store.
        batch_size: samples that go through the model together. With auto a store that is there
            keeps its own; else what fits is tried.
        about: further facts, beside how the model was loaded, that must agree when a store is
            resumed.
        processes: those that call this with the same arguments, each from its own place.
        on_progress: told how many of how many batches are stored, also at the start; of several
            processes, each counts what was stored before and its own share.

    Returns:
        The complete store, ``[N, L, H, D]``.
    """
    run = _Extraction(loaded, samples, site, backend)
    about = {**about, **loaded.changes} | ({} if backend == NATIVE else {"backend": backend})
    items = items_table(samples)
    geometry = find_geometry(loaded.skeleton)
    meta = StoreMeta(
        site=site,
        position=POSITION,
        model_id=loaded.source,
        model_revision=loaded.revision,
        processor_hash=loaded.processor_hash,
        prompt_hash=hashlib.sha256("\0".join(run.prompts).encode()).hexdigest(),
        dtype=loaded.dtype,
        n_layers=geometry.n_layers,
        n_heads=geometry.n_heads,
        head_dim=slice_width(geometry, site),
        extra=about,
    )
    size = stored_size(folder) if batch_size == AUTO else None
    batches = run.plan(size or batch_size, processes)
    if processes.first:
        store = ActivationStore.open_or_create(folder, meta, items, batches)
        processes.wait()
    else:
        processes.wait()  # the first begins it
        store = ActivationStore.join(folder, meta, items, batches)
    with store:
        pending = store.pending()
        processes.wait()  # all see the same batches pending before any is stored
        stored = len(batches) - len(pending)
        pending = processes.share(pending)
        total = stored + len(pending)
        on_progress(stored, total)
        for done, (b, found) in enumerate(run.run(batches, pending), start=stored + 1):
            store.write_batch(b, torch.from_numpy(found).to(getattr(torch, loaded.dtype)))
            on_progress(done, total)
        processes.wait()
        if processes.first:
            store.finish()
    processes.wait()
    # What was written here need not be hashed again.
    return store if processes.first else ActivationStore.open(folder)


def stored_size(folder: Path) -> int | None:
    """The size of a store's batches; None if there is no store."""
    if not (folder / INDEX_NAME).exists():
        return None
    return max(len(batch) for batch in Index.read(folder).batches)


def models_at_once(loaded: LoadedModel) -> int:
    """Processes that run the model side by side: on the CPU one a core, unless it is large.

    They share its weights, and none waits for another, as the threads of one layer do.
    """
    model = loaded.model
    small = sum(p.numel() for p in model.parameters()) < _SMALL
    on_cpu = all(p.device.type == "cpu" for p in model.parameters())
    return min(torch.get_num_threads(), _MOST_WORKERS) if small and on_cpu else 1


def each_piece(
    loaded: LoadedModel, work: Callable[[Piece], Result], pieces: Sequence[Piece]
) -> Iterator[Result]:
    """The work on each piece, in order; side by side where the model is small, on the CPU."""
    workers = models_at_once(loaded)
    if workers == 1:
        yield from map(work, pieces)
        return
    with closing(prefetch(work, pieces, workers)) as results:
        yield from results
