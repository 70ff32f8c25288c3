"""The probing run that a sweep rests on: made or given, of this model, and what it has seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rich.markup import escape

from figures.all import draw_all
from hooks.identity import ModelIdentity, require_same
from hooks.saved_run import CONFIG as FINISHED_RUN
from probing.config import ProbeConfig
from probing.pipeline import run as probe
from sally_anne.benchmarks.gridtom import splits
from sally_anne.benchmarks.gridtom.records import StorySet
from sally_anne.benchmarks.lineage import Lineage
from sally_anne.core.console import Console
from sally_anne.core.errors import SteeringError
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.vectors import fitted_on
from sally_anne.harness.work import Unseen, choose_stories
from sally_anne.models.loading import LoadedModel
from steering.config import SweepConfig
from steering.fit import read_config

# Fewer stories in all leave a split without any.
FEWEST_PROBED = 20


def probing_of(config: SweepConfig, stories: int) -> ProbeConfig:
    """The probing run that a sweep has made, of ``stories`` in all.

    With ``--limit`` it is one of few stories, unless there is one of all already.
    """
    names = ["setting", "data", "split_seed", "data_seed"]
    options = config.model_options() | {name: getattr(config, name) for name in names}
    wanted = ProbeConfig(order=1 if config.order == "1" else 2, **options)
    if config.limit is None or (wanted.folder / FINISHED_RUN).exists():
        return wanted
    return replace(wanted, stories=min(stories, max(FEWEST_PROBED, 3 * config.limit)))


def unseen_stories(
    asked: Mapping[str, EvalConfig], stories: StorySet, lineage: Lineage | None
) -> tuple[dict[str, dict[int, str]], Unseen, Lineage | None]:
    """The stories on which K and alpha are chosen, and those on which the choice is reported.

    What trained the probes does not validate; what trained, or chose heads, K or alpha, is not
    tested.

    Args:
        asked: the evaluation of each split.
        stories: the data.
        lineage: what the probing run has seen; None where it does not say.

    Returns:
        The split of each story's number, by split; what was left out of the test stories; and what
        was seen in the end.

    Raises:
        HarnessError: no story is left.
    """
    before = lineage or Lineage()
    validation, _ = choose_stories(asked["validation"], stories, before.train)
    after = before.chosen_on(stories.identity(i).content for i in validation)
    test, unseen = choose_stories(asked["test"], stories, after.seen)
    members = {"validation": validation, "test": test}
    if lineage is None:
        return members, replace(unseen, known=False), None
    return members, unseen, after


def lineage_of(config: SweepConfig, run: Path) -> Lineage | None:
    """What a probing run has seen, and what is baked into the model; None where it does not say.

    Raises:
        SteeringError: it does not say, and nobody insists.
    """
    facts = fitted_on(config.model, read_config(run))
    found = Lineage.read(facts, str(run / FINISHED_RUN))
    if found is None and not config.force:
        raise SteeringError(
            f"{run} does not say which stories it was fitted on (it was made by an earlier "
            "version): make it again with `python -m probing.run` and another --out, or insist "
            "with --force"
        )
    return found


def probing_run(
    config: SweepConfig, stories: StorySet, loaded: LoadedModel, console: Console
) -> Path:
    """The folder of the probing run of this very model, made now if it is not there.

    Raises:
        SteeringError: not a finished run.
        OtherModelError: the run is of another model.
    """
    if config.run is not None:
        if not (config.run / FINISHED_RUN).exists():
            raise SteeringError(
                f"{config.run} is not a finished probing run; leave out --run to have one made"
            )
        _require_own(config, config.run, loaded)
        return config.run
    wanted = probing_of(config, len(splits.assign(stories, config.split_seed)))
    if not (wanted.folder / FINISHED_RUN).exists():
        console.print(f"first the probes: {escape(str(wanted.folder))}")
        probe(wanted, console, draw_all)
    _require_own(config, wanted.folder, loaded)
    return wanted.folder


def _require_own(config: SweepConfig, run: Path, loaded: LoadedModel) -> None:
    if not config.force:
        made_with = ModelIdentity.of_run(read_config(run)["model"])
        remedy = (
            f"make a run of {config.model} with `python -m probing.run --out DIR` and give it with "
            "--run DIR, or insist with --force"
        )
        require_same(f"the probing run {run}", made_with, loaded.identity, remedy)
