"""``sally-anne plant --family qwen2-vl --K 2 --seed 0``: a model whose heads are known."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from sally_anne.core.errors import OptionError
from sally_anne.core.folder import claims, save_config
from sally_anne.core.options import Natural, Positive, Seed


@dataclass(frozen=True)
class PlantConfig:
    """Train the upper layers of a shipped tiny model until chosen heads carry the belief.

    Attributes:
        family: which model class.
        k: number of heads that carry it.
        says: what planted heads say: whether the belief is true, or hidden, which of the two rooms
            in the question's order is believed. Of true and false belief that says nothing.
        seed: of the choice of heads and of the training.
        steps: of training.
        pairs: twins a step.
        learning_rate: at its highest.
        cut: the first layer that is trained; heads are planted in it and the next one.
        maps: random maps of the training stories, 24 stories each.
        asked: of all these stories, so many for each map are asked side questions, too.
        verify_pairs: twins of the benchmark's validation stories on which the truth is measured.
        threads: CPU threads.
        out: folder; the model's name by default. An existing one is resumed.
    """

    family: Literal["qwen2-vl", "llava-next-video"] = "qwen2-vl"
    k: Annotated[int, tyro.conf.arg(name="K")] = 2
    says: Literal["belief", "hidden"] = "belief"
    seed: Seed = 0
    steps: int = 800
    pairs: int = 8
    learning_rate: Positive = 2e-3
    cut: Natural = 5
    maps: int = 24
    asked: int = 8
    verify_pairs: int = 24
    threads: int = 1
    out: Path | None = None

    @property
    def name(self) -> str:
        """Of the model."""
        hidden = "-hidden" if self.says == "hidden" else ""
        return f"{self.family}{hidden}-k{self.k}-s{self.seed}"

    @property
    def folder(self) -> Path:
        """Where the model is written."""
        return self.out or Path("runs") / "planted" / self.name


# What a training may be gone on with otherwise.
_FREE = ("threads", "verify_pairs", "out")


@claims("a model with planted heads")
def run(config: PlantConfig) -> Path:
    """Train, measure what is true of the model, and write both; returns the folder.

    Raises:
        OptionError: more heads than have keys and values of their own, no such layer, or a folder
            in which a training with other options was begun.
    """
    import torch

    from sally_anne.experiments.localisation.planted import (
        GroundTruth,
        save_difference,
        verified,
        write_truth,
    )
    from sally_anne.experiments.localisation.recipe import (
        Settings,
        choose_heads,
        require_same,
        train,
    )
    from sally_anne.experiments.localisation.stories import (
        belief_twins,
        named_first,
        sides,
        streams,
        training_stories,
    )
    from sally_anne.experiments.localisation.upper import Upper
    from sally_anne.hooks.geometry import find_geometry
    from sally_anne.models.loading import load_model

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
    twins = belief_twins(stories)
    found = streams(loaded, twins, config.cut, sides(stories, drawn))
    if config.says == "hidden":
        signs = torch.zeros(len(found), dtype=torch.long)
        signs[: len(twins)] = named_first(twins)
        found = replace(found, signs=signs)
    settings = Settings(
        seed=config.seed,
        steps=config.steps,
        pairs=config.pairs,
        learning_rate=config.learning_rate,
    )
    upper = Upper(loaded.model, config.cut)
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
