"""A probing run from config to table: samples, activations, probes, ranking, figures."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.markup import escape
from safetensors.numpy import save
from sklearn.base import clone

from sally_anne.core.console import Console, counting, many, print_lines, stage
from sally_anne.core.errors import ProbingError, RunFolderError, SallyAnneError, StoreError
from sally_anne.core.files import read_object, write_atomic, write_json
from sally_anne.core.folder import RESULTS, claims, require_own, save_config
from sally_anne.core.options import check_options, flag_name
from sally_anne.core.processes import AUTO, MOST, first_gpu, here
from sally_anne.core.run import ACTIVATIONS, CONFIG, HEADS, MADE_BY, MANIFEST, PROBES, PROMPTS, Run
from sally_anne.core.store import ActivationStore
from sally_anne.data.samples import Sample, SampleSet, copies, untrained
from sally_anne.data.tasks import open_pairs, open_task
from sally_anne.figures.config import FiguresConfig, ReportConfig
from sally_anne.hooks.backends import NATIVE
from sally_anne.hooks.geometry import find_geometry, slice_width
from sally_anne.hooks.identity import SEEN
from sally_anne.models import estimate
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.processor import Unknown, unknown_words
from sally_anne.probing import extraction
from sally_anne.probing.activations import Activations, items_table, samples_of
from sally_anne.probing.config import DEFAULT_BATCH, ProbeConfig
from sally_anne.probing.extraction import fill_store, prefetch
from sally_anne.probing.patching import NO_PAIRS, add_null, add_patching, print_patching
from sally_anne.probing.probes import HeadProbes
from sally_anne.probing.reporting import confound_report, print_heads, print_summary, summarise

# The entry of config.json that says for which inputs the rest holds.
FINISHED = "finished"
# What else decides the results, next to the activations.
SETTINGS = ("c", "max_iter", "solver", "normalise")
# Seconds of reading after which the best heads are shown before the test samples are read.
LONG = 10
# Probes of both labels of a belief statement at once, 2 * y_o + y_p (section 4.2).
BOTH, PAIR = "op", ("y_p", "y_o")


def main(config: ProbeConfig) -> None:
    """Do a probing run, or show a finished one; or say what it would need."""
    (dry_run if config.dry_run else run)(config)


@claims("a probing run", ACTIVATIONS)
def run(config: ProbeConfig, console: Console | None = None) -> pd.DataFrame:
    """Do the whole run in ``config.folder``; what is already there is not computed again.

    Processes of a launcher share the extraction; the first does the rest. Gives the table of heads.
    """
    processes = here()
    device_map = processes.device_map(config.place)
    processes.begin()
    console = (console or Console()) if processes.first else Console(quiet=True)
    folder = config.folder
    check_options(config)
    if config.patching and not config.permutations:
        raise ProbingError("--permutations 0 leaves out what is readable: give --no-patching, too")
    if processes.first:
        require_same_probes(config)
    data = open_task(config)
    if why := untrained(data.samples):
        raise ProbingError(why)
    pair_sets = open_pairs(config, data) if config.patching else {}
    loaded = load_model(**config.opening() | {"device_map": device_map}, **data.senses)
    unknown = _check_inputs(loaded, data, config, console)
    with counting(console, "activations") as show:
        how = config.site, config.batch_size, {**data.facts, "data": data.fingerprint}
        fitted: dict[str, HeadProbes] = {}
        look = first_look(config, data, console, fitted)
        own = folder / ACTIVATIONS, *how, processes, config.backend, show, look
        store = fill_store(loaded, data.samples, *own, position=config.position)
    if not processes.first:
        processes.wait()
        return Run.open(folder).heads
    settings = " ".join(str(getattr(config, name)) for name in SETTINGS)
    key = hashlib.sha256((folder / MANIFEST).read_bytes() + settings.encode()).hexdigest()
    if saved := _finished(folder, key):
        store.verify()
        _ = Run.open(folder).probes
        console.print("[dim]finished before; nothing was computed again[/dim]")
    else:
        about = {"unknown_words": asdict(unknown), FINISHED: key}
        saved = _probe(config, data, loaded, store, fitted, about, console)
    add_null(config, data, console)
    patching, why = {}, NO_PAIRS if config.patching else ""
    try:  # the probes are worth having without it
        if pair_sets:
            patching, why = add_patching(config, loaded, pair_sets, console), ""
    except (RunFolderError, StoreError):
        raise
    except SallyAnneError as error:
        why = str(error)
    if not (folder / PROMPTS).exists():
        _keep_prompts(folder / PROMPTS, data.samples)
    heads, figures = Run.open(folder).heads, saved.get("figures", [])
    paths, age = [folder / name for name in figures], (folder / HEADS).stat().st_mtime_ns
    drawn = paths and all(p.exists() and p.stat().st_mtime_ns >= age for p in paths)
    if config.figures and not drawn:
        from sally_anne.figures.draw import draw
        from sally_anne.figures.report import write_report

        # The page has drawings of its own.
        pages = partial(write_report, folder, reopen=lambda _: data.samples)
        parts: Any = partial(draw, FiguresConfig(folder)), pages
        with stage(console, "drawing figures"):
            made, page = prefetch(lambda n: parts[n](), range(2), 2)
            figures = [path.relative_to(folder).as_posix() for path in (*made, page)]
    if saved.get("figures") != figures:  # also of none: it says that the run is at its end
        write_json(folder / RESULTS, saved | {"figures": figures})
    print_summary(console, heads, saved, data.meaning)
    print_patching(console, patching, heads)
    print_lines(console, [f"Which heads are used was not tested: {why}"] if why else [])
    page = [path for path in figures if path.endswith(".html")]
    print_lines(console, [f"report: {folder / page[0]}" if page else f"run folder: {folder}"])
    processes.wait()
    return heads


def report(config: ReportConfig) -> None:
    """Write the pages of finished runs of any kind and print the path of the one to open."""
    from sally_anne.figures.report import report as write

    write(config, samples_of)


def dry_run(config: ProbeConfig, console: Console | None = None) -> dict[str, estimate.Figure]:
    """Say what the run would do and need, each figure by its name. Errors as of the run itself."""
    check_options(config)
    require_own(config.folder, "a probing run")
    require_same_probes(config)
    data = open_task(config)
    samples, senses = data.samples, data.senses
    if senses["sounds"]:
        raise ProbingError("--dry-run counts no tokens of sounds: leave it out")
    loaded = estimate.open_described(config, videos=senses["videos"])
    size, counter = config.batch_size, estimate.Counter(loaded)
    if size == AUTO:
        own = extraction.stored_size(config.folder / ACTIVATIONS)
        size = own or (MOST if first_gpu() else DEFAULT_BATCH)
    batches = extraction.plan_batches(samples, size)
    prompts = extraction.prompts_at(loaded, samples, config.position)
    loads, tokens = [], []
    for batch in batches:
        chosen = [(samples[i], prompts[i]) for i in batch]
        begun, firsts, rows, endings = extraction.cut(loaded, chosen, config.backend == NATIVE)
        ends = [counter.ending(ending) for ending in endings] or [0] * len(batch)
        shapes = [(*frames, 3) if (frames := s.shape()) else None for s in firsts]
        contexts, patches = zip(*map(counter.context, begun, shapes), strict=True)
        loads.append(estimate.Load(contexts, tuple(ends), sum(patches)))
        tokens += [contexts[i] + n for i, n in zip(rows or range(len(batch)), ends, strict=True)]
    geometry = find_geometry(loaded.skeleton)
    shape, labels = (geometry.n_layers, geometry.n_heads), samples[0].labels
    kinds = len(labels) + has_both(labels, items_table(samples))
    figures = [
        estimate.exact(data.noun, data.groups, "of the three splits"),
        estimate.exact("samples N", len(samples), f"of all {data.noun}"),
        estimate.exact("batches", len(batches), f"of {many(size, 'samples')} at most"),
        counter.each("tokens a sample", tokens),
        *estimate.needs(loaded, loads, config.quantization).values(),
        estimate.disk(len(samples), *shape, slice_width(geometry, config.site), loaded.dtype),
        estimate.exact("probes", kinds * shape[0] * shape[1], f"L x H x {kinds} labels"),
    ]
    if config.patching:
        # A pair's context is read once a prompt; then each head, and each set, is a single token.
        pair_sets = open_pairs(config, data).values()
        ranked = sum(len(p.choose("validation", config.validation_pairs)) for p in pair_sets)
        tested = sum(len(p.choose("test", config.pairs)) for p in pair_sets)
        heads = shape[0] * shape[1] if config.exact else 0
        sets = len(config.sizes) * (1 + len(labels) + config.random_sets)
        contexts = (ranked + tested) * sum(tokens) / len(tokens)
        read = round(2 * (contexts + ranked * heads + tested * (2 * heads + sets)))
        how = f"{ranked} + {tested} pairs x 2 x (context + L x H if exact, twice on test; {sets})"
        name = "tokens of the patching scan"
        figures.append(estimate.Figure(name, read, f"{read:,}", how))
    return estimate.show(console or Console(), loaded.name, figures)


def _probe(
    config: ProbeConfig,
    data: SampleSet,
    loaded: LoadedModel,
    store: ActivationStore,
    fitted: dict[str, HeadProbes],
    about: Mapping[str, Any],
    console: Console,
) -> dict[str, Any]:
    """Fit the probes, rank the heads and write all files of a run; gives ``results.json``."""
    folder, labels = config.folder, tuple(data.samples[0].labels)
    geometry = find_geometry(loaded.skeleton)
    layers, n_heads = geometry.n_layers, geometry.n_heads
    with stage(console, f"fitting {layers * n_heads} heads' probes"):
        (folder / CONFIG).unlink(missing_ok=True)  # stopped here, it is not the run before
        x = Activations(store.read().float().numpy(), store.items, labels, config.site)
        probes = fitted or fit_probes(x, config)
        heads = rank_heads(x, probes)
        save_probes(folder / PROBES, probes)
        write_atomic(folder / HEADS, heads.to_parquet(None, index=False))
    summary = summarise(heads, x, probes, data)
    results = {"results": summary, "confounds": confound_report(x.items, data)}
    write_json(folder / RESULTS, results)
    model: dict[str, Any] = {**loaded.identity.facts(), "class": loaded.family.class_name}
    model |= {"attention": loaded.attention, **loaded.changes}
    model |= {"layers": layers, "heads": n_heads, "head_dim": geometry.head_dim}
    read = {"source": data.source, "fingerprint": data.fingerprint, "shows": data.senses["videos"]}
    classes = {label: probes[label].classes_.tolist() for label in labels}
    saved = {"model": model, "data": read, "labels": classes, SEEN: data.lineage.facts(), **about}
    save_config(folder, asdict(config), loaded, **saved)
    return results


def _keep_prompts(path: Path, samples: Sequence[Sample]) -> None:
    """Write each sample's words, for reports: ``item_id`` and ``text``, turns by their roles."""
    texts = []
    for sample in samples:
        turns = [f"{turn['role']}: {turn['content']}" for turn in sample.turns]
        texts.append("\n\n".join(turns) if len(turns) > 1 else sample.turns[0]["content"])
    table = pd.DataFrame({"item_id": [sample.item_id for sample in samples], "text": texts})
    write_atomic(path, table.to_parquet(None, index=False, compression="zstd"))


