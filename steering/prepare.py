"""What a sweep has to do, known before it begins: its questions, its cells and its probing run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Literal

from rich.markup import escape

from sally_anne.core.console import Console
from sally_anne.core.errors import SteeringError
from sally_anne.core.folder import require_own
from sally_anne.core.options import check_options
from sally_anne.core.run import CONFIG, Run
from sally_anne.data.gridtom import splits
from sally_anne.data.gridtom.records import StorySet
from sally_anne.data.gridtom.stories import open_stories
from sally_anne.data.lineage import Lineage
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.config import check as check_evaluation
from sally_anne.harness.dry_run import loads_of, tokens_of
from sally_anne.harness.evaluate import fitted_on
from sally_anne.harness.gridtom import choose_stories, items_of, sample_note
from sally_anne.harness.items import Item
from sally_anne.harness.tasks import LeftOut
from sally_anne.hooks.batch_size import AUTO, MOST, in_batches
from sally_anne.hooks.geometry import find_geometry
from sally_anne.hooks.identity import ModelIdentity, require_same
from sally_anne.models.estimate import Counter, Figure, Load, exact, needs, show
from sally_anne.models.loading import LoadedModel
from sally_anne.models.published import open_described
from sally_anne.probing.config import ProbeConfig
from sally_anne.probing.main import draw_run
from sally_anne.probing.pipeline import run as probe
from sally_anne.steering.cells import Cell, cells, default_alphas, default_ks
from sally_anne.steering.controls import SIDE_LABELS, spread
from sally_anne.steering.fit import CONTROLS, require_patching
from sally_anne.steering.sweep import Side, SweepConfig

# Fewer stories in all leave a split without any.
FEWEST_PROBED = 20
Split = Literal["validation", "test"]
SPLITS: tuple[Split, ...] = ("validation", "test")


def check(config: SweepConfig) -> None:
    """Refuse what is wrong with the options alone, by a SteeringError or OptionError."""
    check_options(config)
    for option, values in (("--K", config.k), ("--alpha", config.alpha)):
        if values is not None and not any(values):
            raise SteeringError(f"{option} holds nothing but 0: there is nothing to sweep")
    if not config.heads:
        raise SteeringError("--heads is empty: give probe, cause, or both")


def with_grid(config: SweepConfig, loaded: LoadedModel) -> tuple[SweepConfig, list[Cell]]:
    """The options with every K and alpha, which may follow from the model, and the cells."""
    geometry = find_geometry(loaded.skeleton)
    n_layers, n_heads = geometry.n_layers, geometry.n_heads
    ks = config.k or default_ks(n_layers, n_heads)
    alphas = config.alpha or default_alphas(n_layers, n_heads)
    if max(ks) > n_layers * n_heads:
        raise SteeringError(
            f"--K {max(ks)}: {config.model} has {n_layers} x {n_heads} = {n_layers * n_heads} heads"
        )
    directions = (config.direction, *_controls(config))
    return replace(config, k=ks, alpha=alphas), cells(
        ks, alphas, directions, config.seed, config.heads
    )


def _controls(config: SweepConfig) -> tuple[str, ...]:
    return CONTROLS if config.controls and config.direction not in CONTROLS else ()


def unseen_stories(
    asked: Mapping[Split, EvalConfig], stories: StorySet, lineage: Lineage | None
) -> tuple[dict[Split, dict[int, str]], LeftOut, Lineage | None]:
    """The stories on which K and alpha are chosen, and those on which the choice is reported.

    What trained the probes (``lineage``; None where the run does not say) does not validate; what
    trained, or chose heads, K or alpha, is not tested. Gives the split of each story's number, by
    split; what was left out of the test stories; and what was seen in the end.
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
    """The stories that a sweep asks about, and their items.

    ``members``, ``unseen`` and ``lineage`` are what :func:`unseen_stories` gives.
    """

    def __init__(self, config: SweepConfig) -> None:
        names = ["order", "setting", "style", "limit", "data", "split_seed", "data_seed"]
        options = config.model_options(*names, "batch_size", "max_new_tokens")
        self._asked = {split: EvalConfig(split=split, **options) for split in SPLITS}
        check_evaluation(self._asked["test"])
        self.drawn = sample_note(self._asked["test"])
        self.stories = open_stories(config.data, config.data_seed)
        self.leave_out(Lineage())

    def leave_out(self, lineage: Lineage | None) -> None:
        self.members, self.unseen, self.lineage = unseen_stories(self._asked, self.stories, lineage)

    def items(self, split: Split, side: Side | None = None) -> list[Item]:
        """The belief questions of a split, or its side questions of one kind."""
        asked = self._asked[split]
        asked = replace(asked, order=side) if side else asked
        return items_of(asked, self.stories, self.members[split])


