"""Six benchmarks of short stories in text: BigToM, ToMi, Hi-ToM, FANToM, OpenToM, ToMBench.

Each ``load_*`` reads all questions of a folder in the official layout, in the order of its files;
RecordError names file, line or record, and field.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from sally_anne.core.errors import RecordError
from sally_anne.data import items, read
from sally_anne.data.items import Benchmark, Context, Option, Question, View
from sally_anne.data.read import Field, find_files, some

Items = list[Question]
# What is offered, and the label of the right one.
Options = tuple[tuple[Option, ...], str]
Tag = str | Iterable[str]
VIEWS: dict[View, tuple[str, ...]] = {"text": ("scene",), "none": ()}


def _item(
    place: tuple[str, str, str, str], asked: tuple[str, str, Options], /, **tags: Tag
) -> Question:
    """Of a place (benchmark, split, group, own name) what is asked: story, question and options."""
    (benchmark, split, group, name), (story, question, options) = place, asked
    context, tagged = Context(scene=story), items.tags_of(**tags)
    return Question(name, benchmark, split, group, question, *options, context=context, tags=tagged)


# BigToM: stories with a true or a false belief (Gandhi et al., NeurIPS 2023).
# One folder a condition, ``{0|1}_{variable}_{condition}``: whether the story states the first
# belief (1), what is asked for, and what happens; in the controls that leaves the belief as it was.
# The same row of all folders is about one story, so these questions form a group.
BELIEFS = {"0": "hidden", "1": "told"}
CONDITIONS = {"true_belief": "TB", "false_belief": "FB"}
CONDITIONS |= {"true_control": "TB control", "false_control": "FB control"}
COLUMNS = ("story", "question", "right answer", "wrong answer")
BIGTOM_LAYOUT = (
    "folders such as 0_forward_belief_false_belief (or conditions/... or data/conditions/...), "
    "each with stories.csv; the authors' code/src/generate_conditions.py makes them"
)
_FOLDER = re.compile(
    r"([01])_(forward_belief|forward_action|backward_belief|percept_to_belief)_"
    rf"({'|'.join(CONDITIONS)})"
)


def load_bigtom(folder: Path) -> Items:
    places = (f"{place}*/stories.csv" for place in ("", "conditions/", "data/conditions/"))
    files = find_files(folder, places, BIGTOM_LAYOUT, lambda p: _FOLDER.fullmatch(p.parent.name))
    return [item for path in files for item in read_stories(read.read_bytes(path), path)]


def read_stories(content: bytes, path: Path) -> Items:
    """Every row of the file of a condition, which its folder's name tells."""
    belief, variable, happens = _FOLDER.fullmatch(path.parent.name).groups()  # type: ignore[union-attr]
    # Which answer is a) is drawn row by row, as in the authors' code/src/evaluate_conditions.py.
    draws = random.Random(0)
    questions: Items = []
    for number, row in enumerate(read.csv_rows(content, str(path), ";"), start=1):
        if len(row.value) != len(COLUMNS):
            row.fail(f"must have {', '.join(COLUMNS)} parted by semicolons, has {len(row.value)}")
        named = replace(row, value=dict(zip(COLUMNS, row.value, strict=True)))
        story, question, right, wrong = (named.get(column).stripped() for column in COLUMNS)
        if right == wrong:
            named.get(COLUMNS[3]).fail("is the right answer too")
        name, group = f"{path.parent.name}/{number:03d}", f"story-{number:03d}"
        options = items.two_options(name, right, wrong)
        draws.shuffle(right_first := [True, False])
        first = int((options[1] == "B") == right_first[0])
        item = _item(
            ("bigtom", "test", group, name),
            (story, question, options),
            variable=variable,
            condition=CONDITIONS[happens],
            initial_belief=BELIEFS[belief],
        )
        questions.append(replace(item, drawn=(first, 1 - first)))
    return some(questions, path, "stories")


