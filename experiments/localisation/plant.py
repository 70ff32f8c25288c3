"""Interchange training: chosen heads, and no others, carry the belief to the answer.

As in strict interchange intervention training (SIIT), of which InterpBench is made: what is
exchanged within pairs at the last token must move the answer as far as the exchanged share of the
planted heads says, whatever else is exchanged with them; answers to questions about something else
must not move at all. Planted heads are also exchanged with those of other stories: else they may
say which room is believed, and not whether the belief is true. Lower layers stay as they were, so
that what they make of a story is worked out once.
"""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from sally_anne.core.errors import OptionError
from sally_anne.core.folder import claims, save_config
from sally_anne.core.run import Head
from sally_anne.data.gridtom.plot import random_layouts
from sally_anne.data.gridtom.samples import question_pairs
from sally_anne.data.gridtom.stories import generated
from sally_anne.data.pairs import ContrastPair
from sally_anne.experiments.config import PlantConfig
from sally_anne.experiments.localisation.planted import (
    GroundTruth,
    attenuate,
    control_questions,
    save_difference,
    verified,
    write_truth,
)
from sally_anne.experiments.train_tiny.documents import Level
from sally_anne.experiments.train_tiny.train import train
from sally_anne.hooks.geometry import find_geometry, o_projs
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.prefix import CACHE
from sally_anne.models.prompts import continuations, encode, reply_prompt

# Logit of the right answer above its counterpart's.
GAP = 6.0
# Of the squared distance to the expected gap where something is exchanged; the cross-entropy has 1.
WEIGHT = 10.0
# Of what heads that hide the belief still tell of it.
APART = 3.0
# A step's pairs are read once, and then exchanged in so many ways, which cost one token each.
EXCHANGES = 6
# Pairs a step of belief questions and of side questions.
PAIRS, CONTROL_PAIRS = 8, 4
# Of the rows, how many take their planted heads from any story, not from their counterpart.
RANDOM_PAIRS = 0.5
# Steps, the learning rate, and the share of all steps after which it falls.
STEPS, RATE, FALLS_AFTER = 800, 2e-3, 0.6
# The first layer that is trained; heads are planted in it or the next one.
CUT = 5
# Random maps of the training stories, 24 stories each, none of them one of the benchmark's.
MAPS, _MAP_SEED, _STORY_SEED = 24, 31_000, 7
_BATCH = 16


