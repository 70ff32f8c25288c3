"""Activations of many items on disk, written batch by batch, resumable, checked when read.

A store is a folder:

    manifest.json              what was run, the batch plan; once complete, every shard's checksum
    items.parquet              one row an item
    shard-00000.safetensors    batch 0: one tensor `[n, H, D]` a layer
    .lock                      empty; held while a run writes

A batch is computed whole or not at all, its composition never changes, and it is the shard: it is
written once, atomically, and hashed once as it is written. So a resumed run gives the numbers of an
uninterrupted one; nothing depends on time or order of writing, so the files are the same bytes,
too. For the same reason several processes may compute batches at once: one holds the store
(`ActivationStore`), the others add to it (`BatchWriter`).
"""

from hooks.store.manifest import StoreMeta
from hooks.store.store import ActivationStore, BatchWriter

__all__ = ["ActivationStore", "BatchWriter", "StoreMeta"]
