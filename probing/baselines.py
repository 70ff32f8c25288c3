"""Rows of the audit for which a model runs: its own answer, random weights, other films."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from accelerate import dispatch_model

from sally_anne.core.errors import GeometryError, ProbingError
from sally_anne.core.head import Head
from sally_anne.data.pairs import VERDICT, ContrastPair, PairSet
from sally_anne.data.samples import SPLITS, Frames, Sample
from sally_anne.hooks.batch_size import AUTO, within_memory
from sally_anne.hooks.geometry import HEAD_OUT
from sally_anne.models.decoding import extend, prefill
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prompts import continuations, open_prompt, process, reply_prompt, to_model
from sally_anne.probing.config import DEFAULT_BATCH
from sally_anne.probing.extraction import (
    Prepared,
    activations_of,
    each_piece,
    extract,
    plan_batches,
    prepare,
)
from sally_anne.probing.interchange import logit_directions
from sally_anne.probing.probes import Activations, HeadProbes
from sally_anne.probing.surface import Baseline, ProbeRun

RANDOM_INIT = ("random-init baseline", "random-init baseline, standardised")
FILMS = ("text alone", "blank film", "shuffled film", "another story's film")


def best_head(x: Activations, label: str, probes: HeadProbes) -> np.ndarray:
    """Fit ``probes``, rank them, and say which test samples the best by validation tells, ``[n]``.

    Raises:
        ProbingError: as of :meth:`HeadProbes.fit` and :meth:`HeadProbes.rank`.
    """
    probes.fit(x.train, label=label).rank(x.validation)
    layer, head = probes.ranked_[0]
    return (probes.predict(x.test.x)[:, layer, head] == x.test.values(label)).astype(float)


# The model's own answer.


def verdict_words(loaded: LoadedModel, sample: Sample) -> tuple[int, int] | None:
    """First tokens of right and wrong after a sample; None if they are one."""
    prompt = open_prompt(loaded, sample.turns, sample.shows)
    first, second = (tokens[0] for tokens in continuations(loaded, prompt, VERDICT))
    return None if first == second else (first, second)


def binary_labels(run: ProbeRun) -> list[str]:
    """Labels that are true or false."""
    return [label for label in run.x.labels if run.x.values(label).dtype == bool]


def answer_rows(
    loaded: LoadedModel, run: ProbeRun, chosen: np.ndarray, words: tuple[int, int]
) -> list[Baseline]:
    """The model's next token: right rather than wrong.

    As probes do, the logits' gap is put on the :func:`side` of a class by the training samples
    among the ``chosen [n]``: a model that leans to one word may still tell labels apart, and labels
    may be true where it says wrong. What it would say as it is, right above a gap of zero, is a row
    of its own where that differs.
    """
    split = run.items["split"].to_numpy()[chosen]
    rows = chosen[split != "validation"]
    test = split[split != "validation"] == "test"
    samples = [run.data.samples[i] for i in rows]
    prompts = [open_prompt(loaded, s.turns, s.shows) for s in samples]
    size = DEFAULT_BATCH if run.batch_size == AUTO else run.batch_size
    batches = plan_batches(samples, size)

    def gaps(batch: Sequence[int]) -> np.ndarray:
        with torch.inference_mode():
            ready = prepare(loaded, [(samples[i], prompts[i]) for i in batch])
            state = prefill(loaded, to_model(loaded, ready.inputs))
            if ready.rows:
                state = extend(loaded, state, ready.rows, ready.endings)
            return (state.logits[:, words[0]] - state.logits[:, words[1]]).float().cpu().numpy()

    gap = np.empty(len(rows))
    for batch, own in zip(batches, each_piece(loaded, gaps, batches), strict=True):
        gap[list(batch)] = own
    found = []
    for label in binary_labels(run):
        y = run.x.values(label)[rows]
        fitted = (side(gap, y, ~test) == y)[test].astype(float)
        plain = ((gap > 0) == y)[test].astype(float)
        found.append(Baseline("answer", "verdict token", label, rows[test], fitted, part=True))
        if (fitted != plain).any():
            name = "verdict token, as it is said"
            found.append(Baseline("answer", name, label, rows[test], plain, part=True))
    return found


def side(score: np.ndarray, y: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Whether ``score [N, ...]`` is nearer to the mean of what is true, of two classes ``y [N]``.

    Means are of the samples ``train``, bool ``[N]``; without both classes the score is compared
    with their mean.
    """
    own, true = score[train], y[train]
    if true.all() or not true.any():
        return score > own.mean(0)
    first, second = own[true].mean(0), own[~true].mean(0)
    return (score - (first + second) / 2) * (first - second) > 0


