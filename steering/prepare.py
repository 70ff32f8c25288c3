"""What a sweep has to do, known before it begins: its questions, its cells and its probing run.

A probing run is made or given; whatever it has seen is not asked about on test stories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Literal

from rich.markup import escape

from figures.all import draw_all
from hooks.batch_size import AUTO, MOST, in_batches
from hooks.geometry import find_geometry
from hooks.identity import ModelIdentity, require_same
from hooks.saved_run import CONFIG, Run
from probing.config import ProbeConfig
from probing.pipeline import run as probe
from sally_anne.benchmarks.gridtom import splits
from sally_anne.benchmarks.gridtom.records import StorySet
from sally_anne.benchmarks.gridtom.stories import open_stories
from sally_anne.benchmarks.lineage import Lineage
from sally_anne.core.console import Console
from sally_anne.core.errors import SteeringError
from sally_anne.core.options import check_options
from sally_anne.core.run_folder import SWEEP, require_own
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.dry_run import loads_of, tokens_of
from sally_anne.harness.items import Item
from sally_anne.harness.pipeline import check as check_evaluation
from sally_anne.harness.vectors import fitted_on
from sally_anne.harness.work import Unseen, choose_stories, items_of
from sally_anne.models.estimate import Counter, Figure, Load, needs, show
from sally_anne.models.loading import LoadedModel
from sally_anne.models.published import open_described
from steering.cells import CONTROLS, Cell, cells, default_alphas, default_ks
from steering.config import SweepConfig

# Fewer stories in all leave a split without any.
FEWEST_PROBED = 20
Split = Literal["validation", "test"]
SPLITS: tuple[Split, ...] = ("validation", "test")


def check(config: SweepConfig) -> None:
    """What is wrong with the options alone.

    Raises:
        SteeringError, OptionError: names the option.
    """
    check_options(config)
    for option, values in (("--K", config.k), ("--alpha", config.alpha)):
        if values is not None and not any(values):
            raise SteeringError(f"{option} holds nothing but 0: there is nothing to sweep")


def with_grid(config: SweepConfig, loaded: LoadedModel) -> tuple[SweepConfig, list[Cell]]:
    """The options with every K and alpha, which may follow from the model, and the cells.

    Raises:
        SteeringError: the model has fewer heads than a K.
    """
    geometry = find_geometry(loaded.skeleton)
    n_layers, n_heads = geometry.n_layers, geometry.n_heads
    ks = config.k or default_ks(n_layers, n_heads)
    alphas = config.alpha or default_alphas(n_layers, n_heads)
    if max(ks) > n_layers * n_heads:
        raise SteeringError(
            f"--K {max(ks)}: {config.model} has {n_layers} x {n_heads} = {n_layers * n_heads} heads"
        )
    directions = (config.direction, *_controls(config))
    return replace(config, k=ks, alpha=alphas), cells(ks, alphas, directions, config.seed)


def _controls(config: SweepConfig) -> tuple[str, ...]:
    return CONTROLS if config.controls and config.direction not in CONTROLS else ()


def unseen_stories(
    asked: Mapping[Split, EvalConfig], stories: StorySet, lineage: Lineage | None
) -> tuple[dict[Split, dict[int, str]], Unseen, Lineage | None]:
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
    members: dict[Split, dict[int, str]] = {"validation": validation, "test": test}
    if lineage is None:
        return members, replace(unseen, known=False), None
    return members, unseen, after


class Questions:
    """The stories that a sweep asks about, and their items, each made once.

    Args:
        config: the options.

    Attributes:
        stories: the data.
        members: split of each story's number, by split.
        unseen: what was left out of the test stories.
        lineage: what was seen in the end; None where the probing run does not say.

    Raises:
        HarnessError, BenchmarkError: bad options or data, named.
    """

    def __init__(self, config: SweepConfig) -> None:
        names = ["order", "setting", "style", "limit", "data", "split_seed", "data_seed"]
        names += ["batch_size", "max_new_tokens"]
        options = config.model_options() | {name: getattr(config, name) for name in names}
        self._asked = {split: EvalConfig(split=split, **options) for split in SPLITS}
        check_evaluation(self._asked["test"])
        self.stories = open_stories(config.data, config.data_seed)
        self._made = cache(self._items_of_story)
        self.leave_out(Lineage())

    def leave_out(self, lineage: Lineage | None) -> None:
        """Choose the stories anew, see :func:`unseen_stories`."""
        self.members, self.unseen, self.lineage = unseen_stories(self._asked, self.stories, lineage)

    def items(self, split: Split, initial: bool = False) -> list[Item]:
        """The questions of a split, or those about the initial beliefs."""
        return [item for story in self.members[split] for item in self._made(split, initial, story)]

    def _items_of_story(self, split: Split, initial: bool, story: int) -> Sequence[Item]:
        asked = self._asked[split]
        asked = replace(asked, order="initial") if initial else asked
        return items_of(asked, self.stories, {story: split})


def probing_of(config: SweepConfig, stories: int) -> ProbeConfig:
    """The probing run that a sweep has made, of ``stories`` in all.

    With ``--limit`` it is one of few stories, unless there is one of all already.
    """
    names = ["setting", "data", "batch_size", "split_seed", "data_seed"]
    options = config.model_options() | {name: getattr(config, name) for name in names}
    wanted = ProbeConfig(order=1 if config.order == "1" else 2, **options)
    if config.limit is None or (wanted.folder / CONFIG).exists():
        return wanted
    return replace(wanted, stories=min(stories, max(FEWEST_PROBED, 3 * config.limit)))


def lineage_of(config: SweepConfig, run: Run) -> Lineage | None:
    """What a probing run has seen, and what is baked into the model; None where it does not say.

    Raises:
        SteeringError: it does not say, and nobody insists.
    """
    found = Lineage.read(fitted_on(config.model, run.saved), str(run.folder / CONFIG))
    if found is None and not config.force:
        raise SteeringError(
            f"{run.folder} does not say which stories it was fitted on (it was made by an earlier "
            "version): make it again with `sally-anne probe` and another --out, or insist "
            "with --force"
        )
    return found


def probing_run(
    config: SweepConfig, questions: Questions, loaded: LoadedModel, console: Console
) -> Run:
    """The probing run of this very model, made now if it is not there.

    Raises:
        SteeringError: not a finished run.
        OtherModelError: the run is of another model.
    """
    if config.run is not None:
        folder = config.run
        if not (folder / CONFIG).exists():
            raise SteeringError(
                f"{folder} is not a finished probing run; leave out --run to have one made"
            )
    else:
        wanted = probing_of(config, len(splits.assign(questions.stories, config.split_seed)))
        folder = wanted.folder
        if not (folder / CONFIG).exists():
            console.print(f"first the probes: {escape(str(folder))}")
            probe(wanted, console, draw_all)
    run = Run.open(folder)
    if not config.force:
        remedy = (
            f"make a run of {config.model} with `sally-anne probe --out DIR` and give it with "
            "--run DIR, or insist with --force"
        )
        made_with = ModelIdentity.of_run(run.saved.get("model", {}))
        require_same(f"the probing run {folder}", made_with, loaded.identity, remedy)
    return run


def dry_run(config: SweepConfig, console: Console | None = None) -> dict[str, Figure]:
    """Say what the sweep would ask and need; the probing run that it takes comes on top.

    Nothing is computed or written. Of a published model of the catalogue neither weights nor a
    network are needed (`sally_anne.models.published`).

    Returns:
        Each figure by its name.

    Raises:
        SallyAnneError: as of the sweep itself, as far as it can be known without weights.
    """
    check(config)
    questions = Questions(config)
    require_own(config.folder, SWEEP)
    # A run that is made for the sweep sees none of its test stories.
    if config.run is not None:
        questions.leave_out(lineage_of(config, Run.open(config.run)))
    loaded = open_described(config, videos=config.setting != "text")
    config, grid = with_grid(config, loaded)
    counter = Counter(loaded)
    most = MOST if config.decode_batch_size == AUTO else config.decode_batch_size
    # The baseline and the chosen cell, with its controls on test stories; initial beliefs without.
    counts: dict[tuple[Split, bool], int] = {("validation", False): len(grid)}
    if config.test:
        counts["test", False] = 2 + len(_controls(config))
    if config.max_initial_drop is not None:
        counts |= {(split, True): 2 for split, _ in list(counts)}
    figures = [
        Figure("cells", len(grid), f"{len(grid):,}", "K x alpha, controls, baseline", "exact")
    ]
    loads: list[Load] = []
    answers = 0
    for (split, initial), count in counts.items():
        items = questions.items(split, initial)
        answers += count * len(items)
        # Each batch is read once; its rows in all cells go on from there, so many at once.
        together = max(1, most // min(config.batch_size, len(items)))
        for batch in in_batches(items, config.batch_size):
            at_once = min(most, min(together, count) * len(batch))
            for load in loads_of(counter, batch, config.reply_tokens):
                rows = load.endings * count
                loads.append(replace(load, endings=rows[:at_once], later=rows[at_once:]))
        name = f"items, {split}{', initial beliefs' if initial else ''}"
        figures.append(Figure(name, len(items), f"{len(items):,}", f"in {count} cells", "exact"))
    more = "cells x items; more if the first choices lower the accuracy on initial beliefs"
    figures += [
        Figure("answers", answers, f"{answers:,}", more, "exact"),
        Figure("decode batch", most, f"{most:,}", "answers at once; auto takes fewer", "exact"),
        *tokens_of(counter, loads, config.reply_tokens),
        *needs(loaded, loads, config.quantization).values(),
    ]
    show(console or Console(), loaded, figures)
    return {figure.name: figure for figure in figures}
