"""Last-token activations of every head for every sample, in memory or kept in a store."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import multiprocessing
import os
import signal
import sys
import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import closing, nullcontext
from itertools import groupby, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from sally_anne.core import processes
from sally_anne.core.console import counting, in_python
from sally_anne.core.errors import ProbingError
from sally_anne.core.options import Seed, checked
from sally_anne.core.processes import ALONE, AUTO, BatchSize, Processes, fitting
from sally_anne.core.store import INDEX_NAME, ActivationStore, Index, StoreMeta
from sally_anne.data.samples import Sample, copies, fingerprint, untrained, with_splits
from sally_anne.hooks.backends import NATIVE, Backend
from sally_anne.hooks.backends import backend as backend_named
from sally_anne.hooks.capture import Capture
from sally_anne.hooks.edit import refuse_edited
from sally_anne.hooks.geometry import HEAD_OUT, find_geometry, slice_width
from sally_anne.hooks.positions import LAST_PROMPT
from sally_anne.models import prompts
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prefix import extend, prefill, split_common_prefix
from sally_anne.models.processor import RAW, unknown_words
from sally_anne.models.videos import check_room
from sally_anne.probing.activations import Activations, items_table
from sally_anne.probing.config import DEFAULT_BATCH, Position

# Parameters below which a model is small, and the most that run side by side.
_SMALL, _MOST_WORKERS = 1_000_000_000, 8
# M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h: memory above it goes back to the system.
_THRESHOLDS, _KEPT_BYTES = (-1, -3), 1 << 30

Piece = TypeVar("Piece")
Made = TypeVar("Made")
Result = TypeVar("Result")

# Contexts of a batch, the first sample of each, and each sample's context and ending.
Cut = tuple[list[str | tuple[int, ...]], list[Sample], list[int], list[tuple[int, ...]]]


class Prepared(NamedTuple):
    """A batch ready for the model: inputs of its contexts, and each sample's context and ending."""

    inputs: dict[str, np.ndarray]
    rows: list[int]
    endings: list[tuple[int, ...]]


def is_small(loaded: LoadedModel) -> bool:
    """Whether a model has less than a billion parameters; reads no weights."""
    return sum(p.numel() for p in loaded.skeleton.parameters()) < _SMALL


def plan_batches(samples: Sequence[Sample], size: int) -> list[Sequence[int]]:
    """Rows of each batch: with frames of one size, and nearly equally long.

    Films of one group stand together, so that what they begin with is read once; texts do by their
    contexts, as equal ones need no padding.
    """
    kinds: list[tuple[Any, ...]] = [
        (s.shows, s.sound is not None, not s.context, s.shape() or ()) for s in samples
    ]
    firsts = {s.group: row for row, s in reversed([*enumerate(samples)])}
    places = [
        (s.shows and firsts[s.group], s.context) if s.context else (len(s.content), "")
        for s in samples
    ]
    order = sorted(range(len(samples)), key=lambda row: (kinds[row], places[row]))
    alike = groupby(order, kinds.__getitem__)
    return [batch for _, rows in alike for batch in processes.in_batches(list(rows), size)]


def cut(loaded: LoadedModel, chosen: Sequence[tuple[Sample, str]], shared: bool = True) -> Cut:
    """A batch, in which samples of one context stand together, as whole prompts if not shared."""
    if not shared or not chosen[0][0].context:
        return [prompt for _, prompt in chosen], [sample for sample, _ in chosen], [], []
    parts: Cut = [], [], [], []
    beginnings, firsts, rows, endings = parts
    for _, members in groupby(chosen, lambda m: (m[0].group, m[0].context)):
        samples, texts = zip(*members, strict=True)
        prefix = split_common_prefix(loaded, texts)
        rows += [len(beginnings)] * len(texts)
        endings += prefix.endings
        beginnings.append(prefix.beginning)
        firsts.append(samples[0])
    return parts


def prepare(
    loaded: LoadedModel, chosen: Sequence[tuple[Sample, str]], shared: bool = True
) -> Prepared:
    beginnings, firsts, rows, endings = cut(loaded, chosen, shared)
    return Prepared(processed(loaded, beginnings, firsts), rows, endings)


