"""Baselines of the audit: what else could predict a run's labels, as well as its best head.

Words, form, tags and input embeddings; the model's own answer; random weights; other films.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import torch
from accelerate import dispatch_model
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from sally_anne.core.errors import HookError, ProbingError
from sally_anne.core.head import Head
from sally_anne.data.pairs import VERDICT, ContrastPair, PairSet
from sally_anne.data.samples import SPLITS, Frames, Sample, SampleSet
from sally_anne.hooks.batch_size import AUTO, BatchSize, within_memory
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

# Of a long text's words, so many of the most frequent enter interactions.
WORDS = 60
# Fewer training samples of a kind than this are no rule.
LEAF = 5
# Single blanks are not among them: how many there are, the length says.
MARKS = r"[^\w ]+| {2,}"
ALIKE = "training samples do not differ in it"
RANDOM_INIT = ("random-init baseline", "random-init baseline, standardised")
FILMS = ("text alone", "blank film", "shuffled film", "another story's film")


@dataclass(frozen=True)
class Baseline:
    """How well one thing predicts a label.

    Attributes:
        kind: answer, untrained, input, words, format, design or view.
        name: the thing.
        label: which label.
        rows: which samples, ``[n]``, by their place in the run; of test samples alone.
        right: whether each is predicted rightly, ``[n]``.
        part: whether it is of the part of the samples that the model read anew.
        why: why it is empty, if it is.
    """

    kind: str
    name: str
    label: str
    rows: np.ndarray = field(default_factory=lambda: np.array([], dtype=int))
    right: np.ndarray = field(default_factory=lambda: np.array([]))
    part: bool = False
    why: str = ""


@dataclass(frozen=True)
class ProbeRun:
    """A run's samples and their activations, in one order.

    Attributes:
        data: the samples; says what their tags are.
        x: their activations.
        probes: how the run fits its own; what else is fitted takes its c and max_iter.
        batch_size: samples that the run reads together.
    """

    data: SampleSet
    x: Activations
    probes: HeadProbes
    batch_size: BatchSize = DEFAULT_BATCH

    @property
    def items(self) -> pd.DataFrame:
        """A row a sample."""
        return self.x.items

    def at(self, split: str) -> np.ndarray:
        """Places of a split's samples."""
        return np.flatnonzero((self.items["split"] == split).to_numpy())

    @property
    def binary_labels(self) -> list[str]:
        """Labels that are true or false."""
        return [label for label in self.x.labels if self.x.values(label).dtype == bool]

    @property
    def blank(self) -> HeadProbes:
        """Probes as the run's own, not yet fitted."""
        return clone(self.probes)

    @property
    def linear(self) -> Pipeline:
        """A logistic regression on standardised features, with the run's c and max_iter."""
        own = LogisticRegression(C=self.probes.c, max_iter=self.probes.max_iter)
        return make_pipeline(StandardScaler(), own)

    def right(self, model: Any, x: np.ndarray, label: str, at: np.ndarray) -> np.ndarray:
        """Which samples ``at [n]`` a scikit-learn model predicts, fitted on ``x [N, ...]``."""
        y, train = self.x.values(label), self.at("train")
        return (clone(model).fit(x[train], y[train]).predict(x[at]) == y[at]).astype(float)


# Baselines for which no model runs.


def text_of(sample: Sample) -> str:
    """The contents of all turns."""
    return "\n".join(turn["content"] for turn in sample.turns)


def _mentions(text: str) -> float:
    """How often words of the last sentence occur before it."""
    sentences = [part for part in re.split(r"[.!?:]\s", text) if part.strip()]
    before = re.findall(r"\w+", " ".join(sentences[:-1]).lower())
    own = set(re.findall(r"\w+", sentences[-1].lower())) if sentences else set()
    return float(sum(word in own for word in before))


