"""Last-token activations of every head for every sample, kept in a store."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from hooks.capture import Capture
from hooks.geometry import Geometry, find_geometry
from hooks.positions import LAST_PROMPT
from hooks.store import ActivationStore
from hooks.store_manifest import MANIFEST_NAME, StoreMeta, mismatch, read_manifest
from models.loading import LoadedModel
from models.prompts import encode, open_prompt
from probing.contrasts import Sample
from probing.errors import ProbingError

POSITION = LAST_PROMPT


def items_table(samples: Sequence[Sample]) -> pd.DataFrame:
    """Labels and groups of the samples, one row each."""
    columns = ("item_id", "story", "group", "split", "condition", "perspective", "room")
    table = {name: [getattr(s, name) for s in samples] for name in columns}
    table |= {name: [bool(getattr(s, name)) for s in samples] for name in ("y_p", "y_o")}
    return pd.DataFrame(table)


def plan_batches(n_samples: int, batch_size: int) -> list[list[int]]:
    """Rows of each batch. Samples of one story stand together, so its frames are drawn once."""
    return [
        list(range(start, min(start + batch_size, n_samples)))
        for start in range(0, n_samples, batch_size)
    ]


def extract(
    loaded: LoadedModel,
    samples: Sequence[Sample],
    folder: Path,
    site: str,
    video: bool,
    batch_size: int,
    about: dict[str, str],
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> ActivationStore:
    """Run every sample through the model once and keep its activations; resumes.

    Args:
        loaded: the model.
        samples: what is run, in the order of the store.
        folder: of the store.
        site: where activations are read.
        video: whether the samples' frames are shown.
        batch_size: samples that go through the model together.
        about: further facts that must agree when a store is resumed.
        on_progress: told how many of how many batches are stored, also at the start.

    Returns:
        The complete store, ``[N, L, H, D]``.

    Raises:
        StoreMismatchError: the folder holds the store of another run.
        NonFiniteError: an activation is not a number; names the item and layer.
        ProbingError: a batch does not fit on the GPU.
    """
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
    batches = plan_batches(len(samples), batch_size)
    with ActivationStore.open_or_create(folder, meta, items_table(samples), batches) as store:
        pending = store.pending()
        stored = len(batches) - len(pending)
        on_progress(stored, len(batches))
        if pending:
            with Capture(loaded.model, site=site, positions=POSITION) as capture:

                def prepare(b: int) -> dict[str, Any]:
                    chosen = [samples[i] for i in batches[b]]
                    clips = [s.case.frames(s.perspective) for s in chosen] if video else None
                    return encode(loaded, [prompts[i] for i in batches[b]], clips)

                for b, prepared in zip(pending, _one_ahead(prepare, pending), strict=True):
                    chosen = [samples[i] for i in batches[b]]
                    try:
                        inputs = prepared.result()
                        with torch.inference_mode():
                            # One row of logits: all others would cost as much as the model.
                            loaded.model(**inputs, logits_to_keep=1, use_cache=False)
                    except torch.OutOfMemoryError as error:
                        raise ProbingError(
                            f"{len(chosen)} inputs together do not fit on the GPU. Use a smaller "
                            f"--batch-size; the batches belong to the store, so delete {folder} "
                            "or choose another --out as well"
                        ) from error
                    activations = capture.take(items=[s.item_id for s in chosen])
                    store.write_batch(b, activations[:, 0])
                    stored += 1
                    on_progress(stored, len(batches))
        if not store.complete:
            store.finish()
    return ActivationStore.open(folder)


def _one_ahead(
    prepare: Callable[[int], dict[str, Any]], numbers: Sequence[int]
) -> Iterator[Future[dict[str, Any]]]:
    """Prepare each batch in a thread of its own while the model works on the one before."""
    with ThreadPoolExecutor(max_workers=1) as worker:
        waiting: Future[dict[str, Any]] | None = None
        for b in numbers:
            following = worker.submit(prepare, b)
            if waiting is not None:
                yield waiting
            waiting = following
        if waiting is not None:
            yield waiting


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


def slice_width(geometry: Geometry, site: str) -> int:
    """Width of one head's slice at a site: D at ``head_out``, hidden / H elsewhere."""
    if site == "head_out":
        return geometry.head_dim
    return geometry.hidden_size // geometry.n_heads
