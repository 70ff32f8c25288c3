"""Six benchmarks of short stories in text: BigToM, ToMi, Hi-ToM, FANToM, OpenToM, ToMBench.

Each ``load_*`` reads all questions of a folder in the official layout, in the order of its files;
RecordError names file, line or record, and field.
"""

from __future__ import annotations

import random
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from sally_anne.core.errors import RecordError
from sally_anne.data.items import Benchmark, Context, Option, Question, two_options
from sally_anne.data.read import (
    Field,
    csv_rows,
    find_file,
    json_lines,
    needed,
    read_bytes,
    read_json,
    read_list,
    read_text,
)

Items = list[Question]


def _benchmark(
    name: str, load: Callable[[Path], Items], breakdowns: Iterable[str], layout: str, **more: Any
) -> Benchmark:
    views = more.pop("views", {"text": ("scene",), "none": ()})
    return Benchmark(name, load, views, tuple(breakdowns), layout, **more)


# BigToM: stories with a true or a false belief (Gandhi et al., NeurIPS 2023).
#
# One folder a condition, ``{0|1}_{variable}_{condition}``: whether the story states the first
# belief (1), what is asked for, and what happens. In the controls something happens that leaves the
# belief as it was. A row of stories.csv is story; question; right answer; wrong answer; the same
# row of all folders is about one story, so these questions form a group.

STORIES = "stories.csv"
PLACES = ("", "conditions", "data/conditions")
VARIABLES = ("forward_belief", "forward_action", "backward_belief", "percept_to_belief")
CONDITIONS = {
    "true_belief": "TB",
    "false_belief": "FB",
    "true_control": "TB control",
    "false_control": "FB control",
}
COLUMNS = ("story", "question", "right answer", "wrong answer")
BIGTOM_LAYOUT = (
    "folders such as 0_forward_belief_false_belief (or conditions/... or data/conditions/...), "
    f"each with {STORIES}"
)


class StoryKind(NamedTuple):
    """A folder's ``name``, the first belief (``hidden`` or ``told``), variable and condition."""

    name: str
    initial: str
    variable: str
    condition: str


KINDS = {
    name: StoryKind(name, initial, variable, condition)
    for digit, initial in (("0", "hidden"), ("1", "told"))
    for variable in VARIABLES
    for happens, condition in CONDITIONS.items()
    for name in [f"{digit}_{variable}_{happens}"]
}


def load_bigtom(folder: Path) -> Items:
    items: Items = []
    firsts: dict[tuple[bool, int], tuple[Question, Field]] = {}
    for path, kind in _bigtom_files(Path(folder)):
        for number, (item, record) in enumerate(read_stories(read_bytes(path), path, kind)):
            key = (kind.variable.endswith("action"), number)
            first, at = firsts.setdefault(key, (item, record))
            texts = [{option.text for option in one.options} for one in (first, item)]
            if first.question != item.question or texts[0] != texts[1]:
                Field(item.question, record.where, "question").fail(
                    f"and answers differ from those of {at.where}; row {number + 1} of every "
                    "folder must be about one story"
                )
            items.append(item)
    return items


def read_stories(content: bytes, path: Path, kind: StoryKind) -> list[tuple[Question, Field]]:
    """Every row of a file as an item, with its first cell."""
    # Which answer is a) is drawn row by row, as in the authors' code/src/evaluate_conditions.py.
    draws = random.Random(0)
    stories = []
    for number, row in enumerate(csv_rows(content, str(path), ";"), start=1):
        draws.shuffle(right_first := [True, False])
        stories.append((_story(row, kind, number, right_first[0]), row[0]))
    if not stories:
        raise RecordError(f"{path}: has no stories")
    return stories


def _story(row: list[Field], kind: StoryKind, number: int, right_first: bool) -> Question:
    if len(row) != len(COLUMNS):
        row[0].fail(
            f"must have the columns {', '.join(COLUMNS)} parted by semicolons, has {len(row)}; "
            "put a column with a semicolon in quotation marks"
        )
    named = [replace(cell, path=name) for cell, name in zip(row, COLUMNS, strict=True)]
    story, question, right, wrong = map(needed, named)
    if right == wrong:
        named[3].fail("is the right answer too")
    item_id = f"{kind.name}/{number:03d}"
    options, answer = two_options(item_id, right, wrong)
    first = [option.label == answer for option in options].index(right_first)
    return Question(
        item_id=item_id,
        benchmark="bigtom",
        split="test",
        group=f"story-{number:03d}",
        question=question,
        options=options,
        answer=answer,
        context=Context(scene=story),
        tags={
            "variable": (kind.variable,),
            "condition": (kind.condition,),
            "initial_belief": (kind.initial,),
        },
        licence="MIT",
        drawn=(first, 1 - first),
    )


