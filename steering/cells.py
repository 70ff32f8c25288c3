"""The cells of a sweep: which heads, which direction, how strong; answered all at once, and chosen.

Vectors at ``last_prompt``, ``generated`` or both leave all earlier tokens alone. So these are the
same in every cell: a prompt is read once, frames and all, and each cell is a row of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import pandas as pd
import torch

from hooks.batch_size import AUTO, BatchSize, in_batches, rows_that_fit, within_memory
from hooks.edit import Edit
from hooks.positions import ALL
from hooks.vector import SteeringVector
from sally_anne.core.bootstrap import Estimate
from sally_anne.core.errors import SteeringError
from sally_anne.harness.evaluate import prompt_of
from sally_anne.harness.items import Item
from sally_anne.harness.journal import Journal
from sally_anne.harness.metrics import Metrics, Unit, belief_metrics, paired_accuracy
from sally_anne.harness.model import cut_prompts, prefill_prompts
from sally_anne.harness.results import score, scores
from sally_anne.models.decoding import ROOM, decode, extend, greedy, row_bytes_by_device
from sally_anne.models.loading import LoadedModel

CONTROLS = ("random", "random_heads")
# Models of fewer heads are moved by a fraction of what larger ones take, and break sooner.
SMALL = 256
# The most heads that are steered by default: this part of all.
MOST_STEERED = 8
FINE = (-10.0, -5.0, -2.0, -1.0, -0.5, 0.0, 0.5, 0.6, 0.8, 1.0, 2.0, 5.0, 10.0)
WIDE = (-50.0, -20.0, -10.0, -5.0, -2.0, 0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 50.0)


@dataclass(frozen=True, order=True)
class Cell:
    """One setting. ``alpha`` 0 is the model as it is: then ``k`` is 0 and there is no direction.

    Attributes:
        direction: see :data:`steering.config.Direction`.
        k: number of heads.
        alpha: strength.
        seed: of random directions and heads.
    """

    direction: str
    k: int
    alpha: float
    seed: int = 0

    @property
    def name(self) -> str:
        """Unique, and the same in every run."""
        if not self.k:
            return "baseline"
        seed = f"/seed{self.seed}" if self.direction in CONTROLS else ""
        alpha = repr(self.alpha).removesuffix(".0")
        return f"{self.direction}{seed}/K{self.k}/alpha{alpha}"


BASELINE = Cell("none", 0, 0.0)
# The vector of each cell; None for the baseline.
Vectors = Mapping[Cell, SteeringVector | None]


def default_ks(n_layers: int, n_heads: int) -> tuple[int, ...]:
    """Numbers of heads that fit a model: half as many as it has layers, as many, twice as many.

    These are those of the GridToM paper, 14, 28, 56 for Qwen2-VL-7B and 16, 32, 64 for
    LLaVA-NeXT-Video-7B. They are halved while the largest is more than an eighth of all heads: of
    so many, heads drawn at random hit those that matter, and are no control.
    """
    most = 2 * n_layers
    while most > max(1, n_layers * n_heads // MOST_STEERED):
        most //= 2
    return tuple(sorted({max(1, most // 4), max(1, most // 2), most}))


def default_alphas(n_layers: int, n_heads: int) -> tuple[float, ...]:
    """Strengths that fit a model; both ranges have as many."""
    return FINE if n_layers * n_heads < SMALL else WIDE


def cells(
    ks: Sequence[int], alphas: Sequence[float], directions: Sequence[str], seed: int = 0
) -> list[Cell]:
    """All combinations, and the baseline once, first."""
    grid = {
        Cell(direction, k, float(alpha), seed if direction in CONTROLS else 0): None
        for direction in directions
        for k in ks
        for alpha in alphas
        if alpha
    }
    return [BASELINE, *grid]


def vectors_of(
    wanted: Sequence[Cell], fit: Callable[[str, int, int], SteeringVector]
) -> dict[Cell, SteeringVector | None]:
    """The vector of each cell; ``fit`` makes one from direction, K and seed, and is asked once."""
    made = {
        key: fit(*key) for key in dict.fromkeys((c.direction, c.k, c.seed) for c in wanted if c.k)
    }
    return {c: made[c.direction, c.k, c.seed].with_alpha(c.alpha) if c.k else None for c in wanted}


@within_memory(
    "use a smaller --decode-batch-size, then a smaller --batch-size, then smaller --max-pixels"
)
def run_cells(
    loaded: LoadedModel,
    items: Sequence[Item],
    vectors: Vectors,
    journal: Journal,
    batch_size: int,
    decode_batch_size: BatchSize,
    max_new_tokens: int,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> pd.DataFrame:
    """Every item in every cell; what the journal holds is not run again.

    The journal's processes share the batches of items.

    Args:
        loaded: the model.
        items: what is asked.
        vectors: the cells and their vectors.
        journal: open; keeps an answer for each cell and item.
        batch_size: prompts that are read together.
        decode_batch_size: answers (prompts x cells) that are given together; auto as many as fit.
        max_new_tokens: length of a reply.
        on_progress: told how many of how many answers there are; of several processes, each counts
            what there was before and its own share.

    Returns:
        Those of :func:`sally_anne.harness.results.score`, ``cell, direction, k, alpha, seed``.

    Raises:
        SteeringError: vectors differ in site or positions, or are for all positions.
        OutOfMemoryError: so many answers or prompts do not fit.
    """
    site, positions = _common(vectors)
    for vector in vectors.values():
        if vector is not None:
            vector.check(loaded.skeleton)
    keys = {
        (cell, item.item_id): f"{cell.name}|{item.item_id}" for cell in vectors for item in items
    }

    def missing(cell: Cell, item: Item) -> bool:
        return keys[cell, item.item_id] not in journal.answers

    left = [cell for cell in vectors if any(missing(cell, item) for item in items)]
    batches = in_batches(items, batch_size)
    todo = journal.processes.share(
        [b for b in batches if any(missing(cell, item) for item in b for cell in left)]
    )
    done = sum(key in journal.answers for key in keys.values())
    total = done + sum(missing(cell, item) for batch in todo for item in batch for cell in left)
    on_progress(done, total)
    width = min(batch_size, len(items))
    rows = 1 if decode_batch_size == AUTO else decode_batch_size
    if decode_batch_size == AUTO and left:
        # The rows whose caches fit, by the item with the longest text.
        longest = prompt_of(max(items, key=lambda item: len(item.text)))
        inputs, (ending,) = cut_prompts(loaded, [longest])
        tokens = inputs["input_ids"].shape[1] + len(ending) + max(max_new_tokens, ROOM)
        held = row_bytes_by_device(loaded.model, tokens)
        rows = rows_that_fit(held, width, journal.processes)
    deltas = {cell: None if v is None else v.delta() for cell, v in vectors.items()}
    for batch in todo:
        with torch.inference_mode():
            state, endings = prefill_prompts(loaded, [prompt_of(item) for item in batch])
            for part in _parts(left, batch, width, rows):
                wanted = [missing(cell, batch[number]) for cell, number in part]
                if not any(wanted):
                    continue
                delta = _stack([deltas[cell] for cell, _ in part])
                numbers = [number for _, number in part]
                edited = (
                    nullcontext() if delta is None else Edit(loaded.model, delta, site, positions)
                )
                with edited:
                    after = extend(loaded, state, numbers, [endings[number] for number in numbers])
                    tokens = greedy(loaded, after, max_new_tokens)
                replies = zip(part, wanted, decode(loaded, tokens), strict=True)
                journal.add(
                    {"item_id": keys[cell, batch[number].item_id], "reply": reply}
                    for (cell, number), asked, reply in replies
                    if asked
                )
                done += sum(wanted)
                on_progress(done, total)
    journal.gather(keys.values())
    tables = [
        score(items, [journal.answers[keys[cell, item.item_id]] for item in items]).assign(
            cell=cell.name, direction=cell.direction, k=cell.k, alpha=cell.alpha, seed=cell.seed
        )
        for cell in vectors
    ]
    return pd.concat(tables, ignore_index=True)


def _parts(
    cells: Sequence[Cell], batch: Sequence[Item], width: int, rows: int
) -> Iterator[Sequence[tuple[Cell, int]]]:
    """Cells and numbers of items that go through the model together, ``rows`` at most.

    Cells are put together without regard to how many items a batch has. Whatever part of a run was
    answered before, what is left is then put together as it would have been.
    """
    for group in in_batches(cells, max(1, rows // width)):
        pairs = [(cell, number) for cell in group for number in range(len(batch))]
        yield from in_batches(pairs, rows)


def _common(vectors: Vectors) -> tuple[str, str]:
    """Site and positions that all vectors share."""
    found = {(v.site, v.positions) for v in vectors.values() if v is not None}
    if len(found) > 1:
        raise SteeringError(f"the vectors of a sweep differ in site or positions: {sorted(found)}")
    site, positions = found.pop() if found else ("head_out", "last_prompt+generated")
    if positions == ALL:
        raise SteeringError(
            "positions 'all' change the whole prompt, which a sweep reads only once; use "
            "'last_prompt+generated', or evaluate such vectors one by one (--steer)"
        )
    return site, positions


def _stack(deltas: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    """``[R, L, H, D]``, zero for rows that are not steered; None if no row is."""
    some = next((d for d in deltas if d is not None), None)
    if some is None:
        return None
    return torch.stack([torch.zeros_like(some) if d is None else d for d in deltas])


def cell_metrics(
    table: pd.DataFrame, reader: str = "robust", unit: Unit | None = None
) -> dict[str, Metrics]:
    """Belief metrics of every cell, by the cell's name, in the table's order."""
    return {
        str(name): belief_metrics(scores(rows, reader), unit=unit)
        for name, rows in table.groupby("cell", sort=False)
    }


def best_first(
    table: pd.DataFrame, candidates: Iterable[Cell], reader: str = "robust"
) -> list[Cell]:
    """Steered cells by their Both; ties go to the smaller alpha, then to fewer heads.

    Args:
        table: answers on validation stories, from :func:`run_cells`.
        candidates: the cells to choose from, the baseline left out.
        reader: who reads the answers.

    Raises:
        SteeringError: no candidates, or an answer on a test story among the table's.
    """
    _without_test(table)
    metrics = cell_metrics(table, reader)
    ranked = sorted(
        (-metrics[cell.name].Both.value, abs(cell.alpha), cell.k, cell.name, cell)
        for cell in candidates
        if cell.k
    )
    if not ranked:
        raise SteeringError("there is no steered cell to choose from")
    return [row[-1] for row in ranked]


def choose(
    ranked: Sequence[Cell],
    initial: Callable[[Cell], pd.DataFrame],
    max_drop: float,
    reader: str = "robust",
) -> Cell:
    """The best cell that leaves the initial belief alone.

    Cells are tried from the best on, so that few of them are asked the initial-belief questions.
    If none passes, it is the one with the smallest drop.

    Args:
        ranked: from :func:`best_first`.
        initial: answers to the initial-belief questions on validation stories, in the baseline and
            in a cell.
        max_drop: largest drop of their accuracy that passes, as a share.
        reader: who reads the answers.

    Raises:
        SteeringError: an answer on a test story.
    """
    drops: list[float] = []
    for cell in ranked:
        table = initial(cell)
        _without_test(table)
        drops.append(-initial_gain(table, cell, reader).value)
        # Shares of few questions are not exact in binary.
        if drops[-1] <= max_drop + 1e-9:
            return cell
    return ranked[drops.index(min(drops))]


def initial_gain(table: pd.DataFrame, cell: Cell, reader: str) -> Estimate:
    """How much more often initial-belief questions are answered rightly in a cell."""
    before, after = (
        scores(table[table["cell"] == name], reader) for name in (BASELINE.name, cell.name)
    )
    return paired_accuracy(before, after)["overall"]


def _without_test(table: pd.DataFrame) -> None:
    if (table["split"] == "test").any():
        raise SteeringError("K and alpha must not be chosen on test stories")
