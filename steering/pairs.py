"""A sweep on pairs: how far a step moves a model's answers towards one value of a label.

The measure is a logit difference: of the answer of the value that is steered towards, less the
other answer of the pair, as a mean over both inputs. Between the two inputs it says whether the
model tells them apart. What steering should leave alone is plain text, read with every token
steered, and the pairs of another task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any, NamedTuple, cast

import pandas as pd
import torch
from torch import Tensor

from sally_anne.core.bootstrap import Estimate, draw_groups, estimate_mean
from sally_anne.core.errors import ProbingError, SteeringError
from sally_anne.core.folder import Journal
from sally_anne.core.processes import AUTO, within_memory
from sally_anne.core.run import CONFIG, Run
from sally_anne.data import datasets
from sally_anne.data.pairs import ContrastPair
from sally_anne.data.tasks import open_pairs, open_task
from sally_anne.harness.tasks import LeftOut
from sally_anne.hooks.edit import Edit
from sally_anne.hooks.positions import ALL
from sally_anne.models.estimate import Figure, exact
from sally_anne.models.loading import LoadedModel
from sally_anne.models.processor import raw_ids
from sally_anne.probing.activations import reopen
from sally_anne.probing.interchange import COLUMNS, answer_ids, prompts_of, read_pair
from sally_anne.probing.patching import NO_PAIRS
from sally_anne.steering.config import SweepConfig, neutral_prompts
from sally_anne.steering.fit import class_towards
from sally_anne.steering.points import Measure, Vectors

# Pairs of another task that are read.
OTHERS = 24


class Side(NamedTuple):
    """A pair, and whether its first input (1) or its second (-1) has the value steered towards."""

    name: str
    pair: ContrastPair
    sign: int = 1
    reply: bool = False


class Text(NamedTuple):
    """A line of plain text."""

    name: str
    line: str


class Shifts(Measure):
    """Logit differences of pairs, ``towards`` a value and between the two that are told ``apart``.

    Of ``text`` the log-probability of a token, in nats; of ``other`` pairs the share told apart.
    """

    main, columns, noun, unit = "towards", ("towards", "apart"), "pairs", "logits"

    def of(self, rows: pd.DataFrame, task: str | None = None) -> dict[str, Estimate]:
        names = (task,) if task else self.columns
        return {name: _mean(rows[name], rows["cluster"], 2000) for name in names}

    def change(
        self, before: pd.DataFrame, after: pd.DataFrame, task: str | None = None, draws: int = 2000
    ) -> dict[str, Estimate]:
        before, after = before.set_index("item_id"), after.set_index("item_id")
        names = (task,) if task else self.columns
        gains = {name: after[name] - before[name].loc[after.index] for name in names}
        return {name: _mean(gain, after["cluster"], draws) for name, gain in gains.items()}


def _mean(values: pd.Series, clusters: pd.Series, draws: int) -> Estimate:
    group, names = pd.factorize(clusters, sort=True)
    return estimate_mean(values.to_numpy(float), group, draw_groups(len(names), draws))


class Pairs:
    """What a sweep over pairs asks; ``source`` is the probing run that it may have to make."""

    unseen, lineage = LeftOut(0, 0), None

    def __init__(self, config: SweepConfig) -> None:
        self.config, self.measure = config, Shifts()
        probing = self.source = config.probing("statement")
        folder = config.run or probing.folder
        if (folder / CONFIG).exists():
            opened = reopen(folder)
            probing, data = opened.probing, opened.data
        else:
            data = open_task(probing)
        labels, label = data.samples[0].labels, config.label
        if label == SweepConfig.label and label not in labels:
            label = next(iter(labels))
        if label not in labels:
            raise SteeringError(f"--label {label}: the samples have {', '.join(labels)}")
        if not (found := open_pairs(probing, data, label)):
            raise SteeringError(NO_PAIRS)
        pair_set = found.get("question") or found["statement"]
        if config.task == "beliefs":
            # Its questions ask for a place, whose label is no probe's.
            pair_set = datasets.judged(data.samples, label)
        values = [s.labels[label] for s in data.samples if label in s.labels]
        value = class_towards(values, label, config.towards)
        texts = [Text(f"text {n}", line) for n, line in enumerate(neutral_prompts())]
        self._sides: dict[tuple[str, str | None], list[Any]] = {}
        for split in ("validation", "test"):
            sides = []
            for pair in pair_set.choose(split, config.limit or len(pair_set.pairs)):
                first, second = (s.labels.get(label) == value for s in pair.samples)
                if first != second:
                    sides.append(Side(pair.name, pair, 1 if first else -1, pair_set.reply))
            if not sides:
                why = f"no {split} pair has {label} {value} in one of its inputs alone"
                raise SteeringError(f"{why}: choose another --label or --towards")
            self._sides[split, None], self._sides[split, "text"] = sides, texts
            if "other" in config.tasks:
                name, seed = "statements" if config.task == "ioi" else "ioi", config.split_seed
                others = datasets.questions(name, None, cast(int, seed)).choose(split, OTHERS)
                self._sides[split, "other"] = [Side(pair.name, pair) for pair in others]
        self.shows = any(sample.shows for pair in pair_set.pairs for sample in pair.samples)
        self.about = {"label": label, "towards": str(value), "pairs": pair_set.fingerprint}
        self.about["asks"] = pair_set.asks

    def check(self, loaded: LoadedModel) -> None:
        """ProbingError for answers that no token tells apart; SteeringError of another task's."""
        for (_, task), items in self._sides.items():
            for side in items if task != "text" else ():
                try:
                    for prompt in prompts_of(loaded, side.pair, side.reply):
                        answer_ids(loaded, side.pair, prompt)
                except ProbingError as error:
                    if task is None:
                        raise
                    why = "the model does not know the words of another task's pairs"
                    raise SteeringError(f"--max-other-drop: {why}; leave it out") from error

    def leave_out(self, run: Run) -> None:
        """Test pairs are of the run's own split, so that none was seen."""

    def items(self, split: str, task: str | None = None, most: int | None = None) -> list[Any]:
        """The pairs of a split, or what a task reads."""
        return self._sides[split, task][:most]

    @within_memory("use a smaller --decode-batch-size")
    def answer(
        self,
        loaded: LoadedModel,
        items: Sequence[Any],
        task: str | None,
        vectors: Vectors,
        journal: Journal,
        on_progress: Callable[[int, int], None],
    ) -> pd.DataFrame:
        """Every item at every point; what the open journal holds is not read again.

        Points are read together as they were in a run that was cut off, for the same bytes.
        """
        size = self.config.decode_batch_size
        steered = next(vector for vector in vectors.values() if vector is not None)
        none = torch.zeros_like(steered.delta())  # at the baseline
        steps = torch.stack([none if v is None else v.delta() for v in vectors.values()])
        parts = steps.split(COLUMNS if size == AUTO else size)
        keys = {(p, i.name): f"{p.name}|{i.name}" for p, i in product(vectors, items)}
        lacking = [i for i in items if any(keys[p, i.name] not in journal.answers for p in vectors)]
        todo = journal.processes.share(lacking)
        for done, item in enumerate(todo):
            on_progress(done, len(todo))
            read = read_text if isinstance(item, Text) else read_side
            found = read(loaded, item, parts, steered.site)
            journal.add(
                {"item_id": keys[point, item.name], "read": numbers}
                for point, numbers in zip(vectors, found.tolist(), strict=True)
                if keys[point, item.name] not in journal.answers
            )
        journal.gather(keys.values())
        rows = []
        for (point, item), key in zip(product(vectors, items), keys.values(), strict=True):
            first, *second = journal.answers[key]["read"]
            row = {"item_id": item.name, "story": item.name, "point": point.name, **asdict(point)}
            if isinstance(item, Text):
                row |= {"split": "", "cluster": item.name, "text": first}
            else:
                row |= {"split": item.pair.split, "cluster": item.pair.cluster}
                row |= {"towards": item.sign * (first + second[0]) / 2, "apart": first - second[0]}
                row["other"] = float(row["apart"] > 0)
            rows.append(row)
        return pd.DataFrame(rows)

    def needs(
        self, loaded: LoadedModel, parts: Mapping[str, tuple[list[Any], int]]
    ) -> list[Figure]:
        """How much is read of these items at so many points, by name."""
        count = sum(len(items) * points for items, points in parts.values())
        return [exact("readings", count, "points x items; the points of an item go side by side")]