def processed(
    loaded: LoadedModel, begun: Sequence[str | tuple[int, ...]], samples: Sequence[Sample]
) -> dict[str, np.ndarray]:
    """Inputs of prompts and samples: all with films of one shape, or none; likewise sounds."""
    clips = [sample.frames() for sample in samples] if samples[0].shows else None
    waves = [wave for sample in samples if (wave := sample.waveform()) is not None]
    sounds = [prompts.pieces_of(loaded, wave) for wave in waves] or None
    return prompts.narrowed(loaded, prompts.process(loaded, begun, clips, sounds))


def laid_out(loaded: LoadedModel, sample: Sample, reply: bool) -> str:
    """A sample's rendered prompt, up to where an answer begins (``reply``) or its text ends."""
    wave = sample.waveform()
    pieces = 0 if wave is None else len(prompts.pieces_of(loaded, wave))
    layout = prompts.reply_prompt if reply else prompts.open_prompt
    return layout(loaded, sample.turns, sample.shows, pieces)


def prompts_at(
    loaded: LoadedModel, samples: Sequence[Sample], position: Position = "statement"
) -> list[str]:
    """Rendered prompts whose last tokens are read; a ProbingError for replies to raw prompts."""
    if position == "reply" and loaded.prompt == RAW:
        words = "raw prompts have no turns: take --prompt chat and a model with a chat template"
        raise ProbingError(f"--position reply is the turn of the model's answer, and {words}")
    return [laid_out(loaded, sample, position == "reply") for sample in samples]


def check_samples(
    loaded: LoadedModel, samples: Sequence[Sample], position: Position = "statement"
) -> list[tuple[int, int, int] | None]:
    """The :meth:`Sample.shape` of each; ContextError or MediaError for one that does not fit."""
    shapes, kinds = [sample.shape() for sample in samples], defaultdict(list)
    for sample, shape in zip(samples, shapes, strict=True):
        # One sound after the other: together they may not fit in memory.
        length = 0 if (wave := sample.waveform()) is None else len(wave)
        kinds[shape, length].append(sample)
    for (shape, length), alike in kinds.items():
        longest = max(alike, key=lambda sample: sum(len(t["content"]) for t in sample.turns))
        (prompt,) = prompts_at(loaded, [longest], position)
        remedy = "give it less text" + ", or fewer frames, or --setting text" * longest.shows
        sound = sum(n - 1 for n in prompts.sound_tokens(loaded, length)) if length else 0
        check_room(loaded, f"sample {longest.item_id}", prompt, shape, 0, remedy, sound)
    return shapes


def activations_of(
    loaded: LoadedModel,
    batch: Prepared,
    site: str,
    items: Sequence[str] | None = None,
    reader: Backend | None = None,
) -> np.ndarray:
    """``float32 [B, L, H, D]`` of a batch; its prompts are whole if a ``reader`` is given."""
    with torch.inference_mode():
        inputs = prompts.to_model(loaded, batch.inputs)
        if not batch.rows:
            reader = reader or backend_named(NATIVE)
            z = reader.read(loaded.model, inputs, site, LAST_PROMPT, items=items)
            return z[:, 0].float().numpy()
        prefix = prefill(loaded, inputs, logits=False)
        with Capture(loaded.model, site=site, positions=LAST_PROMPT) as capture:
            extend(loaded, prefix, batch.rows, batch.endings)
            return capture.take(items=items)[:, 0].float().cpu().numpy()


