"""``python -m bench.extraction``: what it costs to read all heads, against peers.

The samples are the paper's first-order probe set: 148 stories, true and false belief, two
statements each. Each contender is measured

- as a whole procedure, from stories to activations, with frames drawn and processed;
- by the model's part alone, on inputs made before, batch after batch in turns;
- by peak memory above the loaded model, in a process of its own.

Contenders take turns and begin in another order each time; all have the same cores and threads.
Before anything is timed, what each reads is compared with the native hooks on whole prompts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench import machine
from bench.errors import PerfError
from bench.untrained import RANDOM_100M, save_untrained
from sally_anne.core.commands import command
from sally_anne.core.options import Natural, check_options
from sally_anne.data.items import Setting
from sally_anne.models.options import DEFAULT_MODEL

# Parameters from which a model is given --large-stories: about a hundred million.
LARGE = 90_000_000
# Names that --only takes.
CONTENDERS = {
    "bare": "bench.contenders.Bare",
    "parallel": "bench.contenders.BareInParallel",
    "capture": "bench.contenders.Captured",
    "ours": "bench.contenders.Ours",
    "shared": "bench.contenders.Shared",
    "gridtom": "bench.released.GridToM",
    "honest_llama": "bench.released.HonestLlama",
    "nnsight": "bench.peers.Nnsight",
    "transformer_lens": "bench.peers.TransformerLens",
    "pyvene": "bench.peers.Pyvene",
}
# Stories whose memory is measured: the peak does not grow with their number.
MEMORY_STORIES = 4
# The largest difference between two ways to read the same activations, of their largest.
AGREE = {"float32": 1e-4, "float16": 0.02, "bfloat16": 0.1}


@dataclass(frozen=True)
class ExtractionPerfConfig:
    """Time the extraction of all heads' activations against other ways.

    Attributes:
        models: catalogue names, folders, or random-100m (made for the run).
        stories: of the 148 that are not tested; four samples each.
        large_stories: stories for a model of a hundred million parameters or more.
        part_stories: stories for contenders that are slow; theirs is multiplied, and said so.
        batches: batches on which the model's part is measured, evenly spread.
        repeats: turns of each contender.
        memory_repeats: processes in which each contender's memory is measured; 0 leaves it out.
        batch_size: samples that go through the model together.
        setting: what the model is given: multimodal, video or text.
        threads: cores and threads of every contender; all of the machine's by default.
        only: contenders by name, beside bare and ours; all by default.
        out: folder for results.json and table.md.
    """

    models: tuple[str, ...] = (DEFAULT_MODEL, RANDOM_100M)
    stories: int = 148
    large_stories: int = 12
    part_stories: int = 6
    batches: int = 6
    repeats: int = 3
    memory_repeats: Natural = 3
    batch_size: int = 8
    setting: Setting = "multimodal"
    threads: int | None = None
    only: tuple[str, ...] = ()
    out: Path = Path("runs") / "perf-extraction"


def check(config: ExtractionPerfConfig) -> None:
    """What is wrong with the options alone.

    Raises:
        PerfError: names the option.
    """
    check_options(config)
    machine.check_threads(config.threads)
    if unknown := [name for name in config.only if name not in CONTENDERS]:
        raise PerfError(
            f"--only: unknown contender {unknown[0]!r}; choose from {', '.join(CONTENDERS)}"
        )


def measure(
    config: ExtractionPerfConfig,
    on_result: Callable[[dict[str, Any]], None] = lambda found: None,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """All figures of every model; ``on_result`` is given them whenever there are more.

    Raises:
        PerfError: an option is wrong, or contenders do not read the same numbers.
        ModelError: a model cannot be had.
    """
    from bench.workload import probe_set

    check(config)
    found: dict[str, Any] = {}
    for name in config.models:
        with tempfile.TemporaryDirectory(prefix="perf-") as scratch:
            folder = name
            if name == RANDOM_100M:
                folder = str(save_untrained(Path(scratch) / RANDOM_100M))
            work = probe_set(folder, config.stories, config.setting, config.batch_size)
            size = sum(p.numel() for p in work.loaded.model.parameters())
            if size >= LARGE:
                work = work.part(config.large_stories)
            found[name] = entry = {"model": name, "parameters": size}

            def changed() -> None:
                on_result(found)

            _measure_model(config, folder, work, entry, changed, say)
    return found


def _measure_model(
    config: ExtractionPerfConfig,
    folder: str,
    work: Any,
    entry: dict[str, Any],
    changed: Callable[[], None],
    say: Callable[[str], None],
) -> None:
    import numpy as np

    from bench.workload import spread
    from sally_anne.hooks.geometry import find_geometry

    geometry = find_geometry(work.loaded.model)
    chosen = [work.batches[b] for b in spread(range(len(work.batches)), config.batches)]
    lengths = np.concatenate([work.whole(rows)["attention_mask"].sum(1) for rows in chosen])
    entry |= {
        "layers": geometry.n_layers,
        "heads": geometry.n_heads,
        "head width": geometry.head_dim,
        "setting": config.setting,
        "stories": len({s.group for s in work.samples}),
        "samples": len(work.samples),
        "batch size": config.batch_size,
        "batches": len(work.batches),
        "tokens of a prompt": [int(lengths.min()), int(np.median(lengths)), int(lengths.max())],
        "contenders": {},
    }
    say(
        f"{entry['model']}: {entry['parameters']:,} parameters, {geometry.n_layers} layers x "
        f"{geometry.n_heads} heads x {geometry.head_dim}; {entry['samples']} samples of "
        f"{lengths.min()} to {lengths.max()} tokens"
    )
    part = work.part(config.part_stories)
    ready = _ready(config, work, part, entry["contenders"], say)
    changed()
    _model_in_turns(config, work, chosen, ready, entry["contenders"], changed, say)
    if config.memory_repeats:
        _memory(config, folder, ready, entry["contenders"], changed, say)
    _whole_in_turns(config, work, part, ready, entry["contenders"], changed, say)


def _made(config: ExtractionPerfConfig) -> dict[str, Any]:
    from importlib import import_module

    names = [n for n in CONTENDERS if not config.only or n in (*config.only, "bare", "ours")]
    made = {}
    for name in names:
        module, _, attribute = CONTENDERS[name].rpartition(".")
        # Importing the peers' module loads none of their packages.
        made[name] = getattr(import_module(module), attribute)()
    return made


def _ready(
    config: ExtractionPerfConfig,
    work: Any,
    part: Any,
    found: dict[str, Any],
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Those that run here and read what the native hooks read; all have run once."""
    from bench.contenders import BARE, PARALLEL

    ready = {}
    references: dict[str, Any] = {}
    for name, contender in _made(config).items():
        entry = found[contender.name] = {
            "note": contender.note,
            "reads": contender.site or "nothing",
            "status": "ok",
        }
        if contender.package and find_spec(contender.package) is None:
            entry["status"] = "not installed"
            continue
        if contender.name == PARALLEL and work.loaded.model.device.type != "cpu":
            entry["status"] = "not run: a forked process cannot use the accelerator"
            continue
        try:
            difference = _difference(contender, work, references)
        except Exception as error:
            if contender.package is None:
                raise
            line = (str(error).strip() or type(error).__name__).splitlines()[0]
            entry["status"] = f"not run: {type(error).__name__}: {line}"
            say(f"  {contender.name}: {entry['status']}")
            continue
        entry["largest difference"] = difference
        if difference is not None and difference > AGREE[work.loaded.dtype]:
            raise PerfError(
                f"{contender.name} reads other numbers than the native hooks on whole prompts: "
                f"they differ by up to {difference:.1e} of the largest"
            )
        ready[name] = contender
    if BARE not in found:
        raise PerfError("there is nothing to compare with")
    return ready