def probing_of(config: SweepConfig, stories: int) -> ProbeConfig:
    """The probing run that a sweep has made, of ``stories`` in all.

    With ``--limit`` it is one of few stories, unless there is one of all already.
    """
    options = config.model_options("setting", "data", "batch_size", "split_seed", "data_seed")
    # Nulls and causes are asked of a run for its own sake, unless heads are chosen by them.
    if "cause" not in config.heads:
        options |= {"permutations": 0, "patching": False}
    wanted = ProbeConfig(order=1 if config.order == "1" else 2, **options)
    if config.limit is None or (wanted.folder / CONFIG).exists():
        return wanted
    return replace(wanted, stories=min(stories, max(FEWEST_PROBED, 3 * config.limit)))


def lineage_of(config: SweepConfig, run: Run) -> Lineage | None:
    """What a probing run has seen, and what is baked into the model; None where it may not say."""
    found = Lineage.read(fitted_on(config.model, run.saved), str(run.folder / CONFIG))
    if found is None and not config.allow_mismatch:
        raise SteeringError(
            f"{run.folder} does not say which stories it was fitted on (it was made by an earlier "
            "version): make it again with `sally-anne probe` and another --out, or pass "
            "with --allow-mismatch"
        )
    return found


def run_for(config: SweepConfig, stories: StorySet) -> Run | ProbeConfig:
    """The probing run that a sweep takes, or the one that has to be made first.

    Raises:
        SteeringError: --run is not a finished run, or lacks the causes by which --heads ranks.
    """
    wanted = probing_of(config, len(splits.assign(stories, config.split_seed)))
    folder = config.run or wanted.folder
    if (folder / CONFIG).exists():
        run = Run.open(folder)
        if "cause" in config.heads:
            require_patching(run)
        return run
    if config.run is not None:
        raise SteeringError(
            f"{folder} is not a finished probing run; leave out --run to have one made"
        )
    return wanted


def probing_run(
    config: SweepConfig, run: Run | ProbeConfig, loaded: LoadedModel, console: Console
) -> Run:
    """That of :func:`run_for`, of this very model, made now if it is not there."""
    if isinstance(run, ProbeConfig):
        console.print(f"first the probes: {escape(str(run.folder))}")
        probe(run, console, draw_run)
        run = Run.open(run.folder)
    if not config.allow_mismatch:
        remedy = (
            f"make a run of {config.model} with `sally-anne probe --out DIR` and give it with "
            "--run DIR, or pass --allow-mismatch"
        )
        made_with = ModelIdentity.of_run(run.saved.get("model", {}))
        require_same(f"the probing run {run.folder}", made_with, loaded.identity, remedy)
    return run


def dry_run(config: SweepConfig, console: Console | None = None) -> dict[str, Figure]:
    """Say what the sweep would ask and need, by name; the probing run that it takes comes on top.

    Nothing is computed or written. Of a published model of the catalogue neither weights nor a
    network are needed (`sally_anne.models.published`).
    """
    check(config)
    questions = Questions(config)
    require_own(config.folder, "a sweep")
    # A run that is made for the sweep sees none of its test stories.
    if isinstance(run := run_for(config, questions.stories), Run):
        questions.leave_out(lineage_of(config, run))
    loaded = open_described(config, videos=config.setting != "text")
    config, grid = with_grid(config, loaded)
    counter = Counter(loaded)
    most = MOST if config.decode_batch_size == AUTO else config.decode_batch_size
    # The baseline and the chosen cell; its controls; its heads left out, on test stories.
    parts: list[tuple[str, list[Item], int]] = [
        ("validation", questions.items("validation"), len(grid))
    ]
    kinds = len(_controls(config))
    if config.test:
        items = questions.items("test")
        parts.append(("test", items, 2))
        k = max(config.k or ())
        count = kinds * config.draws + (min(config.leave_out, k) if k > 1 else 0)
        parts.append(("test, controls", spread(items, config.control_stories), count))
    for split, side in product(SPLITS if config.test else SPLITS[:1], config.sides):
        items, name = questions.items(split, side), f"{split}, {SIDE_LABELS[side]}"
        parts.append((name, items, 2))
        if split == "test":
            items = spread(items, config.control_stories)
        count = kinds * (config.draws if split == "test" else 1)
        parts.append((f"{name}, controls", items, count))
    parts = [part for part in parts if part[2]]
    figures = [exact("cells", len(grid), "K x alpha, controls, baseline")]
    loads: list[Load] = []
    for name, items, count in parts:
        # Each batch is read once; its rows in all cells go on from there, so many at once.
        together = max(1, most // min(config.batch_size, len(items)))
        for batch in in_batches(items, config.batch_size):
            at_once = min(most, min(together, count) * len(batch))
            for load in loads_of(counter, batch, config.reply_tokens):
                rows = load.endings * count
                loads.append(replace(load, endings=rows[:at_once], later=rows[at_once:]))
        figures.append(exact(f"items, {name}", len(items), f"in {count} cells"))
    answers = sum(load.rows for load in loads)
    more = "cells x items; more if the first choices lower the accuracy on side questions"
    figures += [
        exact("answers", answers, more),
        exact("decode batch", most, "answers at once; auto takes fewer"),
        *tokens_of(counter, loads, config.reply_tokens),
        *needs(loaded, loads, config.quantization).values(),
    ]
    return show(console or Console(), loaded.name, figures)