@checked
def extract(
    loaded: LoadedModel,
    samples: Sequence[Sample],
    folder: Path | str | None = None,
    site: str = HEAD_OUT,
    batch_size: BatchSize = AUTO,
    backend: str = NATIVE,
    seed: Seed = 0,
    on_progress: Callable[[int, int], None] | None = None,
    position: Position = "statement",
) -> Activations:
    """Run every sample through the model once and take its activations.

    Args:
        samples: those without a split are drawn into one, group by group.
        folder: keeps the activations in a store, which is resumed and read again.
        site: where activations are read, see :mod:`hooks.geometry`.
        backend: which library reads; one of `hooks.backends.BACKENDS`.
        seed: of splits that are drawn.
        on_progress: called with how many of how many batches are read; by default a bar.
        position: statement reads at the text's last token, reply where an answer begins.

    Raises:
        RecordError, ProbingError: too few groups for three splits; no samples, or a killed worker.
        ContextError, MediaError: a text is too long; a picture or film cannot be read or shown.
        StoreError, OutOfMemoryError: the folder holds another run's store; a batch does not fit.
        HookError: an activation is not a number; the backend is not installed, or not for it.
    """
    if not isinstance(loaded, LoadedModel):
        raise ProbingError(f"give a model that sa.load_model opened, not {loaded!r:.60}")
    given = list(samples) if isinstance(samples, Iterable) else []
    if not given or not all(isinstance(sample, Sample) for sample in given):
        raise ProbingError("give samples, as sa.samples, sa.read_samples or sa.gridtom make them")
    if folder is not None:
        refuse_edited(vars(loaded).get("model"))
    samples = with_splits(given, seed)
    check_samples(loaded, samples, position)
    unknown = unknown_words(loaded, (t["content"] for s in samples for t in s.turns))
    for note in filter(None, (untrained(samples), copies(samples), unknown.warning(loaded.name))):
        warnings.warn(note.removeprefix("warning: "), stacklevel=3)
    bar = nullcontext(on_progress) if on_progress else counting(in_python(), "activations")
    with TemporaryDirectory() as passing, bar as show:
        about = {} if folder is None else {"samples": fingerprint(samples)}
        where = Path(passing, "store") if folder is None else Path(folder)
        own = loaded, samples, where, site, batch_size, about, ALONE, backend
        store = fill_store(*own, on_progress=show, position=position)
        x = store.read().float().numpy()
    facts = loaded.identity.facts()
    model = {"model": facts.pop("source"), **facts}
    return Activations(x, items_table(samples), tuple(samples[0].labels), site, model)


@processes.within_memory(
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
    on_batch: Callable[[Sequence[int], np.ndarray], None] = lambda rows, made: None,
    position: Position = "statement",
    width: int | None = None,
    read: Callable[[Sequence[int], Prepared], np.ndarray] | None = None,
) -> ActivationStore:
    """Run every sample, each in a split, through the model once; keep it in a store, or resume one.

    Samples of one context share one pass over it, but with backends other than the native one,
    which differ by rounding. The store is the same however many processes share the batches.

    Args:
        loaded, site, backend, position: as of :func:`extract`, errors too.
        batch_size: with auto a store that is there keeps its own; else what fits is tried.
        about: what must agree when a store is resumed, next to how the model was loaded.
        processes: those that call this with the same arguments, each from its own place.
        on_progress: called with how many of how many batches are stored, also at the start.
        on_batch: called with the rows and activations of each batch; test samples come last.
        width, read: what else, ``[B, L, H, width]``, is read of a batch's rows at another site.
    """
    reader, native = backend_named(backend), backend == NATIVE
    texts, items = prompts_at(loaded, samples, position), items_table(samples)
    about = {**about, **loaded.changes} | ({} if native else {"backend": backend})
    geometry = find_geometry(loaded.skeleton)
    prompt_hash = hashlib.sha256("\0".join(texts).encode()).hexdigest()
    made = loaded.source, loaded.revision, loaded.processor_hash, prompt_hash, loaded.dtype
    shape = geometry.n_layers, geometry.n_heads, width or slice_width(geometry, site)
    meta = StoreMeta(site, position, *made, *shape, extra=about)

    def prepared(rows: Sequence[int]) -> Prepared:
        return prepare(loaded, [(samples[i], texts[i]) for i in rows], native)

    def activations(rows: Sequence[int], batch: Prepared) -> np.ndarray:
        if read is not None:
            return read(rows, batch)
        return activations_of(loaded, batch, site, [samples[i].item_id for i in rows], reader)

    def trial(size: int) -> None:
        planned = plan_batches(samples, size)
        longest = max(planned, key=lambda b: max(len(texts[i]) for i in b))
        activations(longest, prepared(longest))

    if batch_size == AUTO:
        batch_size = stored_size(folder) or fitting(loaded.model, trial, DEFAULT_BATCH, processes)
    batches = plan_batches(samples, batch_size)
    if processes.first:
        store = ActivationStore.open_or_create(folder, meta, items, batches)
        processes.wait()
    else:
        processes.wait()  # the first begins it
        store = ActivationStore.join(folder, meta, items, batches)
    with store:
        pending = store.pending()
        pending.sort(key=lambda b: all(samples[i].split == "test" for i in batches[b]))
        processes.wait()  # all see the same batches pending before any is stored
        stored, pending = len(batches) - len(pending), processes.share(pending)
        total, own = stored + len(pending), [batches[b] for b in pending]
        on_progress(stored, total)
        with closing(each_piece(loaded, prepared, activations, own, native)) as results:
            for done, (b, z) in enumerate(zip(pending, results, strict=True), stored + 1):
                kept = torch.from_numpy(z).to(getattr(torch, loaded.dtype))
                store.write_batch(b, kept)
                on_batch(batches[b], kept.float().numpy())
                on_progress(done, total)
        processes.wait()
        if processes.first:
            store.finish()
    processes.wait()
    # What was written here need not be hashed again.
    return store if processes.first else ActivationStore.open(folder)


