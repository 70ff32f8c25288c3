"""Controls of the audit: tables of features, and how training samples predict labels by them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd
import torch
from accelerate import dispatch_model
from sklearn.base import BaseEstimator, clone
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from sally_anne.core.console import Console, stage
from sally_anne.core.errors import HookError, OutOfMemoryError, ProbingError
from sally_anne.core.processes import AUTO, BatchSize, within_memory
from sally_anne.core.run import Head
from sally_anne.data.pairs import VERDICT
from sally_anne.data.samples import Frames, Sample, SampleSet
from sally_anne.hooks.geometry import HEAD_OUT
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prefix import extend, prefill
from sally_anne.models.prompts import continuations, to_model
from sally_anne.probing import extraction
from sally_anne.probing.activations import Activations
from sally_anne.probing.config import DEFAULT_BATCH, Position
from sally_anne.probing.extraction import plan_batches, prompts_at
from sally_anne.probing.interchange import logit_directions
from sally_anne.probing.probes import HeadProbes

# Of a long text's words, so many of the most frequent enter interactions.
WORDS = 60
# Fewer training samples of a kind than this are no rule.
LEAF = 5
# Single blanks are not among them: how many there are, the length says.
MARKS = r"[^\w ]+| {2,}"
ALIKE = "training samples do not differ in it"
FILMS = ("text alone", "blank film", "shuffled film", "another story's film")
# What the rows of a part are compared with: the run's own input, read by probes of the same part.
OWN = "the run's own input"
# What may happen to one control while the others can be measured.
LEFT_OUT = (HookError, OutOfMemoryError, ProbingError)
NO_MEMORY = "this row needs more than the run", "all other rows are asked"

# Predicted labels [n], and what was chosen by validation samples, which takes the place of {} in a
# control's name; of features [n, ...], labels [n] and splits [n].
Found = tuple[np.ndarray, str]
Predict = Callable[[np.ndarray, np.ndarray, np.ndarray], Found]


@dataclass(frozen=True)
class Control:
    """What might predict labels: ``values [n, ...]`` of samples, ``at`` places, or ``why`` not."""

    kind: str
    name: str
    values: Any = None
    predict: Predict | None = None
    at: np.ndarray | None = None
    why: str = ""


@dataclass(frozen=True)
class ProbeRun:
    """A run's samples and their activations, in one order, and how its probes are fitted."""

    data: SampleSet
    x: Activations
    probes: HeadProbes
    batch_size: BatchSize = DEFAULT_BATCH
    position: Position = "statement"

    @property
    def split(self) -> np.ndarray:
        return self.x.items["split"].to_numpy()

    @property
    def texts(self) -> list[str]:
        return ["\n".join(turn["content"] for turn in s.turns) for s in self.data.samples]

    @property
    def linear(self) -> BaseEstimator:
        """A logistic regression on standardised features, with the run's c and max_iter."""
        own = LogisticRegression(C=self.probes.c, max_iter=self.probes.max_iter)
        return make_pipeline(StandardScaler(), own)


def by_model(model: BaseEstimator, x: np.ndarray, y: np.ndarray, split: np.ndarray) -> Found:
    """By a scikit-learn model."""
    train = split == "train"
    return clone(model).fit(x[train], y[train]).predict(x), ""


def by_heads(blank: HeadProbes, x: np.ndarray, y: np.ndarray, split: np.ndarray) -> Found:
    """By a probe on each head ``[n, L, H, D]``, of which the best ranked is taken."""
    made = Activations(x, pd.DataFrame({"split": split, "y": y}), ("y",))
    probes = clone(blank).fit(made.train, label="y")
    probes.rank(made.validation)
    best = probes.ranked_[0]
    return probes.predict(x)[:, *best], str(best)


def by_side(score: np.ndarray, y: np.ndarray, split: np.ndarray) -> Found:
    """By the side of a score ``[n]``, of heads ``[n, L, H]`` the best: models may lean."""
    if y.dtype != bool:
        raise ProbingError("it is asked of labels that are true or false")
    own, true = score[split == "train"], y[split == "train"]
    if true.all() or not true.any():
        side = score > own.mean(0)
    else:
        first, second = own[true].mean(0), own[~true].mean(0)
        side = (score - (first + second) / 2) * (first - second) > 0
    if side.ndim == 1:
        return side, ""
    right = (side == y[:, None, None])[split == "validation"].mean(0)
    best = np.unravel_index(right.argmax(), right.shape)
    return side[:, *best], str(Head(*map(int, best)))


def by_pair(tree: BaseEstimator, x: pd.DataFrame, y: np.ndarray, split: np.ndarray) -> Found:
    """By the pair of columns ``[n, T]`` that is best on validation samples."""
    found = {}
    for one, two in combinations(x, 2):
        both = pd.get_dummies(x[[one, two]]).to_numpy(float)
        found[f"{one} x {two}"] = by_model(tree, both, y, split)[0]
    best = max(found, key=lambda pair: (found[pair] == y)[split == "validation"].mean())
    return found[best], best


