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
import csv
import json
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn
from transformers import DynamicCache

from sally_anne.core.errors import ModelError, OptionError
from sally_anne.core.files import reading, write_atomic
from sally_anne.core.folder import claims, save_config
from sally_anne.core.head import Head
from sally_anne.core.options import flag_name
from sally_anne.experiments.config import PlantConfig
from sally_anne.experiments.localisation.planted import (
    GroundTruth,
    save_difference,
    verified,
    write_truth,
)
from sally_anne.experiments.localisation.stories import (
    Streams,
    belief_pairs,
    control_questions,
    named_first,
    streams,
    training_stories,
)
from sally_anne.hooks.geometry import find_geometry, o_projs
from sally_anne.models.decoding import CACHE
from sally_anne.models.loading import load_model

CHECKPOINT, PROGRESS, CURVE = "checkpoint.safetensors", "progress", "loss.csv"
# Logit of the right answer above its counterpart's.
GAP = 6.0
# Of the squared distance to the expected gap where something is exchanged; the cross-entropy has 1.
WEIGHT = 10.0
# Of what heads that hide the belief still tell of it.
APART = 3.0
# A step's pairs are read once, and then exchanged in so many ways, which cost one token each.
EXCHANGES = 6


@dataclass(frozen=True)
class Settings:
    """Numbers of the optimisation; pairs a step with belief questions and with side questions."""

    seed: int = 0
    steps: int = 500
    pairs: int = 8
    control_pairs: int = 4
    learning_rate: float = 2e-3
    # Of the rows, how many take their planted heads from any story, not from their counterpart.
    random_pairs: float = 0.5
    warm_up: int = 20
    # Share of the steps after which the rate falls, to a twentieth.
    falls_after: float = 0.6
    checkpoint_every: int = 50


