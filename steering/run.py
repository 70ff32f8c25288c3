"""``sally-anne steer``: a steering vector from a probing run."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.markup import escape

from hooks.identity import FORCED, SEEN
from sally_anne.core.commands import command, command_line
from sally_anne.core.console import Console
from sally_anne.core.errors import SteeringError
from sally_anne.core.files import read_object, require_sealed
from sally_anne.core.options import Seed
from sally_anne.core.run_folder import RESULTS, VECTOR, require_own
from sally_anne.models.options import ModelOptions
from steering.sweep import Direction, Heads, SweepConfig


@dataclass(frozen=True)
class VectorConfig:
    """Make a steering vector from a probing run and save it.

    K and alpha have no default: what moves one model breaks another. A sweep chooses them.

    Attributes:
        run: folder of a finished probing run; the sweep's by default.
        sweep: folder of a finished sweep, which gives K and alpha.
        k: number of heads; what the sweep chose by default.
        alpha: strength, in standard deviations; what the sweep chose by default.
        direction: how directions are found.
        label: the label that ranks heads and gives directions; the sweep's, or the run's first, by
            default.
        towards: value of the label to steer towards; the sweep's by default, or of two values the
            second (true).
        heads: rank heads by their probe, or by cause: what they carry between validation twins, as
            `sally-anne causal` writes it into the run's table; the sweep's by default, or probe.
        positions: at which tokens the vector is applied.
        seed: of random directions and heads.
        out: folder of the vector; inside the run's by default.
    """

    run: Path | None = None
    sweep: Path | None = None
    k: Annotated[int | None, tyro.conf.arg(name="K")] = None
    alpha: float | None = None
    direction: Direction = "logistic"
    label: str | None = None
    towards: str | None = None
    heads: Heads | None = None
    positions: Literal["last_prompt", "generated", "last_prompt+generated", "all"] = (
        "last_prompt+generated"
    )
    seed: Seed = 0
    out: Path | None = None

    @property
    def folder(self) -> Path:
        """Where the vector is kept, once run, label, K and alpha are known."""
        by = "cause" if self.heads == "cause" else None
        parts = [self.direction.replace(":", "-"), self.label, self.towards, by, f"K{self.k}"]
        name = "-".join(filter(None, [*parts, f"alpha{self.alpha:g}"]))
        return self.out or (self.run or Path()) / "vectors" / name


def run(config: VectorConfig) -> None:
    """Make and save a vector."""
    found = None if config.sweep is None else read_sweep(config.sweep)
    config = settled(config, found)
    # Heavy libraries are imported here, so that --help answers at once.
    from steering.fit import fit_vector

    require_own(config.folder, VECTOR)
    names = ("run", "k", "alpha", "direction", "label", "positions", "seed", "towards")
    options = {name: getattr(config, name) for name in names}
    vector = fit_vector(**options, heads=config.heads or "probe")
    if found is not None:
        _check_same(config, found["about"]["fitted"], json.loads(json.dumps(dict(vector.fitted))))
        # The sweep chose K and alpha on its own validation stories.
        if found.get(SEEN):
            vector = replace(vector, fitted={**vector.fitted, SEEN: found[SEEN]})
    folder = vector.save(config.folder)
    Console().print(f"the vector is in {escape(str(folder))}", soft_wrap=True)


def read_sweep(folder: Path) -> dict[str, Any]:
    """What a finished sweep saved: ``config``, ``about``, ``chosen``, and ``run``."""
    path = folder / RESULTS
    parts = {"config": ("direction", "label"), "about": ("fitted",), "chosen": ("k", "alpha")}
    saved = read_object(path, SteeringError, "sally-anne sweep", parts)
    require_sealed(path, saved, "Run `sally-anne sweep` again: its answers are kept.")
    return saved


def settled(config: VectorConfig, sweep: dict[str, Any] | None) -> VectorConfig:
    """The options with run, label, K and alpha, as far as they are left out, from a sweep."""
    if sweep is None:
        if config.run is None:
            raise SteeringError("give a finished sweep with --sweep, or a probing run with --run")
        missing = [o for o, v in (("--K", config.k), ("--alpha", config.alpha)) if v is None]
        if missing:
            raise SteeringError(
                f"{' and '.join(missing)}: no number fits every model; {_to_choose(config)}"
            )
        # The folder that is made by default bears the label's name; a given one is claimed first.
        if config.label is None and config.out is None:
            from hooks.saved_run import Run

            return replace(config, label=next(iter(Run.open(config.run).labels), None))
        return config
    for option in ("direction", "label", "towards", "heads"):
        own, swept = getattr(config, option), sweep["config"].get(option)
        if None not in (own, swept) and own != swept:
            raise SteeringError(
                f"--sweep {config.sweep} tried --{option} {swept}, not {own}: give it here too, or "
                "another sweep"
            )
    run = sweep.get("run") if config.run is None else config.run
    if run is None:
        raise SteeringError(
            f"--sweep {config.sweep} does not say which probing run it used: give it with --run"
        )
    chosen = sweep["chosen"]
    return replace(
        config,
        run=Path(run),
        label=sweep["config"]["label"],
        towards=sweep["config"].get("towards") or config.towards,
        heads=sweep["config"].get("heads") or config.heads,
        k=int(chosen["k"]) if config.k is None else config.k,
        alpha=float(chosen["alpha"]) if config.alpha is None else config.alpha,
    )


def _to_choose(config: VectorConfig) -> str:
    """How K and alpha are chosen for a run: the commands of a sweep and of its vector."""
    from hooks.saved_run import Run

    assert config.run is not None
    probing = Run.open(config.run).config
    task = "FILE" if probing.get("samples") else probing.get("task", "gridtom")
    if task != "gridtom":
        return (
            f"give some, and compare their vectors by `sally-anne evaluate --task {task} --steer`"
        )
    names = (*ModelOptions.__dataclass_fields__, "setting", "data", "split_seed", "data_seed")
    options = {name: probing[name] for name in names if name in probing}
    if options.get("data") is not None:
        options["data"] = Path(options["data"])
    sweep = SweepConfig(
        run=config.run,
        order="2" if probing.get("order") == 2 else "1",
        direction=config.direction,
        label=config.label or SweepConfig.label,
        towards=config.towards,
        heads=config.heads or "probe",
        **options,
    )
    made = replace(config, sweep=sweep.folder, run=None)
    first = command_line("sally-anne sweep", sweep)
    second = command_line("sally-anne steer", made)
    return f"let a sweep choose. Run\n  {first}\n  {second}"


def _check_same(config: VectorConfig, swept: dict[str, Any], own: dict[str, Any]) -> None:
    """That the sweep steered by the same run; what only one of them knows is not compared."""
    for name in own:
        # Random directions and heads may be drawn again.
        if name not in ("seed", SEEN, FORCED) and name in swept and swept[name] != own[name]:
            raise SteeringError(
                f"--sweep {config.sweep} was of another probing run than {config.run}: {name} is "
                f"{swept[name]!r} there, {own[name]!r} here"
            )


main = command("sally-anne steer", VectorConfig, run)


if __name__ == "__main__":
    main()