def _bigtom_files(folder: Path) -> Iterator[tuple[Path, StoryKind]]:
    for place in PLACES:
        files = sorted((folder / place).glob(f"*/{STORIES}"))
        known = [(path, kind) for path in files if (kind := KINDS.get(path.parent.name))]
        for path in files if known else ():
            if path.parent.name not in KINDS and re.fullmatch(r"[01]_\w+", path.parent.name):
                raise RecordError(
                    f"{path}: a folder must be named 0 or 1, one of {', '.join(VARIABLES)}, and "
                    f"one of {', '.join(CONDITIONS)}, joined by _"
                )
        if known:
            yield from known
            return
    # A clone of the authors' repository (cicl-stanford/procedural-evals-tom), or its data.
    for clone in (folder, *folder.absolute().parents[:2]):
        if (clone / "data" / "bigtom" / "bigtom.csv").is_file():
            made = clone / "data" / "conditions"
            how = "cd code/src && python generate_conditions.py"
            raise RecordError(
                f"{folder}: has no condition; give {made}"
                if made.is_dir()
                else f"{folder}: its conditions are not made yet; run `{how}` in {clone}"
            )
    raise RecordError(f"{folder}: has no condition; it must hold {BIGTOM_LAYOUT}")


BIGTOM = _benchmark(
    "bigtom",
    load_bigtom,
    ("variable", "condition", "initial_belief"),
    BIGTOM_LAYOUT,
    official="bigtom",
    # The paper's headline figures.
    cells=("initial_belief", "variable"),
)


# ToMi: where an object is, was, and is looked for (Le et al., EMNLP 2019).
#
# ``main.py`` writes train, val and test.txt; the repository's zip has fb_all_test.txt and so on. A
# line is its number in the story and a sentence; the last is the question, its answer and a number,
# parted by tabs. The .trace file of the same name has a line a question: what happens, the type of
# the question and that of the story. The options are the two containers that the story names.

TOMI_SPLITS = ("train", "val", "test")
TOMI_STORIES = ("true_belief", "false_belief", "second_order_false_belief")
TOMI_LAYOUT = "test.txt and test.trace (or fb_all_test.txt and fb_all_test.trace), here or in data/"
# What a question asks, of which agent, and whether the answer is other than what is so.
_KIND = re.compile(
    r"(?P<control>memory|reality)|(?P<order>first|second)_order_[01]_(?P<true>no_)?tom"
)
_ORDERS = {None: "0", "first": "1", "second": "2"}
_PLACED = re.compile(r"(?:The \w+ is in|\w+ moved the \w+ to) the (?P<place>\w+)\.")


class _TomiQuestion(NamedTuple):
    sentences: tuple[str, ...]
    question: str
    right: str
    happens: list[str]
    kind: re.Match[str]
    story: str
    where: Field

    @property
    def condition(self) -> str:
        """Of the belief asked for, TB or FB; empty for control questions."""
        if self.kind["control"]:
            return ""
        return "TB" if self.kind["true"] else "FB"


def load_tomi(folder: Path) -> Items:
    folder = Path(folder)
    places = (folder, folder / "data")
    files = [path for place in places for path in sorted(place.glob("*.txt")) if _tomi_split(path)]
    if not files:
        made = (folder / "main.py").is_file()
        how = f"; run `python main.py` in it, which writes them to {places[1]}" if made else ""
        raise RecordError(f"{folder}: must hold {TOMI_LAYOUT}{how}")
    return [item for path in files for item in read_tomi(path)]


def read_tomi(path: Path) -> Items:
    """The questions of one file; its ``.trace`` lies next to it."""
    traces = path.with_suffix(".trace")
    if not traces.is_file():
        raise RecordError(f"{traces}: is missing; each file of stories has one")
    questions = list(_tomi_questions(read_text(path), read_text(traces), path))
    if not questions:
        raise RecordError(f"{path}: has no stories")
    # The questions on one story follow each other, one of each type.
    stories: list[list[_TomiQuestion]] = []
    for one in questions:
        last = stories[-1] if stories else []
        same = [(o.sentences, o.happens, o.story) for o in (*last[:1], one)]
        if not last or same[0] != same[1] or one.kind[0] in [other.kind[0] for other in last]:
            stories.append([one])
        else:
            last.append(one)
    numbered = enumerate(stories, start=1)
    return [item for number, story in numbered for item in _tomi_items(story, path, number)]


