"""A probing run to be given away: a copy of its data without paths of this machine.

Figures and page are left out, as they may show such paths; they can be drawn again.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

from sally_anne.core.files import write_atomic, write_json
from sally_anne.core.folder import CONFIG, RESULTS
from sally_anne.core.hub import CARD, card, without_paths
from sally_anne.core.run import (
    ACTIVATIONS,
    HEADS,
    PATCHING,
    PROBES,
    PROMPTS,
    Run,
)

# What a run is in a repository; the last two, what was asked and what was read, only on demand.
NAMES = (CARD, CONFIG, RESULTS, PATCHING, HEADS, PROBES, PROMPTS, f"{ACTIVATIONS}/*")
BEST = 10


def copy_run(run: Run, folder: Path, activations: bool = False) -> None:
    """Write a run, which is read and checked first, into an empty folder.

    Args:
        activations: also its activations, and what its samples say.

    Raises:
        RunFolderError, StoreError: as :class:`Run`.
    """
    _ = run.heads, run.probes
    copied = [HEADS, PROBES]
    if activations:
        run.store.verify()
        _copy_store(run, folder / ACTIVATIONS)
        copied += [] if run.prompts is None else [PROMPTS]
    for name in copied:
        shutil.copyfile(run.folder / name, folder / name)
    for name, found in ((RESULTS, {**run.results, "figures": []}), (PATCHING, run.patching)):
        if (run.folder / name).exists():
            write_json(folder / name, without_paths(found, run.saved))
    write_json(folder / CONFIG, without_paths(dict(run.saved)))
    write_atomic(folder / CARD, _card(run))


def _copy_store(run: Run, folder: Path) -> None:
    """Links to the files of a run's store, under a manifest without paths."""
    from sally_anne.core.store import INDEX_NAME, Index

    source = run.folder / ACTIVATIONS
    others = shutil.ignore_patterns(".*", INDEX_NAME)
    shutil.copytree(source.resolve(), folder, ignore=others, copy_function=os.symlink)
    index = Index.read(source)
    meta = index.meta
    cleaned = without_paths({"model_id": meta.model_id, "extra": meta.extra}, run.saved)
    replace(index, meta=replace(meta, **cleaned)).write(folder)


def _card(run: Run) -> bytes:
    """The README of a run: what was probed, and its best heads."""
    model = run.saved.get("model", {})
    parts = without_paths(run.title, run.saved)
    rows = [
        f"| {label} | {row.layer} | {row.head} | {getattr(row, column):.3f} |"
        for label in run.labels
        if (column := f"{label}_validation_accuracy") in run.heads
        for row in run.ranked(label).head(BEST).itertuples()
    ]
    body = f"""# Probes of every attention head: {parts[0]}

{", ".join(parts[1:])}.

| label | layer | head | validation accuracy |
|---|---|---|---|
{chr(10).join(rows)}

## Use

```python
import sally_anne as sa

run = sa.Run.open("user/name")
run.heads  # accuracy, AUC and rank of every head
```
"""
    return card(body, {**model, "model": model.get("source")}, "probes")
