"""Models whose heads are known: what is true of one, its weights, and decoys.

The weights are kept as differences from a shipped model, in half precision; what is true of them
was measured on the weights as they are read back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save
from torch import Tensor

from sally_anne.core.errors import ModelError
from sally_anne.core.files import read_object, reading, write_atomic
from sally_anne.core.head import Head
from sally_anne.data.pairs import ContrastPair
from sally_anne.data.samples import Split
from sally_anne.experiments.localisation.localisers import outputs_of, probe_accuracy, versions
from sally_anne.experiments.localisation.stories import control_questions_of, held_out_pairs
from sally_anne.hooks.geometry import Geometry, find_geometry, o_projs
from sally_anne.hooks.identity import file_hash
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.probing.interchange import effects_of, read_pair

TRUTH, DIFFERENCE = "truth.json", "difference.safetensors"
MADE_BY = "sally-anne plant"
# What another head may carry of what the planted ones do together, in a model that counts.
TOLERANCE = 0.05
# And what each planted one must carry of its equal part, and share of right answers.
LEAST, RIGHT = 0.3, 0.9
# What a probe of true and false belief may reach in a planted head that hides it; chance is .5.
HIDDEN = 0.65

# Training stories on which probes are fitted and scored; there are 86.
_READ = 86


@dataclass(frozen=True)
class GroundTruth:
    """What is known of a model.

    Attributes:
        base: the shipped model that it was made from.
        weights: hash of that model's weights, to which alone the difference fits.
        heads: layer and head of those that carry the belief to the answer, K* of them.
        decoys: layer and head of slots that nothing reads, and the planted head of the same layer
            that each is made to repeat.
        recipe: options that it was made with.
        carried: share of the gap within pairs that goes along with each planted head.
        other: the largest such share, up or down, of any other head.
        rest: what goes along with all other heads at once.
        together: what goes along with all planted heads at once.
        right: share of right answers, by condition, and to the side questions.
        readable: accuracy of the best planted head's probe of true and false belief.
        pairs: pairs on which all but the last was measured.
    """

    base: str
    heads: tuple[Head, ...]
    decoys: tuple[tuple[Head, Head], ...] = ()
    weights: str = ""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    carried: tuple[float, ...] = ()
    other: float = float("nan")
    rest: float = float("nan")
    together: float = float("nan")
    right: Mapping[str, float] = field(default_factory=dict)
    readable: float = float("nan")
    pairs: int = 0

    @property
    def k(self) -> int:
        """K*."""
        return len(self.heads)

    @property
    def hidden(self) -> bool:
        """Whether planted heads carry the belief in a form that no probe of it should read."""
        return self.recipe.get("says") == "hidden"

    @property
    def failed(self) -> bool:
        """Whether it is not what it should be, or not yet verified.

        Another head carries more than :data:`TOLERANCE` of what the planted ones do together, a
        planted one less than :data:`LEAST` of its part, fewer than :data:`RIGHT` of the answers
        to a kind of question are right, or what should be hidden can be read (:data:`HIDDEN`).
        """
        return not (
            self.carried
            and self.other <= TOLERANCE * self.together
            and min(self.carried) >= LEAST * self.together / self.k
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
    found = read_object(folder / TRUTH, ModelError, MADE_BY)
    try:
        heads = tuple(Head(int(a), int(b)) for a, b in found.pop("heads"))
        decoys = tuple(
            (Head(int(a), int(b)), Head(int(c), int(d)))
            for (a, b), (c, d) in found.pop("decoys", [])
        )
        carried = tuple(map(float, found.pop("carried", ())))
        found.pop("failed", None)
        return GroundTruth(heads=heads, decoys=decoys, carried=carried, **found)
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{folder / TRUTH} is not what `{MADE_BY}` writes: {error}") from error


def write_truth(folder: Path, truth: GroundTruth) -> None:
    """Keep it, with whether it failed, with the weights."""
    said = {**asdict(truth), "failed": truth.failed}
    write_atomic(folder / TRUTH, (json.dumps(said, indent=1) + "\n").encode())


def save_difference(folder: Path, base: LoadedModel, changed: Mapping[str, Tensor]) -> None:
    """Keep what ``changed``, tensors by their name in the model, differ by from the base's."""
    own = base.model.state_dict()
    parts = {name: (new - own[name]).half().contiguous() for name, new in changed.items()}
    write_atomic(folder / DIFFERENCE, save({n: part for n, part in parts.items() if part.any()}))


def open_planted(folder: Path | str, decoys: bool = True) -> tuple[LoadedModel, GroundTruth]:
    """A model and what is true of it.

    Args:
        folder: written by ``sally-anne plant``.
        decoys: let its decoys repeat what the planted heads say; without, they are silent slots.

    Raises:
        ModelError: a file is missing or is not what the recipe writes.
    """
    folder = Path(folder)
    truth = read_truth(folder)
    base = load_model(truth.base)
    if truth.weights != (own_weights := base.identity.fingerprint):
        raise ModelError(
            f"{folder / TRUTH} was made from other weights of {truth.base} "
            f"({truth.weights[:12]}..) than those here ({own_weights[:12]}..): train it again "
            f"with `{MADE_BY}`"
        )
    with reading(folder / DIFFERENCE, ModelError, MADE_BY):
        parts = load_file(folder / DIFFERENCE)
    model = base.model
    own = model.state_dict()
    for name, part in parts.items():
        if name not in own or own[name].shape != part.shape:
            raise ModelError(f"{folder / DIFFERENCE}: {name} does not fit {truth.base}")
        own[name] += part.float()
    add_decoys(model, truth.decoys if decoys else (), silent=[slot for slot, _ in truth.decoys])
    kind = "decoys" if decoys and truth.decoys else "plain"
    source = f"{truth.base} + {folder.name} ({kind})"
    made = replace(base, name=folder.name, source=source)
    vars(made).update(model=model, _hash=f"{file_hash([folder / DIFFERENCE])}-{kind}")
    return made, truth if decoys else replace(truth, decoys=())


