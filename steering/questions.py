"""A sweep's questions about GridToM's stories: asked at every point together, and scored.

Steering changes only the last prompt token onwards (unless positions are ``all``), so each prompt
is prefilled once and every point is one row of the decode batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from math import comb
from typing import Any

import pandas as pd
import torch

from sally_anne.core import processes
from sally_anne.core.bootstrap import Estimate, draw_groups, estimate_mean
from sally_anne.core.errors import SteeringError
from sally_anne.core.folder import Journal
from sally_anne.core.processes import AUTO, in_batches
from sally_anne.core.run import CONFIG, Run
from sally_anne.data.gridtom import samples
from sally_anne.data.gridtom.release import open_stories
from sally_anne.data.items import Question
from sally_anne.data.pairs import in_turn
from sally_anne.data.samples import Lineage
from sally_anne.harness.config import EvalConfig
from sally_anne.harness.config import check as check_evaluation
from sally_anne.harness.evaluate import check_items, fitted_on, loads_of, prompt_of, tokens_of
from sally_anne.harness.gridtom import choose_stories, items_of, sample_note
from sally_anne.harness.model import cut_prompts, prefill_prompts
from sally_anne.harness.report import BELIEF
from sally_anne.harness.score import estimates, over, paired, score, scores
from sally_anne.hooks.edit import Edit
from sally_anne.models.decoding import decode, greedy
from sally_anne.models.estimate import Counter, Figure, Load, exact, needs, row_bytes_by_device
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prefix import extend
from sally_anne.steering.config import SweepConfig
from sally_anne.steering.points import BASELINE, Measure, Vectors, rows_of

# Fewer stories in all leave a split without any.
FEWEST_PROBED = 20
# Share of invalid replies above which figures say nothing of beliefs.
MOSTLY = 0.9


@processes.within_memory(
    "use a smaller --decode-batch-size, then a smaller --batch-size, then smaller --max-pixels"
)
def answer_points(
    loaded: LoadedModel,
    items: Sequence[Question],
    vectors: Vectors,
    journal: Journal,
    batch_size: int,
    decode_batch_size: processes.BatchSize,
    max_new_tokens: int,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> pd.DataFrame:
    """Every item in every point; what the open journal holds is not run again.

    The vectors have one site, and positions other than ``all``. The journal's processes share the
    batches of items: ``batch_size`` prompts are prefilled together, and ``decode_batch_size``
    answers (prompts x points) decoded together, auto as many as fit. Columns are those of
    :func:`sally_anne.harness.score.score`, ``point``, and those of the point.
    """
    first = next(vector for vector in vectors.values() if vector is not None)
    first.check(loaded.skeleton)
    places = {(v.site, v.positions) for v in vectors.values() if v is not None}
    if len(places) > 1 or first.positions == "all":
        raise SteeringError(f"need one site, and positions other than all; got {sorted(places)}")
    none = torch.zeros_like(first.delta())
    deltas = {point: none if v is None else v.delta() for point, v in vectors.items()}
    keys = {(point, i.item_id): f"{point.name}|{i.item_id}" for point in vectors for i in items}
    missing = {pair for pair, key in keys.items() if key not in journal.answers}
    left = [point for point in vectors if any((point, i.item_id) in missing for i in items)]
    asked = {item_id for _, item_id in missing}
    # Of one shape, as the clips of a batch are one tensor in LLaVA-NeXT-Video.
    shapes: dict[Any, list[Question]] = {}
    for item in items:
        shapes.setdefault(item.shape(True) if item.shape else None, []).append(item)
    batches = [batch for alike in shapes.values() for batch in in_batches(alike, batch_size)]
    todo = journal.processes.share([b for b in batches if asked & {i.item_id for i in b}])
    width = min(batch_size, len(items))
    rows = 1 if decode_batch_size == AUTO else decode_batch_size
    if decode_batch_size == AUTO and left:
        # The rows whose caches fit, by the item with the longest text.
        longest = prompt_of(max(items, key=lambda item: len(item.text)))
        inputs, (ending,) = cut_prompts(loaded, [longest])
        tokens = inputs["input_ids"].shape[1] + len(ending) + max_new_tokens
        held = row_bytes_by_device(loaded.model, tokens)
        rows = processes.rows_that_fit(held, width, journal.processes)
    on_progress(0, len(todo))
    for done, batch in enumerate(todo, 1):
        # Points are put together whatever a batch's length and what of it was answered before, so
        # that what is left of a run is put together as it would have been.
        parts = [
            part
            for group in in_batches(left, max(1, rows // width))
            for part in in_batches(list(product(group, range(len(batch)))), rows)
        ]
        with torch.inference_mode():
            state, endings = prefill_prompts(loaded, [prompt_of(item) for item in batch])
            for part in parts:
                new = [(point, n) for point, n in part if (point, batch[n].item_id) in missing]
                if not new:
                    continue
                delta = torch.stack([deltas[point] for point, _ in part])
                with Edit(loaded.model, delta, first.site, first.positions):
                    numbers = [number for _, number in part]
                    after = extend(loaded, state, numbers, [endings[n] for n in numbers])
                    tokens = greedy(loaded, after, max_new_tokens)
                replies = dict(zip(part, decode(loaded, tokens), strict=True))
                journal.add(
                    {"item_id": keys[point, batch[n].item_id], "reply": replies[point, n]}
                    for point, n in new
                )
        on_progress(done, len(todo))
    journal.gather(keys.values())
    tables = []
    for point in vectors:
        answers = [journal.answers[keys[point, item.item_id]] for item in items]
        tables.append(score(items, answers).assign(point=point.name, **asdict(point)))
    return pd.concat(tables, ignore_index=True)


def chance(items: Sequence[Question]) -> float:
    """Share of items that guessing gets right: one option, or as many as are to be named."""
    return sum(1 / comb(len(i.options), len(i.key)) for i in items) / len(items)


class Beliefs(Measure):
    """Accuracy on questions, as a parser reads the answers: TB, FB and Both, or of side questions.

    ``chances`` are the shares of side questions that guessing gets right, by task; what the
    baseline only guesses, its interval reaching below chance, cannot get worse.
    """

    main, columns, noun, unit = "Both", BELIEF, "stories", "%"

    def __init__(self, parser: str = "robust", chances: Mapping[str, float] | None = None) -> None:
        self.parser, self.chances = parser, chances or {}

    def of(self, rows: pd.DataFrame, task: str | None = None) -> dict[str, Estimate]:
        found = estimates(scores(rows, self.parser), task is None)
        return found if task is None else {task: found["overall"]}

    def change(
        self, before: pd.DataFrame, after: pd.DataFrame, task: str | None = None, draws: int = 2000
    ) -> dict[str, Estimate]:
        two = scores(before, self.parser), scores(after, self.parser)
        found = paired(*two, beliefs=task is None, bootstrap=draws)
        return {task or name: found[name]["difference"] for name in found if name != "invalid"}

    def worse(self, before: pd.DataFrame, after: pd.DataFrame, draws: int = 2000) -> Estimate:
        """Share of stories of which an answer was right before and is wrong after."""
        return made_worse(scores(before, self.parser), scores(after, self.parser), draws)

    def guessed(self, table: pd.DataFrame, task: str) -> dict[str, float] | None:
        right, at = self.of(rows_of(table, BASELINE), task)[task], self.chances.get(task)
        return None if at is None or right.low >= at else {**asdict(right), "chance": at}

    def mute(self, table: pd.DataFrame) -> str:
        if table.groupby("point")[f"{self.parser}_invalid"].mean().min() <= MOSTLY:
            return ""
        replies = "; ".join(repr(reply[:60]) for reply in table["reply"].drop_duplicates()[:3])
        return f"nearly no reply names an answer, such as {replies}"


def made_worse(before: pd.DataFrame, after: pd.DataFrame, bootstrap: int = 2000) -> Estimate:
    """:meth:`Beliefs.worse` of two score tables; the interval is over maps, or few stories."""
    unit = over(before)
    own = after[["item_id", "correct", "invalid"]]
    both = before.merge(own, on="item_id", suffixes=("", "_after"))
    lost = both["correct"] & ~both["invalid"] & ~(both["correct_after"] & ~both["invalid_after"])
    stories = both.assign(lost=lost).groupby("story").agg({"lost": "any", unit: "first"})
    group = pd.factorize(stories[unit], sort=True)[0]
    times = draw_groups(int(group.max()) + 1, bootstrap)
    return estimate_mean(stories["lost"].to_numpy(float), group, times)


class Questions:
    """What a sweep over stories asks.

    ``source`` is the probing run that it makes if none is there, with ``--limit`` of few stories;
    ``members`` are the numbers of stories by split; ``unseen`` is what was left out of those that
    test, ``lineage`` what the chosen vector has seen, None where the run does not say.
    """

    def __init__(self, config: SweepConfig) -> None:
        self.config, self.shows = config, config.setting != "text"
        names = ["order", "setting", "protocol", "limit", "data", "split_seed", "data_seed"]
        options = config.model_options(*names, "batch_size", "max_new_tokens")
        self._configs = {s: EvalConfig(split=s, **options) for s in ("validation", "test")}
        check_evaluation(self._configs["test"])
        self.stories = open_stories(config.data, config.data_seed)
        self.about = {
            **{name: getattr(config, name) for name in ("order", "setting", "label")},
            "max_new_tokens": config.reply_tokens,
            "data": self.stories.fingerprint,
            **sample_note(self._configs["test"]),
            **({"protocol": config.protocol} if config.protocol != SweepConfig.protocol else {}),
        }
        self._divide(Lineage())
        self.measure = Beliefs(config.parser)
        self.source = config.probing("reply")
        if config.limit is not None and not (self.source.folder / CONFIG).exists():
            most = len(samples.assign(self.stories, config.split_seed))
            few = min(most, max(FEWEST_PROBED, 3 * config.limit))
            self.source = replace(self.source, stories=few)

    def check(self, loaded: LoadedModel) -> None:
        """A ContextError if a question does not fit the model."""
        for kind in product(self._configs, (None, *self.config.tasks)):
            check_items(loaded, self.items(*kind), self.config.reply_tokens)

    def leave_out(self, run: Run) -> None:
        """Ask about no story that a run, or what is baked into the model, has seen.

        What trained the probes does not validate; what trained, or chose, is not tested.
        """
        config = self.config
        lineage = Lineage.read(fitted_on(config.model, run.saved), str(run.folder / CONFIG))
        if lineage is None and not config.allow_mismatch:
            why = f"{run.folder} does not say which stories it was fitted on: make it again"
            raise SteeringError(f"{why} with another --out, or pass --allow-mismatch")
        self._divide(lineage)

    def _divide(self, lineage: Lineage | None) -> None:
        before = lineage or Lineage()
        validation, _ = choose_stories(self._configs["validation"], self.stories, before.train)
        after = before.chosen_on(self.stories.identity(i).content for i in validation)
        test, unseen = choose_stories(self._configs["test"], self.stories, after.seen)
        self.members = {"validation": validation, "test": test}
        self.unseen = replace(unseen, known=False) if lineage is None else unseen
        self.lineage = None if lineage is None else after

    def items(self, split: str, task: str | None = None, most: int | None = None) -> list[Question]:
        """The belief questions of a split, or its control questions; of ``most`` stories."""
        own: Any = {} if task is None else {"order": task, "protocol": EvalConfig.protocol}
        config = replace(self._configs[split], **own)
        items = items_of(config, self.stories, self.members[split])
        maps = {item.group: item.map for item in items}
        kept = set(in_turn(maps, maps.__getitem__, str)[:most])
        return [item for item in items if item.group in kept]

    def answer(
        self,
        loaded: LoadedModel,
        items: Sequence[Question],
        task: str | None,
        vectors: Vectors,
        journal: Journal,
        on_progress: Callable[[int, int], None],
    ) -> pd.DataFrame:
        """:func:`answer_points` of these items."""
        config = self.config
        if task is not None and items[0].split == "validation":
            self.measure.chances = {**self.measure.chances, task: chance(items)}
        how = config.batch_size, config.decode_batch_size, config.reply_tokens
        return answer_points(loaded, items, vectors, journal, *how, on_progress)

    def needs(
        self, loaded: LoadedModel, parts: Mapping[str, tuple[list[Question], int]]
    ) -> list[Figure]:
        """What it takes to ask items at so many points, by name."""
        config, counter, loads = self.config, Counter(loaded), list[Load]()
        most = processes.MOST if config.decode_batch_size == AUTO else config.decode_batch_size
        for items, count in parts.values():
            # Each batch is read once; its rows at all points go on from there, so many at once.
            together = max(1, most // min(config.batch_size, len(items)))
            for batch in in_batches(items, config.batch_size):
                at_once = min(most, min(together, count) * len(batch))
                for load in loads_of(counter, batch, config.reply_tokens):
                    rows = load.endings * count
                    loads.append(replace(load, endings=rows[:at_once], later=rows[at_once:]))
        more = "points x items; more if the first choices lower the accuracy on side questions"
        return [
            exact("answers", sum(load.rows for load in loads), more),
            exact("decode batch", most, "answers at once; auto takes fewer"),
            *tokens_of(counter, loads),
            *needs(loaded, loads, config.quantization).values(),
        ]
