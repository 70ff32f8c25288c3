"""Ways to get the last token's head outputs of many prompts; all read the same numbers.

Each has a form in which it wants its inputs, and a forward from prepared inputs to activations. The
whole procedure is, unless a contender has a better way: prepare a batch, run it, go on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from bench.clock import Clock
from bench.workload import Workload
from sally_anne.hooks.capture import Capture
from sally_anne.hooks.geometry import HEAD_OUT
from sally_anne.hooks.positions import LAST_PROMPT
from sally_anne.models.prompts import to_model
from sally_anne.probing.extraction import activations_of, fill_store
from sally_anne.probing.prefetch import prefetch

# whole: every prompt uncut, a batch padded together. single: one prompt after the other.
# beginnings: what prompts share stands once.
Form = Literal["whole", "single", "beginnings"]
Measure = Literal["whole", "model"]

BARE = "bare forwards"
PARALLEL = "bare forwards, a process a core"
CAPTURE = "capture on equal forwards"
OURS = "ours"
SHARED = "ours, one process"

# What every equal forward is called with: the logits of one position, and no cache.
LEAN: dict[str, Any] = {"logits_to_keep": 1, "use_cache": False}


def prepare(work: Workload, form: Form, rows: Sequence[int]) -> Any:
    """Draw the frames of these rows and let the processor do its work."""
    if form == "single":
        return [work.whole([i]) for i in rows]
    return work.beginnings(rows) if form == "beginnings" else work.whole(rows)


class Contender(ABC):
    """One way.

    Attributes:
        name: in tables.
        form: of its inputs.
        site: what it reads; None if nothing.
        part: whether it is run on a part of the samples alone, and the rest reckoned from it.
        measures: the whole procedure with preparation, the model's part with inputs made before.
        package: what has to be installed.
        writes: what the whole procedure leaves on the disk.
        note: for the reader of a table.
    """

    name: ClassVar[str]
    form: ClassVar[Form] = "whole"
    site: ClassVar[str | None] = HEAD_OUT
    part: ClassVar[bool] = False
    measures: ClassVar[tuple[Measure, ...]] = ("whole", "model")
    package: ClassVar[str | None] = None
    writes: ClassVar[Literal["nothing", "a file a prompt", "one file"]] = "nothing"
    note: ClassVar[str] = ""

    @abstractmethod
    def forward(self, work: Workload, prepared: Any) -> Tensor | None:
        """Activations ``[B, L, H, D]`` of what :func:`prepare` made; None if it reads nothing."""

    def whole(self, work: Workload, clock: Clock, folder: Path) -> Tensor | None:
        """The procedure from stories to activations ``[N, L, H, D]``, in the order of the samples.

        Args:
            work: the samples.
            clock: is told what is preparation, where that is not done beside the model's work.
            folder: empty, for what the procedure writes.
        """
        each = [[i] for i in range(len(work.samples))]
        batches = each if self.form == "single" else work.batches
        found: list[Tensor | None] = [None] * len(work.samples)
        for rows in batches:
            with clock.preparing():
                prepared = prepare(work, self.form, rows)
            activations = self.forward(work, prepared)
            if activations is None:
                continue
            for row, activation in zip(rows, activations, strict=True):
                found[row] = activation
                if self.writes == "a file a prompt":
                    np.save(folder / f"{row}.npy", activation.float().numpy())
        if any(activation is None for activation in found):
            return None
        everything = torch.stack([a for a in found if a is not None])
        if self.writes == "one file":
            np.save(folder / "all.npy", everything.float().numpy())
        return everything


class Bare(Contender):
    """The model alone, with the logits of the last position; what no reading can fall below."""

    name = BARE
    site = None
    note = "reads nothing; whole prompts, logits of the last position only, no cache"

    def forward(self, work: Workload, prepared: Any) -> Tensor | None:
        with torch.inference_mode():
            work.loaded.model(**to_model(work.loaded, prepared), **LEAN)
        return None


class BareInParallel(Bare):
    """The same in as many processes as cores, as `extract` runs a small model on the CPU."""

    name = PARALLEL
    measures = ("whole",)
    note = "each process has one thread, and prepares its own inputs"

    def whole(self, work: Workload, clock: Clock, folder: Path) -> Tensor | None:
        _ = work.prompts  # made once, before the processes part

        def run(rows: Sequence[int]) -> None:
            self.forward(work, prepare(work, self.form, rows))

        with closing(prefetch(run, work.batches, torch.get_num_threads())) as results:
            for _ in results:
                pass
        return None


class Captured(Contender):
    """The very same forwards inside :class:`hooks.capture.Capture`."""

    name = CAPTURE
    note = "the same forwards inside hooks.capture.Capture"

    def forward(self, work: Workload, prepared: Any) -> Tensor | None:
        with torch.inference_mode(), Capture(work.loaded.model, HEAD_OUT, LAST_PROMPT) as capture:
            work.loaded.model(**to_model(work.loaded, prepared), **LEAN)
            return capture.take()[:, 0]


class Shared(Contender):
    """What `fill_store` does, in this process: beginnings once, each prompt's end on top of it."""

    name = SHARED
    form = "beginnings"
    note = "beginnings that prompts share are read once; no process of its own, no store"

    def forward(self, work: Workload, prepared: Any) -> Tensor | None:
        return torch.from_numpy(activations_of(work.loaded, prepared, HEAD_OUT))


class Ours(Shared):
    """:func:`probing.extraction.fill_store` as a user runs it, store and all."""

    name = OURS
    measures = ("whole",)
    note = "fill_store: shared beginnings, processes of its own, the store written"

    def whole(self, work: Workload, clock: Clock, folder: Path) -> Tensor | None:
        store = fill_store(
            work.loaded, work.samples, folder / "activations", HEAD_OUT, work.batch_size, {}
        )
        return store.read()


def reference(work: Workload, rows: Sequence[int], site: str) -> Tensor:
    """``[B, L, H, D]`` as the native hooks read them, each prompt whole."""
    with torch.inference_mode(), Capture(work.loaded.model, site, LAST_PROMPT) as capture:
        work.loaded.model(**to_model(work.loaded, work.whole(rows)), **LEAN)
        return capture.take()[:, 0]