def _difference(contender: Any, work: Any, references: dict[str, Any]) -> float | None:
    """Largest difference from the native hooks on whole prompts, over their largest activation."""
    from bench.clock import Clock
    from bench.contenders import prepare, reference
    from sally_anne.hooks.geometry import RESID

    one = work.part(1)
    rows = one.batches[0]
    if "model" in contender.measures:
        prepared = prepare(one, contender.form, rows)
        # Twice: a library may run once and then trip over what it left behind.
        contender.forward(one, prepared)
        activations = contender.forward(one, prepared)
    else:
        with tempfile.TemporaryDirectory(prefix="perf-") as scratch:
            activations = contender.whole(one, Clock(), Path(scratch))
        activations = None if activations is None else activations[rows]
    if activations is None:
        return None
    if contender.site not in references:
        references[contender.site] = reference(one, rows, contender.site)
    wanted = references[contender.site].float()
    activations = activations.float()
    if activations.shape != wanted.shape:
        raise PerfError(
            f"{contender.name} reads {tuple(activations.shape)}, not {tuple(wanted.shape)}"
        )
    if contender.site == RESID:
        # Released code takes the last layer's after the last norm.
        activations, wanted = activations[:, :-1], wanted[:, :-1]
    return float((activations - wanted).abs().max() / wanted.abs().max())


