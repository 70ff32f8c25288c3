"""Data sets for a first hour, made here of templates, plain words and facts that everybody knows.

In each no word tells a label: both sides of a pair say the same words in another order, or every
word that differs stands on the one side as often as on the other. All variants of one story, and
what they are made of, are a group, which is in one split.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from sally_anne.core.errors import OptionError
from sally_anne.core.options import Seed, checked
from sally_anne.data.pairs import VERDICT, PairSet, own_pairs
from sally_anne.data.samples import SPLITS, Sample, Samples, SampleSet, Split, sample_set, splits_of

# Of each list two thirds are for training; the rest is held out.
Lists = Literal["all", "train", "held-out"]
Question = Literal["belief", "reality", "initial", "statement"]
Kind = Literal["cities", "numbers", "animals"]
KINDS: tuple[Kind, ...] = get_args(Kind)
T = TypeVar("T")

_words = str.split
# Each is one token, with the blank before it, in the common vocabularies.
NAMES = _words("""
    Mary John Tom Anna Paul Lisa Peter Sarah David Emma James Laura Mark Julia Daniel Alice
    Michael Kate Robert Helen George Rachel Kevin Linda Steve Susan Eric Maria Simon Jane
    Adam Karen Brian Nancy Frank Amy Scott Emily Henry Diana Jason Rose Martin Claire
    Andrew Sally Oliver Grace Patrick Ellen Philip Lucy Edward Ruth William Carol Richard Alex
    Thomas Anne
""")
THINGS = _words("""
    ball book key letter ring hat coin pen cup toy knife watch phone map card doll flag
    stone lamp shirt candle spoon ticket bottle brush rope mirror bell
""")
CONTAINERS = _words("""
    box bag basket drawer bucket chest jar pot trunk cabinet barrel tin backpack bin bowl
    tub case tank
""")
ROOMS = _words("kitchen hall office classroom library garage bedroom workshop shop barn studio gym")
SPOTS = _words("""
    shop park school station museum market beach hotel bank bakery church theatre harbour farm
    library lake zoo stadium
""")
# Who is named first, who second, who gives; where; what.
GIVING = (
    "When {a} and {b} went to the {spot}, {s} gave a {thing} to",
    "After {a} and {b} had met at the {spot}, {s} handed a {thing} to",
    "{a} and {b} were tired when they left the {spot}. Then {s} passed a {thing} to",
    "Yesterday {a} and {b} talked for hours near the {spot}, and {s} showed a {thing} to",
    "While {a} and {b} waited at the {spot}, {s} offered a {thing} to",
    "At noon {a} and {b} came back from the {spot}, where {s} had sold a {thing} to",
)
# What happens while the thing is moved: in false and in true belief, in the same words. ``a`` put
# it there, ``b`` moves it, ``c`` is there, too.
PLOTS: dict[str, tuple[str, str]] = {
    "leaves": ("{a} leaves the {room}. {move}", "{move} {a} leaves the {room}."),
    "sleeps": ("{a} falls asleep. {move}", "{move} {a} falls asleep."),
    "stays": ("{a} leaves and {c} stays. {move}", "{c} leaves and {a} stays. {move}"),
    "sees": (
        "{a} and {c} leave the {room}. {c} looks back through the window and {a} does not. {move}",
        "{a} and {c} leave the {room}. {a} looks back through the window and {c} does not. {move}",
    ),
    "calls": ("{a} goes out for a call. {move}", "{move} {a} goes out for a call."),
    "hears": (
        "{a} and {c} leave the {room}. {move} {c} hears of it and {a} does not.",
        "{a} and {c} leave the {room}. {move} {a} hears of it and {c} does not.",
    ),
}
STORY = (
    "{a}, {c} and {b} are in the {room}. There is a {one} and a {other}. {a} puts the {thing} in "
    "the {start}. {events} The {last} and the {end} are closed."
)
ASKED: dict[Question, str] = {
    "belief": "{a} thinks the {thing} is in the",
    "reality": "In fact the {thing} is in the",
    "initial": "At first the {thing} was in the",
    "statement": "{a} thinks that the {thing} is in the {named}.",
}
# A city and its country, each a single word that is on no other line.
CITIES = """
    Paris France/Tokyo Japan/Berlin Germany/Rome Italy/Madrid Spain/Moscow Russia/Cairo Egypt/
    Lima Peru/Oslo Norway/Athens Greece/Dublin Ireland/Warsaw Poland/Vienna Austria/
    Lisbon Portugal/Helsinki Finland/Stockholm Sweden/Copenhagen Denmark/Budapest Hungary/
    Brussels Belgium/Zurich Switzerland/Amsterdam Netherlands/Toronto Canada/Sydney Australia/
    Beijing China/Mumbai India/Bangkok Thailand/Hanoi Vietnam/Seoul Korea/Jakarta Indonesia/
    Manila Philippines/Baghdad Iraq/Tehran Iran/Kabul Afghanistan/Damascus Syria/Beirut Lebanon/
    Istanbul Turkey/Nairobi Kenya/Lagos Nigeria/Accra Ghana/Dakar Senegal/Tunis Tunisia/
    Tripoli Libya/Casablanca Morocco/Kampala Uganda/Santiago Chile/Bogota Colombia/
    Caracas Venezuela/Havana Cuba/Montevideo Uruguay/Quito Ecuador/Prague Czechia/Sofia Bulgaria/
    Bucharest Romania/Belgrade Serbia/Zagreb Croatia/Kiev Ukraine/Kathmandu Nepal/Doha Qatar/
    Reykjavik Iceland/Khartoum Sudan
