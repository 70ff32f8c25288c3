"""Belief questions on stories that the benchmark does not have, up to where training begins.

Beside them side questions, whose answers do not depend on what is believed.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from sally_anne.data.gridtom.narration import reality
from sally_anne.data.gridtom.samples import question_pairs
from sally_anne.data.gridtom.stories import StorySet, context_text, generated
from sally_anne.data.gridtom.world import random_layouts
from sally_anne.data.pairs import ContrastPair, PairSet
from sally_anne.data.samples import Sample, Split
from sally_anne.hooks.geometry import find_geometry
from sally_anne.models.loading import LoadedModel
from sally_anne.models.prompts import continuations, encode, reply_prompt

_MAP_SEED, _STORY_SEED = 31_000, 7
_BATCH = 16


def training_stories(maps: int) -> StorySet:
    """24 stories on each of so many random maps, none of them the benchmark's."""
    return generated(_STORY_SEED, layouts=list(itertools.islice(random_layouts(_MAP_SEED), maps)))


def belief_pairs(stories: StorySet) -> list[ContrastPair]:
    """True-belief and false-belief versions of all stories, in words, with what is asked."""
    return question_pairs(stories, setting="text").pairs


@cache
def _benchmark() -> tuple[StorySet, PairSet]:
    return (stories := generated()), question_pairs(stories, setting="text")


def held_out_pairs(split: Split, most: int) -> list[ContrastPair]:
    """At most so many pairs of the benchmark's stories, in words."""
    return _benchmark()[1].choose(split, most)


@dataclass(frozen=True)
class ControlQuestion:
    """One question on the same two versions, answered alike in both.

    Attributes:
        kind: ``reality`` (where is the participant now?) or ``first`` (which room did it enter
            first?).
        samples: true-belief and false-belief version.
        answers: the right answer, and the other room of the belief question.
    """

    kind: str
    samples: tuple[Sample, Sample]
    answers: tuple[str, str]


def control_questions(stories: StorySet, chosen: Sequence[int]) -> list[ControlQuestion]:
    """Both side questions of the stories of these numbers."""
    found = []
    for index in chosen:
        record = stories.story(index)
        cases = record.cases(1)
        real = reality(cases[0].cast)
        rooms = random.Random(f"sides/{record.group}").sample(real.options, 2)
        walked = (cases[0].cast.first_room, cases[0].cast.last_room)
        asked = {
            "reality": (f"{real.question} Choose one: {rooms[0]} or {rooms[1]}.", walked[::-1]),
            "first": (record.initial[1].question, walked),
        }
        for kind, (question, answers) in asked.items():
            both = [
                Sample(
                    item_id=f"{record.group}/{kind}/{i}",
                    text=f"{context_text(record, case, 'omniscient', 'text')} "
                    f"Question: {question} Answer:",
                    group=record.group,
                )
                for i, case in enumerate(cases)
            ]
            found.append(ControlQuestion(kind, (both[0], both[1]), answers))
    return found


def control_questions_of(contrast_pairs: Sequence[ContrastPair]) -> list[ControlQuestion]:
    """Both side questions of the benchmark's stories that pairs are of."""
    stories = _benchmark()[0]
    groups = {pair.samples[0].group for pair in contrast_pairs}
    return control_questions(
        stories, [i for i in stories.indices if stories.story(i).group in groups]
    )


def named_first(contrast_pairs: Sequence[ContrastPair]) -> Tensor:
    """1 where the question names the first version's right answer before the other, ``[N]``."""
    asked = [pair.samples[0].text.rpartition("Question:")[2] for pair in contrast_pairs]
    first = [
        text.rindex(pair.answers[0]) < text.rindex(pair.answers[1])
        for text, pair in zip(asked, contrast_pairs, strict=True)
    ]
    return torch.tensor(first).long()


@dataclass(frozen=True)
class Streams:
    """N pairs as the residual stream enters a layer; side questions last.

    Attributes:
        stream: ``[N, 2, T, hidden]``, padded on the left.
        mask: of tokens, ``[N, 2, T]``.
        words: for each pair the first token of its answer, and of the other one, ``[N, 2, 2]``.
        beliefs: how many are belief questions.
        signs: 0 or 1 for each pair, ``[N]``, by which planted heads turn what they say of the
            belief; none turn it.
    """

    stream: Tensor
    mask: Tensor
    words: Tensor
    beliefs: int
    signs: Tensor | None = None

    def __len__(self) -> int:
        """N."""
        return len(self.words)


class _EnoughError(Exception):
    """The layer is reached."""


def streams(
    loaded: LoadedModel,
    contrast_pairs: Sequence[ContrastPair],
    layer: int,
    questions: Sequence[ControlQuestion] = (),
) -> Streams:
    """Run all layers below one, whose input is kept, on pairs and side questions."""
    every: list[ContrastPair | ControlQuestion] = [*contrast_pairs, *questions]
    prompts = [reply_prompt(loaded, side.turns, False) for pair in every for side in pair.samples]
    words = []
    for i, pair in enumerate(every):
        own, other = (ids[0] for ids in continuations(loaded, prompts[2 * i], pair.answers))
        words.append(
            [[own, other], [own, other] if isinstance(pair, ControlQuestion) else [other, own]]
        )
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
    pairs = (len(every), 2)
    stream = torch.cat(found).unflatten(0, pairs)
    return Streams(stream, mask.unflatten(0, pairs), torch.tensor(words), len(contrast_pairs))