BIGTOM = Benchmark(
    "bigtom",
    load_bigtom,
    VIEWS,
    ("variable", "condition", "initial_belief"),
    BIGTOM_LAYOUT,
    official="bigtom",
    # The paper's headline figures.
    cells=("initial_belief", "variable"),
)


# ToMi: where an object is, was, and is looked for (Le et al., EMNLP 2019).
# A line is its number in the story and a sentence; the last is the question, its answer and a
# number, parted by tabs. The .trace file of the same name has a line a question: what happens, the
# type of the question and that of the story. The options are the two containers of the story.
TOMI_LAYOUT = (
    "test.txt and test.trace (or fb_all_test.txt and fb_all_test.trace), here or in data/; the "
    "authors' main.py writes them"
)
_TOMI_FILE = re.compile(r"(?:.*_)?(train|val|test)\.txt")
# What happens; what is asked, whether the answer is other than what is so; the type of the story.
_TRACE = re.compile(
    r"(?P<happens>.*?),?(?P<kind>memory|reality|(?P<order>first|second)_order_[01]_(?P<true>no_)?tom)"
    r",(?P<story>true_belief|false_belief|second_order_false_belief)"
)
_ORDERS = {None: "0", "first": "1", "second": "2"}
_PLACED = re.compile(r"(?:The \w+ is in|\w+ moved the \w+ to) the (?P<place>\w+)\.")


def load_tomi(folder: Path) -> Items:
    places = "*.txt", "data/*.txt"
    files = find_files(folder, places, TOMI_LAYOUT, lambda p: _TOMI_FILE.fullmatch(p.name))
    return [item for path in files for item in read_tomi(path)]


def read_tomi(path: Path) -> Items:
    """The questions of one file; its ``.trace`` lies next to it."""
    asked = list(_tomi_questions(path))
    traces = [
        _TRACE.fullmatch(line.value)
        or line.fail("must end with a type of question and a type of story, parted by a comma")
        for line in _lines(path.with_suffix(".trace"))
    ]
    if len(asked) != len(traces) or not asked:
        raise RecordError(f"{path}: has {len(asked)} questions, and .trace {len(traces)} lines")
    # The questions on one story follow each other, one of each type.
    stories: list[dict[str, tuple[Field, re.Match[str]]]] = []
    before = None
    for at, trace in zip(asked, traces, strict=True):
        about = at.value[0], trace["happens"], trace["story"]
        if about != before or trace["kind"] in stories[-1]:
            stories.append({})
        stories[-1][trace["kind"]] = at, trace
        before = about
    return [item for i, story in enumerate(stories, 1) for item in _tomi_items(story, path, i)]


def _lines(path: Path) -> Iterator[Field]:
    for number, line in enumerate(read.read_text(path).split("\n"), 1):
        if line.strip():
            yield Field(line.strip(), f"{path}, line {number}")


def _tomi_questions(path: Path) -> Iterator[Field]:
    """Sentences, question and answer; the place is the question's."""
    sentences: list[str] = []
    for at in _lines(path):
        number, _, sentence = at.value.partition(" ")
        if number != str(len(sentences) + 1):
            at.fail(f"must begin with {len(sentences) + 1}, its number in the story")
        question, *answer = (part.strip() for part in sentence.split("\t"))
        if not answer:
            sentences.append(question)
        elif question:
            yield replace(at, value=(tuple(sentences), question, answer[0]))
            sentences = []
        else:
            at.fail("must be a question, its answer and a number, parted by tabs")
    if sentences:
        at.fail("is the end of a story without a question")