def _tomi_split(path: Path) -> str:
    last = path.stem.rpartition("_")[2]
    return last if last in TOMI_SPLITS else ""


def _tomi_questions(text: str, traces: str, path: Path) -> Iterator[_TomiQuestion]:
    def numbered(content: str, file: Path) -> Iterator[Field]:
        for number, line in enumerate(content.split("\n"), 1):
            if line.strip():
                yield Field(line.strip(), f"{file}, line {number}")

    kinds = numbered(traces, path.with_suffix(".trace"))
    sentences: list[str] = []
    for at in numbered(text, path):
        number, _, sentence = at.value.partition(" ")
        if number != str(len(sentences) + 1):
            at.fail(f"must begin with {len(sentences) + 1}, its number in the story")
        question, *answer = (part.strip() for part in sentence.split("\t"))
        if not answer:
            sentences.append(sentence.strip())
            continue
        if not (question and answer[0]):
            at.fail("must be a question, its answer and a number, parted by tabs")
        if (trace := next(kinds, None)) is None:
            at.fail(f"is a question without a line in {path.with_suffix('.trace').name}")
        parts = ["", *trace.value.split(",")]
        kind = _KIND.fullmatch(parts[-2])
        if kind is None or parts[-1] not in TOMI_STORIES:
            trace.fail("must end with a type of question and a type of story, parted by a comma")
        context = tuple(sentences)
        yield _TomiQuestion(context, question, answer[0], parts[:-2], kind, parts[-1], at)
        sentences = []
    if sentences:
        at.fail("is the end of a story without a question")
    if (trace := next(kinds, None)) is not None:
        trace.fail(f"is of no question: {path.name} has fewer")


def _tomi_items(story: list[_TomiQuestion], path: Path, number: int) -> Iterator[Question]:
    placed = [match for line in story[0].sentences if (match := _PLACED.fullmatch(line))]
    containers = list(dict.fromkeys(match["place"] for match in placed))
    # Of the two agents one may have seen the move and the other not: a true and a false belief in
    # one story. Second-order questions are both the one or both the other.
    first = [one for one in story if one.kind["order"] == "first"]
    both = len(first) == 2 and {one.condition for one in first} == {"TB", "FB"}
    for one in story:
        others = [container for container in containers if container != one.right]
        if len(others) != 1 or len(containers) != 2:
            one.where.fail(
                f"its answer is {one.right!r}, and its story names {', '.join(containers)} as "
                "containers; there must be two, one of them the answer"
            )
        group = f"{path.stem}/{number:04d}"
        options, answer = two_options(f"{group}/{one.kind[0]}", one.right, others[0])
        tags = {
            "type": (re.sub("_[01]_", "_", one.kind[0]),),
            "order": (_ORDERS[one.kind["order"]],),
            "story": (one.story,),
            "joint": ("story",),
        }
        yield Question(
            item_id=f"{group}/{one.kind[0]}",
            benchmark="tomi",
            split=_tomi_split(path),
            group=group,
            question=one.question,
            options=options,
            answer=answer,
            context=Context(scene="\n".join(one.sentences)),
            tags=tags | ({"condition": (one.condition,)} if both and one in first else {}),
            licence="CC-BY-NC-4.0",
        )


TOMI = _benchmark(
    "tomi", load_tomi, ("type", "order", "story", "condition"), TOMI_LAYOUT, cells=("order",)
)


# Hi-ToM: what one thinks that another thinks, up to the fourth order (He et al., EMNLP 2023).
#
# ``data`` is a list of questions, each with its story and 15 containers, ``"A. red_box, B. ..."``.
# The authors ask for an answer alone (VP) of other stories than for thoughts as well (CoTP); these
# are the splits. Of each story five questions are asked, of the orders 0 to 4, order by order.