def text_baselines(run: ProbeRun, seed: int) -> list[Baseline]:
    """Rows of words, form and tags, on all test samples; empty where training samples are alike."""
    train, validation, test = (run.at(split) for split in SPLITS)
    texts = [text_of(sample) for sample in run.data.samples]
    tree = DecisionTreeClassifier(min_samples_leaf=LEAF, random_state=seed)

    def counted(pattern: str, most: int | None = None) -> np.ndarray:
        """Counts of what the training texts have."""
        counts = CountVectorizer(token_pattern=pattern, max_features=most)
        try:
            counts.fit([texts[i] for i in train])
        except ValueError:  # they have nothing of the kind
            return np.empty((len(texts), 0))
        return counts.transform(texts).toarray().astype(float)

    numbers = np.array([[len(text.split()), _mentions(text)] for text in texts])
    frequent = np.hstack([counted(r"\w+", WORDS), numbers])
    frequent = frequent[:, frequent[train].std(0) > 0]
    pairs = make_pipeline(
        StandardScaler(), PolynomialFeatures(2, interaction_only=True), *run.linear
    )
    features: list[tuple[str, str, Any, np.ndarray]] = [
        ("words", "bag of words", run.linear, counted(r"\w+")),
        ("words", "words in pairs", pairs, frequent),
        ("format", "length in words", tree, numbers[:, :1]),
        ("format", "marks and line breaks", tree, counted(MARKS)),
    ]
    names = dict.fromkeys(tag for sample in run.data.samples for tag in sample.tags)
    tags = {}
    for tag in names:
        values = np.array([str(s.tags.get(tag)) for s in run.data.samples])
        tags[tag] = (values[:, None] == np.unique(values)[None]).astype(float)
        if tag != "condition":
            kind = "design" if tag in run.data.content else "format"
            features.append((kind, run.data.features.get(tag, tag), tree, tags[tag]))
    both = {pair: np.hstack([tags[tag] for tag in pair]) for pair in combinations(tags, 2)}
    rows = []
    for label in run.x.labels:
        for kind, name, model, x in features:
            if (x[train] == x[train[:1]]).all():
                rows.append(Baseline(kind, name, label, why=ALIKE))
            else:
                rows.append(Baseline(kind, name, label, test, run.right(model, x, label, test)))
        if both:
            best = max(both, key=lambda p: run.right(tree, both[p], label, validation).mean())  # noqa: B023
            right = run.right(tree, both[best], label, test)
            name = f"tags in pairs: {' x '.join(best)}"
            rows.append(Baseline("design", name, label, test, right))
    return rows


def embedding_rows(loaded: LoadedModel, run: ProbeRun) -> list[Baseline]:
    """Input embeddings of the last token, and their mean over the words."""
    tokenizer = loaded.processor.tokenizer
    embed = loaded.model.get_input_embeddings()
    last, mean = [], []
    for sample in run.data.samples:
        ids = tokenizer(text_of(sample), add_special_tokens=False)["input_ids"]
        with torch.inference_mode():  # as the model does it, wherever its weights are kept
            vectors = embed(torch.tensor(ids, device=loaded.model.device)).float().cpu().numpy()
        last.append(vectors[-1])
        mean.append(vectors.mean(0))
    test = run.at("test")
    return [
        Baseline("input", f"embeddings, {n}", label, test, run.right(run.linear, x, label, test))
        for n, x in (("last token", np.array(last)), ("mean of the words", np.array(mean)))
        for label in run.x.labels
    ]


# The model's own answer.


def verdict_words(loaded: LoadedModel, sample: Sample) -> tuple[int, int]:
    """First tokens of right and wrong after a sample; a ProbingError if they are one."""
    prompt = open_prompt(loaded, sample.turns, sample.shows)
    first, second = (tokens[0] for tokens in continuations(loaded, prompt, VERDICT))
    if first == second:
        raise ProbingError("right and wrong begin with the same token")
    return first, second


