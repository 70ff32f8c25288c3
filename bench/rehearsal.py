"""``python -m bench.rehearsal``: everything once at full size, beside what was said.

A checkpoint with random weights is written in the size and dtype of a published Qwen2-VL, with its
true processor settings. On it run a probing run of few stories, a sweep of three cells and twenty
questions, each in a process of its own. What ``--dry-run`` said of each stands beside what it took:
seconds, peak memory, disk. The numbers that the runs themselves give mean nothing.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from bench import machine
from bench.errors import PerfError
from bench.untrained import Shape, save_published
from sally_anne.core.commands import command

# For tests; frames and tokens are as many as at full size.
TINY = Shape(layers=2, heads=4, kv_heads=2, width=16, mlp=64, vision_layers=1, vision_width=64)


@dataclass(frozen=True)
class RehearsalConfig:
    """Rehearse probing, sweep and evaluation on a model of full size with random weights.

    Attributes:
        out: folder for results.json and table.md; older results in it are replaced.
        model: a published Qwen2-VL of the catalogue.
        size: full, or tiny, which has the same frames and tokens.
        stories: of the probing run; four samples each, 8 at least.
        items: questions of the evaluation, two a story.
        batch_size: prompts that go through the model together.
        threads: of every step; all cores by default.
    """

    out: Path = Path("runs") / "rehearsal"
    model: str = "qwen2-vl-2b"
    size: Literal["full", "tiny"] = "full"
    stories: int = 8
    items: int = 20
    batch_size: int = 8
    threads: int | None = None


def run(config: RehearsalConfig) -> dict[str, Any]:
    """Rehearse, write as it goes, and print the table.

    Raises:
        PerfError: an option is wrong, memory or disk do not suffice, or a step broke off.
        ModelError: the model is not described.
    """
    from bench.memory import in_fresh_process
    from bench.results import Results

    _check(config)
    threads = config.threads or machine.cores()
    machine.confine(threads)
    described = machine.describe(threads)
    results = Results(config.out, {"machine": described, "config": asdict(config), "steps": {}})
    with tempfile.TemporaryDirectory(prefix="rehearsal-") as scratch:
        folder = Path(scratch)
        in_fresh_process(_save, str(folder / "model"), config.model, config.size)
        for name, step in STEPS.items():
            print(f"{name} ...", flush=True)
            found = in_fresh_process(step, str(folder), config, threads)
            results.values["steps"][name] = found
            results.write()
            results.table(f"{table(results.values['steps'])}\n\n{machine.line(described)}.")
    print(f"\n{table(results.values['steps'])}\n\n{config.out}")
    return results.values


def table(steps: dict[str, dict[str, Any]]) -> str:
    """What was said beside what it took, as Markdown."""
    from sally_anne.models.estimate import in_bytes

    lines = [
        "| step | tokens read | FLOPs | seconds | FLOP/s | memory said | peak | peak / said "
        "| disk said | disk |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, found in steps.items():
        said, seconds, peak = found["said"], found["seconds"], found["peak"]
        disk = [in_bytes(found[key]) if key in found else "" for key in ("disk said", "disk")]
        lines.append(
            f"| {name} | {said['tokens read']:,.0f} | {said['FLOPs']:.2e} | {seconds:.1f} "
            f"| {said['FLOPs'] / seconds:.2e} | {in_bytes(said['memory'])} | {in_bytes(peak)} "
            f"| {peak / said['memory']:.2f} | {disk[0]} | {disk[1]} |"
        )
    return "\n".join(lines)


def _check(config: RehearsalConfig) -> None:
    import torch

    from sally_anne.hooks.batch_size import free_memory
    from sally_anne.models.estimate import DTYPE_BYTES, in_bytes
    from sally_anne.models.published import open_published

    for option, least in (("stories", 8), ("items", 2), ("batch_size", 1)):
        if getattr(config, option) < least:
            raise PerfError(f"--{option.replace('_', '-')} must be at least {least}")
    machine.check_threads(config.threads)
    loaded = open_published(config.model)
    if config.size == "tiny":
        return
    weights = loaded.parameters * DTYPE_BYTES[loaded.dtype]
    scratch = Path(tempfile.gettempdir())
    # Weights and what a pass needs; `--dry-run` says more.
    for what, there, needed in (
        (f"disk at {scratch}", shutil.disk_usage(scratch).free, 1.1 * weights),
        ("memory", free_memory(torch.device("cpu")), 1.5 * weights),
    ):
        if there < needed:
            raise PerfError(
                f"{config.model} needs {in_bytes(needed)} of {what}, {in_bytes(there)} are free; "
                "make room, or take --size tiny"
            )


def _save(folder: str, model: str, size: str) -> None:
    save_published(Path(folder), model, TINY if size == "tiny" else None)


def probing(folder: str, config: RehearsalConfig, threads: int) -> dict[str, Any]:
    """A probing run, for a process of its own."""
    from sally_anne.probing.config import ProbeConfig
    from sally_anne.probing.dry_run import dry_run
    from sally_anne.probing.pipeline import run as work

    run = ProbeConfig(
        model=f"{folder}/model",
        stories=config.stories,
        batch_size=config.batch_size,
        out=Path(folder) / "probing",
        figures=False,
        permutations=0,
        causal=False,
        device="cpu",
    )
    found = _measured(lambda: dry_run(run), lambda: work(run), threads)
    shards = (run.folder / "activations").glob("shard-*.safetensors")
    return found | {
        "disk said": found["said"]["activations on disk"],
        "disk": sum(path.stat().st_size for path in shards),
    }


def sweep(folder: str, config: RehearsalConfig, threads: int) -> dict[str, Any]:
    """A sweep of three cells, for a process of its own."""
    from sally_anne.steering.pipeline import run as work
    from sally_anne.steering.prepare import dry_run
    from sally_anne.steering.sweep import SweepConfig

    run = SweepConfig(
        model=f"{folder}/model",
        run=Path(folder) / "probing",
        k=(4,),
        alpha=(-10.0, 0.0, 10.0),
        controls=False,
        test=False,
        max_initial_drop=None,
        max_reality_drop=None,
        limit=2,
        batch_size=config.batch_size,
        out=Path(folder) / "sweep",
        device="cpu",
    )
    return _measured(lambda: dry_run(run), lambda: work(run), threads)


def evaluation(folder: str, config: RehearsalConfig, threads: int) -> dict[str, Any]:
    """Questions, for a process of its own."""
    from sally_anne.harness.config import EvalConfig
    from sally_anne.harness.dry_run import dry_run
    from sally_anne.harness.pipeline import run as work

    run = EvalConfig(
        model=f"{folder}/model",
        limit=max(1, config.items // 2),
        batch_size=config.batch_size,
        out=Path(folder) / "evaluation",
        device="cpu",
    )
    return _measured(lambda: dry_run(run), lambda: work(run), threads)


STEPS: dict[str, Callable[..., dict[str, Any]]] = {
    "sally_anne.probing.run": probing,
    "sally_anne.steering.sweep": sweep,
    "sally_anne.harness.run": evaluation,
}


def _measured(
    say: Callable[[], dict[str, Any]], run: Callable[[], object], threads: int
) -> dict[str, Any]:
    """What is said of a run, and the seconds and the peak of memory that it takes."""
    import contextlib
    import io

    import torch

    from bench.clock import Clock
    from bench.memory import Peak

    torch.set_num_threads(threads)
    with contextlib.redirect_stdout(io.StringIO()):
        said = {name: figure.value for name, figure in say().items()}
        clock = Clock()
        with Peak() as peak:
            run()
    return {"said": said, "seconds": clock.seconds(), "peak": peak.bytes}


main = command("python -m bench.rehearsal", RehearsalConfig, run)


if __name__ == "__main__":
    main()