HI_TOM_FILE = "Hi-ToM_data.json"
HI_TOM_LAYOUT = f"{HI_TOM_FILE}, as a clone of the authors' repository has it"
ORDERS = range(5)
# The authors' assumptions in our own words: without them the answers of higher orders, and of
# stories in which agents talk, are not determined.
ASSUMED = (
    "Agents see all that happens in a room until they leave it. One knows what another has in mind "
    "only if they were in a room together, or talked in private or in public. Agents like to lie: "
    "what they say need not be what they believe, and they believe another who left the room "
    "after them; all know who left when. Who talks in private knows that nobody else hears it, and "
    "that all hear what is claimed in public."
)
_CHOICE = re.compile(r"([A-Z])\. (\S.*)")


def load_hi_tom(folder: Path) -> Items:
    path = find_file(folder, (HI_TOM_FILE,), HI_TOM_LAYOUT)
    records = Field(read_json(path), str(path)).get("data").items()
    if not records:
        raise RecordError(f"{path}: has no questions")
    # Records do not name their story: it is the n-th of those of its kind, in each order.
    counts: Counter[str] = Counter()
    items = []
    for record in records:
        item = read_hi_tom(record)
        counts[item.item_id] += 1
        story = f"{item.group}/sample_{counts[item.item_id]}"
        name = f"{story}/order_{item.tags['order'][0]}"
        items.append(replace(item, item_id=name, group=story))
    return items


def read_hi_tom(record: Field) -> Question:
    """One question; the number of the story is not in its name yet."""
    split = record.get("prompting_type").one_of(("VP", "CoTP"))
    deception = "Tell" if record.get("deception").flag() else "No_Tell"
    length, order = (record.get(name).number() for name in ("story_length", "question_order"))
    if order not in ORDERS:
        record.get("question_order").fail(f"must be one of {ORDERS[0]} to {ORDERS[-1]}")
    choices = record.get("choices")
    parts = [_CHOICE.fullmatch(part) for part in choices.stripped().split(", ")]
    options = tuple(Option(part[1], part[2].strip()) for part in parts if part)
    labels = "".join(option.label for option in options)
    complete = 2 <= len(options) == len(parts) and string.ascii_uppercase.startswith(labels)
    if not complete or len({option.text for option in options}) < len(options):
        choices.fail('must be different choices in order, as "A. red_box, B. blue_box"')
    right = record.get("answer").stripped()
    if right not in (texts := [option.text for option in options]):
        record.get("answer").fail(f"must be one of the choices, is {right!r:.60}")
    group = f"{split}/{deception}/length_{length}"
    return Question(
        item_id=f"{group}/order_{order}",
        benchmark="hi_tom",
        split=split,
        group=group,
        question=record.get("question").stripped(),
        options=options,
        answer=labels[texts.index(right)],
        context=Context(scene=record.get("story").stripped()),
        tags={
            "order": (f"{order}",),
            "deception": (deception,),
            "length": (f"{length}",),
            # The paper's joint accuracy needs all lower orders to be right, too.
            "joint": tuple(f"up to order {top}" for top in ORDERS[max(order, 1) :]),
        },
        licence="Apache-2.0",
    )


HI_TOM = _benchmark(
    "hi_tom",
    load_hi_tom,
    ("order", "deception", "length"),
    HI_TOM_LAYOUT,
    notes={"": ASSUMED},
    default_split="VP",
)


# FANToM: who knows what was discussed while they were away (Kim et al., EMNLP 2023).
#
# A list of sets of questions, each on one piece of information in a conversation that somebody
# leaves and comes back to: its beliefs, whether each speaker can answer the fact question
# (answerability) and knows the information (info-access). They are asked on the part of the
# conversation that matters or on all of it: the splits ``short`` and ``full``. Where nobody has
# missed the information, a set is a control.

FANTOM_FILE = "fantom_v1.json"
FANTOM_LAYOUT = (
    f"{FANTOM_FILE}, here, in fantom/ or in data/fantom/, where the authors' code unpacks it"
)
ACCESS = ("inaccessible", "accessible")
# By what is asked: the questions' field, and the text before them.
BINARY = {
    "answerability": ("answerabilityQAs_binary", "Target: {question}"),
    "info-access": ("infoAccessibilityQAs_binary", "Information: {question} {answer}"),
}
LEFT_OUT = (
    "of each set of FANToM the fact question, the two lists of speakers and the belief questions "
    "in free words are left out: their replies are scored by words and embeddings there"
)