def add_decoys(
    model: Any, decoys: tuple[tuple[Head, Head], ...], silent: list[Head] | None = None
) -> None:
    """Let slots put out exactly what planted heads of their layer do, and nothing read them.

    A slot takes its head's W_q and, where the two do not share them, W_k and W_v; its columns of
    W_o are zero. What it says is as readable as the planted head, and its effect exactly 0.

    Args:
        model: is changed.
        decoys: slot and planted head.
        silent: slots whose W_o is made zero; those of ``decoys`` by default.

    Raises:
        ModelError: a slot lies in another layer than its head, or shares keys and values with a
            head that is not a slot.
    """
    geometry = find_geometry(model)
    slots = [slot for slot, _ in decoys]
    for (layer, slot), (other_layer, head) in decoys:
        group = slot // _shared(geometry)
        mates = [(layer, h) for h in range(geometry.n_heads) if h // _shared(geometry) == group]
        if layer != other_layer:
            raise ModelError(
                f"decoy {Head(layer, slot)}: its planted head lies in layer {other_layer}"
            )
        if group != head // _shared(geometry) and not set(mates) <= set(slots):
            raise ModelError(f"decoy {Head(layer, slot)} shares keys and values with another head")
    with torch.no_grad():
        for layer, slot in slots if silent is None else silent:
            o_projs(model)[layer].get_parameter("weight")[:, _rows(slot, geometry)] = 0
        for (layer, slot), (_, head) in decoys:
            name = geometry.o_proj_names[layer].removesuffix(".o_proj")
            attention = model.get_submodule(name)
            n = _shared(geometry)
            _copy(attention.q_proj, _rows(slot, geometry), _rows(head, geometry))
            for part in (attention.k_proj, attention.v_proj):
                _copy(part, _rows(slot // n, geometry), _rows(head // n, geometry))


def verified(folder: Path, split: Split, most: int) -> dict[str, Any]:
    """``carried, other, rest, together, right, readable, pairs`` of :class:`GroundTruth`.

    On at most so many stories of a split of the benchmark's; what can be read, on all of its
    training stories. Decoys are at work. A question is answered rightly if its answer is likelier
    than the other one.
    """
    loaded, truth = open_planted(folder)
    contrast_pairs = held_out_pairs(split, most)
    questions = control_questions_of(contrast_pairs)
    geometry = find_geometry(loaded.model)
    planted = truth.mask((geometry.n_layers, geometry.n_heads))
    sets = torch.from_numpy(np.stack([planted, ~planted]))
    found = [effects_of(loaded, pair, True, sets) for pair in contrast_pairs]
    gap = sum(float(one.logit_diff[0]) for one in found)
    share = sum(one.effect[0] for one in found) / gap
    asked = [read_pair(loaded, pair, True) for pair in contrast_pairs]
    outputs = outputs_of(loaded, held_out_pairs("train", _READ)).numpy()
    labels = versions(len(outputs))
    accuracy = probe_accuracy(outputs, labels, np.zeros(len(outputs), dtype=bool))
    # In side questions the first word is right in both versions.
    kept: dict[str, list[bool]] = {}
    for one in questions:
        pair = ContrastPair(one.samples, one.answers, "")
        kept.setdefault(one.kind, []).extend(
            x.logit_diff > 0 for x in read_pair(loaded, pair, True)
        )
    return {
        "carried": tuple(float(share[head]) for head in truth.heads),
        "other": float(np.abs(share[~planted]).max()),
        "rest": sum(float(one.sets[0, 1]) for one in found) / gap,
        "together": sum(float(one.sets[0, 0]) for one in found) / gap,
        "right": {
            "TB": float(np.mean([first.logit_diff > 0 for first, _ in asked])),
            "FB": float(np.mean([second.logit_diff < 0 for _, second in asked])),
            **{kind: float(np.mean(right)) for kind, right in kept.items()},
        },
        "readable": float(accuracy[planted].max()),
        "pairs": len(contrast_pairs),
    }


def attenuate(model: Any, heads: tuple[Head, ...], strength: float) -> None:
    """Multiply what heads write into the residual stream, their columns of W_o."""
    geometry = find_geometry(model)
    with torch.no_grad():
        for layer, head in heads:
            o_projs(model)[layer].get_parameter("weight")[:, _rows(head, geometry)] *= strength


def _shared(geometry: Geometry) -> int:
    """Heads that share keys and values."""
    return geometry.n_heads // geometry.n_kv_heads


def _rows(number: int, geometry: Geometry) -> slice:
    return slice(number * geometry.head_dim, (number + 1) * geometry.head_dim)


def _copy(linear: Any, to: slice, what: slice) -> None:
    linear.weight[to] = linear.weight[what].clone()
    if linear.bias is not None:
        linear.bias[to] = linear.bias[what].clone()