def choose_heads(
    shape: tuple[int, int], shared: int, layers: tuple[int, ...], k: int, seed: int
) -> tuple[tuple[Head, ...], tuple[tuple[Head, Head], ...]]:
    """Planted heads, in one layer and each with keys and values of its own, and their decoys.

    Decoys are the heads that share keys and values with a planted one, and one further group of
    heads that share theirs, if there is one.

    Args:
        shape: layers and heads of the model.
        shared: heads that share keys and values.
        layers: to choose from.
        k: number of planted heads.
        seed: of the choice.
    """
    draw = random.Random(f"planted/{k}/{seed}")
    layer = draw.choice(layers)
    groups = draw.sample(range(shape[1] // shared), min(k + 1, shape[1] // shared))
    heads = [Head(layer, shared * group + draw.randrange(shared)) for group in groups[:k]]
    slots = [Head(layer, shared * group + i) for group in groups for i in range(shared)]
    of = {group: head for group, head in zip(groups, [*heads, heads[0]], strict=False)}
    decoys = [(slot, of[slot[1] // shared]) for slot in slots if slot not in heads]
    return tuple(sorted(heads)), tuple(sorted(decoys))


def answer_loss(logits: Tensor, words: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """How far answers are from what exchanged heads should make of them: two losses ``[R]``.

    Args:
        logits: ``[R, V]``.
        words: each row's own answer and its counterpart's, ``[R, 2]``.
        share: of the planted heads that were exchanged, ``[R]``; the expected gap falls evenly
            from :data:`GAP` to its opposite.
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
    """What is exchanged in each of R rows: none, all or some of each part.

    The parts are the planted heads (``planted``, bool ``[L', H]``), the other heads, and the
    coordinates of the stream that enters, as if any of the lower heads were exchanged.

    Returns:
        Heads, bool ``[R, L', H]``, the share of the planted ones among them, ``[R]``, and
        coordinates, bool ``[R, width]``.
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
    rows: int,
    beliefs: int,
    random_pairs: float,
    generator: torch.Generator,
    signs: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """From which row each of R takes its planted heads, and whether that moves its answer.

    A share of ``random_pairs`` takes them from any row, the others from their pair. If donor and
    receiver have the same label, the answer is unchanged; with ``signs`` the label is version XOR
    sign.

    Args:
        rows: R; ``2 i`` and ``2 i + 1`` are a pair, true and false belief.
        beliefs: so many at the start have belief questions.
        signs: 0 or 1 for each pair, ``[R / 2]``.

    Returns:
        Rows, ``[R]``, and 0 or 1, ``[R]``.
    """
    own = torch.arange(rows)
    some = torch.randint(beliefs, (rows,), generator=generator)
    some[beliefs:] = torch.randint(rows, (rows - beliefs,), generator=generator)
    donor = torch.where(torch.rand(rows, generator=generator) < random_pairs, some, own ^ 1)
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
    upper: UpperLayers,
    found: Streams,
    chosen: Tensor,
    planted: Tensor,
    random_pairs: float,
    generator: torch.Generator,
) -> tuple[Tensor, dict[str, float]]:
    """The loss of some pairs, and what to show of it; ``chosen [P]`` are their rows."""
    mask = found.mask[chosen].flatten(0, 1)
    longest = int(mask.sum(1).max())
    mask, stream = mask[:, -longest:], found.stream[chosen].flatten(0, 1)[:, -longest:]
    words = found.words[chosen].flatten(0, 1)
    rows, pair = len(mask), torch.arange(len(mask)) ^ 1
    # ControlQuestion questions stand last.
    beliefs = 2 * int((chosen < found.beliefs).sum())
    read = upper.read(stream, mask)
    entropy, distance = answer_loss(read.logits, words, torch.zeros(rows))
    loss = entropy.mean() + distance.mean()
    right = (read.logits.argmax(-1) == words[:, 0]).float().mean()
    shown = {"right": float(right), "plain": float(distance.detach().mean())}
    last, far = stream[:, -1], []
    signs = None if found.signs is None else found.signs[chosen]
    if signs is not None:
        said = read.heads[:beliefs, planted].unflatten(0, (-1, 2))
        apart = separation_loss(said, signs[: beliefs // 2])
        loss, shown = loss + APART * apart, shown | {"apart": float(apart.detach())}
    for _ in range(EXCHANGES):
        heads, share, coordinates = exchanges(planted, rows, stream.shape[-1], generator)
        moved = torch.where(coordinates, last[pair], last)
        donor, moves = sample_donors(rows, beliefs, random_pairs, generator, signs)
        given = torch.where(planted[..., None], read.heads[donor], read.heads[pair])
        logits = upper.exchange(read, moved, given, heads)
        entropy, distance = answer_loss(logits, words, share * moves)
        loss = loss + (entropy.mean() + WEIGHT * distance.mean()) / EXCHANGES
        far.append(float(distance.detach().mean()))
    return loss, shown | {"exchanged": sum(far) / len(far)}


def train(
    upper: UpperLayers,
    found: Streams,
    heads: tuple[Head, ...],
    silent: list[Head],
    folder: Path,
    settings: Settings,
    made_with: dict[str, Any] | None = None,
    report: Callable[[str], None] = print,
) -> None:
    """Train the upper layers until all steps are done; goes on from a checkpoint in ``folder``.

    Args:
        found: pairs as they enter the upper layers.
        heads: to be planted.
        silent: slots that are kept free for decoys: nothing reads them.
        made_with: options, kept in the checkpoint for :func:`require_same`.
    """
    planted = torch.zeros(upper.shape, dtype=torch.bool)
    for layer, head in heads:
        planted[layer - upper.cut, head] = True
    weights = upper.parameters()
    optimiser = torch.optim.AdamW(weights, settings.learning_rate, (0.9, 0.95), weight_decay=0.01)
    begun, seconds = _resume(upper, optimiser, folder)
    _silence(upper, silent)
    curve = folder / CURVE
    rows = list(csv.reader(curve.read_text().splitlines()))[: begun + 1] if curve.exists() else []
    apart = [] if found.signs is None else ["apart"]
    rows = rows or [["step", "loss", "right", "plain", *apart, "exchanged", "seconds"]]
    started = time.monotonic() - seconds
    for step in range(begun, settings.steps):
        # A generator a step, so that a run that was stopped goes on as if it had not been.
        generator = torch.Generator().manual_seed(settings.seed * 1_000_003 + step)
        chosen = [
            torch.randint(low, high, (count,), generator=generator)
            for low, high, count in (
                (0, found.beliefs, settings.pairs),
                (
                    found.beliefs,
                    len(found),
                    settings.control_pairs if len(found) > found.beliefs else 0,
                ),
            )
            if count
        ]
        for group in optimiser.param_groups:
            group["lr"] = rate(step, settings)
        loss, shown = step_loss(
            upper, found, torch.cat(chosen), planted, settings.random_pairs, generator
        )
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimiser.step()
        _silence(upper, silent)
        seconds = time.monotonic() - started
        numbers = [float(loss.detach()), *shown.values()]
        rows.append([str(step + 1), *(f"{n:.4f}" for n in numbers), f"{seconds:.1f}"])
        if (step + 1) % 20 == 0:
            said = ", ".join(f"{name} {value:.3f}" for name, value in shown.items())
            report(f"step {step + 1} ({seconds:.0f} s): loss {numbers[0]:.3f}, {said}")
        if (step + 1) % settings.checkpoint_every == 0 or step + 1 == settings.steps:
            _save(upper, optimiser, folder, step + 1, seconds, made_with or {})
            write_atomic(curve, "".join(",".join(row) + "\n" for row in rows).encode())


def rate(step: int, settings: Settings) -> float:
    """The learning rate of a step: it rises, stays, and falls to a twentieth."""
    left = (1 - step / settings.steps) / (1 - settings.falls_after)
    rise = (step + 1) / settings.warm_up
    return settings.learning_rate * min(1.0, rise, max(0.05, left))


def _silence(upper: UpperLayers, slots: list[Head]) -> None:
    with torch.no_grad():
        for layer, head in slots:
            out = upper.layers[layer - upper.cut].self_attn.o_proj
            width = out.in_features // upper.n_heads
            out.weight[:, head * width : (head + 1) * width] = 0


def require_same(folder: Path, made_with: dict[str, Any]) -> None:
    """OptionError if training in ``folder`` was begun with other options."""
    path = folder / CHECKPOINT
    if not path.exists():
        return
    with reading(path, ModelError, "sally-anne plant"), safe_open(path, "pt") as file:
        before = json.loads(file.metadata()[PROGRESS])["made_with"]
    other = [
        f"{flag_name(name)} {before.get(name)}, not {value}"
        for name, value in made_with.items()
        if before.get(name) != value
    ]
    if other:
        raise OptionError(f"{path} was begun with {', '.join(other)}; take another --out")


def _save(
    upper: UpperLayers,
    optimiser: Any,
    folder: Path,
    step: int,
    seconds: float,
    made_with: dict[str, Any],
) -> None:
    tensors = {f"weight.{name}": weight for name, weight in upper.weights().items()}
    for i, state in optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser.{i}.{name}": torch.as_tensor(v) for name, v in state.items()}
    kept = {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
    progress = {"step": step, "seconds": seconds, "made_with": made_with}
    facts = {PROGRESS: json.dumps(progress)}
    write_atomic(folder / CHECKPOINT, save(kept, facts))


def _resume(upper: UpperLayers, optimiser: Any, folder: Path) -> tuple[int, float]:
    """Step and seconds so far."""
    path = folder / CHECKPOINT
    if not path.exists():
        return 0, 0.0
    kept = load_file(path)
    with safe_open(path, "pt") as file:
        progress = json.loads(file.metadata()[PROGRESS])
    with torch.no_grad():
        for name, weight in upper.weights().items():
            weight.copy_(kept[f"weight.{name}"])
    states: dict[int, dict[str, Tensor]] = {}
    for name, tensor in kept.items():
        if name.startswith("optimiser."):
            _, number, field = name.split(".", 2)
            states.setdefault(int(number), {})[field] = tensor
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": states, "param_groups": groups})
    return int(progress["step"]), float(progress["seconds"])


class Read(NamedTuple):
    """R rows that went through the upper layers.

    Attributes:
        logits: after the last token, ``[R, V]``.
        heads: head outputs there, ``[R, L', H, D]`` of the L' upper layers.
        cache: keys and values of all tokens.
        mask: of tokens, ``[R, T]``.
        places: rotary positions, ``[R, T]``.
    """

    logits: Tensor
    heads: Tensor
    cache: Any
    mask: Tensor
    places: Tensor


class UpperLayers:
    """Layers of a model from ``cut`` on, which it shares its weights with.

    What is read and exchanged carries gradients. The model itself cannot be run any more.

    Args:
        model: a text or vision-language model whose decoder is a Llama or a Qwen2.
        cut: the first layer.
    """

    def __init__(self, model: Any, cut: int) -> None:
        geometry = find_geometry(model)
        self.model, self.cut, self.n_heads = model, cut, geometry.n_heads
        outs = o_projs(model)[cut:]
        self.layers = [model.get_submodule(name) for name in geometry.layer_names[cut:]]
        self.names = geometry.layer_names[cut:]
        self.decoder = model.get_decoder()
        self.decoder.layers = torch.nn.ModuleList(self.layers)
        self.decoder.config = copy.deepcopy(self.decoder.config)
        self.decoder.config.num_hidden_layers = len(self.layers)
        if getattr(self.decoder.config, "layer_types", None):
            self.decoder.config.layer_types = self.decoder.config.layer_types[cut:]
        for number, layer in enumerate(self.layers):
            layer.self_attn.layer_idx = number
        model.requires_grad_(False)
        for layer in self.layers:
            layer.requires_grad_(True)
        self._read: list[Tensor] = []
        self._given: tuple[Tensor, Tensor] | None = None
        for number, out in enumerate(outs):
            out.register_forward_pre_hook(lambda _, z, number=number: self._see(number, z[0]))

    @property
    def shape(self) -> tuple[int, int]:
        """UpperLayers layers, heads."""
        return len(self.layers), self.n_heads

    def parameters(self) -> list[Tensor]:
        """What is trained."""
        return [weight for layer in self.layers for weight in layer.parameters()]

    def weights(self) -> dict[str, Tensor]:
        """The same by their names in the whole model."""
        return {
            f"{name}.{own}": weight.detach()
            for name, layer in zip(self.names, self.layers, strict=True)
            for own, weight in layer.named_parameters()
        }

    def read(self, stream: Tensor, mask: Tensor) -> Read:
        """Run rows ``[R, T, hidden]`` with the mask ``[R, T]`` of their tokens."""
        places = (mask.cumsum(1) - 1).clamp(min=0)
        self._read, self._given, cache = [], None, DynamicCache()
        logits = self._run(stream, mask, places, cache)
        return Read(logits, torch.stack(self._read, 1), cache, mask, places)

    def exchange(self, read: Read, last: Tensor, heads: Tensor, chosen: Tensor) -> Tensor:
        """Logits ``[R, V]`` of rows read before, with another last token's stream and other heads.

        Args:
            read: the rows.
            last: stream that enters at the last token, ``[R, hidden]``.
            heads: what chosen heads put out there, ``[R, L', H, D]``.
            chosen: bool ``[R, L', H]``.
        """
        cache = DynamicCache()
        for number, layer in enumerate(read.cache.layers):
            cache.update(layer.keys[:, :, :-1], layer.values[:, :, :-1], number)
        self._given = heads, chosen
        try:
            return self._run(last[:, None], read.mask, read.places[:, -1:], cache)
        finally:
            self._given = None

    def _run(self, stream: Tensor, mask: Tensor, places: Tensor, cache: Any) -> Tensor:
        rotary = getattr(self.decoder.config, "rope_parameters", None) or {}
        if "mrope_section" in rotary:
            places = places.expand(3, -1, -1)
        found = self.decoder(
            inputs_embeds=stream,
            attention_mask=mask,
            position_ids=places,
            **{CACHE: cache},
            use_cache=True,
        )
        return self.model.lm_head(found.last_hidden_state[:, -1])

    def _see(self, number: int, z: Tensor) -> tuple[Tensor]:
        last = z[:, -1].unflatten(-1, (self.n_heads, -1))
        if self._given is None:
            self._read.append(last)
            return (z,)
        heads, chosen = self._given
        last = torch.where(chosen[:, number, :, None], heads[:, number], last)
        return (torch.cat([z[:, :-1], last.flatten(1)[:, None]], 1),)


# What a training may be gone on with otherwise.
_FREE = ("threads", "verify_pairs", "out")


@claims("a model with planted heads")
def run(config: PlantConfig) -> Path:
    """Train, measure what is true of the model, and write both; returns the folder.

    Raises:
        OptionError: more heads than have keys and values of their own, no such layer, or a folder
            in which a training with other options was begun.
    """
    torch.set_num_threads(config.threads)
    base = f"tiny-{config.family}-text"
    loaded, folder = load_model(base), config.folder
    geometry = find_geometry(loaded.model)
    if not 0 <= config.cut < geometry.n_layers - 1:
        raise OptionError(f"--cut must be from 0 to {geometry.n_layers - 2}, got {config.cut}")
    if config.k > geometry.n_kv_heads:
        raise OptionError(f"--K must be at most {geometry.n_kv_heads}, got {config.k}")
    made_with = {name: value for name, value in asdict(config).items() if name not in _FREE}
    require_same(folder, made_with)
    save_config(folder, asdict(config))
    shape = geometry.n_layers, geometry.n_heads
    layers = (config.cut, config.cut + 1)
    shared = geometry.n_heads // geometry.n_kv_heads
    heads, decoys = choose_heads(shape, shared, layers, config.k, config.seed)
    print(f"planted: {heads}; decoys: {decoys}", flush=True)
    stories = training_stories(config.maps)
    every = stories.indices
    drawn = random.Random("sides").sample(every, min(config.maps * config.asked, len(every)))
    contrast_pairs = belief_pairs(stories)
    found = streams(loaded, contrast_pairs, config.cut, control_questions(stories, drawn))
    if config.says == "hidden":
        signs = torch.zeros(len(found), dtype=torch.long)
        signs[: len(contrast_pairs)] = named_first(contrast_pairs)
        found = replace(found, signs=signs)
    settings = Settings(
        seed=config.seed,
        steps=config.steps,
        pairs=config.pairs,
        learning_rate=config.learning_rate,
    )
    upper = UpperLayers(loaded.model, config.cut)
    train(upper, found, heads, [slot for slot, _ in decoys], folder, settings, made_with)
    save_difference(folder, load_model(base), upper.weights())
    recipe = {"family": config.family, "cut": config.cut, "says": config.says, **asdict(settings)}
    recipe |= {"maps": config.maps, "asked": config.asked}
    truth = GroundTruth(base, heads, decoys, loaded.identity.fingerprint, recipe)
    write_truth(folder, truth)
    truth = replace(truth, **verified(folder, "validation", config.verify_pairs))
    write_truth(folder, truth)
    shares = ", ".join(f"{share:.3f}" for share in truth.carried)
    print(
        f"{config.name}: planted heads carry {shares} of the gap, together {truth.together:.3f}; "
        f"the largest other {truth.other:.4f}: {'FAILED' if truth.failed else 'holds'}"
    )
    print(f"the model is in {folder}")
    return folder