def fit_probes(x: Activations, config: ProbeConfig) -> dict[str, HeadProbes]:
    """Probes of all labels, fitted on the training samples; of beliefs, of both at once too."""
    train = x.train
    if not len(train) or not x.labels:
        raise ProbingError("no train samples, or no labels: give more samples, or other splits")
    blank = HeadProbes(config.c, config.max_iter, config.solver, config.normalise)
    probes = {label: clone(blank).fit(train, label=label) for label in x.labels}
    if has_both(x.labels, x.items):
        probes[BOTH] = blank.fit(train.x, 2 * train.values("y_o") + train.values("y_p"))
    return probes


def first_look(
    config: ProbeConfig, data: SampleSet, console: Console, fitted: dict[str, HeadProbes]
) -> Callable[[Sequence[int], np.ndarray], None]:
    """Takes batches; when all but test is read, if late, prints heads and keeps their probes."""
    items, begun = items_table(data.samples), time.monotonic()
    kept = set(np.flatnonzero(items["split"] != "test"))
    read: dict[int, np.ndarray] = {}

    def add(rows: Sequence[int], made: np.ndarray) -> None:
        read.update((row, z) for row, z in zip(rows, made, strict=True) if row in kept)
        if read and len(read) == len(kept):
            x = np.stack([read[row] for row in sorted(read)])
            read.clear()
            if time.monotonic() - begun > LONG:
                part = Activations(x, items.iloc[sorted(kept)], tuple(data.samples[0].labels))
                fitted.update(fit_probes(part, config))
                heads = rank_heads(part, fitted)
                shown = {split: f"{split}_accuracy" for split in ("train", "validation")}
                title = "best heads so far, without null and test samples"
                print_heads(console, title, heads, part.labels, shown)

    return add