def text_controls(run: ProbeRun, seed: int) -> list[Control]:
    """Words, form and tags."""
    texts, train = run.texts, run.split == "train"
    leaves = DecisionTreeClassifier(min_samples_leaf=LEAF, random_state=seed)
    tree, linear = partial(by_model, leaves), partial(by_model, run.linear)

    def counted(pattern: str, most: int | None = None) -> np.ndarray:
        """Counts of what the training texts have."""
        counts = CountVectorizer(token_pattern=pattern, max_features=most)
        with suppress(ValueError):  # they have nothing of the kind
            counts.fit(np.array(texts, dtype=object)[train])
            return counts.transform(texts).toarray().astype(float)
        return np.empty((len(texts), 0))

    numbers = np.array([[len(text.split()), _mentions(text)] for text in texts])
    frequent = np.hstack([counted(r"\w+", WORDS), numbers])
    frequent = frequent[:, frequent[train].std(0) > 0]
    products = StandardScaler(), PolynomialFeatures(2, interaction_only=True), run.linear
    paired = partial(by_model, make_pipeline(*products))
    controls = [
        Control("words", "bag of words", counted(r"\w+"), linear),
        Control("words", "words in pairs", frequent, paired),
        Control("format", "length in words", numbers[:, :1], tree),
        Control("format", "marks and line breaks", counted(MARKS), tree),
    ]
    tags = pd.DataFrame([sample.tags for sample in run.data.samples], dtype=object)
    tags = tags.where(tags.notna(), None).astype(str)
    for tag in tags.columns.drop("condition", errors="ignore"):
        kind = "design" if tag in run.data.content else "format"
        values = pd.get_dummies(tags[tag]).to_numpy(float)
        controls.append(Control(kind, run.data.features.get(tag, tag), values, tree))
    controls = [
        replace(c, why=ALIKE) if (c.values[train] == c.values[train][:1]).all() else c
        for c in controls
    ]
    if tags.shape[1] > 1:
        controls.append(Control("design", "tags in pairs: {}", tags, partial(by_pair, leaves)))
    return controls


def _mentions(text: str) -> float:
    """How often words of the last sentence occur before it."""
    sentences = [part for part in re.split(r"[.!?:]\s", text) if part.strip()]
    before = re.findall(r"\w+", " ".join(sentences[:-1]).lower())
    own = set(re.findall(r"\w+", sentences[-1].lower())) if sentences else set()
    return float(sum(word in own for word in before))


def embedding_controls(loaded: LoadedModel, run: ProbeRun) -> list[Control]:
    """Input embeddings of the last token, and their mean over the words."""
    tokenizer, embed = loaded.processor.tokenizer, loaded.model.get_input_embeddings()
    vectors = []
    for text in run.texts:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        with torch.inference_mode():  # as the model does it, wherever its weights are kept
            own = embed(torch.tensor(ids, device=loaded.model.device)).float().cpu().numpy()
        vectors.append((own[-1], own.mean(0)))
    names = "embeddings, last token", "embeddings, mean of the words"
    values = np.array(vectors).swapaxes(0, 1)
    linear = partial(by_model, run.linear)
    return [Control("input", n, own, linear) for n, own in zip(names, values, strict=True)]


def verdict_words(loaded: LoadedModel, prompt: str) -> tuple[int, int]:
    """First tokens of right and wrong after a prompt; a ProbingError if they are one."""
    first, second = (tokens[0] for tokens in continuations(loaded, prompt, VERDICT))
    if first == second:
        raise ProbingError("right and wrong begin with the same token")
    return first, second


def answer_control(loaded: LoadedModel, run: ProbeRun, chosen: np.ndarray) -> Control:
    """The model's next token after the ``chosen`` samples: the logit of right above wrong."""
    rows = chosen[run.split[chosen] != "validation"]
    samples = [run.data.samples[i] for i in rows]
    prompts = prompts_at(loaded, samples, run.position)
    words = verdict_words(loaded, prompts[0])
    size = DEFAULT_BATCH if run.batch_size == AUTO else run.batch_size
    batches = plan_batches(samples, size)

    def prepared(batch: Sequence[int]) -> extraction.Prepared:
        return extraction.prepare(loaded, [(samples[i], prompts[i]) for i in batch])

    def logit_diffs(batch: Sequence[int], ready: extraction.Prepared) -> np.ndarray:
        with torch.inference_mode():
            given = to_model(loaded, ready.inputs)
            state = prefill(loaded, given, logits=not ready.rows)
            if ready.rows:
                state = extend(loaded, state, ready.rows, ready.endings)
            return (state.logits[:, words[0]] - state.logits[:, words[1]]).float().cpu().numpy()

    found = [*extraction.each_piece(loaded, prepared, logit_diffs, batches)]
    diff = np.concatenate(found).astype(float)[np.argsort(np.concatenate(batches))]
    return Control("answer", "verdict token", diff, by_side, rows)


