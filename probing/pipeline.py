"""A probing run from config to table: samples, activations, probes, ranking, figures."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from rich.markup import escape

from hooks.geometry import find_geometry
from hooks.store import ActivationStore
from probing import contrasts
from probing.config import ProbeConfig
from probing.confounds import confound_report
from probing.contrasts import Sample
from probing.extraction import POSITION, extract
from probing.ranking import ProbeSet, fit_probes, rank_heads
from probing.reporting import misfits, print_confounds, print_summary, summarise
from probing.saving import (
    AGAIN,
    CONFIG,
    HEADS,
    MANIFEST,
    PROBES,
    read_heads,
    save_heads,
    save_probes,
)
from sally_anne.benchmarks.gridtom import splits
from sally_anne.benchmarks.gridtom.records import StorySet
from sally_anne.benchmarks.gridtom.render import CLIP_SHAPE
from sally_anne.benchmarks.gridtom.stories import open_stories
from sally_anne.benchmarks.lineage import SEEN, Lineage
from sally_anne.core.commands import no_command
from sally_anne.core.console import Bars, Console, stage
from sally_anne.core.errors import ProbingError
from sally_anne.core.files import intact, require_sealed, write_sealed
from sally_anne.core.options import check_options
from sally_anne.core.processes import here
from sally_anne.core.run_folder import PROBING, claims, versions
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.processor import unknown_words
from sally_anne.models.prompts import open_prompt
from sally_anne.models.videos import check_room, crop_notes

# The entry of config.json that says for which inputs the rest holds.
FINISHED = "finished"
# What else decides the results, beside the activations.
SETTINGS = ("c", "max_iter", "solver")


@claims(PROBING)
def run(config: ProbeConfig, console: Console | None = None) -> pd.DataFrame:
    """Do the whole run in ``config.folder``; what is already there is not computed again.

    Started several times by a launcher, the processes share the extraction; then the first fits
    the probes, draws and prints, and the others wait for it.

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
    stories = open_stories(config.data, config.data_seed)
    chosen = choose_stories(stories, config)
    samples = contrasts.build(
        (stories.story(i) for i in chosen), chosen, config.order, config.contrast, config.setting
    )
    loaded = load_model(
        **config.opening() | {"device_map": device_map}, videos=config.setting != "text"
    )
    _check_room(loaded, samples, config, console)
    geometry = find_geometry(loaded.skeleton)
    console.print(
        f"[bold]{escape(config.model)}[/bold]: {geometry.n_layers} layers x {geometry.n_heads} "
        f"heads x {geometry.head_dim}; {len(chosen)} stories, {len(samples)} samples"
    )
    unknown = unknown_words(loaded, (sample.content for sample in samples))
    if warning := unknown.warning(loaded.name):
        console.print(escape(warning), soft_wrap=True)
    about = {
        "order": str(config.order),
        "contrast": config.contrast,
        "setting": config.setting,
        "stories": str(len(chosen)),
        "splits": f"seed {config.split_seed}",
        "data": stories.fingerprint,
        **loaded.changes,
    }
    with Bars(console) as bar:
        task = bar.add_task("activations", total=None)
        store = extract(
            loaded,
            samples,
            folder / "activations",
            config.site,
            config.setting != "text",
            config.batch_size,
            about,
            processes,
            config.backend,
            lambda done, total: bar.update(task, completed=done, total=total),
        )
    if not processes.first:
        processes.wait()
        return read_heads(folder / HEADS)
    description = {
        "config": json.loads(json.dumps(asdict(config), default=str)) | {"position": POSITION},
        "model": loaded.identity.facts()
        | {
            "class": loaded.family.class_name,
            "attention": loaded.attention,
            **loaded.changes,
            "layers": geometry.n_layers,
            "heads": geometry.n_heads,
            "head_dim": geometry.head_dim,
        },
        "data": {"source": stories.source, "fingerprint": stories.fingerprint},
        "unknown_words": asdict(unknown),
        SEEN: Lineage.of_splits(chosen, lambda i: stories.identity(i).content).facts(),
    }
    key = _key(config, folder)
    saved = _finished(folder, key)
    if saved is None:
        with stage(console, f"fitting {geometry.n_layers * geometry.n_heads} heads' probes"):
            heads, probes = _probe(config, store, folder)
        saved = description | {
            "versions": versions(),
            "results": summarise(heads, store.items, probes),
            "confounds": confound_report(store.items, samples),
            "figures": [],
            FINISHED: key,
        }
        write_sealed(folder / CONFIG, saved, (HEADS, PROBES, MANIFEST))
    else:
        store.verify()
        intact(folder, PROBES, saved, AGAIN.format(folder))
        heads = read_heads(folder / HEADS, saved)
        console.print("[dim]finished before; nothing was computed again[/dim]")
    if config.figures and not _drawn(folder, saved):
        # Upwards, and only here: a run ends with its pictures, as the same commands draw them.
        from figures import draw_all

        with stage(console, "drawing figures"):
            paths = draw_all(folder)
        saved["figures"] = [path.relative_to(folder).as_posix() for path in paths]
        write_sealed(folder / CONFIG, saved, (HEADS, PROBES, MANIFEST))
    print_summary(console, heads, saved["results"], config)
    print_confounds(console, saved["confounds"])
    console.print(f"run folder: {escape(str(folder))}", soft_wrap=True)
    processes.wait()
    return heads


