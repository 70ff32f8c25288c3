"""Models whose heads are known: what they are asked, what is true of one, decoys, and steering.

The weights are kept as differences from a shipped model, in half precision; what is true of them
was measured on the weights as they are read back. At a set of heads ``alpha * sigma * theta`` is
added at the last token, towards what the other of a story says; theta is fitted on other stories.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from pydantic import TypeAdapter
from safetensors.torch import load_file, save
from torch import Tensor

from sally_anne.core.errors import ModelError
from sally_anne.core.files import reading, write_atomic, write_json
from sally_anne.core.run import Head
from sally_anne.data.gridtom.narration import question_of
from sally_anne.data.gridtom.samples import question_pairs
from sally_anne.data.gridtom.stories import StorySet, context_text, generated
from sally_anne.data.pairs import ContrastPair, PairSet
from sally_anne.data.samples import Sample, Split
from sally_anne.experiments.localisation.localisers import (
    PairStats,
    probe_accuracy,
    train_part,
)
from sally_anne.hooks.edit import Edit
from sally_anne.hooks.geometry import find_geometry, o_projs
from sally_anne.hooks.identity import file_hash
from sally_anne.hooks.positions import ALL
from sally_anne.hooks.vector import SteeringVector
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.prefix import read_side_by_side
from sally_anne.probing.interchange import Prompts, effects_of, outputs_of, read_pair
from sally_anne.probing.probes import HeadProbes, vector_on
from sally_anne.steering.fit import direction_of

TRUTH, DIFFERENCE = "truth.json", "difference.safetensors"
MADE_BY = "sally-anne plant"
# What another head may carry of what the planted ones do together, in a model that counts.
TOLERANCE = 0.05
# And what each planted one must carry of its equal part, and share of right answers.
LEAST, RIGHT = 0.3, 0.9
# What a probe of true and false belief may reach in a planted head that hides it; chance is .5.
HIDDEN = 0.65
ALPHAS = (0.5, 1.0, 2.0, 4.0)
DIRECTIONS = ("logistic", "mass_mean", "lda", "pca")
# Variants of one token that are read at once.
_COLUMNS = 64


@cache
def _benchmark() -> tuple[StorySet, PairSet]:
    return (stories := generated()), question_pairs(stories, setting="text")


def held_out_pairs(split: Split, most: int) -> list[ContrastPair]:
    """At most so many pairs of the benchmark's stories, in words."""
    return _benchmark()[1].choose(split, most)


def control_questions(stories: StorySet, chosen: Sequence[int]) -> list[ContrastPair]:
    """Of stories two questions about something else: where one is now, and where it went first.

    Answers are the right one, of both versions, and the belief question's other.
    """
    found = []
    for record in map(stories.story, chosen):
        cases, cast = record.cases(1), record.cast
        real, walked = question_of(cast, cast.last_room, 0), (cast.first_room, cast.last_room)
        a, b = random.Random(f"sides/{record.group}").sample(real.options, 2)
        for kind, question, answers in (
            ("reality", f"{real.question} Choose one: {a} or {b}.", walked[::-1]),
            ("first", record.initial[1].question, walked),
        ):
            texts = [context_text(record, case, "omniscient", "text") for case in cases]
            texts = [f"{text} Question: {question} Answer:" for text in texts]
            first, second = (
                Sample(item_id=f"{record.group}/{kind}/{i}", text=text, group=record.group)
                for i, text in enumerate(texts)
            )
            found.append(ContrastPair((first, second), answers, kind))
    return found


def control_questions_of(contrast_pairs: Sequence[ContrastPair]) -> list[ContrastPair]:
    """Both such questions of the benchmark's stories that pairs are of."""
    stories = _benchmark()[0]
    groups = {pair.samples[0].group for pair in contrast_pairs}
    chosen = [i for i in stories.indices if stories.story(i).group in groups]
    return control_questions(stories, chosen)