def load_fantom(folder: Path) -> Items:
    names = [f"{place}{FANTOM_FILE}" for place in ("", "fantom/", "data/fantom/")]
    path = find_file(folder, names, FANTOM_LAYOUT)
    # The authors' script (eval_fantom.py) draws for one belief question after another.
    draws = random.Random(99)
    return [item for record in read_list(path) for item in read_fantom(record, draws)]


def read_fantom(record: Field, draws: random.Random) -> Items:
    """The questions of one set; ``draws`` decides which answer of a belief question is last."""
    name = record.get("set_id").name()
    contexts = {split: record.get(f"{split}_context").stripped() for split in ("short", "full")}
    beliefs = [(belief, draws.choice([True, False])) for belief in record.get("beliefQAs").items()]
    fact = record.get("factQA")
    words = {
        "question": fact.get("question").stripped(),
        "answer": fact.get("correct_answer").stripped(),
    }
    items: Items = []

    def add(
        kind: str, number: int, question: str, texts: Iterable[str], right: int, access: str,
        **tags: tuple[str, ...],
    ) -> None:  # fmt: skip
        # Controls have figures of their own, and no part in those of the paper's tables.
        control = " control" if access == "accessible" else ""
        joint = ["all but lists"] + ([] if kind == "belief" else [f"all {kind}"])
        items.append(
            Question(
                item_id=f"{split}/{name}/{kind}-{number}",
                benchmark="fantom",
                split=split,
                # Sets on one conversation are not independent.
                group=f"{split}/{name.partition('-')[0]}",
                question=question,
                options=tuple(map(Option, "AB", texts)),
                answer="AB"[right],
                context=Context(dialogue=contexts[split]),
                tags={
                    "type": (f"{kind}{control}",),
                    **tags,
                    "set": (name,),
                    "joint": tuple(f"{score}{control}" for score in joint),
                },
                licence="MIT",
            )
        )

    for split in contexts:
        for number, (belief, right_last) in enumerate(beliefs):
            right, wrong = (belief.get(f"{k}_answer").stripped() for k in ("correct", "wrong"))
            if right == wrong:
                belief.get("wrong_answer").fail("is the right answer too")
            access = belief.get("missed_info_accessibility").one_of(ACCESS)
            texts = (wrong, right) if right_last else (right, wrong)
            order = (belief.get("tom_type").stripped(),)
            question = belief.get("question").stripped()
            add("belief", number, question, texts, int(right_last), access, order=order)
        for kind, (field, before) in BINARY.items():
            asked = record.get(field).items()
            # With the last answer a speaker is not in the short conversation.
            answers = [q.get("correct_answer").one_of(("yes", "no", "no:long")) for q in asked]
            accesses = [q.get("missed_info_accessibility").one_of(ACCESS) for q in asked]
            if split == "full" and asked:
                # On all of the conversation there is something to miss for anybody who says no.
                missed = any(answer != "yes" for answer in answers)
                accesses = [ACCESS[0] if missed else accesses[0]] * len(asked)
            for number, (one, answer) in enumerate(zip(asked, answers, strict=True)):
                if split == "full" or answer != "no:long":
                    question = f"{before.format(**words)}\n{one.get('question').stripped()}"
                    right_at = int(answer != "yes")
                    add(kind, number, question, ("Yes", "No"), right_at, accesses[number])
    return items


FANTOM = _benchmark(
    "fantom",
    load_fantom,
    ("type", "order"),
    FANTOM_LAYOUT,
    views={"text": ("dialogue",), "none": ()},
    default_split="short",
    left_out=LEFT_OUT,
)


# OpenToM: where a character thinks a thing is, how full and within reach it is, and what another
# thinks of its being moved (Xu et al., ACL 2024).
#
# ``opentom.json`` is on stories of about 200 words, ``opentom_long.json`` on longer ones. The mover
# moves a thing; the observer sees it or not. Answers are classes: Yes and No of coarse location
# questions, the two places of fine ones, three each of fullness, accessibility and attitude.

