"""A probing run from config to table: samples, activations, probes, ranking."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.markup import escape
from safetensors.numpy import save

from hooks.geometry import find_geometry
from hooks.identity import SEEN
from hooks.saved_run import ACTIVATIONS, AGAIN, CONFIG, HEADS, MADE_BY, MANIFEST, PROBES, Run
from probing.activations import Activations
from probing.config import DEFAULT_C, DEFAULT_MAX_ITER, ProbeConfig
from probing.extraction import fill_store
from probing.probes import HeadProbes
from probing.reporting import (
    confound_report,
    misfits,
    print_confounds,
    print_summary,
    summarise,
)
from sally_anne.benchmarks import samples as own
from sally_anne.benchmarks.gridtom import contrasts as gridtom
from sally_anne.benchmarks.gridtom.stories import open_stories
from sally_anne.benchmarks.mmtom_qa import contrasts as mmtom_qa
from sally_anne.benchmarks.mmtom_qa.load import load as load_mmtom_qa
from sally_anne.benchmarks.samples import SampleSet
from sally_anne.core.commands import no_command
from sally_anne.core.console import Bars, Console, stage
from sally_anne.core.errors import ProbingError, RunFolderError
from sally_anne.core.files import intact, read_object, require_sealed, write_atomic, write_sealed
from sally_anne.core.options import check_options, spelled
from sally_anne.core.processes import here
from sally_anne.core.run_folder import PROBING, RESULTS, claims, versions
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.processor import unknown_words
from sally_anne.models.prompts import open_prompt
from sally_anne.models.videos import check_room, crop_notes

# The entry of config.json that says for which inputs the rest holds.
FINISHED = "finished"
# Those of results.json.
FOUND = ("results", "confounds", "figures")
# What else decides the results, beside the activations, and what runs had that do not say it.
SETTINGS = {"c": DEFAULT_C, "max_iter": DEFAULT_MAX_ITER, "solver": "sklearn"}
GRIDTOM_ALONE = ("order", "contrast", "stories", "data_seed")
# Probes of both labels of a belief statement at once: 2 * y_o + y_p, of which o0p0, o0p1, o1p0 and
# o1p1 are the classes (section 4.2).
BOTH, PAIR = "op", ("y_p", "y_o")

Draw = Callable[[Path], list[Path]]


@claims(PROBING)
def run(
    config: ProbeConfig, console: Console | None = None, draw: Draw | None = None
) -> pd.DataFrame:
    """Do the whole run in ``config.folder``; what is already there is not computed again.

    Started several times by a launcher, the processes share the extraction; then the first fits
    the probes, draws and prints, and the others wait for it.

    Args:
        config: the options.
        console: where it prints.
        draw: draws the figures of a finished run's folder, unless the options are against it.

    Returns:
        The table of heads.

    Raises:
        ProbingError, ModelError, BenchmarkError, SallyAnneError: bad input, named before long work
            wherever it can be known.
    """
    processes = here()
    device_map = processes.device_map(config.place)
    processes.begin()
    console = (console or Console()) if processes.first else Console(quiet=True)
    folder = config.folder
    check_options(config)
    if processes.first:
        require_same_probes(config)
    data = open_samples(config)
    shown = any(sample.shows for sample in data.samples)
    loaded = load_model(**config.opening() | {"device_map": device_map}, videos=shown)
    _check_room(loaded, data, console)
    geometry = find_geometry(loaded.skeleton)
    heads_in_all = geometry.n_layers * geometry.n_heads
    console.print(
        f"[bold]{escape(config.model)}[/bold]: {geometry.n_layers} layers x {geometry.n_heads} "
        f"heads x {geometry.head_dim}; {data.groups} {data.noun}, {len(data.samples)} samples"
    )
    unknown = unknown_words(
        loaded, ("\n".join(turn["content"] for turn in s.turns) for s in data.samples)
    )
    if warning := unknown.warning(loaded.name):
        console.print(escape(warning), soft_wrap=True)
    about = {**data.facts, "data": data.fingerprint}
    with Bars(console) as bar:
        task = bar.add_task("activations", total=None)
        store = fill_store(
            loaded,
            data.samples,
            folder / ACTIVATIONS,
            config.site,
            config.batch_size,
            about,
            processes,
            config.backend,
            lambda done, total: bar.update(task, completed=done, total=total),
        )
    if not processes.first:
        processes.wait()
        return Run.open(folder).heads
    key = _key(config, folder)
    saved, found = _finished(folder, key)
    if not saved:
        labels = tuple(data.samples[0].labels)
        with stage(console, f"fitting {heads_in_all} heads' probes"):
            # Stopped half-way, the folder must not pass for the finished run that it was before.
            (folder / CONFIG).unlink(missing_ok=True)
            x = Activations(store.read().float().numpy(), store.items, labels, config.site)
            probes = fit_probes(x, config)
            heads = rank_heads(x, probes)
            save_probes(folder / PROBES, probes, heads)
            write_atomic(folder / HEADS, heads.to_parquet(None, index=False))
        saved = {
            "config": asdict(config),
            "model": loaded.identity.facts()
            | {
                "class": loaded.family.class_name,
                "attention": loaded.attention,
                **loaded.changes,
                "layers": geometry.n_layers,
                "heads": geometry.n_heads,
                "head_dim": geometry.head_dim,
            },
            "data": {"source": data.source, "fingerprint": data.fingerprint},
            "labels": {label: probes[label].classes_.tolist() for label in labels},
            "unknown_words": asdict(unknown),
            SEEN: data.lineage.facts(),
            "versions": versions(),
            FINISHED: key,
        }
        found = {
            "results": summarise(heads, x, probes),
            "confounds": confound_report(x.items, data),
            "figures": [],
        }
        write_sealed(folder / RESULTS, found)
        write_sealed(folder / CONFIG, saved, (HEADS, PROBES, MANIFEST))
    else:
        store.verify()
        intact(folder, PROBES, saved, AGAIN.format(folder))
        heads = Run.open(folder).heads
        console.print("[dim]finished before; nothing was computed again[/dim]")
    if draw is not None and config.figures and not _drawn(folder, found):
        with stage(console, "drawing figures"):
            paths = draw(folder)
        figures = [path.relative_to(folder).as_posix() for path in paths]
        write_sealed(folder / RESULTS, found | {"figures": figures})
    print_summary(console, heads, found["results"], data.meaning, config.c)
    print_confounds(console, found["confounds"], found["results"], data.meaning)
    console.print(f"run folder: {escape(str(folder))}", soft_wrap=True)
    processes.wait()
    return heads


def open_samples(config: ProbeConfig) -> SampleSet:
    """The samples that a run asks for, each in a split.

    Raises:
        ProbingError: options that do not go together.
        BenchmarkError: the data is not usable; the message says what and where.
    """
    if config.samples is None and config.task == "gridtom":
        stories = open_stories(config.data, config.data_seed)
        return gridtom.sample_set(
            stories,
            config.order,
            config.contrast,
            config.setting,
            config.stories,
            config.split_seed,
        )
    of = "--samples" if config.samples is not None else f"--task {config.task}"
    if alone := [n for n in GRIDTOM_ALONE if getattr(config, n) != getattr(ProbeConfig, n)]:
        raise ProbingError(f"{spelled(alone[0])} is for GridToM's stories, not for {of}")
    if config.setting == "video":
        raise ProbingError(f"--setting video is for GridToM's stories; {of} takes text")
    if config.samples is None:
        if config.data is None:
            raise ProbingError(f"{of} needs the benchmark's own files: --data FOLDER")
        items = load_mmtom_qa(config.data)
        return mmtom_qa.sample_set(items, config.setting, config.split_seed)
    if config.data is not None or config.task != ProbeConfig.task:
        raise ProbingError("--samples is in place of --task and --data: leave these out")
    samples = own.read_samples(config.samples)
    if config.setting == "text":
        samples = [replace(sample, images=(), video=None) for sample in samples]
    facts = {"setting": config.setting}
    return own.sample_set(samples, config.samples.name, config.split_seed, facts)


def fit_probes(x: Activations, config: ProbeConfig) -> dict[str, HeadProbes]:
    """Probes of all labels, fitted on the training samples alone; of beliefs, of both at once too.

    Raises:
        ProbingError: there is no training sample, or all have one value.
    """
    train = x.train
    if not len(train):
        raise ProbingError("no train samples: give more samples, or other splits")

    def probes() -> HeadProbes:
        return HeadProbes(config.c, config.max_iter, config.solver)

    found = {label: probes().fit(train, label=label) for label in x.labels}
    if has_both(x.labels, x.items):
        found[BOTH] = probes().fit(train.x, four_way(train.items))
    return found


def has_both(labels: Iterable[str], items: pd.DataFrame) -> bool:
    """Whether the labels are GridToM's two beliefs, true or false: not only named alike."""
    return set(PAIR) <= set(labels) and all(items[name].dtype == bool for name in PAIR)


