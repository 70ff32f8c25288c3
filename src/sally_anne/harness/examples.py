"""Examples for few-shot prompts: questions with their answers, of stories that are not asked about.

An example is told in words, also where the question asked comes with frames: a prompt holds one
film, which is the asked question's. Each item has examples of its own, drawn by its name and a
seed, no two of one story; as many of them as can be of each belief condition and with the answer at
each place, so that neither is taught.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sally_anne.core.errors import HarnessError
from sally_anne.data.gridtom import splits
from sally_anne.data.gridtom.records import StorySet
from sally_anne.data.items import BenchmarkItem
from sally_anne.harness.items import Item

# Of a large pool so many are looked at for an item; and so many stories of GridToM make a pool.
_CANDIDATES, _STORIES = 256, 48


def kin(record: BenchmarkItem) -> frozenset[object]:
    """What a record shares with others on the same story: its group, films and words."""
    # No addresses: one may be that of an archive of all films.
    films = {place for media in record.media for place in media.files or (media.path,)}
    words = {record.context} if any(vars(record.context).values()) else set()
    return frozenset({("group", record.group), *films, *words} - {None})


def set_apart(
    records: Sequence[BenchmarkItem], chosen: Sequence[BenchmarkItem], shots: int, seed: int
) -> tuple[list[BenchmarkItem], list[BenchmarkItem]]:
    """The records that examples are drawn from, and those of ``chosen`` that are asked about.

    Examples have a key, are not chosen, and share nothing with those that are. Where there are none
    of ``shots`` groups, groups of the chosen ones are drawn for it and not asked about.
    """
    keyed = [record for record in records if not record.hidden]

    def apart(asked: Iterable[BenchmarkItem]) -> list[BenchmarkItem]:
        taken = {one for record in asked for one in kin(record)}
        return [record for record in keyed if taken.isdisjoint(kin(record))]

    pool, asked = apart(chosen), list(chosen)
    lacking = shots - len({record.group for record in pool})
    if lacking <= 0:
        return pool, asked
    groups = list(dict.fromkeys(record.group for record in chosen if not record.hidden))
    given = random.Random(f"examples/{seed}").sample(groups, min(lacking, len(groups)))
    taken = {one for record in chosen if record.group in given for one in kin(record)}
    asked = [record for record in chosen if taken.isdisjoint(kin(record))]
    pool = apart(asked)
    if not asked or len({record.group for record in pool}) < shots:
        of = len({record.group for record in keyed})
        raise HarnessError(
            f"--shots {shots}: examples come from {shots} stories that are not asked about, and "
            f"there are {of} with known answers in all; give fewer --shots, or more data"
        )
    return pool, asked


def of_gridtom(
    stories: StorySet, asked: Mapping[int, str], shots: int, seed: int, split_seed: int
) -> dict[int, str]:
    """Splits of stories that examples are drawn from: training stories, where others are asked.

    None says what an asked one says; of those there are, some are drawn.
    """
    said = {stories.identity(index).content for index in asked}
    rng = random.Random(f"examples/{seed}")
    for split in ("train", "validation", "test"):
        members = splits.members(stories, split, split_seed)
        others = [i for i in members if stories.identity(i).content not in said]
        if split not in asked.values() and len(others) >= shots:
            return dict.fromkeys(rng.sample(others, min(_STORIES, len(others))), split)
    raise HarnessError(
        f"--shots {shots}: no split of the data but the one that is asked about has so many "
        "stories; give fewer --shots, or more data"
    )


def with_examples(items: Iterable[Item], pool: Sequence[Item], shots: int, seed: int) -> list[Item]:
    """Each item with examples before its text; ``pool`` holds items told in words, with a key."""
    return [_shown(item, chosen_for(item, pool, shots, seed)) for item in items]


def chosen_for(item: Item, pool: Sequence[Item], shots: int, seed: int) -> list[Item]:
    """The item's own examples; HarnessError if the pool has too few stories that are not its."""
    rng = random.Random(f"examples/{seed}/{item.item_id}")
    others = [one for one in pool if one.story != item.story]
    candidates = rng.sample(others, min(_CANDIDATES, len(others)))
    if len({one.story for one in candidates}) < shots:
        candidates = rng.sample(others, len(others))
    found: list[Item] = []
    kinds: Counter[object] = Counter()
    places: Counter[object] = Counter()
    for _ in range(shots):
        if not candidates:
            raise HarnessError(f"item {item.item_id}: there are not {shots} other stories to show")
        best = min(candidates, key=lambda one: (kinds[_kind(one)], places[_place(one)]))
        found.append(best)
        kinds[_kind(best)] += 1
        places[_place(best)] += 1
        candidates = [one for one in candidates if one.story != best.story]
    rng.shuffle(found)
    return found


def answered(example: Item) -> str:
    """An example as it is shown: its question, and its answer in the form that is asked for."""
    if example.reference is not None:
        said = example.reference
    elif len(example.answer) == 1:
        said = example.answer[0]
    else:
        said = " and ".join(example.answer)
    if example.text.rstrip().endswith(":"):
        return f"{example.text.rstrip()} {said}"
    answer = list(example.answer) if len(example.answer) > 1 else said
    return f"{example.text}\n{json.dumps({'answer': answer})}"


def _shown(item: Item, examples: Sequence[Item]) -> Item:
    told = "\n\n".join(map(answered, examples))
    shown = ["pictures"] * bool(item.clip) + ["sound"] * bool(item.sound)
    verb = "belongs" if shown == ["sound"] else "belong"
    films = f" The {' and the '.join(shown)} {verb} to it." if shown else ""
    head = "Here are questions on other stories, with their right answers."
    text = (
        f"{head}\n\n{told}\n\nThe question to answer now is on a new story.{films}\n\n{item.text}"
    )
    return replace(item, text=text)


def _kind(item: Item) -> tuple[str, str]:
    return item.first, item.condition


def _place(item: Item) -> tuple[int, ...]:
    return tuple(n for n, option in enumerate(item.options) if option.label in item.answer)
