"""Models whose heads are known: what they are asked, what is true of one, its weights, and decoys.

The weights are kept as differences from a shipped model, in half precision; what is true of them
was measured on the weights as they are read back.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
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
from sally_anne.experiments.localisation.localisers import probe_accuracy
from sally_anne.hooks.geometry import find_geometry, o_projs
from sally_anne.hooks.identity import file_hash
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.probing.interchange import effects_of, outputs_of, read_pair

TRUTH, DIFFERENCE = "truth.json", "difference.safetensors"
MADE_BY = "sally-anne plant"
# What another head may carry of what the planted ones do together, in a model that counts.
TOLERANCE = 0.05
# And what each planted one must carry of its equal part, and share of right answers.
LEAST, RIGHT = 0.3, 0.9
# What a probe of true and false belief may reach in a planted head that hides it; chance is .5.
HIDDEN = 0.65


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
        """The decoys' own heads."""
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
        """The planted heads, bool ``[L, H]``."""
        found = np.zeros(shape, dtype=bool)
        found[tuple(np.array(self.heads).T)] = True
        return found


def read_truth(folder: Path) -> GroundTruth:
    """What lies with the weights; a ModelError names the file and field at fault."""
    with reading(folder / TRUTH, ModelError, MADE_BY):
        return TypeAdapter(GroundTruth).validate_json((folder / TRUTH).read_bytes())


def write_truth(folder: Path, truth: GroundTruth) -> None:
    """Keep it, with whether it failed, with the weights."""
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