"""
ANIMALS = {
    "bird": "eagle sparrow owl crow duck swan pigeon robin parrot falcon goose stork gull raven",
    "fish": "salmon trout tuna shark carp herring cod eel pike perch sardine mackerel halibut sole",
    "insect": "ant bee wasp beetle butterfly mosquito moth fly cricket grasshopper flea termite "
    "ladybug hornet",
    "mammal": "dog horse whale tiger cow rabbit bat elephant wolf sheep deer lion monkey bear",
}
TENS = _words("twenty thirty forty fifty sixty seventy eighty ninety")
ONES = _words("one two three four five six seven eight nine")
TEENS = _words("ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen")
NUMBERS = [*ONES, *TEENS, *(t + o for t in TENS for o in ("", *(f"-{one}" for one in ONES)))]


def part(words: Sequence[T], lists: Lists) -> list[T]:
    cut = len(words) * 2 // 3
    return list(words if lists == "all" else words[:cut] if lists == "train" else words[cut:])


def names_by_split(rng: random.Random, lists: Lists) -> dict[Split, list[str]]:
    """The names of each split, which share none."""
    names = rng.sample(found := part(NAMES, lists), len(found))
    given = list(zip(names, splits_of(len(names)), strict=True))
    return {split: [name for name, own in given if own == split] for split in SPLITS}


@checked
def ioi(pairs: int = 120, seed: Seed = 0) -> Samples:
    """Who is given something: pairs of raw text in which the names' roles are exchanged.

    "When Mary and John went to the shop, John gave a book to" goes on with Mary; in its pair Mary
    gives, and it goes on with John (indirect object identification, Wang et al. 2023). Two pairs
    make a group, which name the two in either order; an odd number is rounded up. Splits share no
    name. The label ``first_named`` says whether the name that follows is the one that was said
    first. Each sample has its ``pair`` and ``answer``, and the tag ``template``.
    """
    rng = random.Random(f"ioi/{seed}")
    names = names_by_split(rng, "all")
    made = Samples()
    seen: set[str] = set()
    for i, split in enumerate(splits_of(-(-pairs // 2))):
        template = i % len(GIVING)
        text = ""
        while not text or text in seen:
            two = rng.sample(names[split], 2)
            words = {"spot": rng.choice(SPOTS), "thing": rng.choice(THINGS)}
            text = f"{template} {sorted(two)} {words}"
        seen.add(text)
        for (order, (a, b)), first in product({"ab": two, "ba": two[::-1]}.items(), (True, False)):
            giver, answer = (b, a) if first else (a, b)
            made.append(
                Sample(
                    item_id=f"ioi-{i:05d}/{order}/{'first' if first else 'second'}",
                    text=GIVING[template].format(a=a, b=b, s=giver, **words),
                    labels={"first_named": first},
                    group=f"ioi-{i:05d}",
                    split=split,
                    tags={"template": str(template)},
                    pair=f"ioi-{i:05d}/{order}",
                    answer=answer,
                )
            )
    return made


# A subject, a sentence about it, and the words that make it true and false.
Fact = tuple[str, str, str, str]


def _facts(kind: Kind, rng: random.Random) -> Iterator[tuple[Fact, Fact]]:
    """Twos of facts: each word of them is as often in a true sentence as in a false one."""
    if kind == "numbers":
        numbers = rng.sample(range(len(NUMBERS)), len(NUMBERS) // 2 * 2)
        for twice in zip(numbers[::2], numbers[1::2], strict=True):
            (less, more), sentence = sorted(twice), "{} is {} than {}."
            words, low, high = ("larger", "smaller"), NUMBERS[less], NUMBERS[more]
            yield (
                (high, sentence.format(high.capitalize(), "{}", low), *words),
                (low, sentence.format(low.capitalize(), "{}", high), *words[::-1]),
            )
        return
    if kind == "cities":
        form, facts = "The city of {} is in {{}}.", [line.split() for line in CITIES.split("/")]
        facts = rng.sample(facts, len(facts))
    else:
        form, facts = "The {} is a kind of {{}}.", []
        named = {k: rng.sample(v.split(), len(v.split())) for k, v in ANIMALS.items()}
        for rank in range(min(map(len, named.values()))):
            facts += [[named[k][rank], k] for k in rng.sample(sorted(named), len(named))]
    for (a, x), (b, y) in zip(facts[::2], facts[1::2], strict=True):
        yield (a, form.format(a), x, y), (b, form.format(b), y, x)


@checked
def statements(
    pairs: int = 50, kinds: tuple[Kind, ...] = KINDS, seed: Seed = 0, asked: bool = False
) -> Samples:
    """True and false statements of several kinds, in pairs that differ in one word.

    Two facts make a group: "Paris is in France" and "Tokyo is in Japan" are true, and with the
    countries exchanged false, so that no city and no country tells what is true.

    Args:
        pairs: of each kind; an odd number is rounded up. OptionError if there are too few facts.
        kinds: cities in countries, larger and smaller numbers, kinds of animals.
        seed: which facts, and their splits.
        asked: go on with "This statement is", to be answered by true or false: for patching.

    Returns:
        Two samples a pair, with the label ``truth`` and the tag ``kind``; if asked with ``pair``
        and ``answer``.
    """
    made = Samples()
    for kind in kinds:
        facts = list(_facts(kind, random.Random(f"statements/{kind}/{seed}")))
        if pairs > 2 * len(facts):
            raise OptionError(f"there are facts for {2 * len(facts)} pairs of {kind}, not {pairs}")
        for i, split in enumerate(splits_of(-(-pairs // 2))):
            for (subject, sentence, true, false), truth in product(facts[i], (True, False)):
                sample = Sample(
                    item_id=f"{kind}-{i:03d}/{subject}/{str(truth).lower()}",
                    text=sentence.format(true if truth else false),
                    labels={"truth": truth},
                    group=f"{kind}-{i:03d}",
                    split=split,
                    tags={"kind": kind},
                )
                made.append(_asked(sample, "truth") if asked else sample)
    return made


def _asked(sample: Sample, label: str) -> Sample:
    """A statement that goes on with "This statement is"; its pair is its name's without the end."""
    text, pair = f"{sample.text} This statement is", sample.item_id.rpartition("/")[0]
    return replace(sample, text=text, pair=pair, answer=str(sample.labels[label]).lower())