def _check_room(
    loaded: LoadedModel, samples: Sequence[Sample], config: ProbeConfig, console: Console
) -> None:
    """The longest sample fits the model's context; frames that are padded are told of."""
    video = config.setting != "text"
    longest = max(samples, key=lambda sample: len(sample.content))
    prompt = open_prompt(loaded, longest.content, video)
    shape = CLIP_SHAPE if video else None
    remedy = "take a model that reads more" + (", or --setting text" if video else "")
    check_room(loaded, f"sample {longest.item_id}", prompt, shape, 0, remedy)
    for line in crop_notes(loaded, {shape[1:]: len(samples)} if shape else {}):
        console.print(escape(line))


def choose_stories(stories: StorySet, config: ProbeConfig) -> dict[int, str]:
    """Split of each story that takes part.

    Raises:
        ProbingError: more stories than there are, or too few for three splits.
    """
    by_split: dict[str, list[int]] = {name: [] for name in splits.SPLITS}
    for index, split in splits.assign(stories, config.split_seed).items():
        by_split[split].append(index)
    if empty := [name for name, members in by_split.items() if not members]:
        raise ProbingError(splits.why_none(stories, empty[0]))
    if config.stories is not None:
        sizes = {name: len(members) for name, members in by_split.items()}
        wanted = _in_proportion(config.stories, sizes)
        by_split = {name: members[: wanted[name]] for name, members in by_split.items()}
    if empty := [name for name, members in by_split.items() if not members]:
        raise ProbingError(
            f"no {empty[0]} stories among {sum(map(len, by_split.values()))}: "
            f"--stories {config.stories} is too few; 20 is the least that makes sense"
        )
    return {i: name for name, members in by_split.items() for i in sorted(members)}


def _in_proportion(total: int, sizes: dict[str, int]) -> dict[str, int]:
    """``total`` in parts that are to each other as ``sizes``, by largest remainder."""
    whole = sum(sizes.values())
    if total > whole:
        raise ProbingError(f"--stories {total} is more than the {whole} that there are")
    parts = {name: total * size // whole for name, size in sizes.items()}
    by_remainder = sorted(sizes, key=lambda name: total * sizes[name] % whole, reverse=True)
    for name in by_remainder[: total - sum(parts.values())]:
        parts[name] += 1
    return parts


def _probe(
    config: ProbeConfig, store: ActivationStore, folder: Path
) -> tuple[pd.DataFrame, ProbeSet]:
    # Stopped half-way, the folder must not pass for the finished run that it was before.
    (folder / CONFIG).unlink(missing_ok=True)
    x = store.read().float().numpy()
    probes = fit_probes(x, store.items, config.c, config.max_iter, config.solver)
    heads = rank_heads(x, store.items, probes)
    save_probes(folder / PROBES, probes, heads)
    save_heads(folder / HEADS, heads)
    return heads, probes


def _key(config: ProbeConfig, folder: Path) -> str:
    """Hash of all that the probes' results depend on."""
    manifest = (folder / MANIFEST).read_bytes()
    settings = f"{config.c} {config.max_iter}"
    if config.solver != ProbeConfig.solver:
        settings += f" {config.solver}"
    return hashlib.sha256(manifest + settings.encode()).hexdigest()


def _finished(folder: Path, key: str) -> dict[str, Any] | None:
    """What a finished run with this key saved; None if there is none.

    Raises:
        ProbingError: there is one, and an entry that is read again is not as it was written.
    """
    saved = _saved(folder)
    if saved is None or not all((folder / name).exists() for name in (HEADS, PROBES)):
        return None
    if saved.get(FINISHED) != key:
        return None
    if wrong := misfits(saved):
        raise ProbingError(
            f"{folder / CONFIG}: {', '.join(wrong)} cannot be read; delete the file and run again "
            "to fit the probes anew"
        )
    return saved


def _saved(folder: Path) -> dict[str, Any] | None:
    """What the folder's run wrote when it was finished; None if none was, or it is no JSON.

    Raises:
        AlteredError: it is not as it was written.
    """
    path = folder / CONFIG
    try:
        saved = json.loads(path.read_text())
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    require_sealed(path, saved, AGAIN.format(folder))
    return saved if isinstance(saved, dict) else None


def require_same_probes(config: ProbeConfig) -> None:
    """That a run finished in the folder has the same probes: its numbers, and figures, stay.

    Raises:
        ProbingError: names what differs.
        AlteredError: its config.json is not as it was written.
    """
    saved = _saved(config.folder) or {}
    before = saved.get("config")
    if not isinstance(before, dict) or FINISHED not in saved:
        return
    for name in SETTINGS:
        was, wanted = before.get(name, getattr(ProbeConfig, name)), getattr(config, name)
        if was != wanted:
            option = f"--{name.replace('_', '-')}"
            raise ProbingError(
                f"{config.folder} holds a finished run with {option} {was}, not {wanted}. Choose "
                "another --out; activations need not be read again if you copy its folder "
                "activations there first"
            )


def _drawn(folder: Path, saved: dict[str, Any]) -> bool:
    return bool(saved["figures"]) and all((folder / name).exists() for name in saved["figures"])


if __name__ == "__main__":
    no_command("probing.run")
