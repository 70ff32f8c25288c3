"""``sally-anne probe --dry-run``: what a run would do and need; nothing is computed or written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sally_anne.core.console import Console
from sally_anne.core.folder import require_own
from sally_anne.core.options import check_options
from sally_anne.core.run import ACTIVATIONS
from sally_anne.core.store import INDEX_NAME, ActivationStore, Index, mismatch
from sally_anne.data.pairs import PairSet
from sally_anne.data.samples import Sample
from sally_anne.hooks.backends import NATIVE
from sally_anne.hooks.batch_size import AUTO
from sally_anne.hooks.geometry import Geometry, find_geometry, slice_width
from sally_anne.models.estimate import (
    Counter,
    Figure,
    Load,
    disk,
    exact,
    needs,
    open_described,
    show,
)
from sally_anne.models.prompts import open_prompt
from sally_anne.probing.config import DEFAULT_BATCH, ProbeConfig
from sally_anne.probing.extraction import cut, plan_batches, stored_size
from sally_anne.probing.pipeline import has_both, require_same_probes
from sally_anne.probing.probes import items_table
from sally_anne.probing.sources import open_pairs, open_samples

# Of one permutation of one label, a head's one number of one training sample: 32 heads of width
# 128, 344 samples, 1,000 permutations took 6.8 s on two busy cores.
SECONDS = 5e-9


def dry_run(config: ProbeConfig, console: Console | None = None) -> dict[str, Figure]:
    """Say what the run would do and need: each figure by its name. Errors as of the run itself.

    Of a published model of the catalogue neither weights nor a network are needed.
    """
    check_options(config)
    require_own(config.folder, "a probing run")
    require_same_probes(config)
    data = open_samples(config)
    samples = data.samples
    loaded = open_described(config, videos=any(sample.shows for sample in samples))
    folder = config.folder / ACTIVATIONS
    size = config.batch_size
    if size == AUTO:
        size = stored_size(folder) or DEFAULT_BATCH
    batches = plan_batches(samples, size)
    counter = Counter(loaded)
    loads, tokens = _loads(config, samples, batches, counter)
    geometry = find_geometry(loaded.skeleton)
    width = slice_width(geometry, config.site)
    there = _stored(folder, batches)
    labels = samples[0].labels
    kinds = len(labels) + has_both(labels, items_table(samples))
    probes = kinds * geometry.n_layers * geometry.n_heads
    figures = [
        exact(data.noun, data.groups, "of the three splits"),
        exact("samples N", len(samples), f"of all {data.noun}"),
        exact("batches", len(batches), f"of {size} samples at most"),
        exact("stored", there, f"batches in {folder}; not computed again"),
        counter.each("tokens a sample", tokens),
        *needs(loaded, loads, config.quantization).values(),
        disk(len(samples), geometry.n_layers, geometry.n_heads, width, loaded.dtype),
        exact("probes", probes, f"L x H x {kinds} labels"),
    ]
    trained = sum(sample.split == "train" for sample in samples)
    if config.permutations:
        each = len(labels) * geometry.n_layers * geometry.n_heads * width * trained
        seconds = SECONDS * config.permutations * each
        how = f"{SECONDS:g} x permutations x labels x L x H x D x {trained:,} train samples"
        figures.append(Figure("permutations", seconds, f"{seconds:,.0f} s", f"{how}, on two cores"))
    if config.patching:
        figures.append(_scan(config, open_pairs(config, data), len(labels), geometry, tokens))
    return show(console or Console(), loaded.name, figures)


def _loads(
    config: ProbeConfig,
    samples: Sequence[Sample],
    batches: Sequence[Sequence[int]],
    counter: Counter,
) -> tuple[list[Load], list[int]]:
    """What each batch asks of the model, and the tokens of each sample, in no order."""
    prompts = [open_prompt(counter.loaded, s.turns, s.shows) for s in samples]
    loads, tokens = [], []
    for batch in batches:
        chosen = [(samples[i], prompts[i]) for i in batch]
        parts = cut(counter.loaded, chosen, config.backend == NATIVE)
        rows = parts.rows or list(range(len(batch)))
        ends = [counter.ending(ending) for ending in parts.endings] or [0] * len(batch)
        shapes = [(*shape, 3) if (shape := s.shape()) else None for s in parts.firsts]
        counted = map(counter.context, parts.beginnings, shapes)
        contexts, patches = zip(*counted, strict=True)
        loads.append(Load(contexts, tuple(ends), sum(patches)))
        tokens += [contexts[row] + end for row, end in zip(rows, ends, strict=True)]
    return loads, tokens


def _scan(
    config: ProbeConfig,
    pair_sets: Mapping[str, PairSet],
    labels: int,
    geometry: Geometry,
    tokens: Sequence[int],
) -> Figure:
    """Tokens that the patching scan reads, beside those of the samples: of each pair both sides.

    A pair's context is read once a side; then each head, and each set of heads, is a single token.
    """
    heads = geometry.n_layers * geometry.n_heads if config.exact else 0
    sets = len(config.sizes) * (1 + labels + config.random_sets)
    ranked = sum(len(t.choose("validation", config.validation_pairs)) for t in pair_sets.values())
    tested = sum(len(t.choose("test", config.pairs)) for t in pair_sets.values())
    contexts = (ranked + tested) * sum(tokens) / len(tokens)
    read = round(2 * (contexts + ranked * heads + tested * (2 * heads + sets)))
    of_heads = "L x H, and on test twice that + sets" if config.exact else "sets on test"
    how = f"{ranked} + {tested} pairs x 2 x (context + {of_heads}; {sets} sets)"
    return Figure("tokens of the patching scan", read, f"{read:,}", how)


def _stored(folder: Path, batches: Sequence[Sequence[int]]) -> int:
    """How many batches of this plan are in the store; with another plan a run would not go on."""
    if not (folder / INDEX_NAME).exists():
        return 0
    if Index.read(folder).batches != tuple(tuple(batch) for batch in batches):
        raise mismatch(folder, "it has other samples or batches")
    return len(batches) - len(ActivationStore.open(folder).pending())