def four_way(items: pd.DataFrame) -> np.ndarray:
    """The four-way label 2 * y_o + y_p of each sample."""
    return (2 * items["y_o"].astype(int) + items["y_p"].astype(int)).to_numpy()


def rank_heads(x: Activations, probes: Mapping[str, HeadProbes]) -> pd.DataFrame:
    """The table of heads for all labels, see :meth:`probing.probes.HeadProbes.rank`."""
    tables = [probes[label].rank(x).set_index(["layer", "head"]) for label in x.labels]
    return pd.concat(tables, axis=1).reset_index()


def save_probes(path: Path, probes: Mapping[str, HeadProbes], heads: pd.DataFrame) -> None:
    """Weights of all probes.

    Keys of each label: ``y_p.coef [L, H, D]``, ``y_p.intercept [L, H]``, ``y_p.theta [L, H, D]``
    (unit) and ``y_p.sigma [L, H]``. Of more than two classes, ``coef`` and ``theta [L, H, K, D]``
    and ``intercept [L, H, K]``; ``op`` has classes 2 * y_o + y_p.
    """
    tensors: dict[str, np.ndarray] = {}
    for name, probe in probes.items():
        tensors |= {
            f"{name}.coef": probe.coef_,
            f"{name}.intercept": probe.intercept_,
            f"{name}.theta": probe.theta_,
        }
        if probe.binary and name != BOTH:
            sigma = heads[f"{name}_sigma"].to_numpy()
            tensors[f"{name}.sigma"] = sigma.reshape(probe.intercept_.shape)
    if BOTH in probes:
        tensors[f"{BOTH}.classes"] = probes[BOTH].classes_.astype(np.int64)
    write_atomic(path, save({k: np.ascontiguousarray(v) for k, v in tensors.items()}))