def answer_rows(
    loaded: LoadedModel, run: ProbeRun, chosen: np.ndarray, words: tuple[int, int]
) -> list[Baseline]:
    """The model's next token: right rather than wrong.

    As probes do, the logit difference is put on the :func:`side` of a class by the training samples
    among the ``chosen [n]``: a model that leans to one word may still tell labels apart, and labels
    may be true where it says wrong. What it would say as it is, right above a difference of zero,
    is a row of its own where that differs.
    """
    split = run.items["split"].to_numpy()[chosen]
    rows = chosen[split != "validation"]
    test = split[split != "validation"] == "test"
    samples = [run.data.samples[i] for i in rows]
    prompts = [open_prompt(loaded, s.turns, s.shows) for s in samples]
    batches = plan_batches(samples, DEFAULT_BATCH if run.batch_size == AUTO else run.batch_size)

    def logit_diffs(batch: Sequence[int]) -> np.ndarray:
        with torch.inference_mode():
            ready = prepare(loaded, [(samples[i], prompts[i]) for i in batch])
            state = prefill(loaded, to_model(loaded, ready.inputs))
            if ready.rows:
                state = extend(loaded, state, ready.rows, ready.endings)
            return (state.logits[:, words[0]] - state.logits[:, words[1]]).float().cpu().numpy()

    diff = np.empty(len(rows))
    for batch, own in zip(batches, each_piece(loaded, logit_diffs, batches), strict=True):
        diff[list(batch)] = own
    baselines = []
    for label in run.binary_labels:
        y = run.x.values(label)[rows]
        fitted = (side(diff, y, ~test) == y)[test].astype(float)
        plain = ((diff > 0) == y)[test].astype(float)
        baselines.append(Baseline("answer", "verdict token", label, rows[test], fitted, part=True))
        if (fitted != plain).any():
            name = "verdict token, as it is said"
            baselines.append(Baseline("answer", name, label, rows[test], plain, part=True))
    return baselines


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
        HookError: as :func:`probing.interchange.logit_directions`, or another site.
    """
    if run.x.site != HEAD_OUT:
        raise HookError(f"direct-logit directions are of head_out, not {run.x.site}")
    directions = logit_directions(loaded.model, words).float().numpy()
    score = np.einsum("nlhd,lhd->nlh", run.x.x, directions)
    validation, test = run.at("validation"), run.at("test")
    train = (run.items["split"] == "train").to_numpy()
    rows = []
    for label in run.binary_labels:
        y = run.x.values(label)
        right = side(score, y, train) == y[:, None, None]
        best = np.unravel_index(right[validation].mean(0).argmax(), right.shape[1:])
        own = right[(test, *best)].astype(float)
        name = f"direct logit ({Head(*map(int, best))})"
        rows.append(Baseline("answer", name, label, test, own))
    return rows, directions


# The model once more, with other weights or another film.


def random_init_baseline(loaded: LoadedModel, seed: int) -> LoadedModel:
    """The same configuration with random weights, on the same devices.

    What the model keeps on disk, its counterpart keeps in memory.

    Raises:
        OutOfMemoryError: it does not fit next to the model.
    """
    model = loaded.model
    places = getattr(model, "hf_device_map", None) or {"": model.device}
    places = {part: "cpu" if at == "disk" else at for part, at in places.items()}
    with (
        torch.random.fork_rng(),
        within_memory("it does not fit next to the model", "all other rows are asked"),
    ):
        torch.manual_seed(seed)
        made = type(model)(loaded.config).to(model.dtype)
        dispatch_model(made, places, skip_keys=model._skip_keys_device_placement)
    counterpart = replace(loaded)
    # In place of the property that reads the weights.
    counterpart.__dict__["model"] = made.eval()
    return counterpart


@dataclass(frozen=True, eq=False)
class ChangedFilm:
    """A sample's film, drawn when it is read, without its frames' light or their order."""

    source: Sample
    blank: bool = False
    order: tuple[int, ...] | None = None

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """Frames, height and width."""
        shape = self.source.shape()
        assert shape is not None
        return shape

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
    draw = np.random.default_rng(seed)
    alike: dict[Any, list[Sample]] = {}
    for sample in samples:
        alike.setdefault((sample.split, sample.shape()), []).append(sample)
    made: dict[tuple[str, str], tuple[ChangedFilm | None, ...]] = {}
    films = []
    for sample in samples:
        key = sample.group, sample.context or sample.item_id
        if key not in made:
            blank = ChangedFilm(sample, True)
            count = blank.shape[0]
            others = [s for s in alike[sample.split, blank.shape] if s.group != sample.group]
            other = ChangedFilm(others[draw.integers(len(others))]) if others else None
            order = list(range(count))
            while count > 1 and order == sorted(order):
                order = draw.permutation(count).tolist()
            shuffled = ChangedFilm(sample, order=tuple(order)) if count > 1 else None
            made[key] = blank, shuffled, other
        films.append(made[key])
    changed = {"text alone": [replace(s, video=None, images=()) for s in samples]}
    for name, every in zip(FILMS[1:], zip(*films, strict=True), strict=True):
        if all(every):
            pairs = zip(samples, every, strict=True)
            changed[name] = [replace(s, video=film, images=()) for s, film in pairs]
    return changed


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
    rows = probed_rows(run, chosen, x, kind, name)
    if scaled is not None:
        spread = x.train.x.std(0)
        own = (x.x - x.train.x.mean(0)) / np.where(spread > 0, spread, 1)
        rows += probed_rows(run, chosen, replace(x, x=own), kind, scaled)
    return rows


def probed_rows(
    run: ProbeRun, chosen: np.ndarray, x: Activations, kind: str, name: str
) -> list[Baseline]:
    """The best head by validation, fitted on ``x`` of the ``chosen`` samples; empty if none is."""
    places = chosen[(x.items["split"] == "test").to_numpy()]
    rows = []
    for label in x.labels:
        probes = run.blank
        try:
            probes.fit(x.train, label=label).rank(x.validation)
        except ProbingError as error:
            rows.append(Baseline(kind, name, label, part=True, why=str(error)))
            continue
        right = probes.predict(x.test.x)[:, *probes.ranked_[0]] == x.test.values(label)
        rows.append(Baseline(kind, name, label, places, right.astype(float), part=True))
    return rows


# The believed room, at the question's last token.


def content_rows(
    loaded: LoadedModel, run: ProbeRun, pair_set: PairSet, counts: Mapping[str, int], label: str,
    head: Head,
) -> list[tuple[str, np.ndarray, list[ContrastPair]]]:  # fmt: skip
    """Whether heads tell a prompt's own answer from the other one, at the question's last token.

    Multinomial probes of the answer are fitted on all prompts and scored on both of a pair: of a
    true and a false belief, the colour of the believed room against that of the room that is
    believed in by its counterpart. What always names the same of the two is right of half of them.

    Returns:
        Of the ``head`` that ``label`` is read from best, and of the best for this: its name, which
        share of each pair of test pairs is right, ``[n]``, and these.
    """
    pairs = {split: pair_set.choose(split, counts[split]) for split in SPLITS}
    if not all(pairs.values()):
        raise ProbingError(f"there are no {pair_set.kind} pairs in one of the splits")
    every = [pair for split in SPLITS for pair in pairs[split]]
    layout = reply_prompt if pair_set.reply else open_prompt

    def heads_of(pair: ContrastPair) -> np.ndarray:
        read = []
        for sample in pair.samples:
            prompt = layout(loaded, sample.turns, sample.shows)
            frames = [sample.frames()] if sample.shows else None
            batch = Prepared(process(loaded, [prompt], frames), [], [])
            read.append(activations_of(loaded, batch, run.x.site)[0])
        return np.stack(read)

    x = np.stack(list(each_piece(loaded, heads_of, every)))
    answers = np.array([pair.answers for pair in every])
    split = np.array([pair.split for pair in every])
    train = split == "train"
    probes = run.blank.fit(x[train].reshape(-1, *x.shape[2:]), answers[train].ravel())

    def right(part: str) -> np.ndarray:
        own = split == part
        odds = probes.predict_proba(x[own].reshape(-1, *x.shape[2:]))
        odds = odds.reshape(-1, 2, *odds.shape[1:])
        # A word that no training pair has is given no odds.
        known = (answers[own][..., None] == probes.classes_)[:, None, :, None, None]
        first, second = np.moveaxis((odds[:, :, None] * known).sum(-1), 2, 0)
        lead = first - second
        return (np.heaviside(lead[:, 0], 0.5) + np.heaviside(-lead[:, 1], 0.5)) / 2

    best = Head(*map(int, np.unravel_index(right("validation").mean(0).argmax(), x.shape[2:4])))
    test = right("test")
    return [
        (f"{name} ({Head(*at)})", test[:, *at], pairs["test"])
        for name, at in ((f"{label}'s head", head), ("best head for it", best))
    ]