# By split: the file, and the field of its stories.
OPENTOM_FILES = {
    "test": ("opentom.json", "narrative"),
    "long": ("opentom_long.json", "long_narrative"),
}
OPENTOM_LAYOUT = "opentom.json, opentom_long.json or both, here or in data/"
# By what is asked: a word that its questions have and others have not (in the order of the authors'
# code), the types it comes with, and its answers.
CLASSES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "location fine": ("locate", "location", ()),
    "location coarse": ("initial", "location", ("Yes", "No")),
    "fullness": ("fullness", "multihop", ("more full", "equally full", "less full")),
    "accessibility": (
        *("accessibility", "multihop"),
        ("more accessible", "equally accessible", "less accessible"),
    ),
    "attitude": ("attitude", "attitude", ("positive", "neutral", "negative")),
}
DEGREES = {"fo": "first order", "so": "second order"}
# What the authors add to questions of attitude, as not every observer has seen the move.
SEEN = ", assuming that you observed the action?"
_PERSON = re.compile(r"(?:From (.+?)'s perspective|As (.+?)), ")
_ARTICLE = re.compile(r"(?:a|an|the) ", re.IGNORECASE)
# A place that is misspelt in one story of the published file, and not in all of its answers.
_SPELLING = {"center of dinint table": "center of dining table"}


def load_opentom(folder: Path) -> Items:
    names = [f"{place}{file}" for file, _ in OPENTOM_FILES.values() for place in ("", "data/")]
    root = find_file(folder, names, OPENTOM_LAYOUT).parent
    items = []
    for split, (file, _) in OPENTOM_FILES.items():
        # Questions on one story are spread over the file, and do not name it.
        stories: dict[str, str] = {}
        counts: Counter[str] = Counter()
        for record in read_list(root / file) if (root / file).is_file() else ():
            item = read_opentom(record, split)
            group = stories.setdefault(item.context.scene, f"{split}/{len(stories) + 1:03d}")
            counts[group] += 1
            items.append(replace(item, item_id=f"{group}/{counts[group]:02d}", group=group))
    return items


def read_opentom(record: Field, split: str) -> Question:
    """One question; the numbers of its story and its own are not in its name yet."""
    field = record.get("question")
    question = field.get("question").stripped()
    kind, _, order = field.get("type").stripped().partition("-")
    asked = next((name for name, (word, *_) in CLASSES.items() if word in question), "")
    if not asked or CLASSES[asked][1] != kind or (order in DEGREES) == (asked == "attitude"):
        field.get("question").fail(
            f"is no question of type {field.get('type').value!r:.60} about "
            f"{', '.join(CLASSES)}, of which one must be named"
        )
    plot = record.get("plot_info")
    names = {plot.get(role).stripped(): role for role in ("mover", "observer")}
    person = _PERSON.match(question)
    if person is None or (name := person[1] or person[2]) not in {**names, "narrator": ""}:
        field.get("question").fail(
            f"must begin with the perspective of {', '.join(names)} or the narrator"
        )
    perspective = names.get(name, name)
    options, answer = _opentom_options(plot, CLASSES[asked][2], field.get("answer"), question)
    hop = {"hop": (asked,)} if kind == "multihop" else {}
    tags = {
        "type": (f"{'multihop' if hop else asked}, {DEGREES[order]}" if order else asked,),
        "perspective": (perspective,),
        **hop,
    }
    observed = record.get("observed").flag()
    if not observed and kind == "location" and order == "fo" and perspective != "narrator":
        tags["condition"] = ("TB" if perspective == "mover" else "FB",)
    return Question(
        item_id=split,
        benchmark="opentom",
        split=split,
        group=split,
        question=question.rstrip("?") + SEEN if kind == "attitude" else question,
        options=options,
        answer=answer,
        context=Context(scene=record.get(OPENTOM_FILES[split][1]).stripped()),
        tags=tags,
        licence="CC-BY-NC-4.0",
    )


def _opentom_options(
    plot: Field, classes: tuple[str, ...], answer: Field, question: str
) -> tuple[tuple[Option, ...], str]:
    if classes:
        right = classes.index(answer.one_of(classes))
        return tuple(map(Option, "ABC", classes)), "ABC"[right]
    fields = (answer, plot.get("original_place"), plot.get("move_to_place"))
    texts = [_SPELLING.get(field.stripped(), field.stripped()) for field in fields]
    given, *plain = (_ARTICLE.sub("", text, count=1) for text in texts)
    if plain.count(given) != 1:
        answer.fail(f"must be one of the two places, {' and '.join(texts[1:])}, is {given!r:.60}")
    right = plain.index(given)
    return two_options(question, texts[1 + right], texts[2 - right])


OPENTOM = _benchmark(
    "opentom", load_opentom, ("type", "hop", "perspective"), OPENTOM_LAYOUT, cells=("type",)
)