class Story(NamedTuple):
    """What one story is made of; the two ``places`` change their parts within its group."""

    group: str
    split: Split
    plot: str
    words: dict[str, str]
    places: tuple[str, str]
    # Which of the two is said first where the scene is set, and last before the question.
    opening: bool
    closing: bool

    def text(self, condition: str, start: str, plots: Mapping[str, tuple[str, str]] = PLOTS) -> str:
        end = self.places[self.places[0] == start]
        one, other = (start, end) if self.opening else (end, start)
        last, closed = (start, end) if self.closing else (end, start)
        words = self.words | {"start": start, "one": one, "other": other}
        move = "{b} moves the {thing} to the {to}.".format(**self.words, to=end)
        events = plots[self.plot][condition == "TB"].format(**self.words, move=move)
        return STORY.format(**words, events=events, last=last, end=closed)


def stories(count: int, seed: int = 0, lists: Lists = "all") -> list[Story]:
    rng = random.Random(f"beliefs/{seed}")
    names, plots = names_by_split(rng, lists), part(list(PLOTS), lists)
    made: list[Story] = []
    seen: set[str] = set()
    for i, split in enumerate(splits_of(count)):
        opening, closing = bool(i & 1), bool(i & 2)
        key = ""
        while not key or key in seen:
            words = dict(zip("abc", rng.sample(names[split], 3), strict=True))
            words |= {"thing": rng.choice(part(THINGS, lists))}
            words |= {"room": rng.choice(part(ROOMS, lists))}
            one, other = rng.sample(part(CONTAINERS, lists), 2)
            # Each plot has each order of mentions.
            plot = plots[i // 4 % len(plots)]
            key = f"{words} {sorted((one, other))} {plot}"
        seen.add(key)
        group = f"story-{i:05d}"
        made.append(Story(group, split, plot, words, (one, other), opening, closing))
    return made


@checked
def beliefs(
    pairs: int = 120, seed: Seed = 0, lists: Lists = "all", question: Question = "belief"
) -> Samples:
    """True and false beliefs in plain sentences: Sally puts the ball in the box and leaves ...

    In false belief she misses that it is moved. In true belief she leaves after that, or stays, or
    sees it or hears of it, in the same words. Each story has either place as the first, so that
    places are said first, last and in all as often whether they are the answer or not.

    Args:
        pairs: how many; two make a story, and an odd number is rounded up.
        seed: of all that is drawn; the same seed tells the same stories, whatever the question.
        lists: names, things, places, rooms and plots are taken from all lists, from the two thirds
            for training, or from those that are held out.
        question: belief, where she thinks that it is; reality, where it is; initial, where it was;
            or statement, a whole sentence on what she thinks.

    Returns:
        Of a question two samples a pair, whose texts lack the last word, the ``answer``, and the
        label ``false_belief``; pairs are false and true belief, of questions on reality and the
        initial place the same story with its places exchanged. Of statements four, with the labels
        ``y_p``, does it fit her belief, and ``y_o``, does it fit reality. The tags are
        ``condition`` (TB, FB) and ``plot``; of statements also ``place`` (initial, final).
    """
    made = Samples()
    for story in stories(-(-pairs // 2), seed, lists):
        for start, condition in product(story.places, ("TB", "FB")):
            end = story.places[story.places[0] == start]
            at = {"initial": start, "reality": end}
            at["belief"] = start if condition == "FB" else end
            told, name = story.text(condition, start), f"{story.group}/{start}/{condition}"
            sample = Sample(
                item_id=name,
                text=f"{told} {ASKED[question]}".format(**story.words, named=start),
                group=story.group,
                split=story.split,
                tags={"condition": condition, "plot": story.plot},
            )
            if question != "statement":
                pair = f"{story.group}/{start if question == 'belief' else condition}"
                labels = {"false_belief": condition == "FB"}
                made.append(replace(sample, labels=labels, pair=pair, answer=at[question]))
                continue
            for place, named in (("initial", start), ("final", end)):
                text = f"{told} {ASKED[question]}".format(**story.words, named=named)
                labels = {"y_p": named == at["belief"], "y_o": named == end}
                tags, own = {**sample.tags, "place": place}, f"{name}/{place}"
                made.append(replace(sample, item_id=own, text=text, labels=labels, tags=tags))
    return made


def _made(name: str, pairs: int | None, seed: int, **more: Any) -> list[Sample]:
    return SETS[name](seed=seed, **more if pairs is None else more | {"pairs": pairs})


def opened(name: str, pairs: int | None, seed: int) -> SampleSet:
    """The samples of a probing run: one of the sets, split by its own seed."""
    more = {"question": "statement"} if name == "beliefs" else {}
    made = _made(name, pairs, seed, **more)
    found = sample_set(made, f"{name}, made here", seed, {"task": name})
    if name != "beliefs":
        return found
    features = {"place": "place named by the statement (initial or final)"}
    return replace(found, noun="stories", meaning=MEANING, features=features, content=("place",))


def questions(name: str, pairs: int | None, seed: int) -> PairSet:
    """The pairs between which heads are exchanged, of the same groups as :func:`opened`."""
    more = {"asked": True} if name == "statements" else {}
    conditions = ("TB", "FB") if name == "beliefs" else ("", "")
    found = own_pairs(_made(name, pairs, seed, **more))
    return replace(found, reply=False, asks=ASKS[name], conditions=conditions)


def judged(samples: Sequence[Sample], label: str) -> PairSet:
    """Pairs of statements of which it is asked, as of ``statements``, whether a label holds."""
    found = own_pairs([_asked(sample, label) for sample in samples])
    ordered = all(pair.samples[0].labels[label] is True for pair in found.pairs)
    conditions = VERDICT if ordered else found.conditions
    return replace(found, reply=False, asks=ASKS["statements"], conditions=conditions)


SETS = dict[str, Callable[..., list[Sample]]](ioi=ioi, statements=statements, beliefs=beliefs)
# What their pairs decide.
ASKS = {
    "ioi": "name of the receiver",
    "statements": "truth of the statement",
    "beliefs": "place where the person thinks it is",
}
MEANING = {
    "y_p": "does the statement fit what the person thinks?",
    "y_o": "does the statement fit reality?",
}