def _model_in_turns(
    config: ExtractionPerfConfig,
    work: Any,
    chosen: Sequence[Sequence[int]],
    ready: dict[str, Any],
    found: dict[str, Any],
    changed: Callable[[], None],
    say: Callable[[str], None],
) -> None:
    """Seconds of each contender on each batch; the inputs are made before, once for all."""
    from bench.clock import now
    from bench.contenders import prepare

    racing = [c for c in ready.values() if "model" in c.measures]
    for contender in racing:
        found[contender.name]["model"] = {
            "samples": sum(map(len, chosen)),
            "seconds a batch": [],
            "sizes": [len(rows) for rows in chosen] * config.repeats,
        }
    turn = 0
    for repeat in range(config.repeats):
        for rows in chosen:
            inputs = {form: prepare(work, form, rows) for form in {c.form for c in racing}}
            for contender in rotated(racing, turn):
                begun = now()
                contender.forward(work, inputs[contender.form])
                found[contender.name]["model"]["seconds a batch"].append(now() - begun)
            turn += 1
        changed()
        say(f"  model's part, turn {repeat + 1} of {config.repeats}")


def _whole_in_turns(
    config: ExtractionPerfConfig,
    work: Any,
    part: Any,
    ready: dict[str, Any],
    found: dict[str, Any],
    changed: Callable[[], None],
    say: Callable[[str], None],
) -> None:
    """Seconds of the whole procedure, and those of its preparation."""
    from bench.clock import Clock

    racing = [c for c in ready.values() if "whole" in c.measures]
    for contender in racing:
        samples = len((part if contender.part else work).samples)
        found[contender.name]["whole"] = {"samples": samples, "seconds": [], "preparation": []}
    for repeat in range(config.repeats):
        for contender in rotated(racing, repeat):
            with tempfile.TemporaryDirectory(prefix="perf-") as scratch:
                clock = Clock()
                contender.whole(part if contender.part else work, clock, Path(scratch))
                seconds = clock.seconds()
            entry = found[contender.name]["whole"]
            entry["seconds"].append(seconds)
            entry["preparation"].append(clock.preparation)
            changed()
        say(f"  whole procedure, turn {repeat + 1} of {config.repeats}")


def _memory(
    config: ExtractionPerfConfig,
    folder: str,
    ready: dict[str, Any],
    found: dict[str, Any],
    changed: Callable[[], None],
    say: Callable[[str], None],
) -> None:
    from bench.memory import in_fresh_process

    threads = config.threads or machine.cores()
    common = (folder, config.setting, config.batch_size, threads)
    for _ in range(config.memory_repeats):
        for name, contender in ready.items():
            for kind in contender.measures:
                peak, processes = in_fresh_process(peak_of, name, kind, *common)
                entry = found[contender.name].setdefault("memory", {})
                entry.setdefault(kind, []).append(peak)
                entry[f"{kind}, processes"] = processes
        changed()
    say("  memory")


def peak_of(
    name: str, kind: str, model: str, setting: Setting, batch_size: int, threads: int
) -> tuple[int, int]:
    """Peak bytes above the loaded model, and processes; for a process of its own.

    Args:
        name: of the contender, a key of CONTENDERS.
        kind: ``model``: the forwards on inputs made before; ``whole``: preparation, too.
        model: catalogue name or folder.
        setting: what the model is given.
        batch_size: samples that go through the model together.
        threads: of torch.
    """
    import torch

    from bench.clock import Clock
    from bench.contenders import prepare
    from bench.memory import Peak, touch
    from bench.workload import probe_set

    torch.set_num_threads(threads)
    contender = _made(ExtractionPerfConfig(only=(name,)))[name]
    work = probe_set(model, MEMORY_STORIES, setting, batch_size)
    touch(work.loaded.model)
    if "model" in contender.measures:
        # What is imported or built once is no part of the work.
        contender.forward(work, prepare(work, contender.form, work.batches[0][:1]))
    if kind == "whole":
        with tempfile.TemporaryDirectory(prefix="perf-") as scratch, Peak() as peak:
            contender.whole(work, Clock(), Path(scratch))
        return peak.bytes, peak.processes
    with ExitStack() as stack:
        prepared = [prepare(work, contender.form, rows) for rows in work.batches]
        peak = stack.enter_context(Peak())
        for inputs in prepared:
            contender.forward(work, inputs)
    return peak.bytes, peak.processes


def rotated(items: Sequence[Any], by: int) -> list[Any]:
    """The items, beginning with another one each time."""
    start = by % len(items) if items else 0
    return [*items[start:], *items[:start]]


def run(config: ExtractionPerfConfig) -> dict[str, Any]:
    """Measure, write ``results.json`` and ``table.md`` into ``config.out``, and print the table."""
    from transformers.utils import logging

    from bench.results import Results
    from bench.tables import extraction_tables

    check(config)
    logging.disable_progress_bar()
    threads = config.threads or machine.cores()
    machine.confine(threads)
    described = machine.describe(threads)
    results = Results(config.out, {"machine": described, "config": asdict(config)})
    found = measure(config, lambda found: results.put("extraction", found))
    text = extraction_tables(found) + f"\n\nMachine: {machine.line(described)}."
    results.table(text)
    print(f"\n{text}\n\n{config.out}")
    return results.values


main = command("python -m bench.extraction", ExtractionPerfConfig, run)


if __name__ == "__main__":
    main()