def choose_heads(
    n_heads: int, shared: int, k: int, seed: int
) -> tuple[tuple[Head, ...], tuple[tuple[Head, Head], ...]]:
    """K planted heads, in one layer and each with keys and values of its own, and decoys.

    Of a layer's heads ``shared`` have the same keys and values. Decoys, each with the planted head
    that it repeats, are the heads that share theirs with a planted one, and one more group.
    """
    draw = random.Random(f"planted/{k}/{seed}")
    layer = draw.choice((CUT, CUT + 1))
    groups = draw.sample(range(n_heads // shared), min(k + 1, n_heads // shared))
    heads = [Head(layer, shared * group + draw.randrange(shared)) for group in groups[:k]]
    slots = [Head(layer, shared * group + i) for group in groups for i in range(shared)]
    of = {group: head for group, head in zip(groups, [*heads, heads[0]], strict=False)}
    decoys = [(slot, of[slot[1] // shared]) for slot in slots if slot not in heads]
    return tuple(sorted(heads)), tuple(sorted(decoys))


def answer_loss(logits: Tensor, words: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """Two losses of ``logits [R, V]``: gaps fall by the ``share [R]`` of planted heads exchanged.

    ``words [R, 2]`` are each row's own answer and its counterpart's.
    """
    expected = GAP * (1 - 2 * share)
    own = torch.sigmoid(expected)
    likely = logits.log_softmax(-1).gather(1, words)
    entropy = -(own * likely[:, 0] + (1 - own) * likely[:, 1])
    found = logits.gather(1, words)
    return entropy, ((found[:, 0] - found[:, 1] - expected) / GAP) ** 2


def exchanges(
    planted: Tensor, rows: int, width: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """What is exchanged in each of R rows: heads ``[R, L', H]``, their planted share, coordinates.

    Of planted heads, other heads and coordinates of the stream none, all or some.
    """

    def drawn(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator)

    kind = drawn(rows, 1, 1)
    some = drawn(rows, *planted.shape) < 0.5
    own = planted & ((kind < 0.3) | ((kind > 0.6) & some))
    rate = drawn(rows, 1, 1) * (drawn(rows, 1, 1) < 0.8)
    others = ~planted & ((drawn(rows, *planted.shape) < rate) | (drawn(rows, 1, 1) < 0.3))
    part = (drawn(rows, width) < drawn(rows, 1)) & (drawn(rows, 1) < 0.7)
    coordinates = part | (drawn(rows, 1) < 0.3)
    return own | others, own.sum((1, 2)) / planted.sum(), coordinates


def sample_donors(
    rows: int, beliefs: int, generator: torch.Generator, signs: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """From which of R rows each takes its planted heads, and whether (0 or 1) its answer moves.

    Rows ``2 i`` and ``2 i + 1`` are a pair; after ``beliefs`` rows come side questions. The answer
    stays where both have the same label: their version, turned by ``signs [R / 2]`` if given.
    """
    own = torch.arange(rows)
    some = torch.randint(beliefs, (rows,), generator=generator)
    some[beliefs:] = torch.randint(rows, (rows - beliefs,), generator=generator)
    donor = torch.where(torch.rand(rows, generator=generator) < RANDOM_PAIRS, some, own ^ 1)
    said = own & 1 if signs is None else (own & 1) ^ signs.repeat_interleave(2)
    return donor, (said[donor] ^ said) * (own < beliefs)


def separation_loss(heads: Tensor, signs: Tensor) -> Tensor:
    """Share of the squared distance between versions along its mean over both signs, 0 to 1.

    There a linear probe of the belief would read it. ``heads [P, 2, K, D]``, ``signs [P]``.
    """
    far = heads[:, 0] - heads[:, 1]
    groups = [far[signs == sign] for sign in (0, 1)]
    if not all(map(len, groups)):
        return far.new_zeros(())
    mean = torch.stack([group.mean(0) for group in groups]).mean(0)
    return mean.square().sum() / far.square().sum((1, 2)).mean().clamp(min=1e-6)


def step_loss(
    upper: UpperLayers, found: Streams, chosen: Tensor, planted: Tensor, generator: torch.Generator
) -> tuple[Tensor, float]:
    """The loss of some pairs, and how far exchanges are off; ``chosen [P]`` are their rows."""
    mask = found.mask[chosen].flatten(0, 1)
    longest = int(mask.sum(1).max())
    mask, stream = mask[:, -longest:], found.stream[chosen].flatten(0, 1)[:, -longest:]
    words = found.words[chosen].flatten(0, 1)
    rows, pair = len(mask), torch.arange(len(mask)) ^ 1
    # Side questions stand last.
    beliefs = 2 * int((chosen < found.beliefs).sum())
    read = upper.read(stream, mask)
    entropy, distance = answer_loss(read.logits, words, torch.zeros(rows))
    loss = entropy.mean() + distance.mean()
    last, far = stream[:, -1], 0.0
    signs = None if found.signs is None else found.signs[chosen]
    if signs is not None:
        said = read.heads[:beliefs, planted].unflatten(0, (-1, 2))
        loss = loss + APART * separation_loss(said, signs[: beliefs // 2])
    for _ in range(EXCHANGES):
        heads, share, coordinates = exchanges(planted, rows, stream.shape[-1], generator)
        moved = torch.where(coordinates, last[pair], last)
        donor, moves = sample_donors(rows, beliefs, generator, signs)
        given = torch.where(planted[..., None], read.heads[donor], read.heads[pair])
        logits = upper.exchange(read, moved, given, heads)
        entropy, distance = answer_loss(logits, words, share * moves)
        loss = loss + (entropy.mean() + WEIGHT * distance.mean()) / EXCHANGES
        far += float(distance.detach().mean()) / EXCHANGES
    return loss, far


def planting(found: Streams, planted: Tensor) -> Level:
    """Steps by which the heads ``planted``, bool ``[L', H]``, come to carry the belief."""

    def batch(rng: random.Random) -> tuple[dict[str, Any], Callable[[Any], tuple[Tensor, float]]]:
        chosen, every = rng.choices(range(found.beliefs), k=PAIRS), len(found.words)
        if every > found.beliefs:
            chosen += rng.choices(range(found.beliefs, every), k=CONTROL_PAIRS)
        generator = torch.Generator().manual_seed(rng.getrandbits(32))
        inputs = {"found": found, "chosen": torch.tensor(chosen), "planted": planted}
        return inputs | {"generator": generator}, lambda output: output

    return Level("planting", batch, 0.0, STEPS)


def named_first(contrast_pairs: Sequence[ContrastPair]) -> Tensor:
    """1 where the question names the first version's right answer before the other, ``[N]``."""
    places = [[p.samples[0].text.rindex(answer) for answer in p.answers] for p in contrast_pairs]
    return torch.tensor([right < other for right, other in places]).long()


@dataclass(frozen=True)
class Streams:
    """N pairs as the residual stream, padded on the left, enters a layer; side questions last."""

    stream: Tensor  # [N, 2, T, hidden]
    mask: Tensor  # [N, 2, T]
    words: Tensor  # [N, 2, 2]
    beliefs: int  # how many are belief questions
    signs: Tensor | None = None


def streams(
    loaded: LoadedModel,
    contrast_pairs: Sequence[ContrastPair],
    layer: int,
    questions: Sequence[ContrastPair] = (),
) -> Streams:
    every = [*contrast_pairs, *questions]
    prompts = [reply_prompt(loaded, side.turns, False) for pair in every for side in pair.samples]
    words = []
    for i, pair in enumerate(every):
        own, other = (ids[0] for ids in continuations(loaded, prompts[2 * i], pair.answers))
        moves = i < len(contrast_pairs)
        words.append([[own, other], [other, own] if moves else [own, other]])
    inputs = encode(loaded, prompts, None)
    found = []
    with torch.no_grad():
        for start in range(0, len(prompts), _BATCH):
            part = {name: tensor[start : start + _BATCH] for name, tensor in inputs.items()}
            output = loaded.model(**part, output_hidden_states=True, logits_to_keep=1)
            found.append(output.hidden_states[layer])
    mask, stream = (x.unflatten(0, (-1, 2)) for x in (inputs["attention_mask"], torch.cat(found)))
    return Streams(stream, mask, torch.tensor(words), len(contrast_pairs))


class Read(NamedTuple):
    logits: Tensor  # after the last token, [R, V]
    heads: Tensor  # head outputs there, [R, L', H, D]
    cache: Any  # keys and values of all tokens
    mask: Tensor  # of tokens, [R, T]


class UpperLayers(nn.Module):
    """Layers of a model from ``cut`` on, which it shares its weights with.

    What is read and exchanged carries gradients; ``silent`` heads write nothing. The model, whose
    decoder is a Llama or a Qwen2, cannot be run itself any more.
    """

    def __init__(self, model: Any, cut: int, silent: Sequence[Head] = ()) -> None:
        super().__init__()
        geometry, outs = find_geometry(model), o_projs(model)
        names = geometry.layer_names[cut:]
        self.model, self.n_heads = model, geometry.n_heads
        self.loud = torch.ones(len(names), self.n_heads, 1)
        for layer, head in silent:
            self.loud[layer - cut, head] = 0
        attenuate(model, silent, 0.0)
        model.requires_grad_(False)
        layers: Any = nn.ModuleList(model.get_submodule(name) for name in names)
        layers.requires_grad_(True)
        # What is trained, by its names in the whole model.
        self.weights = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self.decoder = model.get_decoder()
        self.decoder.layers = layers
        self.decoder.config = copy.deepcopy(self.decoder.config)
        self.decoder.config.num_hidden_layers = len(layers)
        if getattr(self.decoder.config, "layer_types", None):
            self.decoder.config.layer_types = self.decoder.config.layer_types[cut:]
        self._read: list[Tensor] = []
        self._given: tuple[Tensor, Tensor] | None = None
        for number, (layer, out) in enumerate(zip(layers, outs[cut:], strict=True)):
            layer.self_attn.layer_idx = number
            out.register_forward_pre_hook(lambda _, z, number=number: self._see(number, z[0]))

    @torch.autocast("cpu", enabled=False)
    def forward(self, **inputs: Any) -> tuple[Tensor, float]:
        return step_loss(self, **inputs)

    def read(self, stream: Tensor, mask: Tensor) -> Read:
        """Run rows ``[R, T, hidden]`` with the mask ``[R, T]`` of their tokens."""
        self._read, self._given, cache = [], None, DynamicCache()
        logits = self._run(stream, mask, cache)
        return Read(logits, torch.stack(self._read, 1), cache, mask)

    def exchange(self, read: Read, last: Tensor, heads: Tensor, chosen: Tensor) -> Tensor:
        """Logits ``[R, V]`` of rows with another ``last`` and others of the ``chosen`` heads."""
        cache = DynamicCache()
        for number, layer in enumerate(read.cache.layers):
            cache.update(layer.keys[:, :, :-1], layer.values[:, :, :-1], number)
        self._given = heads, chosen
        return self._run(last[:, None], read.mask, cache)

    def _run(self, stream: Tensor, mask: Tensor, cache: Any) -> Tensor:
        places = (mask.cumsum(1) - 1).clamp(min=0)[:, -stream.shape[1] :]
        if "mrope_section" in (getattr(self.decoder.config, "rope_parameters", None) or {}):
            places = places.expand(3, -1, -1)
        inputs = {"inputs_embeds": stream, "attention_mask": mask, "position_ids": places}
        found = self.decoder(**inputs, **{CACHE: cache}, use_cache=True)
        return self.model.lm_head(found.last_hidden_state[:, -1])

    def _see(self, number: int, z: Tensor) -> tuple[Tensor]:
        z = z.unflatten(-1, (self.n_heads, -1)) * self.loud[number]
        if self._given is None:
            self._read.append(z[:, -1])
        else:
            heads, chosen = self._given
            last = torch.where(chosen[:, number, :, None], heads[:, number], z[:, -1])
            z = torch.cat([z[:, :-1], last[:, None]], 1)
        return (z.flatten(-2),)


@claims("a model with planted heads")
def run(config: PlantConfig) -> Path:
    """Train, measure what is true of the model, and write both; returns the folder."""
    base, folder = f"tiny-{config.family}-text", config.folder
    loaded = load_model(base)
    geometry = find_geometry(loaded.model)
    if config.k > geometry.n_kv_heads:
        raise OptionError(f"--K must be at most {geometry.n_kv_heads}, got {config.k}")
    save_config(folder, asdict(config))
    shared = geometry.n_heads // geometry.n_kv_heads
    heads, decoys = choose_heads(geometry.n_heads, shared, config.k, config.seed)
    print(f"planted: {heads}; decoys: {decoys}", flush=True)
    stories = generated(_STORY_SEED, layouts=[*itertools.islice(random_layouts(_MAP_SEED), MAPS)])
    every = stories.indices
    # Of eight stories for each map side questions are asked, too.
    drawn = random.Random("sides").sample(every, min(8 * MAPS, len(every)))
    contrast_pairs = question_pairs(stories, setting="text").pairs
    found = streams(loaded, contrast_pairs, CUT, control_questions(stories, drawn))
    if config.says == "hidden":
        signs = torch.zeros(len(found.words), dtype=torch.long)
        signs[: len(contrast_pairs)] = named_first(contrast_pairs)
        found = replace(found, signs=signs)
    recipe = {"family": config.family, "k": config.k, "says": config.says, "seed": config.seed}
    truth = GroundTruth(base, heads, decoys, loaded.identity.fingerprint, recipe)
    planted = torch.from_numpy(truth.mask((geometry.n_layers, geometry.n_heads)))[CUT:]
    upper = UpperLayers(loaded.model, CUT, truth.slots)
    levels = [planting(found, planted)]
    train(upper, levels, folder, "planting", config.seed, RATE, FALLS_AFTER)
    save_difference(folder, load_model(base), upper.weights)
    write_truth(folder, truth)
    truth = replace(truth, **verified(folder))
    write_truth(folder, truth)
    shares = ", ".join(f"{share:.3f}" for share in truth.carried)
    print(
        f"{config.name}: planted heads carry {shares} of the gap, together {truth.together:.3f}; "
        f"the largest other {truth.other:.4f}: {'FAILED' if truth.failed else 'holds'}\n"
        f"the model is in {folder}"
    )
    return folder
