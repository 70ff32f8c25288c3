"""Splits of the stories, and contrasts: labelled pairs of inputs (paper, appendix B)."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from sally_anne.core.errors import BenchmarkError, OptionError
from sally_anne.core.options import Seed
from sally_anne.data.gridtom import stories as made
from sally_anne.data.gridtom.plot import PLOTS, Perspective, Plot
from sally_anne.data.gridtom.render import CLIP_SHAPE
from sally_anne.data.gridtom.stories import RETURNING, BeliefCase, Order, StoryRecord, StorySet
from sally_anne.data.items import Setting
from sally_anne.data.pairs import ContrastPair, PairSet
from sally_anne.data.samples import SPLITS, Sample, SampleSet, Split

TEST_STORIES = 500
MAPS, TEST_MAPS, TRAIN_MAPS = 27, 21, 4
# The split of the released code (evaluate.py): all lines of its file but the last ones are tested.
PUBLISHED: Literal["published"] = "published"
FOR_PROBES = 148
SplitSeed = Seed | Literal["published"]
# matched: both sides share the very same context and differ in the belief statement alone.
# paper: in first-order false-belief stories the true side has the protagonist's
# perspective, the false side from above, so that a probe can tell them apart without any belief.
# released: as the released code writes it. Besides, the true side's caption has the whole story,
# with part 3 behind a sentence that it is not known; before the false side's statement there is a
# double line break that no other sample has.
# crossed: as matched, of both plots: what is so is the room that came first as often as the other.
Contrast = Literal["matched", "paper", "released", "crossed"]
_BOTH: dict[str, Any] = {
    **{"split_seed": PUBLISHED, "normalise": False, "protocol": "official", "parser": "official"},
    **{"max_initial_drop": None, "max_reality_drop": None},
}
# What the paper and its released code stand for, of the options of all commands. What neither says
# (the paper no length of replies) and what cannot be had here is in docs/departures.md.
AS_PUBLISHED: dict[str, dict[str, Any]] = {
    "paper": _BOTH
    | {"contrast": "paper", "site": "head_out", "position": "statement"}
    | {"alpha": tuple(map(float, range(-50, 51, 10)))},
    "released": _BOTH
    | {"contrast": "released", "site": "resid", "position": "reply", "solver": "sklearn"}
    | {"steer_site": "attn_out", "alpha": (-10.0, -5.0, 0.0, 5.0, 10.0), "max_new_tokens": 200},
}
# In second order the two views are the participant's and the protagonist's.
MEANING = {
    1: {
        "y_p": "does the statement fit the protagonist's belief?",
        "y_o": "does the statement fit reality?",
    },
    2: {
        "y_p": "does the statement fit the participant's idea of the protagonist's belief?",
        "y_o": "does the statement fit the protagonist's belief?",
    },
}
# The last sentence of a caption: ours, and that of the official data.
_ENDINGS = " The video ends here.", " That is where the video ends."
FEATURES = {
    "perspective": "perspective of frames and caption",
    "room": "room named by the statement (first or last)",
}
PLOT = {"plot": "whether the participant moves on or returns"}


class Published:
    """Options of which the paper, or its released code, says what they should be."""

    @classmethod
    def as_published(cls, which: str, **given: Any) -> Self:
        """The options of ``paper`` or ``released`` but for those given, of GridToM alone."""
        if given.get("samples") or given.get("task", "gridtom") != "gridtom":
            raise OptionError("--as-published goes with --task gridtom alone")
        known = vars(cls)["__dataclass_fields__"]
        own = {name: value for name, value in AS_PUBLISHED[which].items() if name in known}
        # Its processor cuts frames; that of Qwen2-VL has nothing to cut.
        model = Path(given.get("model") or "").name.lower()
        if which == "released" and model.startswith("llava-next-video"):
            own["crop"] = True
        return cls(**own | given)


def assign(stories: StorySet, seed: SplitSeed = 0) -> dict[int, Split]:
    """Split of each story's number, in the order of the numbers.

    Of the 27 maps 20 and most of a 21st are tested, 4 train, 2 validate. They are whole: no two
    splits share one, and the 4 stories that the 21st has beyond the 500 are in none. A place's
    split follows from the place and the seed alone, so a part of the data has those of the whole.

    A few stories of different maps say the same words (72 of the 648 generated ones). Where such
    copies would stand in different splits, only those of one stay: the test stories, else the
    validation stories (seed 0: 86 train, 45 validate). With the seed ``published`` the last 148 are
    for probes, a quarter of them for validation, and all before are tested. That cuts maps, but of
    copies those that are tested stay, too.
    """
    if seed == PUBLISHED:
        probes = stories.indices[-FOR_PROBES:]
        held = random.Random(PUBLISHED).sample(probes, len(probes) // 4)
        split: dict[int, Split] = {i: "test" for i in stories.indices}
        split.update({i: "validation" if i in held else "train" for i in probes})
    else:
        places = ((i, stories.identity(i).map) for i in sorted(stories.indices))
        found = {i: split_of(name, i % made.STORIES_PER_MAP, seed) for i, name in places}
        split = {index: name for index, name in found.items() if name}
    content = {index: stories.identity(index).content for index in split}
    # The last of these to claim a content keeps it.
    owner = {content[i]: name for name in SPLITS for i in split if split[i] == name}
    return {index: name for index, name in split.items() if owner[content[index]] == name}


def split_of(map_name: str, number: int, seed: SplitSeed = 0) -> Split | None:
    """Split of a story, if any; maps after the 27 go on in 27s, others are drawn by themselves."""
    if numbered := re.fullmatch(r"map-([0-9]{2,6})", map_name):
        block, place = divmod(int(numbered[1]), MAPS)
        order, kept = _order_of_maps(seed, block)
        rank = order.index(place)
        if rank == TEST_MAPS - 1 and number not in kept:
            return None
    else:
        rank = random.Random(f"map/{seed}/{map_name}").randrange(MAPS)
    if rank < TEST_MAPS:
        return "test"
    return "train" if rank < TEST_MAPS + TRAIN_MAPS else "validation"


@cache
def _order_of_maps(seed: SplitSeed, block: int) -> tuple[list[int], list[int]]:
    """The maps of a block in the order of their use; which stories of the 21st are tested."""
    rng = random.Random(f"maps/{seed}" + (f"/{block}" if block else ""))
    order = rng.sample(range(MAPS), MAPS)
    tested = TEST_STORIES - (TEST_MAPS - 1) * made.STORIES_PER_MAP
    return order, rng.sample(range(made.STORIES_PER_MAP), made.STORIES_PER_MAP)[:tested]


def members(stories: StorySet, split: str, seed: SplitSeed = 0) -> list[int]:
    """Numbers of the stories of a split, in order; ``published`` are those of the released code."""
    if split == PUBLISHED:
        split, seed = "test", PUBLISHED
    return [index for index, name in assign(stories, seed).items() if name == split]


def why_none(stories: StorySet, split: str, seed: SplitSeed = 0) -> str:
    """One sentence for people whose data has no story of ``split``."""
    why = f"all but the last {FOR_PROBES}"
    if PUBLISHED not in (split, seed):
        maps = len({stories.identity(index).map for index in stories.indices})
        why = f"of {maps} map(s), which are never cut; take data with more, or another split seed"
    return f"no {split} stories among the {len(stories)} of {stories.source}: they are {why}"


def plots_of(contrast: Contrast) -> tuple[Plot, ...]:
    return PLOTS if contrast == "crossed" else PLOTS[:1]


@dataclass(frozen=True)
class Scene:
    """The key frames of one version of a story, seen from one perspective."""

    case: BeliefCase
    perspective: Perspective
    shape = CLIP_SHAPE

    def frames(self) -> np.ndarray:
        return self.case.frames(self.perspective)


def sample_set(
    stories: StorySet,
    order: Order = 1,
    contrast: Contrast = "matched",
    setting: Setting = "multimodal",
    count: int | None = None,
    split_seed: SplitSeed = 0,
) -> SampleSet:
    """Samples of a probing run, see :func:`build`; ``count`` of all splits in proportion."""
    chosen = choose_stories(stories, count, split_seed)
    records = [stories.story(i) for i in chosen]
    samples = build(records, chosen, order, contrast, setting)
    kinds = {record.group: stories.identity(record.index) for record in records}
    return SampleSet(
        samples=samples,
        source=stories.source,
        fingerprint=stories.fingerprint,
        noun="stories",
        facts={
            "order": str(order),
            "contrast": contrast,
            "setting": setting,
            "stories": str(len(chosen)),
            "splits": PUBLISHED if split_seed == PUBLISHED else f"seed {split_seed}",
        },
        meaning=MEANING[order],
        features=FEATURES | (PLOT if contrast == "crossed" else {}),
        content=("room",),
        identities={group: kind.content for group, kind in kinds.items()},
        clusters={group: kind.map for group, kind in kinds.items()},
        types={s.item_id: s.text.rsplit("Belief:", 1)[-1].strip() for s in samples},
    )


def question_pairs(
    stories: StorySet,
    order: Order = 1,
    setting: Setting = "multimodal",
    count: int | None = None,
    split_seed: SplitSeed = 0,
) -> PairSet:
    """Belief questions on two versions of a story of which the answers differ.

    In first order the true-belief and the false-belief version; in second order those in which the
    participant is not, and is, mistaken, for each first-order condition. Both list the rooms alike.
    """
    pairs = []
    for index, split in choose_stories(stories, count, split_seed).items():
        record = stories.story(index)
        cases = record.cases(order)
        name = record.group + ("/return" if record.plot == "return" else "")
        for i, j in ((0, 1),) if order == 1 else ((0, 2), (1, 3)):
            rooms = random.Random(f"twins/{name}").sample(cases[i].question.options, 2)
            one, other = (
                Sample(
                    item_id=f"{name}/{case.condition}/question",
                    text=f"{made.context_text(record, case, setting=setting)} Question: "
                    f"{belief_question(case, rooms)} Answer:",
                    video=None if setting == "text" else Scene(case, "omniscient"),
                    group=record.group,
                    split=split,
                )
                for case in (cases[i], cases[j])
            )
            answers = cases[i].question.answer, cases[j].question.answer
            pairs.append(ContrastPair((one, other), answers, stories.identity(index).map))
    asks = "answer to the belief question"
    return PairSet("question", pairs, True, asks, clusters="maps", conditions=("TB", "FB"))


def belief_question(case: BeliefCase, rooms: Sequence[str]) -> str:
    return f"{case.question.question} Choose one: {rooms[0]} or {rooms[1]}."


def choose_stories(
    stories: StorySet, count: int | None = None, split_seed: SplitSeed = 0
) -> dict[int, Split]:
    """Split of each story that takes part; errors as of :func:`sample_set`."""
    moving = stories.of_plot("move")
    assigned = assign(moving, split_seed)
    by_split = {name: [i for i in assigned if assigned[i] == name] for name in SPLITS}
    for name, indices in by_split.items():
        if not indices:
            raise BenchmarkError(why_none(moving, name, split_seed))
    if count is not None:
        counts = _in_proportion(count, {name: len(indices) for name, indices in by_split.items()})
        if not all(counts.values()):
            raise BenchmarkError(f"--stories {count} is too few; 20 is the least for three splits")
        by_split = {name: indices[: counts[name]] for name, indices in by_split.items()}
    chosen = {i: name for name, indices in by_split.items() for i in sorted(indices)}
    if len(moving) == len(stories):
        return chosen
    # Each with that of the other plot.
    there = set(stories.indices)
    return chosen | {i + RETURNING: name for i, name in chosen.items() if i + RETURNING in there}


def _in_proportion(total: int, sizes: dict[Split, int]) -> dict[Split, int]:
    """``total`` in parts that are to each other as ``sizes``, by largest remainder."""
    whole = sum(sizes.values())
    if total > whole:
        raise BenchmarkError(f"--stories {total} is more than the {whole} that there are")
    parts = {name: total * size // whole for name, size in sizes.items()}
    by_remainder = sorted(sizes, key=lambda name: total * sizes[name] % whole, reverse=True)
    for name in by_remainder[: total - sum(parts.values())]:
        parts[name] += 1
    return parts


def build(
    records: Iterable[StoryRecord],
    splits: Mapping[int, Split],
    order: Order,
    contrast: Contrast,
    setting: Setting,
) -> list[Sample]:
    """All samples of the stories that have a split (by their index), in the order of the stories.

    Four a story in first order (TB, FB x two rooms), eight in second order; see :data:`FEATURES`.
    """
    samples = []
    chosen = [record for record in records if record.index in splits]
    for record, case in ((r, case) for r in chosen for case in r.cases(order)):
        # Of what is so, what the protagonist believes, and what the participant thinks of that.
        reference, held = case.cast.beliefs(case.first, case.second)[order - 1 : order + 1]
        # Figure 6: the statement right for the protagonist comes with what it saw and knows.
        leaks = contrast in ("paper", "released") and order == 1 and case.first == "FB"
        plot = {"plot": record.plot} if contrast == "crossed" else {}
        version = "/".join([*plot.values(), case.condition])
        # The first is the one that the participant enters first.
        for room, colour in zip(("first", "last"), record.cast.visited(record.plot), strict=True):
            seen: Perspective = "protagonist" if leaks and colour == held else "omniscient"
            text, before = made.context_text(record, case, seen, setting), " "
            if contrast == "released" and order == 1:
                text = _as_released(record, case, seen, setting)
                before = "\n\n" if leaks and colour != held else "\n"
            sample = Sample(
                item_id=f"{record.group}/{version}/{room}",
                text=f"{text}{before}Belief: {case.statement(colour).strip()}",
                video=None if setting == "text" else Scene(case, seen),
                labels={"y_p": colour == held, "y_o": colour == reference},
                group=record.group,
                split=splits[record.index],
                tags={"condition": case.condition, "perspective": seen, "room": room, **plot},
                context=f"{version}/{seen}",
            )
            samples.append(sample)
    return samples


def _as_released(
    record: StoryRecord, case: BeliefCase, perspective: Perspective, setting: Setting
) -> str:
    """The context by the rule of the released code (save_states.py), see :data:`Contrast`."""
    text = f"Description: {made.context_text(record, case, setting=setting)}"
    if perspective == "omniscient" or setting == "video":
        return text
    ours, official = _ENDINGS
    what = "is unable to know the following information"
    lacks = what if text.endswith(official) else "cannot know what happens then"
    known, _, unknown = text.removesuffix(ours).removesuffix(official).partition(" 3. ")
    return f"{known} So the {case.cast.protagonist} agent {lacks}: {unknown}"