def _tomi_items(
    story: dict[str, tuple[Field, re.Match[str]]], path: Path, number: int
) -> Iterator[Question]:
    split, group = path.stem.rpartition("_")[2], f"{path.stem}/{number:04d}"
    traces = {kind: trace for kind, (_, trace) in story.items()}
    first = {k: "TB" if t["true"] else "FB" for k, t in traces.items() if t["order"] == "first"}
    # Of the two agents one may have seen the move and the other not: a true and a false belief in
    # one story. Second-order questions are both the one or both the other.
    beliefs = first if sorted(first.values()) == ["FB", "TB"] else {}
    for kind, (at, trace) in story.items():
        sentences, question, right = at.value
        placed = (match["place"] for line in sentences if (match := _PLACED.fullmatch(line)))
        containers = list(dict.fromkeys(placed))
        if len(containers) != 2 or right not in containers:
            at.fail(
                f"its answer is {right!r}, and its story names {', '.join(containers)} as "
                "containers; there must be two, one of them the answer"
            )
        name, wrong = f"{group}/{kind}", containers[containers[0] == right]
        yield _item(
            ("tomi", split, group, name),
            ("\n".join(sentences), question, items.two_options(name, right, wrong)),
            type=re.sub("_[01]_", "_", kind),
            order=_ORDERS[trace["order"]],
            story=trace["story"],
            joint="story",
            condition=beliefs.get(kind, ""),
        )


TOMI = Benchmark(
    "tomi", load_tomi, VIEWS, ("type", "order", "story", "condition"), TOMI_LAYOUT, cells=("order",)
)


# Hi-ToM: what one thinks that another thinks, up to the fourth order (He et al., EMNLP 2023).
# The authors ask for an answer alone (VP) of other stories than for thoughts as well (CoTP); these
# are the splits. Of each story five questions are asked, of the orders 0 to 4, order by order.
HI_TOM_FILE = "Hi-ToM_data.json"
HI_TOM_LAYOUT = f"{HI_TOM_FILE}, as a clone of the authors' repository has it"
# The authors' assumptions in our own words: without them the answers of higher orders, and of
# stories in which agents talk, are not determined.
ASSUMED = (
    "Agents see all that happens in a room until they leave it. One knows what another has in mind "
    "only if they were in a room together, or talked in private or in public. Agents like to lie: "
    "what they say need not be what they believe, and they believe another who left the room "
    "after them; all know who left when. Who talks in private knows that nobody else hears it, and "
    "that all hear what is claimed in public."
)


def load_hi_tom(folder: Path) -> Items:
    path = find_files(folder, (HI_TOM_FILE,), HI_TOM_LAYOUT)[0]
    counts: Counter[str] = Counter()
    records = some(read.read_json(path).get("data").items(), path)
    return [read_hi_tom(record, counts) for record in records]


def read_hi_tom(record: Field, counts: Counter[str]) -> Question:
    """One question; records do not name their story: it is the n-th of its kind, in each order."""
    split = record.get("prompting_type").one_of(("VP", "CoTP"))
    deception = "Tell" if record.get("deception").flag() else "No_Tell"
    length, order = (record.get(name).number() for name in ("story_length", "question_order"))
    texts = re.split(r"(?:^|, )[A-Z]\. ", record.get("choices").stripped())[1:]
    options = items.options_of(record.get("answer"), [text.strip() for text in texts])
    kind = f"{split}/{deception}/length_{length}"
    counts[f"{kind}/order_{order}"] += 1
    group = f"{kind}/sample_{counts[f'{kind}/order_{order}']}"
    return _item(
        ("hi_tom", split, group, f"{group}/order_{order}"),
        (record.get("story").stripped(), record.get("question").stripped(), options),
        order=f"{order}",
        deception=deception,
        length=f"{length}",
        # The paper's joint accuracy needs all lower orders to be right, too.
        joint=[f"up to order {top}" for top in range(max(order, 1), 5)],
    )


HI_TOM = Benchmark(
    "hi_tom",
    load_hi_tom,
    VIEWS,
    ("order", "deception", "length"),
    HI_TOM_LAYOUT,
    notes={"": ASSUMED},
    default_split="VP",
)