def direct_control(loaded: LoadedModel, run: ProbeRun) -> Control:
    """Head outputs on their direct-logit directions; a HookError of other sites or norms."""
    if run.x.site != HEAD_OUT:
        raise HookError(f"direct-logit directions are of head_out, not {run.x.site}")
    words = verdict_words(loaded, *prompts_at(loaded, run.data.samples[:1], run.position))
    directions = logit_directions(loaded.model, words).float().numpy()
    score = np.einsum("nlhd,lhd->nlh", run.x.x, directions)
    return Control("answer", "direct logit ({})", score, by_side)


def random_init_baseline(loaded: LoadedModel, seed: int) -> LoadedModel:
    """The same configuration with random weights, on the same devices; disk becomes memory."""
    model = loaded.model
    places = getattr(model, "hf_device_map", None) or {"": model.device}
    places = {part: "cpu" if at == "disk" else at for part, at in places.items()}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = type(model)(loaded.config).to(model.dtype)
        dispatch_model(made, places, skip_keys=model._skip_keys_device_placement)
    counterpart = replace(loaded)
    # In place of the property that reads the weights.
    counterpart.__dict__["model"] = made.eval()
    return counterpart


@dataclass(frozen=True, eq=False)
class ChangedFilm:
    """A sample's film, changed when it is read."""

    source: Sample
    change: Callable[[Frames], Frames]

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.source.shape() or (0, 0, 0)

    def frames(self) -> Frames:
        return self.change(self.source.frames())


def film_changes(samples: Sequence[Sample], seed: int) -> dict[str, list[Sample]]:
    """The samples as text alone and with other films, one a context, where each can have one."""
    draw, alike = np.random.default_rng(seed), defaultdict(list)
    for sample in samples:
        alike[sample.split, sample.shape()].append(sample)
    films: dict[tuple[str, str], tuple[ChangedFilm | None, ...]] = {}
    keys = [(sample.group, sample.context or sample.item_id) for sample in samples]
    for key, sample in zip(keys, samples, strict=True):
        if key not in films:
            blank = ChangedFilm(sample, np.zeros_like)
            others = [s for s in alike[sample.split, blank.shape] if s.group != sample.group]
            other = others[draw.integers(len(others))] if others else None
            order = np.arange(count := blank.shape[0])
            while count > 1 and (np.diff(order) == 1).all():
                order = draw.permutation(count)
            shuffled = ChangedFilm(sample, itemgetter(order)) if count > 1 else None
            foreign = ChangedFilm(other, np.asarray) if other else None
            films[key] = None, blank, shuffled, foreign
    made = {}
    for i, name in enumerate(FILMS):
        if i == 0 or all(changed[i] for changed in films.values()):
            own = [
                replace(s, video=films[k][i], images=()) for k, s in zip(keys, samples, strict=True)
            ]
            made[name] = own if i else [replace(s, sound=None) for s in own]
    return made


def controls_of(
    loaded: LoadedModel, run: ProbeRun, chosen: np.ndarray, seed: int, console: Console
) -> Iterator[Control]:
    """All controls; those in which the model reads anew are of the ``chosen`` samples' places."""
    samples = [run.data.samples[i] for i in chosen]
    films = film_changes(samples, seed) if all(sample.shows for sample in samples) else {}

    def read(kind: str, name: str) -> Control:
        model = random_init_baseline(loaded, seed) if kind == "untrained" else loaded
        if kind == "view" and name not in films:
            raise ProbingError("there is not such a film of each sample")
        how: Any = {"site": run.x.site, "batch_size": run.batch_size, "position": run.position}
        how["on_progress"] = lambda done, total: None
        x = extraction.extract(model, films.get(name, samples), **how).x
        return Control(kind, name, x, partial(by_heads, run.probes), chosen)

    yield from text_controls(run, seed)
    yield from embedding_controls(loaded, run)
    yield Control("view", OWN, run.x.x[chosen], partial(by_heads, run.probes), chosen)
    steps: dict[tuple[str, str], Callable[[], Control]] = {
        ("answer", "verdict token"): partial(answer_control, loaded, run, chosen),
        ("answer", "direct logit"): partial(direct_control, loaded, run),
    }
    others = [("untrained", "random-init baseline"), *(("view", name) for name in FILMS)]
    steps |= {names: partial(read, *names) for names in others}
    for (kind, name), work in steps.items():
        try:
            with stage(console, f"{len(samples)} samples: {name}"), within_memory(*NO_MEMORY):
                made = work()
            yield made
        except LEFT_OUT as error:
            yield Control(kind, name, why=str(error))