def require_same_probes(config: ProbeConfig) -> None:
    """That a run finished in the folder has the same probes: its numbers, and figures, stay.

    Raises:
        ProbingError: names what differs.
        AlteredError, RunFolderError: its config.json is not as it was written.
    """
    saved = _saved(config.folder / CONFIG)
    before = saved.get("config")
    if not isinstance(before, dict) or FINISHED not in saved:
        return
    for name, earlier in SETTINGS.items():
        was, wanted = before.get(name, earlier), getattr(config, name)
        if was != wanted:
            raise ProbingError(
                f"{config.folder} holds a finished run with {spelled(name)} {was}, not {wanted}. "
                "Choose another --out; activations need not be read again if you copy its folder "
                "activations there first"
            )


def _check_room(loaded: LoadedModel, data: SampleSet, console: Console) -> None:
    """The longest samples fit the model's context; frames that are padded are told of."""
    shapes = [sample.shape() for sample in data.samples]
    remedy = "take a model that reads more"
    for shape in dict.fromkeys(shapes):
        alike = [s for s, other in zip(data.samples, shapes, strict=True) if other == shape]
        longest = max(alike, key=lambda sample: sum(len(t["content"]) for t in sample.turns))
        prompt = open_prompt(loaded, longest.turns, longest.shows)
        more = ", or --setting text" if longest.shows else ""
        check_room(loaded, f"sample {longest.item_id}", prompt, shape, 0, remedy + more)
    sizes = Counter(shape[1:] for shape in shapes if shape is not None)
    for line in crop_notes(loaded, sizes):
        console.print(escape(line))


def _key(config: ProbeConfig, folder: Path) -> str:
    """Hash of all that the probes' results depend on."""
    manifest = (folder / MANIFEST).read_bytes()
    settings = f"{config.c} {config.max_iter}"
    if config.solver != "sklearn":
        settings += f" {config.solver}"
    return hashlib.sha256(manifest + settings.encode()).hexdigest()


def _finished(folder: Path, key: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a finished run with this key saved: how it was made, what it found; empty without one.

    Raises:
        ProbingError: there is one, and an entry that is read again is not as it was written.
    """
    saved = _saved(folder / CONFIG)
    # Earlier versions kept what was found in the same file.
    old = "results" in saved and not (folder / RESULTS).exists()
    path = folder / (CONFIG if old else RESULTS)
    if saved.get(FINISHED) != key or not all((folder / n).exists() for n in (HEADS, PROBES)):
        return {}, {}
    found = _saved(path)
    if found and (wrong := misfits(found, list(saved.get("labels", PAIR)))):
        raise ProbingError(
            f"{path}: {', '.join(wrong)} cannot be read; delete the file and run again to fit the "
            "probes anew"
        )
    return (saved, {name: found[name] for name in FOUND}) if found else ({}, {})


def _saved(path: Path) -> dict[str, Any]:
    """What a finished run wrote to a JSON file; empty if there is none.

    Raises:
        RunFolderError: it is no JSON object, or cannot be read.
        AlteredError: it is not as it was written.
    """
    if not path.exists():
        return {}
    saved = read_object(path, RunFolderError, MADE_BY)
    require_sealed(path, saved, AGAIN.format(path.parent))
    return saved


def _drawn(folder: Path, found: dict[str, Any]) -> bool:
    return bool(found["figures"]) and all((folder / name).exists() for name in found["figures"])


if __name__ == "__main__":
    no_command("probe")
