"""Belief questions on stories that the benchmark does not have, up to where training begins."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hooks.geometry import find_geometry
from sally_anne.benchmarks.gridtom.contrasts import question_twins
from sally_anne.benchmarks.gridtom.maps import random_layouts
from sally_anne.benchmarks.gridtom.stories import generated
from sally_anne.benchmarks.samples import Split
from sally_anne.benchmarks.twins import Twins
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prompts import continuations, encode, reply_prompt

_MAP_SEED, _STORY_SEED = 31_000, 7
_BATCH = 16


def training_twins(maps: int) -> list[Twins]:
    """Of 24 stories on each of so many random maps, none of them the benchmark's."""
    layouts = list(itertools.islice(random_layouts(_MAP_SEED), maps))
    return question_twins(generated(_STORY_SEED, layouts=layouts), setting="text").twins


def held_out_twins(split: Split, most: int) -> list[Twins]:
    """At most so many twins of the benchmark's stories, told in words."""
    return question_twins(generated(), setting="text").choose(split, most)


@dataclass(frozen=True)
class Streams:
    """N twins as the residual stream enters a layer.

    Attributes:
        stream: ``[N, 2, T, hidden]``, padded on the left.
        mask: of tokens, ``[N, 2, T]``.
        words: first tokens of the first and the second twin's answer, ``[N, 2]``.
    """

    stream: Tensor
    mask: Tensor
    words: Tensor

    def __len__(self) -> int:
        """N."""
        return len(self.words)


class _EnoughError(Exception):
    """The layer is reached."""


def streams(loaded: LoadedModel, twins: Sequence[Twins], layer: int) -> Streams:
    """Run all layers below one, whose input is kept."""
    prompts = [reply_prompt(loaded, side.turns, False) for pair in twins for side in pair.samples]
    words = [
        [tokens[0] for tokens in continuations(loaded, prompts[2 * i], pair.answers)]
        for i, pair in enumerate(twins)
    ]
    inputs = encode(loaded, prompts, None)
    model, found = loaded.model, []

    def stop(module: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        found.append((given[0] if given else named["hidden_states"]).detach())
        raise _EnoughError

    name = find_geometry(model).layer_names[layer]
    handle = model.get_submodule(name).register_forward_pre_hook(stop, with_kwargs=True)
    try:
        with torch.no_grad():
            for start in range(0, len(prompts), _BATCH):
                part = {key: value[start : start + _BATCH] for key, value in inputs.items()}
                try:
                    model(**part)
                except _EnoughError:
                    continue
    finally:
        handle.remove()
    mask = inputs["attention_mask"]
    pairs = (len(twins), 2)
    return Streams(
        torch.cat(found).unflatten(0, pairs), mask.unflatten(0, pairs), torch.tensor(words)
    )