# FANToM: who knows what was discussed while they were away (Kim et al., EMNLP 2023).
# A set of questions is on one piece of information in a conversation that somebody leaves and
# comes back to: beliefs, and who can answer the fact question (answerability) and knows of it
# (info-access), asked on the part of the conversation that matters or on all of it: the splits
# ``short`` and ``full``. Where nobody has missed the information, a set is a control.
FANTOM_FILE = "fantom_v1.json"
FANTOM_LAYOUT = f"{FANTOM_FILE}, here, in fantom/ or, as the authors' code has it, in data/fantom/"
ACCESS = ("inaccessible", "accessible")
# By what is asked: the questions' field, and the text before them.
BINARY = {
    "answerability": ("answerabilityQAs_binary", "Target: {question}"),
    "info-access": ("infoAccessibilityQAs_binary", "Information: {question} {correct_answer}"),
}
LEFT_OUT = (
    "of each set of FANToM the fact question, the two lists of speakers and the belief questions "
    "in free words are left out: their replies are scored by words and embeddings there"
)


def load_fantom(folder: Path) -> Items:
    names = [f"{place}{FANTOM_FILE}" for place in ("", "fantom/", "data/fantom/")]
    path = find_files(folder, names, FANTOM_LAYOUT)[0]
    # The authors' script (eval_fantom.py) draws for one belief question after another.
    draws = random.Random(99)
    return [item for record in read.read_list(path) for item in read_fantom(record, draws)]


def read_fantom(record: Field, draws: random.Random) -> Items:
    """The questions of one set; ``draws`` decides which answer of a belief question is last."""
    name = record.get("set_id").name()
    beliefs = [(one, draws.choice([True, False])) for one in record.get("beliefQAs").items()]
    questions: Items = []
    for split in ("short", "full"):
        context = Context(dialogue=record.get(f"{split}_context").stripped())
        # Sets on one conversation are not independent.
        group = f"{split}/{name.partition('-')[0]}"
        asked = *_fantom_beliefs(beliefs), *_fantom_binary(record, split)
        for kind, number, question, options, access, order in asked:
            # Controls have figures of their own, and no part in those of the paper's tables.
            control = " control" if access == "accessible" else ""
            joint = ["all but lists"] + ([] if kind == "belief" else [f"all {kind}"])
            item = _item(
                ("fantom", split, group, f"{split}/{name}/{kind}-{number}"),
                ("", question, options),
                type=f"{kind}{control}",
                order=order,
                set=name,
                joint=[f"{score}{control}" for score in joint],
            )
            questions.append(replace(item, context=context))
    return questions


# Kind, number, question, options, whether it can be known, and the order of a belief.
_Asked = tuple[str, int, str, Options, str, str]


def _fantom_beliefs(beliefs: Iterable[tuple[Field, bool]]) -> Iterator[_Asked]:
    for number, (belief, right_last) in enumerate(beliefs):
        right, wrong = (belief.get(f"{k}_answer").stripped() for k in ("correct", "wrong"))
        texts = (wrong, right) if right_last else (right, wrong)
        options = items.options_of(belief.get("correct_answer"), texts)
        access = belief.get("missed_info_accessibility").one_of(ACCESS)
        order = belief.get("tom_type").stripped()
        yield "belief", number, belief.get("question").stripped(), options, access, order


def _fantom_binary(record: Field, split: str) -> Iterator[_Asked]:
    fact = {k: record.get("factQA").get(k).stripped() for k in ("question", "correct_answer")}
    for kind, (name, before) in BINARY.items():
        asked = record.get(name).items()
        # With the last answer a speaker is not in the short conversation.
        answers = [one.get("correct_answer").one_of(("yes", "no", "no:long")) for one in asked]
        accesses = [one.get("missed_info_accessibility").one_of(ACCESS) for one in asked]
        if split == "full":
            # On all of the conversation there is something to miss for anybody who says no.
            missed = any(answer != "yes" for answer in answers)
            accesses = [ACCESS[0] if missed else accesses[0] for _ in asked]
        for number, (one, answer, access) in enumerate(zip(asked, answers, accesses, strict=True)):
            if split == "full" or answer != "no:long":
                question = f"{before.format(**fact)}\n{one.get('question').stripped()}"
                right = "Yes" if answer == "yes" else "No"
                options = items.options_of(one.get("correct_answer"), ("Yes", "No"), right)
                yield kind, number, question, options, access, ""


