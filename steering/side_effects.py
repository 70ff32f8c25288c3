"""``python -m steering.side_effects``: what else a vector changes.

KL divergence on prompts that have nothing to do with beliefs, and any task of the harness with and
without the vector, in one table.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sally_anne.core.commands import command
from sally_anne.core.errors import SteeringError
from sally_anne.core.files import reading
from sally_anne.core.run_folder import RESULTS, SIDE_EFFECTS, claims, save_config
from sally_anne.models.options import ModelOptions

if TYPE_CHECKING:
    from sally_anne.harness.config import EvalConfig

# Tokens of a reply to a neutral prompt.
REPLY = 16
NEUTRAL = Path(__file__).parent / "neutral_prompts.txt"


@dataclass(frozen=True)
class SideEffectsConfig(ModelOptions):
    """Measure what a steering vector changes beside what it is for.

    Attributes:
        vector: folder of a steering vector.
        alpha: strength; the vector's own by default.
        tasks: what is asked with and without the vector: a task of harness.run, with its order
            after a colon (gridtom:initial), or with its folder after an equals sign
            (bigtom=FOLDER).
        prompts: file with one neutral prompt a line; our own by default.
        setting: GridToM: frames and text, frames, or text.
        limit: only the first so many stories of each task.
        out: folder; named after vector and model by default. An existing one is resumed.
        batch_size: prompts that go through the model together.
        max_new_tokens: length of a reply; by default 16 to neutral prompts, and what a task needs.
        force: steer a model that the vector was not fitted on.
    """

    vector: Path
    alpha: float | None = None
    tasks: tuple[str, ...] = ("gridtom:1", "gridtom:initial")
    prompts: Path = NEUTRAL
    setting: Literal["multimodal", "video", "text"] = "multimodal"
    limit: int | None = 50
    out: Path | None = None
    batch_size: int = 8
    max_new_tokens: int | None = None
    force: bool = False

    @property
    def folder(self) -> Path:
        """Where the measurement is kept."""
        if self.out is not None:
            return self.out
        parts = [Path(self.model).name or "model", self.vector.name]
        if self.alpha is not None:
            parts.append(f"alpha{self.alpha:g}")
        return Path("runs") / "side-effects" / "-".join(parts)


@claims(SIDE_EFFECTS)
def run(config: SideEffectsConfig) -> dict[str, Any]:
    """Measure, print and save.

    Returns:
        ``kl`` (nats; value, low, high, n) and ``tasks``: for each, accuracy and share of invalid
        replies without and with the vector, and their paired difference.

    Raises:
        SteeringError, HarnessError, BenchmarkError, ModelError: bad input, named before the model
            is loaded wherever it can be known.
    """
    from hooks.vector import SteeringVector
    from sally_anne.core.console import Console
    from sally_anne.core.files import write_sealed
    from sally_anne.harness.model import Prompt, SteeredModel
    from sally_anne.harness.pipeline import check
    from sally_anne.harness.vectors import require_fits
    from sally_anne.models.loading import load_model
    from steering.divergence import divergences, mean_with_interval

    asked = {task: evaluation(config, task) for task in config.tasks}
    for each in asked.values():
        check(each)
    prompts = [Prompt(text) for text in read_prompts(config.prompts)]
    vector = SteeringVector.load(config.vector, force=config.force)
    console = Console()
    loaded = load_model(**config.opening())
    forced = require_fits(vector, loaded, config.alpha)
    plain, steered = SteeredModel(loaded), SteeredModel(loaded, vector, config.alpha)
    kl = divergences(plain, steered, prompts, config.max_new_tokens or REPLY, config.batch_size)
    tasks = {task: _compare(config, each, vector, loaded) for task, each in asked.items()}
    found = {"kl": asdict(mean_with_interval(kl)), "tasks": tasks}
    saved = {"config": asdict(config), "forced": forced, **found}
    save_config(config.folder, asdict(config))
    write_sealed(config.folder / RESULTS, saved)
    _print(console, config, found)
    return found


def evaluation(config: SideEffectsConfig, task: str) -> EvalConfig:
    """The run of the harness that a task's name stands for.

    Raises:
        SteeringError: there is no such task or order, or its questions are open.
    """
    from sally_anne.harness.config import EvalConfig
    from sally_anne.harness.tasks import TASKS, find_task

    name, _, folder = task.partition("=")
    name, _, order = name.partition(":")
    if name not in TASKS:
        raise SteeringError(f"--tasks {task}: there is no task {name!r}; {', '.join(TASKS)}")
    if order and (name != "gridtom" or order not in ("1", "2", "initial")):
        raise SteeringError(f"--tasks {task}: gridtom has the orders 1, 2 and initial, others none")
    if name != "gridtom" and find_task(name).open_ended:
        raise SteeringError(
            f"--tasks {task}: its questions are open; ask them with sally_anne.harness.run"
        )
    shared = ("batch_size", "max_new_tokens", "limit")
    options = config.model_options() | {option: getattr(config, option) for option in shared}
    if name == "gridtom":
        options |= {"order": order or "1", "setting": config.setting}
    return EvalConfig(task=name, data=Path(folder) if folder else None, **options)  # type: ignore[arg-type]


def read_prompts(path: Path) -> list[str]:
    """One prompt a line; empty lines are left out.

    Raises:
        SteeringError: the file cannot be read or holds none.
    """
    with reading(path, SteeringError):
        lines = path.read_text(encoding="utf-8").splitlines()
    prompts = [line.strip() for line in lines if line.strip()]
    if not prompts:
        raise SteeringError(f"--prompts {path}: holds no prompt")
    return prompts


def _compare(
    config: SideEffectsConfig, asked: EvalConfig, vector: Any, loaded: Any
) -> dict[str, dict[str, Any]]:
    """One task without and with the vector."""
    from sally_anne.harness.metrics import accuracy, paired_accuracy
    from sally_anne.harness.pipeline import run as evaluate
    from sally_anne.harness.results import scores

    name = f"{asked.task}-{asked.order}" if asked.task == "gridtom" else asked.task
    plain = replace(asked, out=config.folder / f"{name}-plain")
    before = evaluate(plain, loaded=loaded, beside=vector)
    after = evaluate(
        replace(
            asked,
            out=config.folder / f"{name}-steered",
            steer=config.vector,
            alpha=config.alpha,
            force=config.force,
        ),
        loaded=loaded,
    )
    keyed = ~before["hidden"]
    if "robust_correct" not in before or not keyed.any():
        raise SteeringError(
            f"--tasks {asked.task}: no replies can be scored without a judge or key"
        )
    sheets = [scores(table[keyed], "robust") for table in (before, after)]
    rows = [accuracy(sheet) for sheet in sheets]
    difference = paired_accuracy(*sheets)
    return {
        measure: {
            "plain": asdict(getattr(rows[0], measure)),
            "steered": asdict(getattr(rows[1], measure)),
            "difference": asdict(difference[measure]),
        }
        for measure in ("overall", "invalid")
    }


def _print(console: Any, config: SideEffectsConfig, found: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from sally_anne.harness.reporting import percent

    table = Table(title=escape(f"{config.model}: side effects of {config.vector.name}"))
    for column in ("what", "as it is", "steered", "difference"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for task, measures in found["tasks"].items():
        for measure, cells in measures.items():
            what = "right" if measure == "overall" else measure
            row = (percent(cells[name]) for name in ("plain", "steered", "difference"))
            table.add_row(escape(f"{task}, {what} (%)"), *row)
    kl = found["kl"]
    moved = f"{kl['value']:.4f} \\[{kl['low']:.4f}, {kl['high']:.4f}]"
    table.add_row(f"KL on {kl['n']} neutral prompts (nats a token)", "0", moved, moved)
    console.print(table)
    console.print(f"folder: {escape(str(config.folder))}", soft_wrap=True)


main = command("sally-anne side-effects", SideEffectsConfig, run, resumes=True)


if __name__ == "__main__":
    main()