def stored_size(folder: Path) -> int | None:
    """The size of a store's batches; None if there is no store."""
    there = (folder / INDEX_NAME).exists()
    return max(map(len, Index.read(folder).batches)) if there else None


def models_at_once(loaded: LoadedModel) -> int:
    """Processes that run the model side by side: on the CPU one a core, unless it is large."""
    alone = loaded.accelerated or not is_small(loaded)
    return 1 if alone else min(torch.get_num_threads(), _MOST_WORKERS)


def each_piece(
    loaded: LoadedModel,
    prepare: Callable[[Piece], Made],
    work: Callable[[Piece, Made], Result],
    pieces: Sequence[Piece],
    side_by_side: bool = True,
) -> Generator[Result]:
    """The work on each piece and on what is prepared for it, in order.

    A small model on a CPU works on several ``side_by_side``; else the next pieces are prepared.
    """
    if not pieces:  # nor are weights read
        return
    if side_by_side and (several := models_at_once(loaded)) > 1:
        # What preparing keeps, such as the tiles of films, all forked processes have then.
        prepare(pieces[0])
        whole = prefetch(lambda piece: work(piece, prepare(piece)), pieces, several)
        with closing(whole) as results:
            yield from results
        return
    # An accelerator waits for the next frames.
    spare = min(torch.get_num_threads() - 1, _MOST_WORKERS) if loaded.accelerated else 1
    with closing(prefetch(prepare, pieces, max(1, spare))) as made:
        yield from map(work, pieces, made)


_work: Callable[[Any], Any]


def prefetch(
    work: Callable[[Piece], Result], pieces: Sequence[Piece], workers: int = 1
) -> Generator[Result]:
    """Do ``work`` on each piece in forked processes, ``workers`` pieces ahead of the reader.

    Only Linux forks safely: elsewhere each piece is worked on when it is asked for. Results come in
    order; what ``work`` raises is raised in place. It touches no accelerator, and returns arrays:
    tensors go through shared memory, of which containers have little.
    """
    if not pieces or sys.platform != "linux":
        yield from map(work, pieces)
        return
    threads = torch.get_num_threads()
    # Leave the workers their cores: torch's threads wait for each other, and lose far more.
    torch.set_num_threads(max(1, threads - workers))
    try:
        fork = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(workers, fork, initializer=_begin, initargs=(work,)) as pool:
            submitted = (pool.submit(_call, piece) for piece in pieces)
            waiting = deque(islice(submitted, workers))
            while waiting:
                waiting.extend(islice(submitted, 1))
                yield waiting.popleft().result()
    except BrokenExecutor as error:
        words = "a process was killed, perhaps for want of memory; the same command goes on"
        raise ProbingError(f"{words} where it stopped") from error
    finally:
        torch.set_num_threads(threads)


def _call(piece: Any) -> Any:
    return _work(piece)


def _begin(work: Callable[[Any], Any]) -> None:
    """Set a forked process up: it leaves interrupts to its parent and ends with it."""
    global _work
    _work = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    processes.exit_with_parent()
    # Threads do not survive a fork, and the pools of these two libraries would wait for theirs.
    torch.set_num_threads(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # Fetching the same memory anew for each batch took a third of the time on a virtual machine.
    with contextlib.suppress(AttributeError):  # of other C libraries than glibc
        for setting in _THRESHOLDS:
            ctypes.CDLL(None).mallopt(setting, _KEPT_BYTES)