# ToMBench: eight tasks and 31 abilities in English and Chinese (Chen et al., ACL 2024).
#
# JSON lines, one file a task or ability, one question a line. Each has its story, question and
# options in both languages, which are the splits ``en`` and ``zh``. Where there are two options,
# those of C and D are NaN or null.

TOMBENCH_LAYOUT = "a file for each task, such as False Belief Task.jsonl, here or in data/"
ABILITY, ANSWER = "能力\nABILITY", "答案\nANSWER"
LABELS = "ABCD"
CATEGORIES = (
    *("Emotion", "Desire", "Intention", "Knowledge", "Belief"),
    "Non-literal communication",
)
# By language the fields of story and question, and the beginning of those of options.
LANGUAGES = {"en": ("STORY", "QUESTION", "OPTION-"), "zh": ("故事", "问题", "选项")}
_CATEGORY = re.compile(rf"({'|'.join(CATEGORIES)}):", re.IGNORECASE)
_LABEL = re.compile(r"([A-D])(?:\.\s*)?")


def load_tombench(folder: Path) -> Items:
    places = (Path(folder), Path(folder) / "data")
    files = next((files for place in places if (files := sorted(place.glob("*.jsonl")))), [])
    if not files:
        raise RecordError(f"{folder}: must hold {TOMBENCH_LAYOUT}")
    # Questions on one story form a group, also in two files, and in both languages.
    stories: dict[str, str] = {}
    items: Items = []
    for path in files:
        records = list(json_lines(read_bytes(path), path, "question"))
        if not records:
            raise RecordError(f"{path}: has no questions")
        for record in records:
            story = record.get(LANGUAGES["zh"][0]).text()
            group = stories.setdefault(story, f"story-{len(stories) + 1:04d}")
            items += read_tombench(record, path.stem, group)
    return items


def read_tombench(record: Field, task: str, group: str) -> Items:
    """One line as an item of each language."""
    line = record.where.rpartition(" ")[2]
    field = record.get(ABILITY)
    first, *parts = _CATEGORY.split(field.text())
    names = [name.strip() for name in parts[1::2]]
    if first.strip() or not names or not all(names):
        field.fail(f"must be abilities, each after its category: {', '.join(CATEGORIES)}")
    abilities = dict.fromkeys(zip(map(str.capitalize, parts[::2]), names, strict=True))
    letter = _LABEL.fullmatch(record.get(ANSWER).stripped())
    if letter is None:
        record.get(ANSWER).fail(f"must be one of {', '.join(LABELS)}")
    items = []
    for language, (story, question, option) in LANGUAGES.items():
        options = _tombench_options([record.get(f"{option}{label}") for label in LABELS])
        right = [option.text for option in options if option.label == letter[1]]
        # Two published lines have a wrong option twice; the right one is there once.
        if [option.text for option in options].count(right[0] if right else "") != 1:
            record.get(ANSWER).fail(f"is {letter[1]}, which must be one of the options, and once")
        items.append(
            Question(
                item_id=f"{task}/{line}/{language}",
                benchmark="tombench",
                split=language,
                group=group,
                question=record.get(question).stripped(),
                options=options,
                answer=letter[1],
                context=Context(scene=record.get(story).stripped()),
                tags={
                    "task": (task,),
                    "category": tuple(dict.fromkeys(category for category, _ in abilities)),
                    "ability": tuple(f"{category}: {name}" for category, name in abilities),
                    "language": (language,),
                },
                licence="MIT",
            )
        )
    return items


def _tombench_options(cells: list[Field]) -> tuple[Option, ...]:
    """Two or four, without the letter that some of them begin with."""
    # NaN is no value that equals itself.
    there = [c for c in cells if c.value is not None and c.value == c.value]
    if there != cells[: len(there)] or len(there) not in (2, 4):
        cells[2].fail("and the others must be A and B, or A to D, and the rest null")
    options = []
    for label, cell in zip(LABELS, there, strict=False):
        text = re.sub(rf"^\s*{label}\s*[.:．：]\s*", "", cell.text()).strip()
        if not text:
            cell.fail("is a letter alone")
        options.append(Option(label, text))
    return tuple(options)


TOMBENCH = _benchmark(
    "tombench",
    load_tombench,
    ("task", "category", "ability", "language"),
    TOMBENCH_LAYOUT,
    default_split="en",
)