def direct_rows(
    loaded: LoadedModel, run: ProbeRun, words: tuple[int, int]
) -> tuple[list[Baseline], np.ndarray]:
    """Head outputs on their direct-logit directions, the best head by validation.

    Nothing is fitted but which :func:`side` of it is true.

    Returns:
        The rows, and the directions ``[L, H, D]``.

    Raises:
        GeometryError: as :func:`probing.interchange.logit_directions`, or another site.
    """
    if run.x.site != HEAD_OUT:
        raise GeometryError(f"direct-logit directions are of head_out, not {run.x.site}")
    directions = logit_directions(loaded.model, words).float().numpy()
    score = np.einsum("nlhd,lhd->nlh", run.x.x, directions)
    validation, test = run.at("validation"), run.at("test")
    train = (run.items["split"] == "train").to_numpy()
    found = []
    for label in binary_labels(run):
        y = run.x.values(label)
        right = side(score, y, train) == y[:, None, None]
        best = np.unravel_index(right[validation].mean(0).argmax(), right.shape[1:])
        own = right[(test, *best)].astype(float)
        name = f"direct logit ({Head(*map(int, best))})"
        found.append(Baseline("answer", name, label, test, own))
    return found, directions


# The model once more, with other weights or another film.


def random_init_baseline(loaded: LoadedModel, seed: int) -> LoadedModel:
    """The same configuration with random weights, on the same devices.

    What the model keeps on disk, its counterpart keeps in memory.

    Raises:
        OutOfMemoryError: it does not fit beside the model.
    """
    model = loaded.model
    places = getattr(model, "hf_device_map", None) or {"": model.device}
    places = {part: "cpu" if at == "disk" else at for part, at in places.items()}
    with (
        torch.random.fork_rng(),
        within_memory("it does not fit beside the model", "all other rows are asked"),
    ):
        torch.manual_seed(seed)
        made = type(model)(loaded.config).to(model.dtype)
        dispatch_model(made, places, skip_keys=model._skip_keys_device_placement)
    pair = replace(loaded)
    # In place of the property that reads the weights.
    pair.__dict__["model"] = made.eval()
    return pair


@dataclass(frozen=True, eq=False)
class ChangedFilm:
    """A sample's film, drawn when it is asked for, without its frames' light or their order."""

    source: Sample
    blank: bool = False
    order: tuple[int, ...] | None = None

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """Frames, height and width."""
        found = self.source.shape()
        assert found is not None
        return found

    def frames(self) -> Frames:
        """``uint8 [F, height, width, 3]``."""
        if self.blank:
            return np.zeros((*self.shape, 3), dtype=np.uint8)
        frames = self.source.frames()
        return frames if self.order is None else frames[list(self.order)]


def film_changes(samples: Sequence[Sample], seed: int) -> dict[str, list[Sample]]:
    """The samples as text alone and with other films: blank, shuffled, another story's.

    Samples of one context keep one film. Another story's is of the same split and size; its
    condition is left to chance. A shuffled film is never in its own order. What cannot be done to
    each film is left out.
    """
    found = {"text alone": [replace(s, video=None, images=()) for s in samples]}
    draw = np.random.default_rng(seed)
    alike: dict[Any, list[Sample]] = {}
    for sample in samples:
        alike.setdefault((sample.split, sample.shape()), []).append(sample)
    films: dict[str, list[ChangedFilm | None]] = {name: [] for name in FILMS[1:]}
    made: dict[tuple[str, str], tuple[ChangedFilm | None, ...]] = {}
    for sample in samples:
        key = sample.group, sample.context or sample.item_id
        if key not in made:
            shape = sample.shape()
            assert shape is not None
            others = [s for s in alike[sample.split, shape] if s.group != sample.group]
            other = ChangedFilm(others[draw.integers(len(others))]) if others else None
            order = list(range(shape[0]))
            while shape[0] > 1 and order == sorted(order):
                order = draw.permutation(shape[0]).tolist()
            shuffled = ChangedFilm(sample, order=tuple(order)) if shape[0] > 1 else None
            made[key] = ChangedFilm(sample, True), shuffled, other
        for name, film in zip(films, made[key], strict=True):
            films[name].append(film)
    return found | {
        name: [replace(s, video=f, images=()) for s, f in zip(samples, each, strict=True)]
        for name, each in films.items()
        if all(each)
    }