@dataclass(frozen=True)
class GroundTruth:
    """What is known of a model."""

    base: str  # the shipped model that it was made from
    heads: tuple[Head, ...]  # those that carry the belief to the answer, K* of them
    # Slots that nothing reads, and the planted head of the layer that each repeats.
    decoys: tuple[tuple[Head, Head], ...] = ()
    weights: str = ""  # hash of the base's weights, to which alone the difference fits
    recipe: Mapping[str, Any] = field(default_factory=dict)  # options that it was made with
    # Share of the gap within pairs that goes along with each planted head, the largest up or down
    # of any other head, with all others at once, and with all planted ones at once.
    carried: tuple[float, ...] = ()
    other: float = float("nan")
    rest: float = float("nan")
    together: float = float("nan")
    # Share of right answers, by condition, and to the side questions.
    right: Mapping[str, float] = field(default_factory=dict)
    readable: float = float("nan")  # accuracy of the best planted head's probe of the belief
    pairs: int = 0  # on which all but the last was measured

    @property
    def slots(self) -> list[Head]:
        return [slot for slot, _ in self.decoys]

    @property
    def hidden(self) -> bool:
        """Whether planted heads carry the belief in a form that no probe of it should read."""
        return self.recipe.get("says") == "hidden"

    @property
    def failed(self) -> bool:
        """Whether it is not what it should be by the limits above, or not yet verified."""
        return not (
            self.carried
            and self.other <= TOLERANCE * self.together
            and min(self.carried) >= LEAST * self.together / len(self.heads)
            and min(self.right.values()) >= RIGHT
            and (self.readable <= HIDDEN or not self.hidden)
        )

    def mask(self, shape: tuple[int, int]) -> np.ndarray:
        found = np.zeros(shape, dtype=bool)
        found[tuple(np.array(self.heads).T)] = True
        return found


def read_truth(folder: Path) -> GroundTruth:
    """What lies with the weights; a ModelError names the file and field at fault."""
    with reading(folder / TRUTH, ModelError, MADE_BY):
        return TypeAdapter(GroundTruth).validate_json((folder / TRUTH).read_bytes())


def write_truth(folder: Path, truth: GroundTruth) -> None:
    write_json(folder / TRUTH, {**asdict(truth), "failed": truth.failed})


def save_difference(folder: Path, base: LoadedModel, changed: Mapping[str, Tensor]) -> None:
    """Keep what ``changed``, tensors by their name in the model, differ by from the base's."""
    own = base.model.state_dict()
    parts = {name: (new.detach() - own[name]).half().contiguous() for name, new in changed.items()}
    write_atomic(folder / DIFFERENCE, save({n: part for n, part in parts.items() if part.any()}))


def open_planted(folder: Path, decoys: bool = True) -> tuple[LoadedModel, GroundTruth]:
    """A model and what is true of it; its decoys repeat what planted heads say, or are silent."""
    truth = read_truth(folder)
    base = load_model(truth.base)
    if truth.weights != base.identity.fingerprint:
        raise ModelError(
            f"{folder / TRUTH} was made from other weights of {truth.base} than those here: "
            f"train it again with `{MADE_BY}`"
        )
    own = base.model.state_dict()
    with reading(folder / DIFFERENCE, ModelError, MADE_BY):
        for name, part in load_file(folder / DIFFERENCE).items():
            own[name] += part.float()
    attenuate(base.model, truth.slots, 0.0)
    if decoys:
        add_decoys(base.model, truth.decoys)
    kind = "decoys" if decoys and truth.decoys else "plain"
    made = replace(base, name=folder.name, source=f"{truth.base} + {folder.name} ({kind})")
    vars(made).update(model=base.model, _hash=f"{file_hash([folder / DIFFERENCE])}-{kind}")
    return made, truth if decoys else replace(truth, decoys=())