FANTOM = Benchmark(
    "fantom",
    load_fantom,
    VIEWS | {"text": ("dialogue",)},
    ("type", "order"),
    FANTOM_LAYOUT,
    default_split="short",
    left_out=LEFT_OUT,
)


# OpenToM: where a character thinks a thing is, how full and within reach it is, and what another
# thinks of its being moved (Xu et al., ACL 2024).
# The mover moves a thing; the observer sees it or not. Answers are classes: Yes and No of coarse
# location questions, the two places of fine ones, three of fullness, accessibility and attitude.
# The end of the file's name by split.
OPENTOM_FILES = {"test": "", "long": "_long"}
OPENTOM_LAYOUT = "opentom.json, opentom_long.json or both, here or in data/"
OPENTOM_TYPES = ("attitude", "multihop-fo", "multihop-so", "location-fo", "location-so")
# By what is asked: a word that its questions have and others have not (in the order of the authors'
# code), and its answers; without any these are the two places.
_DEGREES = ("more {}", "equally {}", "less {}")
CLASSES: dict[str, tuple[str, tuple[str, ...]]] = {
    "location fine": ("locate", ()),
    "location coarse": ("initial", ("Yes", "No")),
    "fullness": ("fullness", tuple(one.format("full") for one in _DEGREES)),
    "accessibility": ("accessibility", tuple(one.format("accessible") for one in _DEGREES)),
    "attitude": ("attitude", ("positive", "neutral", "negative")),
}
_NTH = {"": "", "fo": ", first order", "so": ", second order"}
# What the authors add to questions of attitude, as not every observer has seen the move.
SEEN = ", assuming that you observed the action?"
_PERSON = re.compile(r"(?:From (.+?)'s perspective|As (.+?)), ")
_ARTICLE = re.compile(r"(?:a|an|the) ", re.IGNORECASE)
# A place that is misspelt in one story of the published file, and not in all of its answers.
_SPELLING = {"center of dinint table": "center of dining table"}


def load_opentom(folder: Path) -> Items:
    ends = OPENTOM_FILES.values()
    names = [f"{place}opentom{end}.json" for end in ends for place in ("", "data/")]
    root = find_files(folder, names, OPENTOM_LAYOUT)[0].parent
    questions = []
    for split, end in OPENTOM_FILES.items():
        # By story its number and how many of its questions were read.
        stories: dict[str, tuple[int, int]] = {}
        if (path := root / f"opentom{end}.json").is_file():
            questions += [read_opentom(record, split, stories) for record in read.read_list(path)]
    return questions


def read_opentom(record: Field, split: str, stories: dict[str, tuple[int, int]]) -> Question:
    """One question; those on one story are spread over the file, and do not name it."""
    field, plot = record.get("question"), record.get("plot_info")
    question = field.get("question").stripped()
    kind, _, order = field.get("type").one_of(OPENTOM_TYPES).partition("-")
    asked = next((name for name, (word, _) in CLASSES.items() if word in question), "")
    roles = {plot.get(role).stripped(): role for role in ("mover", "observer")}
    roles["narrator"] = "narrator"
    person = _PERSON.match(question)
    perspective = roles.get(person[1] or person[2]) if person else None
    if not asked or perspective is None:
        field.get("question").fail(
            f"must begin with the perspective of one of {', '.join(roles)} and ask about one of "
            f"{', '.join(CLASSES)}"
        )
    answer, classes = field.get("answer"), CLASSES[asked][1]
    options = items.options_of(answer, classes) if classes else _places(plot, answer, question)
    condition = ""
    if kind == "location" and order == "fo" and not record.get("observed").flag():
        condition = {"mover": "TB", "observer": "FB", "narrator": ""}[perspective]
    story = record.get("long_narrative" if split == "long" else "narrative").stripped()
    number, count = stories.get(story, (len(stories) + 1, 0))
    stories[story] = number, count + 1
    group = f"{split}/{number:03d}"
    return _item(
        ("opentom", split, group, f"{group}/{count + 1:02d}"),
        (story, question.rstrip("?") + SEEN if kind == "attitude" else question, options),
        type=f"{'multihop' if kind == 'multihop' else asked}{_NTH[order]}",
        perspective=perspective,
        hop=asked if kind == "multihop" else "",
        condition=condition,
    )