def refitted(
    loaded: LoadedModel,
    run: ProbeRun,
    chosen: np.ndarray,
    samples: Sequence[Sample],
    kind: str,
    name: str,
    scaled: str | None = None,
) -> list[Baseline]:
    """Probes fitted anew on these ``samples``, ``chosen [n]`` of the run; best by validation.

    With ``scaled``, that is the name of a second row, of standardised features.
    """
    x = extract(loaded, samples, site=run.x.site, batch_size=run.batch_size)
    found = probed_rows(run, chosen, x, kind, name)
    if scaled is not None:
        spread = x.train.x.std(0)
        own = (x.x - x.train.x.mean(0)) / np.where(spread > 0, spread, 1)
        found += probed_rows(run, chosen, replace(x, x=own), kind, scaled)
    return found


def probed_rows(
    run: ProbeRun, chosen: np.ndarray, x: Activations, kind: str, name: str
) -> list[Baseline]:
    """The best head by validation, fitted on ``x`` of the ``chosen`` samples; empty if none is."""
    rows = chosen[(x.items["split"] == "test").to_numpy()]
    found = []
    for label in x.labels:
        try:
            right = best_head(x, label, run.blank)
            found.append(Baseline(kind, name, label, rows, right, part=True))
        except ProbingError as error:
            found.append(Baseline(kind, name, label, part=True, why=str(error)))
    return found


# What is believed, at the question's token.


def content_rows(
    loaded: LoadedModel, run: ProbeRun, pair_set: PairSet, counts: Mapping[str, int], label: str,
    head: Head,
) -> list[tuple[str, np.ndarray, list[ContrastPair]]]:  # fmt: skip
    """Whether heads tell an input's own answer from the other one, at the question's last token.

    Multinomial probes of the answer are fitted on all inputs, and both are asked for: of a true and
    a false belief, the colour of the believed room against that of the room that is believed in by
    its counterpart. What always names the same of the two tells half of them.

    Returns:
        Of the ``head`` that ``label`` is read from best, and of the best for this: its name, which
        share of each pair of test pairs is told, ``[n]``, and these.
    """
    pairs = {split: pair_set.choose(split, counts[split]) for split in SPLITS}
    if not all(pairs.values()):
        raise ProbingError(f"there are no {pair_set.kind} pairs in one of the splits")
    every = [pair for split in SPLITS for pair in pairs[split]]
    layout = reply_prompt if pair_set.reply else open_prompt

    def heads_of(pair: ContrastPair) -> np.ndarray:
        prompts = [layout(loaded, s.turns, s.shows) for s in pair.samples]
        read = []
        for sample, prompt in zip(pair.samples, prompts, strict=True):
            frames = [sample.frames()] if sample.shows else None
            batch = Prepared(process(loaded, [prompt], frames), [], [])
            read.append(activations_of(loaded, batch, run.x.site)[0])
        return np.stack(read)

    x = np.stack(list(each_piece(loaded, heads_of, every)))
    said = np.array([pair.answers for pair in every])
    split = np.array([pair.split for pair in every])
    train = split == "train"
    probes = run.blank.fit(x[train].reshape(-1, *x.shape[2:]), said[train].ravel())
    classes = probes.classes_.tolist()

    def told(part: str) -> np.ndarray:
        own = split == part
        odds = probes.predict_proba(x[own].reshape(-1, *x.shape[2:]))
        odds = odds.reshape(-1, 2, *odds.shape[1:])
        shares = []
        for each, answers in zip(odds, said[own], strict=True):
            # A word that no training pair has is given no odds.
            first, second = (each[..., np.array(classes) == word].sum(-1) for word in answers)
            gap = first - second
            shares.append((np.heaviside(gap[0], 0.5) + np.heaviside(-gap[1], 0.5)) / 2)
        return np.array(shares)

    scores = told("validation").mean(0)
    layer, best = np.unravel_index(scores.argmax(), scores.shape)
    test = told("test")
    named = {f"{label}'s head": head, "best head for it": (int(layer), int(best))}
    return [
        (f"{name} ({Head(*at)})", test[(slice(None), *at)], pairs["test"])
        for name, at in named.items()
    ]