def read_side(loaded: LoadedModel, side: Side, parts: Sequence[Tensor], site: str) -> Tensor:
    """Logit differences ``[C, 2]`` of both inputs of a pair, first answer less second.

    Each step, of ``[C, L, H, D]`` in ``parts`` read at once, is added at the last prompt token.
    """
    with torch.no_grad():
        found = []
        for prompt, part in product(read_pair(loaded, side.pair, side.reply, site), parts):
            with Edit(loaded.model, part[None], site, ALL):
                found.append(prompt.logit_diffs(len(part))[0])
    return torch.cat(found).unflatten(0, (2, -1)).T


def read_text(loaded: LoadedModel, text: Text, parts: Sequence[Tensor], site: str) -> Tensor:
    """Mean log-probability ``[C, 1]`` of a text's tokens but the first, in nats, all steered."""
    ids = torch.tensor(raw_ids(loaded, text.line), device=loaded.model.device)
    found = []
    for part in parts:
        rows = ids.expand(len(part), -1)
        with torch.no_grad(), Edit(loaded.model, part, site, ALL):
            logits = loaded.model(input_ids=rows, attention_mask=torch.ones_like(rows)).logits
        gained = logits[:, :-1].float().log_softmax(-1).gather(-1, rows[:, 1:, None])
        found.append(gained.mean(1).double().cpu())
    return torch.cat(found)