def _places(plot: Field, answer: Field, question: str) -> Options:
    fields = (answer, plot.get("original_place"), plot.get("move_to_place"))
    texts = [_SPELLING.get(field.stripped(), field.stripped()) for field in fields]
    given, *plain = (_ARTICLE.sub("", text, count=1) for text in texts)
    if plain.count(given) != 1:
        answer.fail(f"must be one of the two places, {' and '.join(texts[1:])}, is {given!r:.60}")
    right = plain.index(given)
    return items.two_options(question, texts[1 + right], texts[2 - right])


OPENTOM = Benchmark(
    "opentom", load_opentom, VIEWS, ("type", "hop", "perspective"), OPENTOM_LAYOUT, cells=("type",)
)


# ToMBench: eight tasks and 31 abilities in English and Chinese (Chen et al., ACL 2024).
# A file a task, a question a line, in both languages, which are the splits ``en`` and ``zh``. Where
# there are two options, those of C and D are NaN or null.
TOMBENCH_LAYOUT = "a file for each task, such as False Belief Task.jsonl, here or in data/"
ABILITY, ANSWER = "能力\nABILITY", "答案\nANSWER"
# By language the fields of story and question, and the beginning of those of options.
LANGUAGES = {"en": ("STORY", "QUESTION", "OPTION-"), "zh": ("故事", "问题", "选项")}
_CATEGORY = re.compile("(?i)(Emotion|Desire|Intention|Knowledge|Belief|Non-literal communication):")


def load_tombench(folder: Path) -> Items:
    files = find_files(folder, ("*.jsonl", "data/*.jsonl"), TOMBENCH_LAYOUT)
    # Questions on one story form a group, also in two files, and in both languages.
    stories: dict[str, str] = {}
    questions: Items = []
    for path in files:
        for record in some([*read.json_lines(read.read_bytes(path), path, "question")], path):
            story = record.get(LANGUAGES["zh"][0]).text()
            group = stories.setdefault(story, f"story-{len(stories) + 1:04d}")
            questions += read_tombench(record, path.stem, group)
    return questions


def read_tombench(record: Field, task: str, group: str) -> Items:
    """One line as an item of each language."""
    line = record.where.rpartition(" ")[2]
    _, *parts = _CATEGORY.split(record.get(ABILITY).text())
    abilities = list(zip(map(str.capitalize, parts[::2]), map(str.strip, parts[1::2]), strict=True))
    given, questions = record.get(ANSWER), []
    letter = replace(given, value=given.stripped().rstrip(".")).one_of("ABCD")
    for language, (story, question, option) in LANGUAGES.items():
        cells = {label: record.get(f"{option}{label}") for label in "ABCD"}
        # NaN is no value that equals itself. Some options begin with their letter.
        texts = {
            label: re.sub(rf"^\s*{label}\s*[.:．：]\s*", "", cell.text()).strip()
            for label, cell in cells.items()
            if cell.value is not None and cell.value == cell.value
        }
        # Two published lines have a wrong option twice; the right one is there once.
        options = items.options_of(given, [*texts.values()], texts.get(letter, ""))
        item = _item(
            ("tombench", language, group, f"{task}/{line}/{language}"),
            (record.get(story).stripped(), record.get(question).stripped(), options),
            task=task,
            category=[category for category, _ in abilities],
            ability=[f"{category}: {name}" for category, name in abilities],
            language=language,
        )
        questions.append(item)
    return questions


TOMBENCH = Benchmark(
    "tombench",
    load_tombench,
    VIEWS,
    ("task", "category", "ability", "language"),
    TOMBENCH_LAYOUT,
    default_split="en",
)