def add_decoys(model: Any, decoys: Sequence[tuple[Head, Head]]) -> None:
    """Let slots put out exactly what planted heads of their layer do: by W_q, and W_k and W_v."""
    geometry = find_geometry(model)
    width, shared = geometry.head_dim, geometry.n_heads // geometry.n_kv_heads
    for (layer, slot), (_, head) in decoys:
        attention = model.get_submodule(geometry.o_proj_names[layer].removesuffix(".o_proj"))
        for name, heads in (("q_proj", 1), ("k_proj", shared), ("v_proj", shared)):
            for weight in getattr(attention, name).parameters():
                rows = weight.data.unflatten(0, (-1, width))
                rows[slot // heads] = rows[head // heads].clone()


def attenuate(model: Any, heads: Sequence[Head], strength: float) -> None:
    """Multiply what heads write into the residual stream, their columns of W_o."""
    width, outs = find_geometry(model).head_dim, o_projs(model)
    for layer, head in heads:
        outs[layer].get_parameter("weight").data.unflatten(1, (-1, width))[:, head] *= strength


def verified(folder: Path, most: int = 24) -> dict[str, Any]:
    """What is measured for :class:`GroundTruth`, on validation stories, with decoys at work."""
    loaded, truth = open_planted(folder)
    contrast_pairs = held_out_pairs("validation", most)
    geometry = find_geometry(loaded.model)
    planted = truth.mask((geometry.n_layers, geometry.n_heads))
    sets = torch.from_numpy(np.stack([planted, ~planted]))
    found = [effects_of(loaded, [pair], True, sets) for pair in contrast_pairs]
    gap = sum(float(one.logit_diff[0]) for one in found)
    share = sum(one.effect[0] for one in found) / gap
    every = held_out_pairs("train", 86)  # all that there are
    outputs = np.stack(list(outputs_of(loaded, every, True)))
    answered: list[tuple[str, bool]] = []
    for pair in contrast_pairs:
        first, second = read_pair(loaded, pair, True)
        answered += [("TB", first.logit_diff[0] > 0), ("FB", second.logit_diff[0] < 0)]
    for pair in control_questions_of(contrast_pairs):
        answered += [(pair.cluster, p.logit_diff[0] > 0) for p in read_pair(loaded, pair, True)]
    carried = tuple(float(share[head]) for head in truth.heads)
    together, rest = (sum(float(one.sets[0, i]) for one in found) / gap for i in (0, 1))
    known = {"carried": carried, "other": float(np.abs(share[~planted]).max())}
    known |= {"rest": rest, "together": together, "pairs": len(contrast_pairs)}
    known["right"] = pd.DataFrame(answered).groupby(0, sort=False)[1].mean().to_dict()
    return known | {"readable": float(probe_accuracy(outputs)[planted].max())}


def vectors_at(heads: Sequence[Head], seen: PairStats) -> dict[str, SteeringVector]:
    """Vectors from the second version to the first, on heads that differ, by each direction."""
    part = train_part(len(seen.outputs))
    x = seen.outputs[:part].reshape(-1, *seen.outputs.shape[2:]).astype(np.float64)
    inside = np.tile([True, False], part)
    weights = HeadProbes().fit(x, inside).coef_
    at = np.stack([x[:, layer, head] for layer, head in heads], axis=1)
    found = {}
    for kind in DIRECTIONS:
        own = [direction_of(kind, at[:, i], inside, weights[h]) for i, h in enumerate(heads)]
        # A head that says the same in both versions, as those of layer 0 do, has no direction.
        alike = torch.tensor([not np.any(one) for one in own])
        own = [one if np.any(one) else np.eye(len(one))[0] for one in own]
        vector = vector_on(heads, at, own, x.shape[1:3], kind)
        found[kind] = replace(vector, sigma=vector.sigma.masked_fill(alike, 0.0))
    return found


def turned_at_random(vector: SteeringVector, draws: int, seed: int) -> list[SteeringVector]:
    """The same steps at the same heads in random directions: norm-matched controls."""
    made = []
    for i in range(draws):
        generator = torch.Generator().manual_seed(seed * 1_000 + i)
        theta = torch.randn(vector.theta.shape, generator=generator, dtype=torch.float64)
        theta /= theta.norm(dim=1, keepdim=True)
        made.append(replace(vector, theta=theta, direction="random"))
    return made


def _logits(prompt: Prompts, deltas: Tensor) -> tuple[Tensor, Tensor]:
    """Logits ``[C, V]`` with each of ``deltas [C, L, H, D]`` added, and the answers' difference."""
    at = prompt.loaded, prompt.state, prompt.rows, prompt.tokens
    found = []
    for part in deltas.split(_COLUMNS):
        with torch.no_grad(), Edit(prompt.loaded.model, part[None], positions=ALL):
            found.append(read_side_by_side(*at, len(part))[0])
    logits, ((first,), (second,)) = torch.cat(found).double(), prompt.words
    return logits, logits[:, first] - logits[:, second]


def steered(
    loaded: LoadedModel,
    contrast_pairs: Sequence[ContrastPair],
    questions: Sequence[ContrastPair],
    vectors: Sequence[SteeringVector],
    alphas: Sequence[float] = ALPHAS,
) -> dict[str, np.ndarray]:
    """What each of V vectors at each of A strengths does to answers: ``[V, A]`` each.

    ``moved``: share of right belief answers that become the counterpart's; ``kept``: of right side
    answers that stay; ``kl``: mean divergence of the side questions' next token, in nats.
    """
    ups = torch.stack([vector.delta(alpha) for vector in vectors for alpha in alphas])
    parts: dict[str, list[Tensor]] = {"moved": [], "kept": [], "kl": []}
    for pair in contrast_pairs:
        for prompt, sign in zip(read_pair(loaded, pair, True), (1, -1), strict=True):
            if sign * prompt.logit_diff > 0:
                parts["moved"].append(sign * _logits(prompt, -sign * ups)[1] < 0)
    both = torch.cat([torch.zeros_like(ups[:1]), ups, -ups])
    for prompt in chain.from_iterable(read_pair(loaded, pair, True) for pair in questions):
        logits, gaps = _logits(prompt, both)
        said = logits.log_softmax(-1)
        far = (said[0].exp() * (said[0] - said[1:])).sum(-1)
        parts["kl"].append(far.view(2, -1).mean(0))
        if gaps[0] > 0:
            parts["kept"].append((gaps[1:] > 0).double().view(2, -1).mean(0))
    shape, nothing = (len(vectors), len(alphas)), torch.full((1, len(ups)), torch.nan)
    return {
        name: (torch.stack(found) if found else nothing).double().mean(0).view(shape).numpy()
        for name, found in parts.items()
    }


def true_directions(heads: Sequence[Head], seen: PairStats) -> np.ndarray:
    """What exchanging planted heads adds, on stories that vectors are not fitted on: ``[K, D]``."""
    part = train_part(len(seen.outputs))
    far = (seen.outputs[part:, 0] - seen.outputs[part:, 1]).mean(0)
    found = np.stack([far[head] for head in heads])
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def steering_rows(
    loaded: LoadedModel,
    truth: GroundTruth,
    seen: PairStats,
    best: Mapping[str, Sequence[Head]],
    contrast_pairs: Sequence[ContrastPair],
    questions: Sequence[ContrastPair],
    draws: int = 20,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Rows of all sets of heads, directions and strengths on one model.

    Vectors are fitted on what localisers have ``seen``, and steer other stories. At planted heads
    ``cosine`` is of theta with :func:`true_directions`, and ``rank`` of ``moved`` among random
    directions (1 is best; ties count against it).
    """
    sets = {"planted": truth.heads} | ({"decoys": truth.slots} if truth.decoys else {}) | {**best}
    named = [
        (name, kind, vector)
        for name, heads in sets.items()
        for kind, vector in vectors_at(heads[: len(truth.heads)], seen).items()
    ]
    planted = {kind: vector for name, kind, vector in named if name == "planted"}
    named += [
        ("planted", f"random, as {kind}", turned)
        for kind, vector in planted.items()
        for turned in turned_at_random(vector, draws, seed)
    ]
    found = steered(loaded, contrast_pairs, questions, [vector for *_, vector in named])
    keys = ["heads", "direction", "alpha"]
    cells = [(name, kind, alpha) for name, kind, _ in named for alpha in ALPHAS]
    table = pd.DataFrame(cells, columns=keys).assign(**{n: v.ravel() for n, v in found.items()})
    true = true_directions(truth.heads, seen)
    rows = table.groupby(keys, sort=False, as_index=False).mean().to_dict("records")
    for row in rows:
        if row["heads"] == "planted" and (vector := planted.get(row["direction"])):
            same = (f"random, as {row['direction']}", row["alpha"])
            drawn = table[(table["direction"] == same[0]) & (table["alpha"] == same[1])]
            row["cosine"] = float((vector.theta.numpy() * true).sum(1).mean())
            row |= {"rank": 1 + int((drawn["moved"] >= row["moved"]).sum()), "of": 1 + draws}
    return [{str(name): value for name, value in row.items()} for row in rows]
