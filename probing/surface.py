"""Rows of the audit for which no model runs: words, form, tags and input embeddings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from sally_anne.data.samples import SPLITS, Sample, SampleSet
from sally_anne.hooks.batch_size import BatchSize
from sally_anne.models.loading import LoadedModel
from sally_anne.probing.config import DEFAULT_BATCH
from sally_anne.probing.probes import Activations, HeadProbes

# Of a long text's words, so many of the most frequent enter interactions.
WORDS = 60
# Fewer training samples of a kind than this are no rule.
LEAF = 5
# Single blanks are not among them: how many there are, the length says.
MARKS = r"[^\w ]+| {2,}"


@dataclass(frozen=True)
class Baseline:
    """How one thing tells a label.

    Attributes:
        kind: answer, untrained, input, words, format, design or view.
        name: what was asked.
        label: which label.
        rows: which samples, ``[n]``, by their place in the run; of test samples alone.
        right: whether each was told, ``[n]``.
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
    def blank(self) -> HeadProbes:
        """A probe as the run's own, not yet fitted."""
        return clone(self.probes)

    @property
    def linear(self) -> Pipeline:
        """A logistic regression on standardised features, with the run's c and max_iter."""
        own = LogisticRegression(C=self.probes.c, max_iter=self.probes.max_iter)
        return make_pipeline(StandardScaler(), own)


def text_of(sample: Sample) -> str:
    """All that is said."""
    return "\n".join(turn["content"] for turn in sample.turns)


def _mentions(text: str) -> float:
    """How often words of the last sentence were said before it."""
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
        """Of what the training texts have, however often each text has it."""
        counts = CountVectorizer(token_pattern=pattern, max_features=most)
        try:
            counts.fit([texts[i] for i in train])
        except ValueError:  # they have nothing of the kind
            return np.empty((len(texts), 0))
        return counts.transform(texts).toarray().astype(float)

    numbers = np.array([[len(text.split()), _mentions(text)] for text in texts])
    few = np.hstack([counted(r"\w+", WORDS), numbers])
    few = few[:, few[train].std(0) > 0]
    pairs = make_pipeline(
        StandardScaler(), PolynomialFeatures(2, interaction_only=True), *run.linear
    )
    asked: list[tuple[str, str, Any, np.ndarray]] = [
        ("words", "bag of words", run.linear, counted(r"\w+")),
        ("words", "words in pairs", pairs, few),
        ("format", "length in words", tree, numbers[:, :1]),
        ("format", "marks and line breaks", tree, counted(MARKS)),
    ]
    tags = dict.fromkeys(tag for sample in run.data.samples for tag in sample.tags)
    told = {tag: _one_hot([str(s.tags.get(tag)) for s in run.data.samples]) for tag in tags}
    for tag in told:
        if tag != "condition":
            kind = "design" if tag in run.data.content else "format"
            asked.append((kind, run.data.features.get(tag, tag), tree, told[tag]))
    both = {pair: np.hstack([told[tag] for tag in pair]) for pair in combinations(told, 2)}
    found = []
    for label in run.x.labels:
        y = run.x.values(label)

        def ask(model: Any, x: np.ndarray, at: np.ndarray, y: np.ndarray = y) -> np.ndarray:
            return (clone(model).fit(x[train], y[train]).predict(x[at]) == y[at]).astype(float)

        for kind, name, model, x in asked:
            if (x[train] == x[train[:1]]).all():
                found.append(
                    Baseline(kind, name, label, why="training samples do not differ in it")
                )
            else:
                found.append(Baseline(kind, name, label, test, ask(model, x, test)))
        if both:
            best = max(both, key=lambda pair: ask(tree, both[pair], validation).mean())
            right = ask(tree, both[best], test)
            found.append(
                Baseline("design", f"tags in pairs: {' x '.join(best)}", label, test, right)
            )
    return found


def _one_hot(values: Sequence[str]) -> np.ndarray:
    return (np.array(values)[:, None] == np.unique(values)[None]).astype(float)


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
    train, test = run.at("train"), run.at("test")
    found = []
    for name, x in (("last token", np.array(last)), ("mean of the words", np.array(mean))):
        for label in run.x.labels:
            y = run.x.values(label)
            right = run.linear.fit(x[train], y[train]).predict(x[test]) == y[test]
            found.append(Baseline("input", f"embeddings, {name}", label, test, right.astype(float)))
    return found