def has_both(labels: Iterable[str], items: pd.DataFrame) -> bool:
    """Whether the labels are two beliefs, true or false: not only named alike."""
    return set(PAIR) <= set(labels) and all(items[name].dtype == bool for name in PAIR)


def rank_heads(x: Activations, probes: Mapping[str, HeadProbes]) -> pd.DataFrame:
    """The table of heads for all labels, see :meth:`probing.probes.HeadProbes.rank`."""
    tables = [probes[label].rank(x).set_index(["layer", "head"]) for label in x.labels]
    return pd.concat(tables, axis=1).reset_index()


def save_probes(path: Path, probes: Mapping[str, HeadProbes]) -> None:
    """Weights of all probes, ``LABEL.coef`` and so on: see docs/files.md."""
    tensors: dict[str, np.ndarray] = {}
    for name, probe in probes.items():
        binary = probe.binary and name != BOTH
        for part in ("coef", "intercept", "theta", *(["sigma"] if binary else [])):
            tensors[f"{name}.{part}"] = np.ascontiguousarray(getattr(probe, f"{part}_"))
    if BOTH in probes:
        tensors[f"{BOTH}.classes"] = probes[BOTH].classes_.astype(np.int64)
    write_atomic(path, save(tensors))


def require_same_probes(config: ProbeConfig) -> None:
    """A ProbingError names what differs from a run that is finished in the folder: it stays."""
    saved = _saved(config.folder / CONFIG)
    for name in SETTINGS if FINISHED in saved else ():
        was, now = saved.get("config", {}).get(name), getattr(config, name)
        if was != now:
            words = f"holds a finished run with {flag_name(name)} {was}, not {now}"
            remedy = "choose another --out; a copy of its folder activations need not be read again"
            raise ProbingError(f"{config.folder} {words}: {remedy}")


def _check_inputs(
    loaded: LoadedModel, data: SampleSet, config: ProbeConfig, console: Console
) -> Unknown:
    """Print what goes into the model and unknown words; the longest samples fit."""
    shapes = extraction.check_samples(loaded, data.samples, config.position)
    geometry = find_geometry(loaded.skeleton)
    seen = config.setting if any(shapes) else "sound" if data.senses["sounds"] else "text"
    what = f"{many(data.groups, data.noun)}, {many(len(data.samples), 'samples')}, setting {seen}"
    name = f"[bold]{escape(loaded.described)}[/bold]"
    console.print(f"{name}: {geometry}; {what}, {loaded.prompt} prompts")
    texts = ("\n".join(turn["content"] for turn in s.turns) for s in data.samples)
    unknown, note = unknown_words(loaded, texts), copies(data.samples)
    notes = geometry.note, unknown.warning(loaded.name), note and f"warning: {note}"
    print_lines(console, filter(None, notes))
    return unknown


def _finished(folder: Path, key: str) -> dict[str, Any]:
    """``results.json`` of a finished run with this key, or nothing."""
    if _saved(folder / CONFIG).get(FINISHED) != key:
        return {}
    return _saved(folder / RESULTS) if all((folder / n).exists() for n in (HEADS, PROBES)) else {}


def _saved(path: Path) -> dict[str, Any]:
    """A JSON file of a finished run; empty if there is none."""
    return read_object(path, RunFolderError, MADE_BY) if path.exists() else {}
